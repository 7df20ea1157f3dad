//! All counts of a session in one value: for the summary, `--stats` and the metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;
use unwind_ebpf::abi::{self, Counters, OUTCOME_NAMES};

use super::session::{Session, State};
use crate::bpf::LoadError;
use crate::pipeline::Target;

/// All counts of a session. The JSON of `--stats` has these names.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Since the interrupts began.
    pub seconds: f64,
    /// Samples a second of CPU time that were asked for.
    pub rate_hz: u64,
    /// Interrupts in the profiled processes.
    pub interrupts: u64,
    /// How each of them ended; these add up to `interrupts`.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Samples in the profile.
    pub samples: u64,
    /// Records that could not be parsed.
    pub malformed_records: u64,
    /// Records of processes that were not, or no longer, ours.
    pub unknown_process: u64,
    /// Records in which the two halves disagreed on the chain.
    pub disagreed: u64,
    /// CPU time of the profiled processes since the interrupts began.
    pub on_cpu_ns: u64,
    /// Complete samples over CPU time times rate.
    pub kept: Option<f64>,
    /// Time in the kernel half, ns.
    pub kernel_ns: u64,
    /// The same, for one interrupt.
    pub kernel_ns_per_sample: Option<f64>,
    /// Bytes of records.
    pub record_bytes: u64,
    /// Size of the ring, bytes.
    pub ring_bytes: u64,
    /// Most bytes found in the ring at once.
    pub ring_peak_bytes: u64,
    /// Frames walked, entry frames included.
    pub frames: u64,
    /// Of them, captured one by one because they lie outside the chunks.
    pub frames_off_chunk: u64,
    /// Of them, read from the live process. The kernel half captures all, so none is.
    pub frames_late: u64,
    /// Frames shown as `<freed code>`.
    pub freed_frames: u64,
    /// Code identities captured in interrupts.
    pub identities_captured: u64,
    /// Code identities proved at the ends of batches.
    pub identities_proved: u64,
    /// Stack cache.
    pub stacks: CacheTotals,
    /// Code object cache.
    pub codes: CacheTotals,
    /// Reads of target memory, system calls.
    pub memory_calls: u64,
    /// Bytes read of target memory.
    pub memory_bytes: u64,
    /// CPU time of this process.
    pub agent_cpu_seconds: f64,
    /// Peak resident memory of this process.
    pub agent_peak_bytes: u64,
    /// The processes.
    pub processes: Vec<ProcessTotals>,
}

/// Look-ups of a cache.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CacheTotals {
    /// Answered.
    pub hit: u64,
    /// Never seen.
    pub miss: u64,
    /// Code objects: another one at the address.
    pub replaced: u64,
    /// Code objects: gone before they could be read.
    pub freed: u64,
    /// Code objects: not the same one any more at the end of a batch.
    pub moved: u64,
    /// Stacks: dropped with a code object.
    pub stale: u64,
    /// Times that all was dropped because the cache was full.
    pub cleared: u64,
    /// Entries now.
    pub entries: u64,
}

/// One process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessTotals {
    /// Process id.
    pub pid: u32,
    /// attaching, attached, refused or exited.
    pub state: &'static str,
    /// Why it was refused.
    pub reason: Option<String>,
    /// CPython version.
    pub python: Option<String>,
    /// Samples taken of its current program.
    pub samples: u64,
    /// Interrupts by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// CPU time.
    pub on_cpu_ns: u64,
}

impl Totals {
    /// Takes stock of a session.
    ///
    /// # Errors
    /// When the kernel half's counters cannot be read.
    pub fn of(session: &Session, rate: u64, elapsed: Duration) -> Result<Self, LoadError> {
        let counters = session.counters()?;
        let pipeline = session.pipeline();
        let stats = pipeline.stats;
        let interrupts: u64 = counters.outcomes.iter().sum();
        let on_cpu_ns = session.on_cpu_ns();
        let complete = counters.outcomes.get(abi::OK as usize).copied().unwrap_or(0);
        let expected = on_cpu_ns as f64 * rate as f64 / 1e9;
        let mut totals = Self {
            seconds: elapsed.as_secs_f64(),
            rate_hz: rate,
            interrupts,
            outcomes: by_name(&counters),
            samples: pipeline.profile().total(),
            malformed_records: stats.malformed + session.malformed,
            unknown_process: stats.unknown_process,
            disagreed: stats.disagreed,
            on_cpu_ns,
            kept: (expected >= 1.0).then(|| complete as f64 / expected),
            kernel_ns: counters.run_ns,
            kernel_ns_per_sample: (interrupts > 0)
                .then(|| counters.run_ns as f64 / interrupts as f64),
            record_bytes: counters.bytes,
            ring_bytes: session.ring_bytes,
            ring_peak_bytes: session.ring_peak_bytes,
            frames: stats.frames,
            frames_off_chunk: counters.frames_off_chunk,
            identities_captured: counters.identities,
            agent_cpu_seconds: agent_cpu().as_secs_f64(),
            agent_peak_bytes: agent_peak_bytes(),
            ..Self::default()
        };
        for (_, target) in pipeline.targets() {
            totals.add(target);
        }
        for (pid, member) in session.members() {
            let (state, reason) = match &member.state {
                State::Attaching(_) => ("attaching", None),
                State::Attached => ("attached", None),
                State::Refused(error) => ("refused", Some(error.to_string())),
                State::Exited => ("exited", None),
            };
            totals.processes.push(ProcessTotals {
                pid: *pid,
                state,
                reason,
                python: member.version.clone(),
                samples: pipeline.target(*pid).map_or(0, |target| target.stats.samples),
                outcomes: by_name(&session.counters_of(member.slot)?),
                on_cpu_ns: member.on_cpu.total_ns(),
            });
        }
        Ok(totals)
    }

    fn add(&mut self, target: &Target) {
        self.freed_frames += target.stats.freed_frames;
        self.identities_proved += target.stats.proofs;
        let (stacks, codes) = (target.stacks(), target.codes());
        self.stacks.hit += stacks.stats.hits;
        self.stacks.miss += stacks.stats.misses;
        self.stacks.stale += stacks.stats.stale;
        self.stacks.cleared += stacks.stats.cleared;
        self.stacks.entries += stacks.len() as u64;
        self.codes.hit += codes.stats.hits;
        self.codes.miss += codes.stats.misses;
        self.codes.replaced += codes.stats.replaced;
        self.codes.freed += codes.stats.freed;
        self.codes.moved += codes.stats.moved;
        self.codes.cleared += codes.stats.cleared;
        self.codes.entries += codes.len() as u64;
    }
}

fn by_name(counters: &Counters) -> BTreeMap<&'static str, u64> {
    OUTCOME_NAMES.iter().copied().zip(counters.outcomes).collect()
}

/// CPU time of this process so far.
#[must_use]
pub fn agent_cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |t: nix::sys::time::TimeVal| {
        let micros = u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000;
        Duration::from_micros(micros + u64::try_from(t.tv_usec()).unwrap_or(0))
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Peak resident memory of this process, in bytes.
#[must_use]
pub fn agent_peak_bytes() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    usage.map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) << 10)
}
