//! `unwind run`: one session from the command line to the written file.

pub mod command;
pub mod oncpu;
pub mod output;
pub mod privileges;
mod procs;
pub mod session;
mod setup;
mod signals;
mod status;
mod summary;
pub mod totals;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use crate::bpf::Event;
use crate::format::{self, Format};
use crate::profile::Mode;
use crate::record::Keep;
use crate::sampler::Backend;
use session::Session;
use session::member::Follow;
use setup::Setup;
use signals::{End, Signals};
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
    /// A recording is written instead, with this much of captured memory.
    pub recording: Option<Keep>,
    /// Test aid: with a recording, the profile goes here.
    pub also: Option<PathBuf>,
    /// How to write it.
    pub shape: format::Options,
    /// Children, too?
    pub follow: Follow,
    /// What takes the samples.
    pub backend: Backend,
    /// Which time samples stand for.
    pub mode: Mode,
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

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Duration,
    Signal(End),
    TargetExited,
    /// The recording cannot be gone on with.
    Unwritable,
}

/// Runs a session on tokio's current-thread runtime.
///
/// # Errors
/// Whatever keeps the session from starting, or its output from being written.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    totals::begin_agent_cpu();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(session(options))
}

async fn session(options: &Options) -> anyhow::Result<ExitCode> {
    setup::check(options)?;
    let mut signals = Signals::new().context("cannot catch signals")?;
    signals::quit_at_the_second_interrupt().context("cannot catch signals")?;
    let metrics = watch::Metrics::serve(options.metrics).await?;
    let Setup {
        mut session,
        mut child,
        started,
    } = setup::start(options)?;
    let mut status = Status::new(options.rate);
    let ended = watch::Watch {
        options,
        session: &mut session,
        child: child.as_mut(),
        signals: &mut signals,
        status: &mut status,
        metrics,
        started,
    }
    .run()
    .await?;
    session.sampler().stop();
    let elapsed = started.elapsed();
    status.clear();
    session.drain_all();
    let never_began = child.is_some() && ended == Ended::TargetExited && !session.has_begun();
    let written = if never_began {
        // Why, its starter has said.
        Ok(())
    } else {
        finish(options, &mut session, ended, elapsed)
    };
    let Some(child) = &mut child else {
        return written.map(|()| ExitCode::SUCCESS);
    };
    if let Err(error) = &written {
        // Said at once: the command may go on for long.
        status.note(&format!("{error:#}"));
    }
    let code = command::wait(child, ended, &mut signals, &mut status).await?;
    Ok(written.map_or(ExitCode::from(FAILED), |()| code))
}

/// Reads what is left, writes it, and sums up.
fn finish(
    options: &Options,
    session: &mut Session,
    ended: Ended,
    elapsed: Duration,
) -> anyhow::Result<()> {
    session.update_clocks();
    session.drain_all();
    session.pipeline_mut().finish();
    setup::describe(session)?;
    session.pipeline_mut().profile_mut().duration_ns =
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    session.finish_recording()?;
    write(options, session)?;
    let totals = Totals::of(session, options.rate, elapsed)?;
    let reason = session.pipeline().profile().empty_reason.as_deref();
    let summary = Summary::new(ended, totals, reason, &options.output);
    if let Some(path) = &options.stats {
        output::write_to(path, &mut |out| summary.write_json(out))?;
    }
    status::print(&format!("{summary}\n"));
    Ok(())
}

fn write(options: &Options, session: &Session) -> Result<(), output::WriteError> {
    let path = match options.recording {
        None => Some(&options.output),
        Some(_) => options.also.as_ref(),
    };
    let Some(path) = path else { return Ok(()) };
    let profile = session.pipeline().profile();
    output::write_to(path, &mut |out| {
        format::write(options.format, profile, &options.shape, out)
    })
}
