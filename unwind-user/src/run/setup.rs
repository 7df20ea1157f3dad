//! From checked options to a session that samples.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use tokio::process::Child;

use super::Options;
use super::command::Held;
use super::session::Session;
use super::session::member::{Follow, State};
use super::status::print;
use super::{output, privileges};
use crate::bpf::Kernel;
use crate::process::namespace;
use crate::profile::{Mode, Profile};
use crate::python::AttachError;
use crate::remote::poll::Poller;
use crate::sampler::{Backend, Sampler};

/// A session whose interrupts have begun.
pub(super) struct Setup {
    pub(super) session: Session,
    pub(super) child: Option<Child>,
    pub(super) started: Instant,
}

/// Checks what can be checked before anything is started.
pub(super) fn check(options: &Options) -> anyhow::Result<()> {
    if options.backend == Backend::Ebpf && options.mode != Mode::Cpu {
        bail!(
            "--mode {} needs --backend remote: the BPF program meets threads that run, and no others",
            options.mode.name()
        );
    }
    if options.backend == Backend::Ebpf {
        check_ebpf(options)?;
    }
    if options.backend == Backend::Remote && options.bpf_log {
        bail!("--bpf-log shows the log of the BPF program, which --backend remote does not use");
    }
    output::check(&options.output)?;
    for path in options.also.iter().chain(&options.stats) {
        output::check(path)?;
    }
    Ok(())
}

/// Checks whether the kernel half may run here.
fn check_ebpf(options: &Options) -> anyhow::Result<()> {
    if let Some(missing) = privileges::Privileges::of_self().missing(&again()) {
        bail!("{missing}");
    }
    if let Some(max) = privileges::max_sample_rate().filter(|max| options.rate > *max) {
        bail!(
            "{rate} Hz is more than this kernel allows ({max} Hz): lower --rate, or raise the \
             limit with\n  sudo sysctl kernel.perf_event_max_sample_rate={rate}",
            rate = options.rate
        );
    }
    if !namespace::ours_is_initial().context("cannot tell our PID namespace: is /proc mounted?")? {
        bail!(
            "this is not the initial PID namespace: the kernel reports samples by process ids \
             that mean nothing here. Run it on the host, or in a container that shares the host's \
             PID namespace (docker run --pid=host)"
        );
    }
    Ok(())
}

/// What takes the samples.
fn sampler(options: &Options) -> anyhow::Result<Box<dyn Sampler>> {
    let ring_bytes = ring_bytes(options.rate);
    let ebpf = || -> anyhow::Result<Box<dyn Sampler>> {
        let mut kernel = Kernel::load(ring_bytes, options.event)?;
        kernel.watch_processes()?;
        Ok(Box::new(kernel))
    };
    let remote = || -> anyhow::Result<Box<dyn Sampler>> {
        Ok(Box::new(Poller::new(ring_bytes, options.mode)?))
    };
    let is_for_ebpf = || match options.mode {
        Mode::Cpu => check_ebpf(options),
        mode => bail!("--mode {} is of threads that wait, too", mode.name()),
    };
    match options.backend {
        Backend::Ebpf => ebpf(),
        Backend::Remote => remote(),
        Backend::Auto => is_for_ebpf().and_then(|()| ebpf()).or_else(|error| {
            let why = one_line(&format!("{error:#}"));
            print(&format!("unwind: sampling from outside (remote): {why}\n"));
            remote()
        }),
    }
}

/// What an error says, without what it advises, in one line.
fn one_line(text: &str) -> String {
    let said = text.split("\nRun it as root").next().unwrap_or(text);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = said.lines().map(words).collect();
    lines.join("; ").replace(":;", ":")
}

/// The command line, to be typed again.
fn again() -> Vec<std::ffi::OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    // sudo looks for a bare name in folders of its own.
    if let (Some(name), Ok(path)) = (words.first_mut(), std::env::current_exe())
        && !name.as_encoded_bytes().contains(&b'/')
    {
        *name = path.into_os_string();
    }
    words
}

/// Starts the session, and the command if there is one.
pub(super) fn start(options: &Options) -> anyhow::Result<Setup> {
    let sampler = sampler(options)?;
    let mut session = Session::new(sampler, options.follow, profile(options));
    if let Some(keep) = options.recording {
        session.record(&options.output, keep)?;
    }
    let pids: BTreeSet<u32> = options.pids.iter().copied().collect();
    for pid in pids {
        session.add(pid, State::attaching())?;
        match session.attach(pid) {
            // Its children may be Python, now or later.
            Err(AttachError::NotPython { .. }) if options.follow == Follow::Children => {}
            attached => attached?,
        }
    }
    if options.follow == Follow::Children {
        session.add_descendants();
    }
    let held = match options.command.as_slice() {
        [] => None,
        command => Some(Held::start(command).context("cannot start the command")?),
    };
    if let Some(pid) = held.as_ref().and_then(|held| held.child.id()) {
        session.add(pid, State::Held)?;
    }
    if options.bpf_log {
        session.sampler().set_logging(true)?;
    }
    session.sampler().start(options.rate)?;
    session.begin_clocks();
    let started = Instant::now();
    let child = held
        .map(Held::release)
        .transpose()
        .context("the command went away")?;
    Ok(Setup {
        session,
        child,
        started,
    })
}

/// The ring's size: a tenth of a second of 8 KiB records from every CPU, 8 MiB at least.
fn ring_bytes(rate: u64) -> u32 {
    const RECORD: u64 = 8 << 10;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let bytes = (rate * cpus * RECORD / 10).clamp(8 << 20, 64 << 20);
    u32::try_from(bytes.next_power_of_two()).unwrap_or(8 << 20)
}

fn profile(options: &Options) -> Profile {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Profile {
        mode: options.mode,
        period_ns: 1_000_000_000 / options.rate,
        start_ns: u64::try_from(now.as_nanos()).unwrap_or(0),
        ..Profile::default()
    }
}

/// Why there was not one interrupt.
fn why_none(on_cpu_ns: u64, period_ns: u64) -> String {
    if on_cpu_ns < 2 * period_ns {
        return "0 samples: the target used no CPU time, or ran too short".to_owned();
    }
    format!(
        "0 samples: the target used {:.3} s of CPU time, in bursts that no sample met; try a \
         longer --duration",
        Duration::from_nanos(on_cpu_ns).as_secs_f64()
    )
}

/// Gives the profile what only the session knows: outcomes, names, and why it is empty if it is.
pub(super) fn describe(session: &mut Session) -> anyhow::Result<()> {
    let counters = session.counters()?;
    session.describe_all(&counters);
    let reasons = session.members().values().filter(|member| !member.is_child);
    let refused = reasons.filter_map(|member| member.state.reason()).next();
    let profile = session.pipeline().profile();
    let reason = match (
        profile.total(),
        refused,
        counters.outcomes.iter().sum::<u64>(),
    ) {
        (1.., ..) => None,
        (0, Some(error), _) => Some(format!("0 samples: {error}")),
        (0, None, 0) if profile.mode == Mode::Cpu => {
            Some(why_none(session.on_cpu_ns(), profile.period_ns))
        }
        (0, None, 0) => Some(format!("0 samples: no look met {}", profile.mode.time())),
        (0, None, interrupts) => Some(format!(
            "0 samples with Python frames out of {interrupts} interrupts"
        )),
    };
    session.pipeline_mut().profile_mut().empty_reason = reason;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_it_used_no_cpu_time_is_said_only_where_it_did_not() {
        assert!(why_none(1_999_999, 1_000_000).contains("used no CPU time"));
        let told = why_none(2_500_000_000, 1_000_000);
        assert!(told.contains("used 2.500 s of CPU time"), "{told}");
    }
}
