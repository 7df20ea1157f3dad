//! Which code object a frame's address means: learned with its first samples, vouched for, and
//! proved again at the end of each batch that relied on it.

use super::batch::Known;
use super::target::{Target, Vouch};
use crate::cache::code::CodeIndex;
use crate::layout::Identity;
use crate::memory::Addr;
use crate::profile::Tables;
use crate::python::identity::{CodeIdentity, read_identities, read_identity};
use crate::sample::Captured;

/// How long a code object whose identity is a fingerprint must have been met, and no other at its
/// address, before samples may leave the fingerprint out, in ns. Code that comes and goes does so
/// much faster than this, and code that stays soon gets cheap.
const SETTLED_NS: u64 = 200_000_000;

/// How often one sample must meet a code object for it not to wait. Each time the record carries
/// the fingerprint again, for which a deep recursion leaves no room.
const RECURSIVE: u32 = 8;

impl Target {
    /// What is known of the code object at an address in a sample taken at `time`.
    pub(super) fn know(
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
            Some((index, _)) => {
                // Whatever was known here had ended when this sample was taken, even if the new
                // one can no longer be read, and even if one just like the old is back by now.
                self.codes.stats.replaced += 1;
                self.codes.forget(index);
                self.batch.contested.push(addr);
            }
            None => self.codes.stats.misses += 1,
        }
        self.learn(addr, identity, time, tables)
            .map_or(Known::Freed, Known::Proved)
    }

    /// Reads a code object for the sample taken at `time`, if it still is the one with this identity, and alive, after that.
    fn learn(
        &mut self,
        addr: Addr,
        identity: CodeIdentity,
        time: u64,
        tables: &mut Tables,
    ) -> Option<CodeIndex> {
        // Full until the end of the batch: then all is dropped, and read again as it is met.
        if self.codes.is_full() {
            self.codes.stats.freed += 1;
            return None;
        }
        let code = self
            .code_type
            .read(&*self.memory, &self.layout, addr, identity)
            // Without a version, only CPython's own code objects are known to live for ever.
            .filter(|code| identity.is_proof() || code.is_hidden());
        let Some(code) = code else {
            self.codes.stats.freed += 1;
            return None;
        };
        let function = tables.function(&code.qualname, &code.filename, code.first_line);
        let index = self.codes.insert(addr, identity, code, function, time);
        self.batch.fresh.push(index);
        Some(index)
    }

    /// Vouches for what was read lately: at once where the identity is proof for ever; else, since
    /// the same may come back after another one at the address, when it has been there for a while.
    pub(super) fn vouch_for_settled(&mut self, pid: u32, now: u64, vouch: &mut dyn Vouch) {
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
    pub(super) fn prove(&mut self, pid: u32, batch: u64, vouch: &mut dyn Vouch) {
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
    pub(super) fn holds(&self, index: CodeIndex) -> bool {
        self.codes
            .entry(index)
            .is_some_and(|entry| entry.since != u64::MAX)
    }
}
