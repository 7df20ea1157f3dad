//! One process: its layout, memory, caches, and the samples that wait for their proof.

use std::collections::VecDeque;

use unwind_ebpf::abi::{RecordHeader, WHOLE};

use super::batch::{Batch, Cold, Known, Waiting};
use crate::cache::code::{CodeCache, CodeIndex};
use crate::cache::stack::StackCache;
use crate::layout::{Identity, Layout};
use crate::memory::{Addr, Memory, Reads};
use crate::profile::{FrameId, Marker, Profile, StackId, Tables};
use crate::python::alive::CodeType;
use crate::python::code::read_code;
use crate::python::frame::{Parsed, RawFrame, walk};
use crate::python::identity::{CodeIdentity, read_identities, read_identity};
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

/// How long a code object whose identity is a fingerprint must have been met, and no other at its
/// address, before samples may leave the fingerprint out, in ns. Code that comes and goes does so
/// much faster than this, and code that stays soon gets cheap.
const SETTLED_NS: u64 = 200_000_000;

/// How often one sample must meet a code object for it not to wait. Each time the record carries
/// the fingerprint again, for which a deep recursion leaves no room.
const RECURSIVE: u32 = 8;

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
    layout: Layout,
    memory: Box<dyn Memory>,
    code_type: CodeType,
    codes: CodeCache,
    stacks: StackCache,
    raw: Vec<RawFrame>,
    batch: Batch,
    /// Code objects read, and when, that are not vouched for yet.
    young: VecDeque<(u64, CodeIndex)>,
    /// Scratch of the end of a batch.
    touched: Vec<CodeIndex>,
    addrs: Vec<Addr>,
    frames: Vec<FrameId>,
    began: bool,
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
            code_type: CodeType::default(),
            codes: CodeCache::default(),
            stacks: StackCache::default(),
            raw: Vec::new(),
            batch: Batch::default(),
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
        let (first, base) = (Addr(header.frame), Addr(header.base_frame));
        let (_, met) = if header.flags & WHOLE != 0 {
            let frames = Parsed {
                layout: &self.layout.frame,
                memory: captured,
            };
            walk(&self.layout, &frames, first, base, &mut self.raw)
        } else {
            walk(&self.layout, &snapshot.heads(), first, base, &mut self.raw)
        };
        met
    }

    /// Takes the sample just walked into the batch.
    pub(super) fn take(
        &mut self,
        waiting: Waiting,
        time: u64,
        has_identities: bool,
        captured: &Captured<'_>,
        tables: &mut Tables,
    ) {
        if !self.began {
            self.began = true;
            self.stacks.begin(self.codes.epoch());
        }
        self.stats.samples += 1;
        if !has_identities && let Some(stack) = self.stacks.lookup(&self.raw, time) {
            self.batch.warm.push((waiting, stack));
            return;
        }
        let raw = std::mem::take(&mut self.raw);
        let know = |frame: &RawFrame| (*frame, self.know(frame.code, time, captured, tables));
        let frames = raw.iter().map(know).collect();
        self.raw = raw;
        self.batch.cold.push(Cold { waiting, frames });
    }

    /// What is known of the code object at an address in a sample taken at `time`.
    fn know(
        &mut self,
        addr: Addr,
        time: u64,
        captured: &Captured<'_>,
        tables: &mut Tables,
    ) -> Known {
        let known = self.codes.at(addr);
        let entry = known.and_then(|index| Some((index, self.codes.entry(index)?)));
        let Ok(identity) = read_identity(captured, &self.layout, addr) else {
            // No identity in the record: the kernel half found our mark.
            return match entry {
                Some((index, entry)) if time >= entry.since => {
                    self.codes.stats.hits += 1;
                    Known::Vouched(index)
                }
                _ => {
                    self.codes.stats.freed += 1;
                    Known::Freed
                }
            };
        };
        match entry {
            Some((index, entry)) if entry.identity == identity => {
                self.codes.stats.hits += 1;
                if self.codes.meet(index, time) == RECURSIVE {
                    self.batch.recursive.push(index);
                }
                return Known::Proved(index);
            }
            Some(_) => self.codes.stats.replaced += 1,
            None => self.codes.stats.misses += 1,
        }
        self.learn(addr, identity, tables)
            .map_or(Known::Freed, Known::Proved)
    }

    /// Reads a code object, if it still is the one with this identity, and alive, after that.
    fn learn(
        &mut self,
        addr: Addr,
        identity: CodeIdentity,
        tables: &mut Tables,
    ) -> Option<CodeIndex> {
        let is_same = |memory: &dyn Memory| {
            read_identity(memory, &self.layout, addr).is_ok_and(|now| now == identity)
        };
        let memory = &*self.memory;
        let code = is_same(memory)
            .then(|| read_code(memory, &self.layout, addr).ok())
            .flatten()
            // Freed memory keeps its identity for a while, but not the names.
            .filter(|_| self.code_type.is_alive(memory, addr))
            // Without a version, only CPython's own code objects are known to live for ever.
            .filter(|code| is_same(memory) && (identity.is_proof() || code.is_hidden()));
        let Some(code) = code else {
            self.codes.stats.freed += 1;
            return None;
        };
        let function = tables.function(&code.qualname, &code.filename, code.first_line);
        let index = self.codes.insert(addr, identity, code, function);
        self.batch.fresh.push(index);
        Some(index)
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
        self.prove(pid, batch, vouch);
        self.count_warm(profile);
        self.young
            .extend(self.batch.fresh.drain(..).map(|index| (now, index)));
        self.vouch_for_settled(pid, now, vouch);
        self.count_cold(profile);
        if self.codes.is_full() {
            self.codes.clear();
            self.young.clear();
            vouch.revoke_all(pid);
        }
        true
    }

    /// Vouches for what was read lately: at once where the identity is proof for ever; else, since
    /// the same may come back after another one at the address, when it has been there for a while.
    fn vouch_for_settled(&mut self, pid: u32, now: u64, vouch: &mut dyn Vouch) {
        let wait = match self.layout.code.identity {
            Identity::Version(_) => 0,
            Identity::Fields => SETTLED_NS,
        };
        let mut settled = std::mem::take(&mut self.batch.recursive);
        while let Some((_, index)) = self.young.pop_front_if(|(since, _)| now >= *since + wait) {
            settled.push(index);
        }
        for index in settled.drain(..) {
            if let Some(entry) = self.codes.entry(index)
                && entry.since == u64::MAX
                && self.codes.at(entry.addr) == Some(index)
            {
                vouch.vouch(pid, entry.addr);
                self.codes.vouch(index, now);
            }
        }
        self.batch.recursive = settled;
    }

    /// Reads the identity of each code object that the batch took on trust, and drops those that
    /// changed. In the target's memory each is 8 bytes from 3.12 on.
    fn prove(&mut self, pid: u32, batch: u64, vouch: &mut dyn Vouch) {
        self.touched.clear();
        for (_, stack) in &self.batch.warm {
            if self.stacks.touch(*stack, batch)
                && let Some(entry) = self.stacks.entry(*stack)
            {
                for &code in &entry.codes {
                    if self.codes.touch(code, batch) {
                        self.touched.push(code);
                    }
                }
            }
        }
        for cold in &self.batch.cold {
            for (_, known) in &cold.frames {
                if let Known::Vouched(code) = *known
                    && self.codes.touch(code, batch)
                {
                    self.touched.push(code);
                }
            }
        }
        self.addrs.clear();
        let addr = |index: &CodeIndex| self.codes.entry(*index).map_or(Addr::NULL, |e| e.addr);
        self.addrs.extend(self.touched.iter().map(addr));
        self.stats.proofs += self.touched.len() as u64;
        let (codes, touched) = (&mut self.codes, &self.touched);
        read_identities(&*self.memory, &self.layout, &self.addrs, |i, now| {
            let Some(&index) = touched.get(i) else { return };
            let Some(entry) = codes.entry(index) else {
                return;
            };
            let (addr, identity) = (entry.addr, entry.identity);
            if now != Some(identity) {
                codes.stats.moved += 1;
                codes.forget(index);
                vouch.revoke(pid, addr);
            }
        });
    }

    /// Whether a code object that was taken on trust was proved.
    fn holds(&self, index: CodeIndex) -> bool {
        self.codes
            .entry(index)
            .is_some_and(|entry| entry.since != u64::MAX)
    }

    fn count_warm(&mut self, profile: &mut Profile) {
        let warm = std::mem::take(&mut self.batch.warm);
        let all_hold = self.touched.iter().all(|&code| self.holds(code));
        for (waiting, stack) in &warm {
            let Some(entry) = self.stacks.entry(*stack) else {
                continue;
            };
            let simple = waiting.cut.is_none();
            if simple && (all_hold || entry.codes.iter().all(|&code| self.holds(code))) {
                profile.add(waiting.thread, entry.stack, 1);
                continue;
            }
            let frames = entry
                .raw
                .iter()
                .copied()
                .zip(entry.codes.iter().map(|&code| {
                    if self.holds(code) {
                        Known::Vouched(code)
                    } else {
                        Known::Freed
                    }
                }));
            let frames: Box<[_]> = frames.collect();
            let id = self.resolve(*waiting, &frames, profile);
            profile.add(waiting.thread, id, 1);
        }
        self.batch.warm = warm;
        self.batch.warm.clear();
    }

    fn count_cold(&mut self, profile: &mut Profile) {
        for mut cold in std::mem::take(&mut self.batch.cold) {
            for (_, known) in &mut cold.frames {
                if let Known::Vouched(code) = *known
                    && !self.holds(code)
                {
                    *known = Known::Freed;
                }
            }
            let id = self.resolve(cold.waiting, &cold.frames, profile);
            profile.add(cold.waiting.thread, id, 1);
            self.remember(&cold, id);
        }
    }

    /// Puts a stack into the cache once all of its code objects are vouched for.
    fn remember(&mut self, cold: &Cold, id: StackId) {
        if cold.waiting.cut.is_some() {
            return;
        }
        let mut codes = Vec::with_capacity(cold.frames.len());
        let mut since = 0;
        for (frame, known) in &cold.frames {
            let Some(index) = known.index() else { return };
            let Some(entry) = self.codes.entry(index) else {
                return;
            };
            if entry.since == u64::MAX || self.codes.at(frame.code) != Some(index) {
                return;
            }
            since = since.max(entry.since);
            codes.push(index);
        }
        let raw: Vec<RawFrame> = cold.frames.iter().map(|(frame, _)| *frame).collect();
        self.stacks.insert(&raw, &codes, id, since);
    }

    /// The stack in the profile's tables, outermost first, with markers where frames are missing.
    fn resolve(
        &mut self,
        waiting: Waiting,
        frames: &[(RawFrame, Known)],
        profile: &mut Profile,
    ) -> StackId {
        let tables = &mut profile.tables;
        self.frames.clear();
        if let Some(marker) = waiting.cut {
            self.frames.push(tables.marker(marker));
        }
        for (frame, known) in frames.iter().rev() {
            let entry = known.index().and_then(|index| self.codes.entry(index));
            let id = match entry {
                Some(entry) if entry.code.is_hidden() => continue,
                Some(entry) => {
                    let location = entry.code.location(&self.layout, frame.instr);
                    tables.frame(entry.function, location)
                }
                None => {
                    self.stats.freed_frames += 1;
                    tables.marker(Marker::FreedCode)
                }
            };
            self.frames.push(id);
        }
        if self.frames.is_empty() {
            self.frames.push(tables.marker(Marker::NoPythonFrames));
        }
        tables.stack(self.frames.iter().copied())
    }
}
