//! Several profilers on one process at once, each with an output of its own.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unwind_tests::unwind;

/// What one profiler writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// File name, which says the format.
    pub(crate) name: &'static str,
    /// Samples a second.
    pub(crate) rate: u32,
    /// Further options of `unwind run`.
    pub(crate) options: &'static [&'static str],
}

/// A folder for outputs, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("unwind-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the folder for temporary files harms nobody.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Profilers that sample; ended when dropped.
#[derive(Debug)]
pub(crate) struct Profilers(Vec<Profiler>);

#[derive(Debug)]
struct Profiler {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Profilers {
    /// Starts one for each of `outputs` and returns when all sample.
    pub(crate) fn start(pid: u32, outputs: &[Output], scratch: &Scratch) -> Result<Self> {
        let start = |output: &Output| Profiler::start(pid, output, scratch).context(output.name);
        let mut profilers = outputs.iter().map(start).collect::<Result<Vec<_>>>()?;
        for profiler in &mut profilers {
            profiler.wait_for_start()?;
        }
        Ok(Self(profilers))
    }

    /// Ends them and waits until they have written.
    pub(crate) fn finish(mut self) -> Result<()> {
        for profiler in &self.0 {
            kill(
                Pid::from_raw(profiler.child.id().cast_signed()),
                Signal::SIGTERM,
            )?;
        }
        self.0.iter_mut().try_for_each(Profiler::finish)
    }
}

impl Profiler {
    fn start(pid: u32, output: &Output, scratch: &Scratch) -> Result<Self> {
        let mut child = Command::new(unwind())
            .args([
                "run",
                "--pid",
                &pid.to_string(),
                "--rate",
                &output.rate.to_string(),
            ])
            .args(output.options)
            // Any port: that they are served is said when sampling has begun.
            .args(["--metrics", "127.0.0.1:0", "-o"])
            .arg(scratch.path(output.name))
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = BufReader::new(child.stderr.take().context("its errors")?);
        Ok(Self {
            child,
            stderr,
            said: String::new(),
        })
    }

    fn wait_for_start(&mut self) -> Result<()> {
        while !self.said.contains("metrics at") {
            let read = self.stderr.read_line(&mut self.said)?;
            ensure!(read > 0, "the profiler ended: {}", self.said);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.stderr.read_to_string(&mut self.said)?;
        ensure!(
            self.child.wait()?.success(),
            "the profiler failed: {}",
            self.said
        );
        Ok(())
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // Both fail only where it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
