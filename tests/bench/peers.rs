//! Other samplers, on the same target in the same run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use unwind_tests::{Place, Python};

use crate::target::Target;

/// What one run of a sampler cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Samples that it wrote.
    pub(crate) samples: u64,
    /// Its CPU time, start-up and output included.
    pub(crate) cpu_ns: u64,
    /// The target's speed meanwhile, turns per ns of time not waiting.
    pub(crate) speed: f64,
}

/// The samplers that can be run on `python`, with the reasons why others cannot.
pub(crate) fn available(python: &Python) -> Vec<(&'static str, Result<(), String>)> {
    let reference = match &python.place {
        _ if !python.label.starts_with("3.15") => Err("only for its own version, 3.15".to_owned()),
        _ => Ok(()),
    };
    let py_spy = py_spy()
        .map(|_| ())
        .ok_or_else(|| "not installed (pip install py-spy)".to_owned());
    vec![
        ("py-spy", py_spy),
        (
            "py-spy nonblocking",
            self::py_spy().map(|_| ()).ok_or_else(String::new),
        ),
        ("reference", reference),
    ]
}

/// Runs the sampler `name` on the target for `span` at 1 kHz.
pub(crate) fn run(name: &str, python: &Python, target: &Target, span: Duration) -> Result<Run> {
    let out = format!("unwind-bench-peer-{}", std::process::id());
    let seconds = span.as_secs().max(1).to_string();
    let pid = target.pid().to_string();
    let (mut command, out) = if name == "reference" {
        let root = match &python.place {
            Place::Host(_) => PathBuf::from("/"),
            Place::Chroot { root, .. } => root.clone(),
        };
        let mut command = python.command();
        command.args([
            "-m",
            "profiling.sampling",
            "attach",
            "-r",
            "1000",
            "-d",
            &seconds,
        ]);
        command
            .args(["--collapsed", "-o"])
            .arg(Path::new("/tmp").join(&out))
            .arg(&pid);
        (command, root.join("tmp").join(out))
    } else {
        let out = std::env::temp_dir().join(out);
        let mut command = Command::new(py_spy().context("py-spy is not installed")?);
        command.args([
            "record", "-r", "1000", "-d", &seconds, "-f", "raw", "-p", &pid, "-o",
        ]);
        command.arg(&out);
        if name.ends_with("nonblocking") {
            command.arg("--nonblocking");
        }
        (command, out)
    };
    let before = (children_cpu_ns()?, target.read()?);
    let done = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    let after = (children_cpu_ns()?, target.read()?);
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(
        done.status.success(),
        "{name} failed: {}",
        why.lines().last().unwrap_or_default()
    );
    let folded = std::fs::read_to_string(&out)?;
    std::fs::remove_file(&out)?;
    Ok(Run {
        samples: total(&folded),
        cpu_ns: after.0 - before.0,
        speed: after.1.wall_speed_since(&before.1),
    })
}

/// The sum of the counts of folded lines.
pub(crate) fn total(folded: &str) -> u64 {
    let counts = folded
        .lines()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    counts.sum()
}

/// py-spy on `PATH`, or where `~/.cache/unwind/peers` is a virtual environment that has it.
pub(crate) fn py_spy() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    folders.push(std::env::home_dir()?.join(".cache/unwind/peers/bin"));
    folders
        .into_iter()
        .map(|folder| folder.join("py-spy"))
        .find(|file| file.is_file())
}

fn children_cpu_ns() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let ns = |time: TimeVal| u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec());
    Ok((ns(usage.user_time())? + ns(usage.system_time())?) * 1000)
}
