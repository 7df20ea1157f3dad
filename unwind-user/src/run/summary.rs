//! What a session amounted to: the last line on standard error, and `--stats`.

use std::fmt;
use std::io;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;
use unwind_ebpf::abi::{self, OUTCOME_NAMES};

use super::session::{Session, State};
use super::{Ended, Options, setup};
use crate::profile::Profile;

/// All counts of a session. The JSON of `--stats` has these names.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    seconds: f64,
    ended: &'static str,
    rate_hz: u64,
    /// Interrupts in the profiled processes.
    interrupts: u64,
    /// How each of them ended; these add up to `interrupts`.
    outcomes: std::collections::BTreeMap<&'static str, u64>,
    /// Samples in the profile.
    samples: u64,
    /// Samples that the pipeline took no stack from, by cause.
    malformed_records: u64,
    unknown_process: u64,
    disagreed: u64,
    /// CPU time of the profiled processes.
    on_cpu_ns: u64,
    /// Samples over CPU time times rate.
    kept: Option<f64>,
    kernel_ns_per_sample: Option<f64>,
    bytes_per_sample: Option<f64>,
    frames: u64,
    frames_off_chunk: u64,
    frames_late: u64,
    freed_frames: u64,
    identities_captured: u64,
    identities_proved: u64,
    stack_hits: u64,
    stack_misses: u64,
    code_hits: u64,
    code_misses: u64,
    code_replaced: u64,
    code_freed: u64,
    code_moved: u64,
    agent_cpu_seconds: f64,
    agent_peak_bytes: u64,
    processes: Vec<ProcessLine>,
    #[serde(skip)]
    empty_reason: Option<String>,
    #[serde(skip)]
    output: String,
}

#[derive(Debug, Serialize)]
struct ProcessLine {
    pid: u32,
    state: &'static str,
    reason: Option<String>,
    python: Option<String>,
    samples: u64,
}

impl Summary {
    pub(super) fn new(
        options: &Options,
        session: &mut Session,
        elapsed: Duration,
        ended: Ended,
    ) -> anyhow::Result<Self> {
        setup::describe(session)?;
        session.pipeline_mut().profile_mut().duration_ns =
            u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let counters = session.counters()?;
        let named = OUTCOME_NAMES.iter().copied().zip(counters.outcomes);
        let interrupts: u64 = counters.outcomes.iter().sum();
        let on_cpu_ns = session.on_cpu_ns();
        let pipeline = session.pipeline();
        let stats = pipeline.stats;
        let outcome = |which: u32| counters.outcomes.get(which as usize).copied().unwrap_or(0);
        let submitted = outcome(abi::OK) + outcome(abi::TRUNCATED) + outcome(abi::PAGE_FAULT);
        let expected = on_cpu_ns as f64 * options.rate as f64 / 1e9;
        let per = |total: u64, of: u64| (of > 0).then(|| total as f64 / of as f64);
        let sum = |count: &dyn Fn(&crate::pipeline::Target) -> u64| {
            pipeline.targets().map(|(_, target)| count(target)).sum::<u64>()
        };
        let lines = session.members().iter().map(|(pid, member)| ProcessLine {
            pid: *pid,
            state: match member.state {
                State::Attaching(_) => "attaching",
                State::Attached => "attached",
                State::Refused(_) => "refused",
                State::Exited => "exited",
            },
            reason: match &member.state {
                State::Refused(error) => Some(error.to_string()),
                _ => None,
            },
            python: member.version.clone(),
            samples: pipeline.target(*pid).map_or(0, |target| target.stats.samples),
        });
        Ok(Self {
            seconds: elapsed.as_secs_f64(),
            ended: match ended {
                Ended::Duration => "the duration was over",
                Ended::Signal(name) => name,
                Ended::TargetExited => "the target exited",
            },
            rate_hz: options.rate,
            interrupts,
            outcomes: named.collect(),
            samples: profile_total(pipeline.profile()),
            malformed_records: stats.malformed + session.malformed,
            unknown_process: stats.unknown_process,
            disagreed: stats.disagreed,
            on_cpu_ns,
            kept: (expected >= 1.0).then(|| outcome(abi::OK) as f64 / expected),
            kernel_ns_per_sample: per(counters.run_ns, interrupts),
            bytes_per_sample: per(counters.bytes, submitted),
            frames: stats.frames,
            frames_off_chunk: counters.frames_off_chunk,
            frames_late: 0,
            freed_frames: sum(&|t| t.stats.freed_frames),
            identities_captured: counters.identities,
            identities_proved: sum(&|t| t.stats.proofs),
            stack_hits: sum(&|t| t.stacks().stats.hits),
            stack_misses: sum(&|t| t.stacks().stats.misses),
            code_hits: sum(&|t| t.codes().stats.hits),
            code_misses: sum(&|t| t.codes().stats.misses),
            code_replaced: sum(&|t| t.codes().stats.replaced),
            code_freed: sum(&|t| t.codes().stats.freed),
            code_moved: sum(&|t| t.codes().stats.moved),
            agent_cpu_seconds: agent_cpu().as_secs_f64(),
            agent_peak_bytes: peak_bytes(),
            processes: lines.collect(),
            empty_reason: pipeline.profile().empty_reason.clone(),
            output: options.output.display().to_string(),
        })
    }

    pub(super) fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.empty_reason {
            writeln!(f, "unwind: the profile is empty: {reason}")?;
        }
        write!(f, "unwind: {} samples in {:.1} s", self.samples, self.seconds)?;
        if self.ended != "the duration was over" {
            write!(f, " ({} after {:.1} s)", self.ended, self.seconds)?;
        }
        write!(f, ", written to {}; {} interrupts:", self.output, self.interrupts)?;
        let met = self.outcomes.iter().filter(|(name, count)| **count > 0 || **name == "ok");
        for (i, (name, count)) in met.enumerate() {
            write!(f, "{} {name} {count}", if i == 0 { "" } else { "," })?;
        }
        if let Some(kept) = self.kept {
            write!(f, "; {:.1} % of on-CPU time kept", 100.0 * kept)?;
        }
        write!(f, "; {} frames read late, {} freed", self.frames_late, self.freed_frames)?;
        if let Some(ns) = self.kernel_ns_per_sample {
            write!(f, "; {:.2} us a sample in the kernel", ns / 1e3)?;
        }
        let share = 100.0 * self.agent_cpu_seconds / self.seconds.max(1e-9);
        let peak = self.agent_peak_bytes >> 20;
        write!(f, "; own CPU {share:.1} % of a core, peak memory {peak} MiB")
    }
}

fn profile_total(profile: &Profile) -> u64 {
    profile.total()
}

/// CPU time of this process so far.
pub(super) fn agent_cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |t: nix::sys::time::TimeVal| {
        let micros = u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000;
        Duration::from_micros(micros + u64::try_from(t.tv_usec()).unwrap_or(0))
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Peak resident memory of this process, in bytes.
fn peak_bytes() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    usage.map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) << 10)
}
