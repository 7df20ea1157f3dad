//! Recordings made live: what `unwind report` makes of them is what the session saw.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unwind_tests::{Case, Python, unwind, versions};
use unwind_user::record::{self, Event, Recording};

const CALLS: &str = include_str!("fixtures/programs/calls.py");
/// Code objects that are gone soon after they ran, and others in their place.
const CHURN: &str = r#"
print("ready", flush=True)
n = 0
while True:
    n += 1
    names = {}
    exec(f"def f{n}():\n  total = 0\n  for i in range(300):\n    total += i\n  return total", names)
    for _ in range(n % 40):
        names[f"f{n}"]()
"#;
/// Children by fork, some of which become another program.
const FAMILY: &str = r#"
import os, sys
print("ready", flush=True)
def work(n):
    total = 0
    for i in range(n):
        total += i * i
    return total
for n in range(6):
    child = os.fork()
    if child == 0:
        work(200_000)
        if n % 2:
            os.execv(sys.executable, [sys.executable, "-c", "sum(i * i for i in range(900_000))"])
        os._exit(0)
    work(100_000)
    os.waitpid(child, 0)
"#;

/// A folder of one case, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(case: &str, python: &Python) -> Result<Self> {
        let name = format!(
            "unwind-record-{case}-{}-{}",
            python.label,
            std::process::id()
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it: it lies in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A child that does not outlive its case.
struct Running(Child);

impl Running {
    /// Starts a program and waits for its first line.
    fn program(python: &Python, source: &str) -> Result<Self> {
        let mut command = python.command();
        let mut child = command
            .args(["-c", source])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("no pipe")?;
        let child = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "the program said {line:?}");
        Ok(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the profiler; its standard error.
fn profiler(command: &mut Command) -> Result<String> {
    let ended = command.output()?;
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(
        ended.status.success(),
        "{command:?}: {}: {stderr}",
        ended.status
    );
    Ok(stderr)
}

fn run() -> Command {
    let mut command = Command::new(unwind());
    command.args(["run", "--rate", "997"]);
    command
}

/// What a report of a recording holds, and what it says on standard error.
fn report(recording: &Path, options: &[&str]) -> Result<(Vec<u8>, String)> {
    let ended = Command::new(unwind())
        .arg("report")
        .arg(recording)
        .args(options)
        .output()?;
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(
        ended.status.success(),
        "{options:?}: {}: {stderr}",
        ended.status
    );
    Ok((ended.stdout, stderr))
}

/// A report of the recording is what the session wrote, byte by byte, whatever is asked for.
fn same(recording: &Path, live: &Path) -> Result<()> {
    let live = fs::read(live)?;
    ensure!(
        live.iter().filter(|byte| **byte == b'\n').count() > 3,
        "hardly any stacks"
    );
    let (replayed, stderr) = report(recording, &["--format", "folded"])?;
    ensure!(stderr.is_empty(), "{stderr}");
    ensure!(
        live == replayed,
        "{} differs from what was live",
        recording.display()
    );
    for format in ["folded", "flamegraph", "pprof", "speedscope"] {
        let (once, _) = report(recording, &["--threads", "--format", format])?;
        let (again, _) = report(recording, &["--threads", "--format", format])?;
        ensure!(
            !once.is_empty() && once == again,
            "{format} differs from time to time"
        );
    }
    Ok(())
}

/// Bytes of captured memory that are not 0.
fn captured(recording: &Path) -> Result<usize> {
    let mut recording = Recording::open(BufReader::new(fs::File::open(recording)?))?;
    let mut captured = 0;
    while let Some(event) = recording.next_event()?? {
        if let Event::Record(bytes) = event {
            captured += bytes.iter().filter(|byte| **byte != 0).count();
        }
    }
    Ok(captured)
}

/// Records a running program whole and checks the recording and its scrubbed copy.
fn recorded(python: &Python, case: &str, source: &str) -> Result<()> {
    let scratch = Scratch::new(case, python)?;
    let program = Running::program(python, source)?;
    let (whole, live) = (scratch.file("whole.unwind"), scratch.file("live.folded"));
    let mut command = run();
    command.args([
        "--pid",
        &program.pid(),
        "--duration",
        "1s",
        "--no-scrub",
        "-o",
    ]);
    profiler(command.arg(&whole).arg("--also").arg(&live))?;
    same(&whole, &live)?;
    let copy = scratch.file("copy.unwind");
    profiler(
        Command::new(unwind())
            .arg("report")
            .arg(&whole)
            .arg("-o")
            .arg(&copy),
    )?;
    same(&copy, &live)?;
    let (before, after) = (captured(&whole)?, captured(&copy)?);
    ensure!(
        after < before,
        "nothing was blanked: {before} bytes, then {after}"
    );

    let (scrubbed, live) = (
        scratch.file("scrubbed.unwind"),
        scratch.file("live2.folded"),
    );
    let mut command = run();
    command.args(["--pid", &program.pid(), "--duration", "1s", "-o"]);
    profiler(command.arg(&scrubbed).arg("--also").arg(&live))?;
    same(&scrubbed, &live)?;
    let mut again = Vec::new();
    let bytes = fs::read(&scrubbed)?;
    let damage = record::copy_scrubbed(&bytes[..], &mut again)?;
    ensure!(
        damage.is_none() && again == bytes,
        "the recording was not scrubbed"
    );
    Ok(())
}

fn for_each(name: &str, case: impl Fn(&Python) -> Result<()>) {
    let mut failed = Vec::new();
    for python in versions() {
        let report = Case::new("record", &python.label, name);
        match case(&python) {
            Ok(()) => report.ok(),
            Err(error) => {
                report.failed(&format!("{error:#}"));
                failed.push(format!("{}: {error:#}", python.label));
            }
        }
    }
    assert!(failed.is_empty(), "{name}: {failed:#?}");
}

#[test]
fn a_program() {
    for_each("calls", |python| recorded(python, "calls", CALLS));
}

#[test]
fn code_that_comes_and_goes() {
    for_each("churn", |python| recorded(python, "churn", CHURN));
}

#[test]
fn a_family_of_processes() {
    for_each("family", |python| {
        let scratch = Scratch::new("family", python)?;
        let (file, live) = (scratch.file("x.unwind"), scratch.file("x.folded"));
        let target = python.command();
        let mut command = run();
        command
            .args(["--subprocesses", "-o"])
            .arg(&file)
            .arg("--also")
            .arg(&live);
        command
            .arg("--")
            .arg(target.get_program())
            .args(target.get_args());
        profiler(command.args(["-c", FAMILY]))?;
        same(&file, &live)
    });
}

#[test]
fn a_signal_ends_it_whole() {
    for_each("signal", |python| {
        let scratch = Scratch::new("signal", python)?;
        let program = Running::program(python, CALLS)?;
        let (file, live) = (scratch.file("x.unwind"), scratch.file("x.folded"));
        let mut command = run();
        command
            .args(["--pid", &program.pid(), "-o"])
            .arg(&file)
            .arg("--also")
            .arg(&live);
        let mut profiler = Running(command.stderr(Stdio::null()).spawn()?);
        grown(&scratch, &mut profiler)?;
        kill(Pid::from_raw(profiler.0.id().try_into()?), Signal::SIGTERM)?;
        ensure!(profiler.0.wait()?.success());
        same(&file, &live)?;
        ensure!(
            fs::read_dir(&scratch.0)?.count() == 2,
            "files are left over"
        );
        Ok(())
    });
}

#[test]
fn what_a_killed_profiler_leaves_can_be_read() {
    for_each("killed", |python| {
        let scratch = Scratch::new("killed", python)?;
        let program = Running::program(python, CALLS)?;
        let mut command = run();
        command
            .args(["--pid", &program.pid(), "-o"])
            .arg(scratch.file("x.unwind"));
        let mut profiler = Running(command.stderr(Stdio::null()).spawn()?);
        let temporary = grown(&scratch, &mut profiler)?;
        drop(profiler);
        let (folded, stderr) = report(&temporary, &["--format", "folded"])?;
        ensure!(stderr.contains("is cut after"), "{stderr:?}");
        ensure!(String::from_utf8_lossy(&folded).contains("<module>"));
        Ok(())
    });
}

/// Waits until the unfinished recording in a folder has grown, which takes sampling.
fn grown(scratch: &Scratch, profiler: &mut Running) -> Result<PathBuf> {
    loop {
        ensure!(profiler.0.try_wait()?.is_none(), "the profiler ended");
        for entry in fs::read_dir(&scratch.0)? {
            let path = entry?.path();
            // It may be the empty one with which the folder is tried.
            if fs::metadata(&path).is_ok_and(|file| file.len() > 200_000) {
                return Ok(path);
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_full_disk_is_told_in_one_line() {
    for_each("full", |python| {
        let program = Running::program(python, CALLS)?;
        let mut command = run();
        command.args([
            "--pid",
            &program.pid(),
            "--format",
            "raw",
            "-o",
            "/dev/full",
        ]);
        let mut profiler = Running(command.stderr(Stdio::piped()).spawn()?);
        let mut told = String::new();
        let mut stderr = profiler.0.stderr.take().context("no pipe")?;
        stderr.read_to_string(&mut told)?;
        let code = profiler.0.wait()?.code();
        ensure!(code == Some(125), "exit code {code:?}: {told}");
        ensure!(
            told.lines().count() == 1 && told.contains("No space left"),
            "{told:?}"
        );
        Ok(())
    });
}
