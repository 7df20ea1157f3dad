//! Starts the profiler and its targets, and waits for what they do, never for a time.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unwind_tests::{Place, Python, pythons, unwind};
use unwind_user::format::Label;
use unwind_user::run::oncpu::OnCpu;

/// After this, what is waited for will not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done`, which is asked again and again.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder of its own, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("unwind-cli-{}-{next}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Names of the files in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the folder");
        entries
            .map(|entry| {
                let name = entry.expect("an entry").file_name();
                name.to_string_lossy().into_owned()
            })
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover in the temporary folder harms nobody.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// An interpreter of this file system if there is one: for what does not depend on the version.
pub(crate) fn any_python() -> Python {
    let pythons = pythons();
    let here = pythons
        .iter()
        .find(|python| matches!(python.place, Place::Host(_)));
    here.or(pythons.first()).expect("an interpreter").clone()
}

/// A started program, killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
}

impl Running {
    /// Starts a command; its standard input stays open until it is to end.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take();
        Self { child, input }
    }

    /// `burn.py HOW`, once it says that it is ready.
    pub(crate) fn burn(python: &Python, how: &str) -> Self {
        let mut command = python.program("burn.py");
        let mut running = Self::start(command.arg(how).stdout(Stdio::piped()));
        assert_eq!(running.line(), "ready");
        running
    }

    /// The first line of its output, which is a pipe.
    pub(crate) fn line(&mut self) -> String {
        let output = self.child.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("it runs");
    }

    /// Waits until it has used more CPU time.
    pub(crate) fn burns(&self, time: Duration) {
        let pid = self.pid();
        let mut clock = OnCpu::begin(pid);
        until("the target uses CPU time", || {
            clock.update(pid);
            u128::from(clock.total_ns()) >= time.as_nanos()
        });
    }

    /// State letter in `/proc/PID/stat`.
    pub(crate) fn state(&self) -> char {
        let stat = unwind_user::process::Stat::of(self.pid() as i32).expect("it runs");
        stat.state.into()
    }

    /// Lets it end and waits for that.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        drop(self.input.take());
        let mut status = None;
        until("the program ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// `unwind run` with these arguments.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(unwind());
    command.arg("run").args(arguments);
    command
}

/// `unwind run --pid PID -o FILE` and more.
pub(crate) fn attach(target: &Running, output: &Path, more: &[&str]) -> Command {
    let mut command = run(&["--pid", &target.pid().to_string(), "-o"]);
    command.arg(output).args(more);
    command
}

/// A profiler that samples already, its standard error caught.
pub(crate) fn sampling(command: &mut Command) -> Running {
    let running = Running::start(command.stderr(Stdio::piped()));
    until("the profiler has perf events", || {
        has_perf_events(running.pid())
    });
    running
}

/// Whether a BPF program of the process is attached to perf events.
fn has_perf_events(pid: u32) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let mut infos = entries.into_iter().flatten().flatten();
    infos.any(|entry| {
        let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
        info.lines().any(|line| line == "link_type:\tperf")
    })
}

/// How a program ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn ended(command: &mut Command) -> Ended {
    let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    finish(running)
}

/// Waits for the end of a command whose outputs are pipes (or not ours).
pub(crate) fn finish(mut running: Running) -> Ended {
    let text = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = text(running.child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = text(running.child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let code = running.wait().code();
    let (out, err) = (out.join().expect("no panic"), err.join().expect("no panic"));
    assert!(!err.contains("panicked"), "{err}");
    Ended { code, out, err }
}

/// Samples of the folded stacks in `file` that hold a frame of `function`.
pub(crate) fn samples_in(file: &Path, function: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut samples = 0;
    for line in text.lines() {
        let line = unwind_user::format::folded::parse_line(line).expect("a folded stack");
        if line
            .frames
            .iter()
            .any(|frame| name_of(frame) == Some(function))
        {
            samples += line.count;
        }
    }
    samples
}

/// The qualified name of a frame of Python code.
fn name_of(frame: &Label) -> Option<&str> {
    match frame {
        Label::Function { name, .. } => Some(name),
        _ => None,
    }
}

/// The JSON of `--stats`.
pub(crate) fn stats(file: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).expect("JSON")
}
