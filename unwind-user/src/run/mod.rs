//! `unwind run`: one session from the command line to the written file.

pub mod hold;
pub mod oncpu;
pub mod output;
pub mod privileges;
mod procs;
pub mod session;
mod setup;
mod status;
mod summary;
pub mod totals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::bpf::Event;
use crate::format::{self, Format};
use crate::metrics;
use session::{Follow, Session};
use setup::Setup;
use status::Status;
use summary::Summary;
use totals::Totals;

/// Exit code of our own failures.
pub const FAILED: u8 = 125;

/// What to run, checked.
#[derive(Debug)]
pub struct Options {
    /// Processes asked for; empty with a command.
    pub pids: Vec<u32>,
    /// Command to start; empty with processes.
    pub command: Vec<std::ffi::OsString>,
    /// Samples a second of CPU time.
    pub rate: u64,
    /// When to stop.
    pub duration: Option<Duration>,
    /// Where to write.
    pub output: PathBuf,
    /// What to write.
    pub format: Format,
    /// How to write it.
    pub shape: format::Options,
    /// Children, too?
    pub follow: Follow,
    /// What drives the sampling.
    pub event: Event,
    /// Where to write all counters.
    pub stats: Option<PathBuf>,
    /// Where to serve metrics.
    pub metrics: Option<std::net::SocketAddr>,
    /// Show the kernel half's log lines.
    pub bpf_log: bool,
    /// Test aid: leave records in the ring this long.
    pub delay_reader: Option<Duration>,
}

/// Between two drains when nothing is urgent. The kernel half wakes us before when much waits.
const DRAIN_EVERY: Duration = Duration::from_millis(200);
/// Between two looks for the interpreter of a process that just started.
const ATTACH_EVERY: Duration = Duration::from_millis(2);
/// Between two updates of clocks and status.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Duration,
    Signal(&'static str),
    TargetExited,
}

/// Runs a session on tokio's current-thread runtime.
///
/// # Errors
/// Whatever keeps the session from starting, or its output from being written.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(session(options))
}

async fn session(options: &Options) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot catch signals")?;
    quit_at_the_second_interrupt()?;
    let Setup { mut session, mut child, started } = setup::start(options)?;
    let mut status = Status::new(options.rate);
    let ended = watch(options, &mut session, &mut child, &mut signals, &mut status, started).await?;
    session.kernel().stop();
    let elapsed = started.elapsed();
    session.update_clocks();
    session.drain();
    status.clear();
    let code = match &mut child {
        Some(child) => Some(child_code(child, &mut signals).await?),
        None => None,
    };
    setup::describe(&mut session)?;
    session.pipeline_mut().profile_mut().duration_ns =
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    write(options, &session)?;
    let totals = Totals::of(&session, options.rate, elapsed)?;
    let reason = session.pipeline().profile().empty_reason.as_deref();
    let summary = Summary::new(ended, totals, reason, &options.output);
    if let Some(path) = &options.stats {
        output::write_to(path, &mut |out| summary.write_json(out))?;
    }
    eprintln_lossy(&summary.to_string());
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

/// Samples until something ends the session.
async fn watch(
    options: &Options,
    session: &mut Session,
    child: &mut Option<Child>,
    signals: &mut Signals,
    status: &mut Status,
    started: std::time::Instant,
) -> anyhow::Result<Ended> {
    let ring = AsyncFd::new(setup::duplicate(session.ring())?)?;
    let deadline = options.duration.map(|duration| Instant::now() + duration);
    let mut drain = interval(options.delay_reader.unwrap_or(DRAIN_EVERY));
    let mut retry = interval(ATTACH_EVERY);
    let mut slow = interval(STATUS_EVERY);
    for timer in [&mut drain, &mut retry, &mut slow] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut snapshot = signal(SignalKind::user_defined1())?;
    let is_eager = options.delay_reader.is_none();
    let mut metrics = match options.metrics {
        Some(addr) => {
            let (bound, asked) = metrics::serve(addr)
                .await
                .with_context(|| format!("cannot serve metrics at {addr}"))?;
            status.note(&format!("metrics at http://{bound}/metrics"));
            Some(asked)
        }
        None => None,
    };
    loop {
        let attaching = session.is_attaching();
        tokio::select! {
            biased;
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                return Ok(Ended::Duration);
            }
            name = signals.end() => return Ok(Ended::Signal(name)),
            Some(()) = snapshot.recv() => {
                session.drain();
                setup::describe(session)?;
                write(options, session)?;
                status.note(&format!("snapshot written to {}", options.output.display()));
            }
            ready = ring.readable(), if is_eager => {
                let mut ready = ready?;
                session.drain();
                ready.clear_ready();
            }
            _ = retry.tick(), if attaching => session.attach_pending(),
            _ = drain.tick() => session.drain(),
            _ = slow.tick() => {
                session.update_clocks();
                session.reap();
                status.show(session);
            }
            reply = asked(&mut metrics) => {
                session.update_clocks();
                let totals = Totals::of(session, options.rate, started.elapsed())?;
                // Whoever asked may have gone away.
                let _ = reply.send(metrics::render(&totals)?);
            }
            exited = exit_of(child) => {
                exited?;
                session.drain();
                session.reap();
            }
        }
        if !session.is_alive() {
            return Ok(Ended::TargetExited);
        }
    }
}

/// The next question for the metrics; never, if they are not served.
async fn asked(metrics: &mut Option<mpsc::Receiver<metrics::Asked>>) -> metrics::Asked {
    if let Some(asked) = metrics
        && let Some(reply) = asked.recv().await
    {
        return reply;
    }
    std::future::pending().await
}

/// Ends when the child does; never, if there is none or it was waited for.
async fn exit_of(child: &mut Option<Child>) -> std::io::Result<()> {
    match child {
        Some(child) if child.id().is_some() => child.wait().await.map(|_| ()),
        _ => std::future::pending().await,
    }
}

/// Waits for the command that we started, whose exit code becomes ours; a signal that ended the
/// session went to it as well when it came from the terminal, and is passed on when not.
async fn child_code(child: &mut Child, signals: &mut Signals) -> anyhow::Result<ExitCode> {
    use std::os::unix::process::ExitStatusExt;
    let status = tokio::select! {
        status = child.wait() => status?,
        _ = signals.end() => return Ok(ExitCode::from(FAILED)),
    };
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(FAILED)))
}

fn write(options: &Options, session: &Session) -> Result<(), output::WriteError> {
    let profile = session.pipeline().profile();
    output::write_to(&options.output, &mut |out| {
        format::write(options.format, profile, &options.shape, out)
    })
}

/// Prints to standard error; nobody may be reading it.
fn eprintln_lossy(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A second Ctrl-C ends us wherever we are, such as in a long write to a slow disk.
fn quit_at_the_second_interrupt() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watch = async {
        let mut interrupts = signal(SignalKind::interrupt())?;
        interrupts.recv().await;
        interrupts.recv().await;
        std::process::exit(130)
    };
    std::thread::Builder::new()
        .name("second-interrupt".to_owned())
        .spawn(move || -> std::io::Result<()> { runtime.block_on(watch) })?;
    Ok(())
}

/// The signals that a session listens to.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal that ends the session.
    async fn end(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
