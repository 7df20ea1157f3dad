//! A program under `programs/`, running.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;
use unwind_tests::Python;

/// A program that has said what is true of it and now runs; ended when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Its process id.
    pub(crate) pid: u32,
    /// The JSON of its first line.
    pub(crate) said: Value,
}

impl Program {
    /// Starts it and waits for its first line.
    pub(crate) fn start(python: &Python, name: &str, arguments: &[&str]) -> Result<Self, String> {
        let mut command = python.program(name);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let stdout = child.stdout.take().ok_or("no pipe")?;
        let pid = child.id();
        let mut program = Self {
            child,
            stdout: BufReader::new(stdout),
            pid,
            said: Value::Null,
        };
        program.said = program.json()?;
        Ok(program)
    }

    /// The next line of its output, without the line end.
    pub(crate) fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(0) => Err("the program ended".into()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn json(&mut self) -> Result<Value, String> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| format!("{error}: {line:?}"))
    }

    /// Closes its standard input and returns the JSON that it then prints.
    pub(crate) fn finish(mut self) -> Result<Value, String> {
        drop(self.child.stdin.take());
        self.json()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
