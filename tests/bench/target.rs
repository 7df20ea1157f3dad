//! The program under measurement, and its clocks.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use unwind_tests::{Place, Python};

/// CPU of the target; what measures and profiles it runs elsewhere.
const CPU: &str = "0";

/// `bench_stack.py` at work. Ends when dropped.
pub(crate) struct Target {
    child: Child,
    progress: File,
    clock: ClockId,
}

/// What a target had done at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Turns of its leaf.
    pub(crate) progress: u64,
    /// Its CPU time, ns, interrupts included.
    pub(crate) cpu: u64,
    /// How long it waited for a CPU, ns.
    pub(crate) waited: u64,
    /// When.
    pub(crate) at: Instant,
}

impl Target {
    /// Starts a stack of `depth` frames, `off_chunk` of them outside the data stack, in each of
    /// `threads` threads, and waits until it is there. It has a CPU of its own where others leave
    /// it one: it is not nice to them.
    pub(crate) fn start(python: &Python, depth: u32, off_chunk: u32, threads: u32) -> Result<Self> {
        let (root, name) = match &python.place {
            Place::Host(_) => (std::env::temp_dir(), std::env::temp_dir()),
            Place::Chroot { root, .. } => (root.join("tmp"), "/tmp".into()),
        };
        let file = format!("unwind-bench-{}", std::process::id());
        let path = root.join(&file);
        fs::write(&path, [0; 8]).with_context(|| format!("cannot write {}", path.display()))?;
        let program = python.program("bench_stack.py");
        let mut command = Command::new("taskset");
        command
            .args(["-c", CPU, "nice", "-n", "-10"])
            .arg(program.get_program())
            .args(program.get_args())
            .args([depth, off_chunk, threads].map(|n| n.to_string()))
            .arg(name.join(&file))
            .stdout(Stdio::piped())
            .stdin(Stdio::null());
        let mut child = command.spawn().context("cannot start taskset")?;
        let mut ready = String::new();
        let stdout = child.stdout.take().context("no stdout")?;
        BufReader::new(stdout).read_line(&mut ready)?;
        let progress = File::open(&path)?;
        fs::remove_file(&path)?;
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(child.id().cast_signed()))?;
        let target = Self {
            child,
            progress,
            clock,
        };
        ensure!(
            ready.trim() == "ready",
            "the target did not start: {ready:?}"
        );
        target.settle()?;
        Ok(target)
    }

    /// Waits until its code is specialised and its threads have all run.
    fn settle(&self) -> Result<()> {
        let began = Instant::now();
        while self.read()?.progress < 20_000 {
            ensure!(
                began.elapsed() < Duration::from_secs(60),
                "the target makes no progress"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its clocks now.
    pub(crate) fn read(&self) -> Result<Reading> {
        let mut progress = [0; 8];
        self.progress.read_exact_at(&mut progress, 0)?;
        let cpu = clock_gettime(self.clock)?;
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.pid()))?;
        let waited = stat
            .split_whitespace()
            .nth(1)
            .context("schedstat")?
            .parse()?;
        let seconds = u64::try_from(cpu.tv_sec())?;
        Ok(Reading {
            progress: u64::from_le_bytes(progress),
            cpu: seconds * 1_000_000_000 + u64::try_from(cpu.tv_nsec())?,
            waited,
            at: Instant::now(),
        })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reading {
    /// Turns per ns of CPU time since `before`.
    pub(crate) fn speed_since(&self, before: &Self) -> f64 {
        (self.progress - before.progress) as f64 / (self.cpu - before.cpu).max(1) as f64
    }

    /// Turns per ns of time in which it was not waiting for a CPU.
    pub(crate) fn wall_speed_since(&self, before: &Self) -> f64 {
        let wall = self.at.duration_since(before.at).as_nanos() as f64;
        let waited = (self.waited - before.waited) as f64;
        (self.progress - before.progress) as f64 / (wall - waited).max(1.0)
    }
}

/// Keeps this process, and what it starts from now on, off the target's CPU where there is
/// another.
pub(crate) fn leave_the_target_its_cpu() -> Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    if cpus > 1 {
        let others = format!("1-{}", cpus - 1);
        let pid = std::process::id().to_string();
        let status = Command::new("taskset")
            .args(["-a", "-p", "-c", &others, &pid])
            .stdout(Stdio::null())
            .status()
            .context("cannot start taskset")?;
        ensure!(status.success(), "taskset failed: {status}");
    }
    Ok(())
}

/// CPU time of a process so far, by `/proc/PID/schedstat` of all its threads.
pub(crate) fn cpu_ns(pid: u32) -> Result<u64> {
    let mut total = 0;
    for task in fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        total += stat
            .split_whitespace()
            .next()
            .context("schedstat")?
            .parse::<u64>()?;
    }
    Ok(total)
}
