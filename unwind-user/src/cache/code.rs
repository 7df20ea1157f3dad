//! Code objects by address, guarded against reuse of the address.
//!
//! An address names a code object only together with its identity (`co_version`, or a
//! fingerprint; see [`crate::layout::Identity`]). A cached code object is *vouched for* from the
//! moment its mark stands in the kernel half's table: later samples that meet it carry no
//! identity. They are proved at the end of each batch, when the identity is read again: equal to
//! the one known before the samples were taken, it was the same object all along. If not, those
//! frames are shown as freed, and the address is no longer vouched for.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::memory::Addr;
use crate::profile::FunctionId;
use crate::python::alive::Reading;
use crate::python::code::Code;
use crate::python::identity::CodeIdentity;

/// Code objects kept for one process. A big application has some 50,000.
pub const CODES_MAX: usize = 1 << 17;

/// Bytes of names and location tables kept for one process. The standard library's modules all
/// together have some 20 MiB; a hostile process can have tables of 16 MiB each.
pub const BYTES_MAX: usize = 64 << 20;

/// A known code object: an index into the cache, valid until its next `forget` or `clear`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeIndex(u32);

/// Longer than an interrupt takes, on an emulated machine too.
const INTERRUPT_NS: u64 = 1_000_000;

/// One code object.
#[derive(Debug)]
pub struct CodeEntry {
    /// Where it lies.
    pub addr: Addr,
    /// What tells it from another one there.
    pub identity: CodeIdentity,
    /// Name, file, lines.
    pub code: Code,
    /// Its function in the profile's tables.
    pub function: FunctionId,
    /// `CLOCK_MONOTONIC` time from which on samples without an identity may mean this one;
    /// `u64::MAX` until it is vouched for.
    pub since: u64,
    /// Time of the sample that taught it.
    learned: u64,
    /// Time before which it was read, if that may have been another one in the making at its
    /// address; `u64::MAX` until the end of its batch, 0 if it is certain.
    read_before: u64,
    /// Last batch in which it has to be proved.
    touched: u64,
    /// Sample that met it last, by its time, and how often that did.
    met: (u64, u32),
}

impl CodeEntry {
    /// Whether a sample taken at `time` that carries its identity shows that it was read and not
    /// another one: if it is met after it was read, it was there all the time.
    #[must_use]
    pub const fn is_certain(&self, time: u64) -> bool {
        time > self.read_before
    }
}

/// What became of look-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeStats {
    /// Known, and the identity fits.
    pub hits: u64,
    /// Never seen at this address.
    pub misses: u64,
    /// Another code object was known at this address.
    pub replaced: u64,
    /// Read too late: the object that was sampled is gone.
    pub freed: u64,
    /// Read, but perhaps of another one in the making: not certain before it is met again.
    pub uncertain: u64,
    /// Proofs at the end of a batch that failed.
    pub moved: u64,
    /// Times that everything was dropped because the cache was full.
    pub cleared: u64,
}

/// The code objects of one process. When full, all are dropped, and with them every mark.
#[derive(Debug, Default)]
pub struct CodeCache {
    by_addr: HashMap<Addr, CodeIndex, RandomState>,
    entries: Vec<CodeEntry>,
    /// Heap bytes of the entries.
    bytes: usize,
    /// Increases whenever a known code object is dropped: resolved stacks of before are void.
    epoch: u64,
    /// How many that were not certain are so by now.
    settled: u64,
    /// What became of look-ups.
    pub stats: CodeStats,
}

impl CodeCache {
    /// The code object known at an address, whatever its identity.
    #[must_use]
    pub fn at(&self, addr: Addr) -> Option<CodeIndex> {
        self.by_addr.get(&addr).copied()
    }

    /// The entry behind an index.
    #[must_use]
    pub fn entry(&self, index: CodeIndex) -> Option<&CodeEntry> {
        self.entries.get(index.0 as usize)
    }

    /// How often known code objects were dropped.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether an insert needs [`Self::clear`] first.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= CODES_MAX || self.bytes >= BYTES_MAX
    }

    /// Known code objects, dropped ones included until the next clear.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_addr.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_addr.is_empty()
    }

    /// Remembers a code object just read for the sample taken at `time`, not yet vouched for.
    pub fn insert(
        &mut self,
        addr: Addr,
        Reading { code, is_certain }: Reading,
        function: FunctionId,
        time: u64,
    ) -> CodeIndex {
        let index = CodeIndex(self.entries.len() as u32);
        self.bytes += code.heap_bytes();
        self.entries.push(CodeEntry {
            addr,
            identity: code.identity,
            code,
            function,
            since: u64::MAX,
            learned: time,
            read_before: if is_certain { 0 } else { u64::MAX },
            touched: 0,
            met: (0, 0),
        });
        if self.by_addr.insert(addr, index).is_some() {
            self.epoch += 1;
        }
        index
    }

    /// Marks that samples from `now` on may leave this one's identity out, and those that were
    /// being taken: a sample's time is when its interrupt began, and the mark may be met later.
    pub fn vouch(&mut self, index: CodeIndex, now: u64) {
        if let Some(entry) = self.entries.get_mut(index.0 as usize) {
            // What the address meant before this one was learned is another matter.
            entry.since = meant_since(entry.learned, now);
        }
    }

    /// Notes that all reading until now is over.
    pub fn date(&mut self, index: CodeIndex, now: u64) {
        if let Some(entry) = self.entries.get_mut(index.0 as usize) {
            entry.read_before = entry.read_before.min(now);
        }
    }

    /// Takes it for certain from now on; `true` if it was not so far.
    pub fn settle(&mut self, index: CodeIndex) -> bool {
        let entry = self.entries.get_mut(index.0 as usize);
        let was_settled = entry.is_none_or(|entry| std::mem::take(&mut entry.read_before) == 0);
        self.settled += u64::from(!was_settled);
        !was_settled
    }

    /// Whether it is certain; none if that will never be known, since it was dropped before.
    #[must_use]
    pub fn is_certain(&self, index: CodeIndex) -> Option<bool> {
        let entry = self.entry(index)?;
        if entry.read_before == 0 {
            return Some(true);
        }
        (self.at(entry.addr) == Some(index)).then_some(false)
    }

    /// Changes whenever [`Self::is_certain`] can have changed.
    #[must_use]
    pub const fn certainty(&self) -> u64 {
        self.epoch + self.settled
    }

    /// Notes that a batch relies on this one; `true` the first time in that batch.
    pub fn touch(&mut self, index: CodeIndex, batch: u64) -> bool {
        self.entries
            .get_mut(index.0 as usize)
            .is_some_and(|entry| std::mem::replace(&mut entry.touched, batch) != batch)
    }

    /// Notes that the sample taken at `time` met this one; how often it did by now.
    pub fn meet(&mut self, index: CodeIndex, time: u64) -> u32 {
        let Some(entry) = self.entries.get_mut(index.0 as usize) else {
            return 0;
        };
        let times = if entry.met.0 == time {
            entry.met.1 + 1
        } else {
            1
        };
        entry.met = (time, times);
        times
    }

    /// Drops a code object whose proof failed.
    pub fn forget(&mut self, index: CodeIndex) {
        self.epoch += 1;
        if let Some(entry) = self.entries.get_mut(index.0 as usize) {
            entry.since = u64::MAX;
            if self.by_addr.get(&entry.addr) == Some(&index) {
                self.by_addr.remove(&entry.addr);
            }
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.epoch += 1;
        self.stats.cleared += 1;
        self.by_addr.clear();
        self.entries.clear();
        self.bytes = 0;
    }
}
/// From when on an address means the code object that a sample taught at `learned` and that gets
/// its mark at `now`.
fn meant_since(learned: u64, now: u64) -> u64 {
    now.saturating_sub(INTERRUPT_NS).max(learned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Tables;

    #[test]
    fn a_sample_that_was_being_taken_may_rely_on_the_mark() {
        let now = 10 * INTERRUPT_NS;
        assert!(meant_since(0, now) <= now - INTERRUPT_NS / 2);
    }

    #[test]
    fn what_may_have_been_another_one_is_certain_once_it_is_met_again() {
        let mut codes = CodeCache::default();
        let read = |is_certain| Reading {
            code: Code::unreadable(),
            is_certain,
        };
        let function = Tables::default().function("f", "f.py", 1);
        let index = codes.insert(Addr(8), read(false), function, 1);
        let is_certain = |codes: &CodeCache, time| codes.entries[0].is_certain(time);
        // In the batch that read it, nothing tells which samples came later.
        assert!(!is_certain(&codes, 1_000));
        codes.date(index, 100);
        codes.date(index, 200);
        assert!(!is_certain(&codes, 100) && is_certain(&codes, 101));
        assert!(codes.settle(index) && !codes.settle(index));
        assert!(is_certain(&codes, 1));
        codes.clear();
        let index = codes.insert(Addr(8), read(true), function, 1);
        assert!(is_certain(&codes, 1) && !codes.settle(index));
    }

    #[test]
    fn what_an_address_meant_before_is_another_matter() {
        let now = 10 * INTERRUPT_NS;
        assert_eq!(meant_since(now - 5, now), now - 5);
        assert_eq!(meant_since(3, 5), 3);
    }
}
