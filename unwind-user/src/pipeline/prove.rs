//! Which code object a frame's address means: learned with its first samples, vouched for, and
//! proved again at the end of each batch that relied on it.

use super::batch::{Known, Seen};
use super::target::{Target, Vouch};
use crate::cache::code::CodeIndex;
use crate::layout::Identity;
use crate::memory::Addr;
use crate::profile::Tables;
use crate::python::frame::function_of;
use crate::python::identity::{CodeIdentity, read_identities, read_identity};

/// How long a code object whose identity is a fingerprint must have been met, and no other at its
/// address, before samples may leave the fingerprint out, in ns. Code that comes and goes does so
/// much faster than this, and code that stays soon gets cheap.
const SETTLED_NS: u64 = 200_000_000;

/// How often one sample must meet a code object for it not to wait. Each time the record carries
/// the fingerprint again, for which a deep recursion leaves no room.
const RECURSIVE: u32 = 8;

impl Target {
    /// What is known of the code object at an address in a sample.
    pub(super) fn know(&mut self, addr: Addr, seen: Seen<'_>, tables: &mut Tables) -> Known {
        let time = seen.time;
        let known = self.codes.at(addr);
        let entry = known.and_then(|index| Some((index, self.codes.entry(index)?)));
        let Ok(identity) = read_identity(seen.captured, &self.layout, addr) else {
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
                if !entry.is_certain(time) {
                    self.codes.stats.uncertain += 1;
                    return Known::Uncertain(index);
                }
                self.codes.stats.hits += 1;
                if self.codes.settle(index) {
                    self.batch.fresh.push(index);
                }
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
        self.learn(addr, identity, seen, tables)
    }

    /// Reads a code object for a sample, if it still is the one with this identity, and alive, after
    /// that.
    fn learn(
        &mut self,
        addr: Addr,
        identity: CodeIdentity,
        seen: Seen<'_>,
        tables: &mut Tables,
    ) -> Known {
        // Full until the end of the batch: then all is dropped, and read again as it is met.
        if self.codes.is_full() {
            self.codes.stats.freed += 1;
            return Known::Freed;
        }
        let layout = &self.layout;
        let function = || {
            let chain = seen.chain?;
            function_of(&layout.frame, seen.captured, chain, addr)
        };
        let reading = self
            .alive
            .read(&*self.memory, layout, addr, identity, function)
            // Without a version, only CPython's own code objects are known to live for ever.
            .filter(|reading| identity.is_proof() || reading.code.is_hidden());
        let Some(reading) = reading else {
            self.codes.stats.freed += 1;
            return Known::Freed;
        };
        let is_certain = reading.is_certain;
        let code = &reading.code;
        let function = tables.function(&code.qualname, &code.filename, code.first_line);
        let index = self.codes.insert(addr, reading, function, seen.time);
        if is_certain {
            self.batch.fresh.push(index);
            return Known::Proved(index);
        }
        self.codes.stats.uncertain += 1;
        self.batch.uncertain.push(index);
        Known::Uncertain(index)
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
