//! A program that says where it is before it spins there (`programs/known.py`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use unwind_tests::Python;

/// What it said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// Of its version 3.x.
    pub(crate) minor: u64,
    /// Where it was, in order.
    pub(crate) spins: Vec<Spin>,
}

/// CPU time used at one place.
#[derive(Clone, Debug)]
pub(crate) struct Spin {
    /// Name, file and line, outermost first; the innermost frame's line is one of `hot`.
    pub(crate) stack: Vec<(String, String, u32)>,
    /// Lines, and their share of the time where it is known.
    pub(crate) hot: Vec<(u32, Option<f64>)>,
    /// How much CPU time.
    pub(crate) seconds: f64,
    /// By which thread.
    pub(crate) tid: u32,
    /// Its name in the kernel.
    pub(crate) comm: String,
}

impl Spin {
    /// Whether its deep recursion goes through C half-way. 3.11 and 3.12 link their stacks anew
    /// there, and a stack that is cut before the first link cannot be told from a torn one.
    pub(crate) fn crosses_c(&self) -> bool {
        self.stack
            .iter()
            .any(|(name, ..)| name == "recursion.<locals>.crossed")
    }
}

/// The program, waiting to be told to begin; ended when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
    minor: u64,
}

impl Program {
    /// Starts `name` with the `modules` that it imports beside it, and waits until it is ready.
    pub(crate) fn start(python: &Python, name: &str, modules: &[&str]) -> Result<Self> {
        for module in modules {
            // For its effect: the module then lies beside the program, below a root of its own too.
            let _ = python.program(module);
        }
        let mut child = python
            .program(name)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(name.to_owned())?;
        let stdout = BufReader::new(child.stdout.take().context("its output")?);
        let mut program = Self {
            child,
            stdout,
            minor: 0,
        };
        program.minor = program.line()?["minor"].as_u64().context("its version")?;
        Ok(program)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to begin, and returns when it has spun at its last place. It then waits.
    pub(crate) fn run(&mut self) -> Result<Said> {
        self.child
            .stdin
            .as_mut()
            .context("its input")?
            .write_all(b"\n")?;
        let mut spins = Vec::new();
        loop {
            match self.line()? {
                Value::Object(said) if said.is_empty() => break,
                Value::Object(said) => spins.push(spin(said)?),
                other => bail!("it said {other}"),
            }
        }
        ensure!(!spins.is_empty(), "it said nothing");
        Ok(Said {
            minor: self.minor,
            spins,
        })
    }

    /// Lets it end, which must be well.
    pub(crate) fn finish(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        ensure!(self.child.wait()?.success(), "the program failed");
        Ok(())
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("the program said {line:?}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only where it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn spin(mut said: serde_json::Map<String, Value>) -> Result<Spin> {
    let mut take = |name: &str| said.remove(name).with_context(|| name.to_owned());
    Ok(Spin {
        stack: serde_json::from_value(take("stack")?)?,
        hot: serde_json::from_value(take("hot")?)?,
        seconds: serde_json::from_value(take("seconds")?)?,
        tid: serde_json::from_value(take("tid")?)?,
        comm: serde_json::from_value(take("comm")?)?,
    })
}
