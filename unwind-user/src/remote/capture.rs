//! The kernel half's capture, run by us on a thread that does not run.
//!
//! It is the same code that runs in the interrupt, over another [`Memory`]: what it believes of a
//! frame chain, and which states between two instructions it refuses, is written once.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unwind_ebpf::abi::{ABI_VERSION, Outcome, ProcConfig, SAMPLE, WHOLE, vouched_mark};
use unwind_ebpf::capture::{STEPS_MAX, Scratch, Step, Target};

use crate::memory::{Addr, Memory};
use crate::sample::{Record, RecordError, write_record};

/// Where the capture begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The address of a `PyThreadState`.
    State(Addr),
    /// A thread's FS base, from which the paths of the configuration lead to its state.
    ThreadPointer(u64),
}

/// Marks of code objects whose identity a record need not carry, by slot.
pub type Vouched = Arc<[AtomicU64]>;

/// Whose a record is, and of when.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// CPU on which it ran last.
    pub cpu: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
}

/// Room for one sample, used again for the next.
pub struct Capture {
    scratch: Box<Scratch>,
    vouched: Option<Vouched>,
    carries_all: bool,
    record: Vec<u8>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl Capture {
    /// A capture of threads of the process that `config` describes.
    ///
    /// Records have no identities of code objects: while a thread holds still, its frames keep
    /// theirs alive, and whoever wants them reads many in one call.
    #[must_use]
    pub fn new(config: ProcConfig) -> Self {
        let config = ProcConfig {
            identity_words: 0,
            identity_objects: [0; _],
            ..config
        };
        Self::with(config, None)
    }

    /// The same, whose records carry the identities of code objects that have no mark.
    #[must_use]
    pub fn with_identities(config: ProcConfig, vouched: Vouched) -> Self {
        Self::with(config, Some(vouched))
    }

    fn with(config: ProcConfig, vouched: Option<Vouched>) -> Self {
        let mut scratch: Box<Scratch> = Box::default();
        scratch.config = config;
        Self {
            scratch,
            vouched,
            carries_all: false,
            record: Vec::new(),
        }
    }

    /// Changes the configuration.
    pub fn set_config(&mut self, config: ProcConfig) {
        self.scratch.config = config;
    }

    /// Whether the next records carry identities even of code objects that have a mark.
    pub fn carry_all(&mut self, all: bool) {
        self.carries_all = all;
    }

    /// Whose the next records are.
    pub fn set_sampled(&mut self, sampled: Sampled) {
        let header = &mut self.scratch.header;
        (header.pid, header.tid) = (sampled.pid, sampled.tid);
        (header.cpu, header.time) = (sampled.cpu, sampled.time);
    }

    /// Captures one thread, which must not run meanwhile. The record is of the kind that the ring
    /// carries, whatever its outcome.
    ///
    /// # Errors
    /// The outcome that ended it before there was a stack.
    pub fn take(&mut self, memory: &dyn Memory, origin: Origin) -> Result<u32, Outcome> {
        let target = Foreign {
            memory,
            vouched: self.vouched.as_deref().filter(|_| !self.carries_all),
            buffer: RefCell::default(),
        };
        // What was captured before is not this one's.
        self.record.clear();
        let scratch = &mut *self.scratch;
        match origin {
            Origin::State(state) => scratch.begin_at(&target, state.0)?,
            Origin::ThreadPointer(pointer) => scratch.begin(&target, pointer)?,
        }
        follow(scratch, &target);
        if scratch.retry_as_heads(&target) {
            follow(scratch, &target);
        }
        scratch.header.abi = ABI_VERSION;
        scratch.header.kind = SAMPLE;
        let outcome = scratch.finish(&target);
        let (header, body) = if scratch.header.flags & WHOLE != 0 {
            (&scratch.header, &scratch.body[..])
        } else {
            (&scratch.heads_header, &scratch.heads[..])
        };
        write_record(header, body, &mut self.record);
        Ok(outcome)
    }

    /// What [`Self::take`] captured last.
    ///
    /// # Errors
    /// When it captured nothing.
    pub fn record(&self) -> Result<Record<'_>, RecordError> {
        Record::parse(&self.record)
    }

    /// The same as bytes; empty when it captured nothing.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.record
    }

    /// The flags of the same; none when it captured nothing.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.record().map_or(0, |record| record.header.flags)
    }

    /// Frames outside the chunks and identities that the last record carries.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        (self.scratch.off_chunk, self.scratch.identities)
    }
}

fn follow(scratch: &mut Scratch, target: &impl Target) {
    for _ in 0..STEPS_MAX {
        if scratch.step(target) == Step::Done {
            break;
        }
    }
}

/// A thread of another process.
struct Foreign<'a> {
    memory: &'a dyn Memory,
    vouched: Option<&'a [AtomicU64]>,
    buffer: RefCell<Vec<u8>>,
}

impl Target for Foreign<'_> {
    fn copy<const L: usize, const N: usize>(
        &self,
        addr: u64,
        dst: &mut [u64; N],
        pos: u64,
        words: u64,
    ) -> bool {
        if words > L as u64 || pos > N.saturating_sub(L) as u64 {
            return false;
        }
        let mut bytes = self.buffer.borrow_mut();
        bytes.resize(words as usize * 8, 0);
        if self.memory.read(Addr(addr), &mut bytes).is_err() {
            return false;
        }
        let dst = dst.get_mut(pos as usize..).unwrap_or_default();
        for (to, from) in dst.iter_mut().zip(bytes.as_chunks().0) {
            *to = u64::from_le_bytes(*from);
        }
        true
    }

    fn word(&self, addr: u64) -> Option<u64> {
        self.memory.u64(Addr(addr)).ok()
    }

    fn vouched(&self, slot: u32) -> u64 {
        // Without a salt, the mark of NULL, which is no code object.
        let none = vouched_mark(0, 0);
        let mark = self.vouched.and_then(|marks| marks.get(slot as usize));
        mark.map_or(none, |mark| mark.load(Ordering::Acquire))
    }
}
