//! From checked options to a session that samples.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use tokio::process::Child;

use super::Options;
use super::hold::Held;
use super::session::{Session, State};
use super::{output, privileges, procs};
use crate::process::namespace;
use crate::profile::Profile;

/// A session whose interrupts have begun.
pub(super) struct Setup {
    pub(super) session: Session,
    pub(super) child: Option<Child>,
    pub(super) started: Instant,
}

/// Checks what can be checked before anything is started, then starts.
pub(super) fn start(options: &Options) -> anyhow::Result<Setup> {
    let again = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>();
    if let Some(missing) = privileges::Privileges::of_self().missing(&again.join(" ")) {
        bail!("{missing}");
    }
    if let Some(max) = privileges::max_sample_rate().filter(|max| options.rate > *max) {
        bail!(
            "{} Hz is more than this kernel allows ({max} Hz): lower --rate, or raise the limit \
             with\n  sudo sysctl kernel.perf_event_max_sample_rate={}",
            options.rate,
            options.rate
        );
    }
    if !namespace::ours_is_initial().context("cannot tell our PID namespace: is /proc mounted?")? {
        bail!(
            "this is not the initial PID namespace: the kernel reports samples by process ids \
             that mean nothing here. Run it on the host, or in a container that shares the host's \
             PID namespace (docker run --pid=host)"
        );
    }
    output::check(&options.output)?;
    if let Some(path) = &options.stats {
        output::check(path)?;
    }
    let mut session = Session::new(ring_bytes(options.rate), options.follow, profile(options))?;
    for &pid in &options.pids {
        if !procs::exists(pid) {
            bail!("there is no process {pid}");
        }
        session.add(pid)?;
        session.attach(pid).map_err(|error| anyhow::anyhow!("process {pid}: {error}"))?;
    }
    let held = match options.command.as_slice() {
        [] => None,
        command => Some(Held::start(command).context("cannot start the command")?),
    };
    if let Some(pid) = held.as_ref().and_then(|held| held.child.id()) {
        session.add(pid)?;
    }
    session.kernel().watch_processes()?;
    if options.bpf_log {
        session.kernel().set_logging(true)?;
    }
    session.kernel().start(options.event, options.rate)?;
    session.begin_clocks();
    let started = Instant::now();
    let child = held.map(Held::release).transpose().context("the command went away")?;
    Ok(Setup { session, child, started })
}

/// The ring's size: a tenth of a second of 8 KiB records from every CPU, 8 MiB at least.
fn ring_bytes(rate: u64) -> u32 {
    const RECORD: u64 = 8 << 10;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let bytes = (rate * cpus * RECORD / 10).clamp(8 << 20, 64 << 20);
    u32::try_from(bytes.next_power_of_two()).unwrap_or(8 << 20)
}

fn profile(options: &Options) -> Profile {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Profile {
        period_ns: 1_000_000_000 / options.rate,
        start_ns: u64::try_from(now.as_nanos()).unwrap_or(0),
        ..Profile::default()
    }
}

/// Gives the profile what only the session knows: outcomes, names, and why it is empty if it is.
pub(super) fn describe(session: &mut Session) -> anyhow::Result<()> {
    let counters = session.counters()?;
    session.describe_all(&counters);
    let interrupts: u64 = counters.outcomes.iter().sum();
    let reason = if session.pipeline().profile().total() > 0 {
        None
    } else if interrupts == 0 {
        Some("0 samples: the target used no CPU time, or ran too short".to_owned())
    } else {
        let refused = session.members().values().find_map(|member| match &member.state {
            State::Refused(error) => Some(error.to_string()),
            _ => None,
        });
        Some(refused.map_or_else(
            || format!("0 samples with Python frames out of {interrupts} interrupts"),
            |error| format!("0 samples: {error}"),
        ))
    };
    session.pipeline_mut().profile_mut().empty_reason = reason;
    Ok(())
}

/// The ring's descriptor once more, for the event loop, while the session reads the ring.
pub(super) fn duplicate(ring: &impl AsFd) -> std::io::Result<OwnedFd> {
    ring.as_fd().try_clone_to_owned()
}
