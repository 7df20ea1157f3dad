//! Resolved stacks by their raw frames.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::code::CodeIndex;
use crate::profile::StackId;
use crate::python::frame::RawFrame;

/// Stacks kept for one process; some 64 bytes and 24 a frame each.
pub const STACKS_MAX: usize = 1 << 15;

/// A known stack: an index into the cache, valid until the next clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackIndex(u32);

/// One stack whose frames are all known.
#[derive(Debug)]
pub struct StackEntry {
    /// Innermost first, as walked.
    pub raw: Box<[RawFrame]>,
    /// The code object of each that has one.
    pub codes: Box<[CodeIndex]>,
    /// The stack in the profile's tables.
    pub stack: StackId,
    /// Samples taken before are not covered: a code object was not vouched for yet.
    pub since: u64,
    /// Last batch that met it.
    touched: u64,
}

/// What became of look-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Answered at once.
    pub hits: u64,
    /// Never seen.
    pub misses: u64,
    /// Entries dropped since a code object of theirs, or of any, was.
    pub stale: u64,
    /// Times that everything was dropped because the cache was full.
    pub cleared: u64,
}

/// The stacks of one process. When full, all are dropped.
#[derive(Debug, Default)]
pub struct StackCache {
    by_frames: HashMap<Box<[RawFrame]>, StackIndex, RandomState>,
    entries: Vec<StackEntry>,
    epoch: u64,
    /// What became of look-ups.
    pub stats: StackStats,
}

impl StackCache {
    /// Starts a batch; only here are entries dropped, so an index stays good until its end.
    pub fn begin(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.stats.stale += self.entries.len() as u64;
            self.clear();
        } else if self.entries.len() >= STACKS_MAX {
            self.stats.cleared += 1;
            self.clear();
        }
    }

    /// The stack of these frames in a sample taken at `time`.
    pub fn lookup(&mut self, raw: &[RawFrame], time: u64) -> Option<StackIndex> {
        let index = self.by_frames.get(raw).copied();
        let found = index.filter(|&index| self.entry(index).is_some_and(|e| time >= e.since));
        match found {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        found
    }

    /// The entry behind an index.
    #[must_use]
    pub fn entry(&self, index: StackIndex) -> Option<&StackEntry> {
        self.entries.get(index.0 as usize)
    }

    /// Notes that a batch met this stack; `true` the first time in that batch.
    pub fn touch(&mut self, index: StackIndex, batch: u64) -> bool {
        self.entries
            .get_mut(index.0 as usize)
            .is_some_and(|entry| std::mem::replace(&mut entry.touched, batch) != batch)
    }

    /// Remembers a stack whose code objects are all vouched for since `since`. A full cache waits
    /// for the next [`Self::begin`].
    pub fn insert(&mut self, raw: &[RawFrame], codes: &[CodeIndex], stack: StackId, since: u64) {
        if self.entries.len() >= STACKS_MAX || self.by_frames.contains_key(raw) {
            return;
        }
        let index = StackIndex(self.entries.len() as u32);
        self.by_frames.insert(raw.into(), index);
        self.entries.push(StackEntry {
            raw: raw.into(),
            codes: codes.into(),
            stack,
            since,
            touched: 0,
        });
    }

    /// Stacks known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn clear(&mut self) {
        self.by_frames.clear();
        self.entries.clear();
    }
}
