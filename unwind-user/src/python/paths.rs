//! Learns, from live threads, how a thread's state is found from its thread pointer.
//!
//! We know the thread states of some live threads, and each names its thread pointer. Wherever the
//! word at the same place of every one of them is its own thread state (or NULL), a way is found:
//! no symbol, no disassembly, no table a C library and build. CPython keeps two such words:
//!
//! - the *current* state (3.12+, a thread-local variable), NULL while the thread is without GIL;
//! - the *GIL-state* one, which stays: a pthread key up to 3.14, thread-local in 3.15.
//!
//! Thread-local variables lie below the thread pointer where the module was there at the start,
//! else in a block of their own behind the thread's vector (`dtv`).
//! What a place holds is only ever compared, so a C library that is arranged otherwise than we
//! think costs a way, and gives no wrong one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use unwind_ebpf::abi::{PATHS_MAX, TstatePath};

use super::tstate::ThreadState;
use crate::memory::{Addr, Memory};
use crate::process::elf::Tls;

/// Threads that are looked at: more prove nothing more.
const THREADS_MAX: usize = 64;
/// Ways that are compared.
const CANDIDATES_MAX: usize = 64;
/// Most bytes of thread-local storage searched a block.
const BLOCK_MAX: u64 = 64 << 10;
/// Room that glibc leaves below the blocks of the start for modules opened later, at least.
const SURPLUS: u64 = 1024;
/// Entries of a `dtv` that are looked at.
const MODULES_MAX: u64 = 512;

/// glibc's `struct pthread`: `header.dtv`. (Offsets checked with 2.36 and 2.43; they are part of
/// what debuggers rely on and did not change since 2.4.)
const DTV: u64 = 8;
/// An entry of a `dtv`: value, and what to free.
const DTV_ENTRY: u64 = 16;
/// `specific_1stblock`: the first 32 keys, inline.
const KEYS: u64 = 0x310;
/// `specific`: pointers to blocks of 32 keys.
const KEY_BLOCKS: u64 = 0x510;
/// Pointers in `specific`.
const KEY_BLOCKS_MAX: u64 = 32;
/// Bytes of a block of 32 keys, each a sequence number and the value.
const KEY_BLOCK: u64 = 32 * 16;

/// Where the thread-local variables of the module that holds the runtime can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsFacts {
    /// Its thread-local block; none where the module has none (3.11).
    pub tls: Option<Tls>,
    /// Whether it is the program itself, whose block ends at the thread pointer.
    pub is_exe: bool,
}

/// Ways that hold for the live `threads`, best first, at most [`PATHS_MAX`].
///
/// Each gives a thread's own state or nothing, in all threads looked at. The current state comes
/// before the GIL-state; one that stays without GIL is among them if there is any.
#[must_use]
pub fn learn(memory: &dyn Memory, threads: &[ThreadState], facts: TlsFacts) -> Vec<TstatePath> {
    // Two interpreters' states can belong to one thread; either is its own.
    let mut own: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for thread in threads.iter().filter(|thread| thread.thread_id != 0) {
        own.entry(thread.thread_id).or_default().push(thread.addr.0);
    }
    let threads: Vec<_> = own
        .iter()
        .take(THREADS_MAX)
        .map(|(&pointer, states)| Thread {
            memory,
            pointer,
            states,
        })
        .collect();
    let mut candidates: Vec<Candidate> = Vec::new();
    for path in threads.iter().flat_map(|thread| thread.hits(facts)) {
        if candidates.len() < CANDIDATES_MAX && candidates.iter().all(|known| known.path != path) {
            candidates.push(Candidate {
                path,
                right: 0,
                wrong: 0,
                empty: 0,
            });
        }
    }
    for thread in &threads {
        let answers: Vec<_> = candidates
            .iter()
            .map(|known| thread.follow(&known.path))
            .collect();
        // A thread that no way leads to its state has ended or not begun: it proves nothing.
        if !answers.iter().any(|&answer| thread.owns(answer)) {
            continue;
        }
        for (candidate, answer) in candidates.iter_mut().zip(answers) {
            match answer {
                0 => candidate.empty += 1,
                answer if thread.owns(answer) => candidate.right += 1,
                _ => candidate.wrong += 1,
            }
        }
    }
    best(candidates)
}

fn best(mut candidates: Vec<Candidate>) -> Vec<TstatePath> {
    candidates.retain(|candidate| candidate.right > 0 && candidate.wrong == 0);
    candidates.sort_by_key(Candidate::rank);
    // The way that answers in most threads is the one that stays without GIL.
    let widest = candidates
        .iter()
        .enumerate()
        .max_by_key(|(index, c)| (c.right, Reverse(*index)));
    if let Some((index, _)) = widest.filter(|(index, _)| *index >= PATHS_MAX) {
        candidates.swap(index, PATHS_MAX - 1);
    }
    candidates.truncate(PATHS_MAX);
    candidates
        .into_iter()
        .map(|candidate| candidate.path)
        .collect()
}

/// A way, and in how many threads it held.
#[derive(Clone, Debug)]
struct Candidate {
    path: TstatePath,
    right: usize,
    wrong: usize,
    empty: usize,
}

impl Candidate {
    /// Thread-local variables first, and of these the one that can be NULL: the current state.
    /// Then the keys: extensions have some of their own, the widest is CPython's.
    fn rank(&self) -> impl Ord + use<> {
        let offset = self.path.offsets[0];
        let is_variable = self.path.steps == 3 || (self.path.steps == 1 && offset < 0);
        let stays = is_variable && self.empty == 0;
        (
            !is_variable,
            stays,
            Reverse(self.right),
            self.path.steps,
            Reverse(offset),
        )
    }
}

/// A live thread, by its thread pointer.
struct Thread<'a> {
    memory: &'a dyn Memory,
    pointer: u64,
    states: &'a [u64],
}

impl Thread<'_> {
    fn owns(&self, state: u64) -> bool {
        self.states.contains(&state)
    }

    fn word(&self, addr: u64) -> u64 {
        self.memory.u64(Addr(addr)).unwrap_or(0)
    }

    /// What the kernel half finds: 0 where the way leads nowhere.
    fn follow(&self, path: &TstatePath) -> u64 {
        let steps = path
            .offsets
            .iter()
            .take(usize::try_from(path.steps).unwrap_or(0));
        steps.fold(self.pointer, |at, &offset| match at {
            0 => 0,
            at => Some(self.word(at.wrapping_add_signed(offset)))
                .filter(|&w| w != u64::MAX)
                .unwrap_or(0),
        })
    }

    /// Every way that leads to one of this thread's states.
    fn hits(&self, facts: TlsFacts) -> Vec<TstatePath> {
        let mut hits = Vec::new();
        self.variables(facts, &mut hits);
        self.keys(&mut hits);
        hits
    }

    fn variables(&self, facts: TlsFacts, hits: &mut Vec<TstatePath>) {
        let Some(tls) = facts.tls else { return };
        let size = tls.size.min(BLOCK_MAX);
        let (fixed, blocks) = self.blocks();
        let below = if facts.is_exe {
            size.checked_next_multiple_of(tls.align)
                .unwrap_or(size)
                .min(BLOCK_MAX)
        } else {
            fixed + SURPLUS
        };
        for offset in self.search(self.pointer.wrapping_sub(below), below) {
            hits.push(path(&[offset - below as i64]));
        }
        for (entry, block) in blocks {
            for offset in self.search(block, size) {
                hits.push(path(&[DTV as i64, entry as i64, offset]));
            }
        }
    }

    /// Bytes below the thread pointer that hold blocks at the same place in each thread (beyond
    /// lies the thread's stack), and the other blocks: offset of the `dtv` entry, address.
    fn blocks(&self) -> (u64, Vec<(u64, u64)>) {
        let dtv = self.word(self.pointer.wrapping_add(DTV));
        let modules = self.word(dtv.wrapping_sub(DTV_ENTRY)).min(MODULES_MAX);
        let mut fixed = 0;
        let mut blocks = Vec::new();
        for entry in (1..=modules).map(|module| module * DTV_ENTRY) {
            let block = self.word(dtv.wrapping_add(entry));
            match self.pointer.checked_sub(block) {
                // All ones: not there yet.
                _ if block == 0 || block == u64::MAX => {}
                Some(below) if below < BLOCK_MAX => fixed = fixed.max(below),
                _ => blocks.push((entry, block)),
            }
        }
        (fixed, blocks)
    }

    fn keys(&self, hits: &mut Vec<TstatePath>) {
        for offset in self.search(self.pointer.wrapping_add(KEYS), KEY_BLOCK) {
            hits.push(path(&[offset + KEYS as i64]));
        }
        for slot in (1..KEY_BLOCKS_MAX).map(|block| KEY_BLOCKS + 8 * block) {
            let block = self.word(self.pointer.wrapping_add(slot));
            if block != 0 {
                for offset in self.search(block, KEY_BLOCK) {
                    hits.push(path(&[slot as i64, offset]));
                }
            }
        }
    }

    /// Offsets in `len` bytes at `start` of words that are one of this thread's states.
    fn search(&self, start: u64, len: u64) -> Vec<i64> {
        let mut found = Vec::new();
        let mut bytes = [0; 4096];
        let mut at = 0;
        while at < len {
            // By pages, since one of them may be missing.
            let here = start.wrapping_add(at);
            let piece = (4096 - here % 4096).min(len - at);
            let bytes = &mut bytes[..piece as usize];
            if here % 8 == 0 && self.memory.read(Addr(here), bytes).is_ok() {
                let words = bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .map(|word| u64::from_le_bytes(*word));
                let hits = words.enumerate().filter(|(_, word)| self.owns(*word));
                found.extend(hits.map(|(index, _)| at as i64 + 8 * index as i64));
            }
            at += piece;
        }
        found
    }
}

fn path(offsets: &[i64]) -> TstatePath {
    let mut path = TstatePath {
        steps: offsets.len() as u64,
        ..TstatePath::default()
    };
    for (to, from) in path.offsets.iter_mut().zip(offsets) {
        *to = *from;
    }
    path
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
