//! From records to counted stacks: a plain function over values, without I/O of its own.
//!
//! It sees the outside through three seams: records of the ring, [`crate::memory::Memory`] of each process, and
//! [`Vouch`]. A recording keeps what came through the first two; a replay feeds it back.
//!
//! Work is done in batches, one each time the ring is drained. [`Pipeline::sample`] walks a record
//! and looks its stack up; [`Pipeline::finish_batch`] proves that the code objects which the batch
//! relied on are still the ones it knew, and only then counts. Samples with code of which it
//! is not certain yet that what was read is its own are held until a later sample tells.

mod batch;
mod count;
mod held;
mod prove;
mod target;

use std::collections::BTreeMap;

use unwind_ebpf::abi;

use crate::profile::{Marker, Profile, ThreadKey};
use crate::python::frame::Chain;
use crate::sample::{Record, RecordError, Snapshot};
use batch::{Seen, Waiting};
pub use target::{Target, TargetStats, Vouch};

/// Counts of what the pipeline met that has no other place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineStats {
    /// Samples counted into the profile.
    pub samples: u64,
    /// Records that could not be parsed.
    pub malformed: u64,
    /// Samples of processes that are not, or no longer, ours.
    pub unknown_process: u64,
    /// Samples whose walk in user space disagreed with the kernel half's.
    pub disagreed: u64,
    /// Frames walked.
    pub frames: u64,
    /// Batches.
    pub batches: u64,
    /// Batches that had a sample.
    pub busy_batches: u64,
}

/// All processes being profiled, and the profile they feed.
#[derive(Debug)]
pub struct Pipeline {
    /// In order, so that a replay numbers stacks as the session did.
    targets: BTreeMap<u32, Target>,
    profile: Profile,
    snapshot: Snapshot,
    batch: u64,
    /// Counts.
    pub stats: PipelineStats,
}

impl Pipeline {
    /// A pipeline without processes.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self {
            targets: BTreeMap::new(),
            profile,
            snapshot: Snapshot::default(),
            batch: 1,
            stats: PipelineStats::default(),
        }
    }

    /// Begins to take samples of a process, or begins anew after an exec.
    pub fn open(&mut self, pid: u32, target: Target) {
        self.close(pid);
        self.targets.insert(pid, target);
    }

    /// Stops taking samples of a process, and counts what was held of it. Call between batches.
    pub fn close(&mut self, pid: u32) -> Option<Target> {
        let mut target = self.targets.remove(&pid)?;
        target.count_all_held(&mut self.profile);
        Some(target)
    }

    /// Counts what was held until more would be known. Call after the last batch.
    pub fn finish(&mut self) {
        for target in self.targets.values_mut() {
            target.count_all_held(&mut self.profile);
        }
    }

    /// The processes being profiled.
    pub fn targets(&self) -> impl Iterator<Item = (u32, &Target)> {
        self.targets.iter().map(|(pid, target)| (*pid, target))
    }

    /// One process.
    #[must_use]
    pub fn target(&self, pid: u32) -> Option<&Target> {
        self.targets.get(&pid)
    }

    /// The profile so far; samples of an unfinished batch are not in it, nor those held until more
    /// is known of their code.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// For what the pipeline does not know: times, names of threads, outcomes.
    pub const fn profile_mut(&mut self) -> &mut Profile {
        &mut self.profile
    }

    /// Takes one sample record of the ring into the current batch.
    ///
    /// # Errors
    /// When the record is malformed; it is counted, and the next one may be good.
    pub fn sample(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        let header = &record.header;
        let Some(target) = self.targets.get_mut(&header.pid) else {
            self.stats.unknown_process += 1;
            return Ok(());
        };
        if let Err(error) = self.snapshot.index(record) {
            self.stats.malformed += 1;
            return Err(error);
        }
        let captured = self.snapshot.memory(record);
        let met = target.walk(header, &captured, &self.snapshot);
        if met != header.frames {
            self.stats.disagreed += 1;
            return Ok(());
        }
        self.stats.frames += u64::from(met);
        let cut = match header.outcome {
            abi::TRUNCATED => Some(Marker::Truncated),
            abi::PAGE_FAULT => Some(Marker::PageFault),
            _ => None,
        };
        let thread = ThreadKey {
            pid: header.pid,
            image: target.image,
            tid: header.tid,
        };
        let has_identities = header.flags & abi::IDENTITIES != 0;
        let waiting = Waiting { thread, cut };
        let seen = Seen {
            time: header.time,
            chain: (header.flags & abi::WHOLE != 0).then(|| Chain::of(header)),
            captured: &captured,
        };
        target.take(waiting, seen, has_identities, &mut self.profile.tables);
        self.stats.samples += 1;
        Ok(())
    }

    /// Proves what the batch relied on, counts its samples, and vouches for what became known.
    ///
    /// `now` is `CLOCK_MONOTONIC` in ns, read after the last record of the batch.
    pub fn finish_batch(&mut self, now: u64, vouch: &mut dyn Vouch) {
        self.stats.batches += 1;
        let mut busy = false;
        for (pid, target) in &mut self.targets {
            busy |= target.finish_batch(*pid, self.batch, now, &mut self.profile, vouch);
        }
        self.batch += 1;
        self.stats.busy_batches += u64::from(busy);
    }
}
