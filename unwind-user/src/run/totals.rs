//! All counts of a session in one value: for the summary, `--stats` and the metrics.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use unwind_ebpf::abi::{self, Counters, OUTCOME_NAMES};

use super::session::Session;
use super::session::member::State;
use crate::bpf::LoadError;
use crate::pipeline::Target;
use crate::profile::Mode;

/// All counts of a session. The JSON of `--stats` has these names.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// What took the samples: `ebpf` or `remote`.
    pub backend: &'static str,
    /// Which time samples stand for: `cpu`, `wall`, `gil` or `exception`.
    pub mode: &'static str,
    /// Since the interrupts began.
    pub seconds: f64,
    /// Samples a second of that time that were asked for.
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
    /// Samples that are whole as far as they go (ok, truncated, less those whose record was of no
    /// use) over CPU time times rate; in other modes than `cpu`, over `interrupts`.
    pub kept: Option<f64>,
    /// Time in the kernel half, or what looking from outside took, ns.
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
    /// Code identities captured in interrupts.
    pub identities_captured: u64,
    /// What user space did for each program.
    #[serde(flatten)]
    pub targets: TargetTotals,
    /// CPU time of this process.
    pub agent_cpu_seconds: f64,
    /// Resident memory of this process.
    pub agent_memory_bytes: u64,
    /// Peak resident memory of this process.
    pub agent_peak_bytes: u64,
    /// The processes.
    pub processes: Vec<ProcessTotals>,
}

/// What user space did for the programs of a session.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TargetTotals {
    /// Frames shown as `<freed code>`.
    pub freed_frames: u64,
    /// Code identities proved at the ends of batches.
    pub identities_proved: u64,
    /// Stack cache.
    pub stacks: CacheTotals,
    /// Code object cache.
    pub codes: CacheTotals,
    /// System calls that read target memory.
    pub memory_calls: u64,
    /// Bytes read of target memory.
    pub memory_bytes: u64,
}

impl TargetTotals {
    /// Adds one program.
    pub fn add(&mut self, target: &Target) {
        self.freed_frames += target.stats.freed_frames;
        self.identities_proved += target.stats.proofs;
        let reads = target.reads();
        self.memory_calls += reads.calls;
        self.memory_bytes += reads.bytes;
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
        self.codes.uncertain += codes.stats.uncertain;
        self.codes.moved += codes.stats.moved;
        self.codes.cleared += codes.stats.cleared;
        self.codes.entries += codes.len() as u64;
    }
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
    /// Code objects: read, but perhaps when another one was in the making there.
    pub uncertain: u64,
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
    /// Process id; 0 stands for all those that ended so long ago that they are not told apart.
    pub pid: u32,
    /// attaching, attached, `not_python`, refused or exited.
    pub state: &'static str,
    /// Why it gives no samples.
    pub reason: Option<String>,
    /// CPython version.
    pub python: Option<String>,
    /// Samples taken.
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
        let malformed = stats.malformed + session.malformed;
        let unusable = stats.disagreed + malformed + stats.unknown_process;
        let whole = shown(&counters, &[abi::OK, abi::TRUNCATED]).saturating_sub(unusable);
        let mode = pipeline.profile().mode;
        let expected = match mode {
            Mode::Cpu => on_cpu_ns as f64 * rate as f64 / 1e9,
            // How long threads were in the state that is looked for, nobody counts.
            _ => interrupts as f64,
        };
        let mut totals = Self {
            backend: session.backend(),
            mode: mode.name(),
            seconds: elapsed.as_secs_f64(),
            rate_hz: rate,
            interrupts,
            outcomes: by_name(&counters),
            samples: pipeline.profile().total(),
            malformed_records: malformed,
            unknown_process: stats.unknown_process,
            disagreed: stats.disagreed,
            on_cpu_ns,
            kept: (expected >= 1.0).then(|| whole as f64 / expected),
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
            agent_memory_bytes: agent_memory_bytes(),
            agent_peak_bytes: agent_peak_bytes(),
            targets: session.past().targets,
            ..Self::default()
        };
        for (_, target) in pipeline.targets() {
            totals.targets.add(target);
        }
        for (&pid, member) in session.members() {
            totals.processes.push(ProcessTotals {
                pid,
                state: member.state.name(),
                reason: member.state.reason().map(ToString::to_string),
                python: member.version.clone(),
                samples: session.samples_of(pid, member),
                outcomes: by_name(&session.counters_of(member)?),
                on_cpu_ns: member.on_cpu.total_ns(),
            });
        }
        let past = session.past();
        if past.processes > 0 {
            totals.processes.push(ProcessTotals {
                pid: 0,
                state: State::Exited.name(),
                samples: past.samples,
                outcomes: by_name(&past.counters),
                on_cpu_ns: past.on_cpu_ns,
                ..ProcessTotals::default()
            });
        }
        Ok(totals)
    }
}

/// Interrupts that ended in one of these outcomes.
pub(super) fn shown(counters: &Counters, outcomes: &[abi::Outcome]) -> u64 {
    let count = |outcome: &abi::Outcome| counters.outcomes.get(*outcome as usize);
    outcomes.iter().filter_map(count).sum()
}

fn by_name(counters: &Counters) -> BTreeMap<&'static str, u64> {
    OUTCOME_NAMES
        .iter()
        .copied()
        .zip(counters.outcomes)
        .collect()
}

/// What this process had used of the CPU before [`run`](super::run()) was called: as another
/// program, since that outlives exec.
static USED_BEFORE: OnceLock<Duration> = OnceLock::new();

/// From here on [`agent_cpu`] counts.
pub(super) fn begin_agent_cpu() {
    USED_BEFORE.get_or_init(process_cpu);
}

/// CPU time of this process since the session was asked for.
#[must_use]
pub fn agent_cpu() -> Duration {
    process_cpu().saturating_sub(USED_BEFORE.get().copied().unwrap_or_default())
}

fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Resident memory of this process now, in bytes.
#[must_use]
pub fn agent_memory_bytes() -> u64 {
    memory_of_status("VmRSS:")
}

/// Peak resident memory of this process since its exec, in bytes.
#[must_use]
pub fn agent_peak_bytes() -> u64 {
    memory_of_status("VmHWM:")
}

fn memory_of_status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every name in the JSON, with the names that lead to it.
    fn names(value: &serde_json::Value, above: &str, into: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let name = format!("{above}{name}");
                    names(value, &format!("{name}."), into);
                    into.insert(name);
                }
            }
            serde_json::Value::Array(items) => {
                items.iter().for_each(|item| names(item, above, into));
            }
            _ => {}
        }
    }

    #[test]
    fn the_document_lists_exactly_the_counts_that_exist() {
        let totals = Totals {
            processes: vec![ProcessTotals::default()],
            ..Totals::default()
        };
        let value = serde_json::to_value(totals).expect("plain values");
        let mut written: BTreeSet<_> = ["ended".to_owned()].into();
        names(&value, "", &mut written);
        let document = include_str!("../../METRICS.md");
        let (_, table) = document
            .split_once("## Counters as JSON")
            .expect("the section");
        let listed: BTreeSet<String> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(name, _)| name.to_owned())
            .collect();
        assert_eq!(written, listed);
    }

    #[test]
    fn our_own_memory_is_below_its_peak() {
        let (now, peak) = (agent_memory_bytes(), agent_peak_bytes());
        assert!(now > 1 << 20 && now <= peak + (4 << 20), "{now} of {peak}");
    }
}
