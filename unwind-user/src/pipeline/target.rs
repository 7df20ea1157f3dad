//! One process: its layout, memory, caches, and the samples that wait for their proof.

use std::collections::VecDeque;

use unwind_ebpf::abi::{RecordHeader, WHOLE};

use super::batch::{Batch, Cold, Known, Seen, Waiting};
use super::held::Held;
use crate::cache::code::{CodeCache, CodeIndex};
use crate::cache::stack::StackCache;
use crate::layout::Layout;
use crate::memory::{Addr, Memory, Reads};
use crate::profile::{FrameId, Profile, Tables};
use crate::python::alive::Alive;
use crate::python::frame::{Chain, Parsed, RawFrame, walk};
use crate::sample::{Captured, Snapshot};

/// The kernel half's table of code addresses that user space vouches for.
pub trait Vouch {
    /// Marks a code address of a process: its samples need not carry the identity any more.
    fn vouch(&mut self, pid: u32, code: Addr);
    /// Takes one mark back.
    fn revoke(&mut self, pid: u32, code: Addr);
    /// Takes all marks of a process back.
    fn revoke_all(&mut self, pid: u32);
}

/// Counts of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStats {
    /// Samples taken.
    pub samples: u64,
    /// Frames shown as freed.
    pub freed_frames: u64,
    /// Identities read at the ends of batches.
    pub proofs: u64,
}

/// One process being profiled.
pub struct Target {
    /// How many programs this process had become before (exec).
    pub image: u32,
    pub(super) layout: Layout,
    pub(super) memory: Box<dyn Memory>,
    pub(super) alive: Alive,
    pub(super) codes: CodeCache,
    pub(super) stacks: StackCache,
    pub(super) raw: Vec<RawFrame>,
    pub(super) batch: Batch,
    pub(super) held: Held,
    /// Code objects read, and when, that are not vouched for yet.
    pub(super) young: VecDeque<(u64, CodeIndex)>,
    /// Scratch of the end of a batch.
    pub(super) touched: Vec<CodeIndex>,
    pub(super) addrs: Vec<Addr>,
    pub(super) frames: Vec<FrameId>,
    pub(super) began: bool,
    /// Counts.
    pub stats: TargetStats,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("layout", &self.layout)
            .field("stats", &self.stats)
            .finish()
    }
}

impl Target {
    /// A process with nothing known of it yet.
    #[must_use]
    pub fn new(image: u32, layout: Layout, memory: Box<dyn Memory>) -> Self {
        Self {
            image,
            layout,
            memory,
            alive: Alive::default(),
            codes: CodeCache::default(),
            stacks: StackCache::default(),
            raw: Vec::new(),
            batch: Batch::default(),
            held: Held::default(),
            young: VecDeque::new(),
            touched: Vec::new(),
            addrs: Vec::new(),
            frames: Vec::new(),
            began: false,
            stats: TargetStats::default(),
        }
    }

    /// How its interpreter is laid out.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What reading its memory has taken.
    #[must_use]
    pub fn reads(&self) -> Reads {
        self.memory.reads()
    }

    /// Its code objects.
    #[must_use]
    pub const fn codes(&self) -> &CodeCache {
        &self.codes
    }

    /// Its stacks.
    #[must_use]
    pub const fn stacks(&self) -> &StackCache {
        &self.stacks
    }

    /// Walks the chain in the record into `self.raw`; returns the frames met.
    pub(super) fn walk(
        &mut self,
        header: &RecordHeader,
        captured: &Captured<'_>,
        snapshot: &Snapshot,
    ) -> u32 {
        self.raw.clear();
        let chain = Chain::of(header);
        let (_, met) = if header.flags & WHOLE != 0 {
            let frames = Parsed {
                layout: &self.layout.frame,
                memory: captured,
            };
            walk(&self.layout, &frames, chain, &mut self.raw)
        } else {
            walk(&self.layout, &snapshot.heads(), chain, &mut self.raw)
        };
        met
    }

    /// Takes the sample just walked into the batch.
    pub(super) fn take(
        &mut self,
        waiting: Waiting,
        seen: Seen<'_>,
        has_identities: bool,
        tables: &mut Tables,
    ) {
        if !self.began {
            self.began = true;
            self.stacks.begin(self.codes.epoch());
        }
        self.stats.samples += 1;
        if !has_identities && let Some(stack) = self.stacks.lookup(&self.raw, seen.time) {
            self.batch.warm.push((waiting, stack));
            return;
        }
        let raw = std::mem::take(&mut self.raw);
        let know = |frame: &RawFrame| {
            let known = match frame.marker() {
                Some(marker) => Known::Marker(marker),
                None => self.know(frame.code, seen, tables),
            };
            (*frame, known)
        };
        let frames = raw.iter().map(know).collect();
        self.raw = raw;
        self.batch.cold.push(Cold { waiting, frames });
    }

    /// Proves, counts, vouches. Returns whether the batch had samples.
    pub(super) fn finish_batch(
        &mut self,
        pid: u32,
        batch: u64,
        now: u64,
        profile: &mut Profile,
        vouch: &mut dyn Vouch,
    ) -> bool {
        if !self.began {
            return false;
        }
        self.began = false;
        for index in self.batch.uncertain.drain(..) {
            self.codes.date(index, now);
        }
        self.prove(pid, batch, vouch);
        for addr in self.batch.contested.drain(..) {
            vouch.revoke(pid, addr);
        }
        self.count_warm(profile);
        self.young
            .extend(self.batch.fresh.drain(..).map(|index| (now, index)));
        self.vouch_for_settled(pid, now, vouch);
        self.count_cold(profile);
        self.count_held(profile);
        if self.codes.is_full() {
            self.count_all_held(profile);
            self.codes.clear();
            self.young.clear();
            vouch.revoke_all(pid);
        }
        true
    }
}
