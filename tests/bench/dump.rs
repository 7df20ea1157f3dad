//! One dump of a process with many threads, beside py-spy's.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;
use unwind_tests::{Python, unwind};

use crate::args::Args;
use crate::peers;

/// Threads besides the main one.
const THREADS: &str = "300";
/// Dumps of each.
const TIMES: usize = 21;

/// Measures ours on every interpreter, then py-spy: the peak memory of children that ended only ever
/// grows, so the targets outlive them all.
pub(crate) fn run(args: &Args) -> Result<()> {
    println!("dump of 301 threads, median of {TIMES}, and peak memory over all of them so far");
    println!("{:<10} {:<14} {:>8} {:>8}", "", "python", "ms", "MiB");
    let mut figures = Vec::new();
    let mut crowds = Vec::new();
    for python in args.pythons() {
        crowds.push((Crowd::start(&python)?, python));
    }
    let ours = |pid: &str| {
        let mut command = Command::new(unwind());
        command.args(["dump", "--pid", pid]);
        command
    };
    for (crowd, python) in &crowds {
        figures.push(row("unwind", python, crowd, &ours)?);
    }
    match peers::py_spy() {
        Some(path) => {
            let theirs = |pid: &str| {
                let mut command = Command::new(&path);
                command.args(["dump", "--pid", pid]);
                command
            };
            for (crowd, python) in &crowds {
                match row("py-spy", python, crowd, &theirs) {
                    Ok(figure) => figures.push(figure),
                    Err(error) => println!("{:<10} {:<14} {error:#}", "py-spy", python.label),
                }
            }
        }
        None => println!("py-spy     not installed (pip install py-spy)"),
    }
    args.write(&json!(figures))
}

fn row(
    name: &str,
    python: &Python,
    target: &Crowd,
    command: &dyn Fn(&str) -> Command,
) -> Result<serde_json::Value> {
    let pid = target.0.id().to_string();
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        let output = command(&pid).output()?;
        times.push(begun.elapsed());
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr).trim().to_owned()
        );
    }
    times.sort_unstable();
    let took: Duration = times.get(TIMES / 2).copied().unwrap_or_default();
    let ms = took.as_secs_f64() * 1e3;
    let mib = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss() as f64 / 1024.0;
    println!("{name:<10} {:<14} {ms:>8.1} {mib:>8.1}", python.label);
    Ok(json!({ "dump": name, "python": python.label, "ms": ms, "peak_mib": mib }))
}

/// `held.py threads`, ended when dropped.
struct Crowd(Child);

impl Crowd {
    fn start(python: &Python) -> Result<Self> {
        let mut command = python.program("held.py");
        command.args(["threads", THREADS]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut crowd = Self(command.spawn().context("cannot start the target")?);
        let stdout = crowd.0.stdout.take().context("no stdout")?;
        BufReader::new(stdout).read_line(&mut String::new())?;
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
