//! What to copy in the interrupt: the thread state, the used part of the data-stack chunks,
//! every frame that lies outside them, and the identity of code objects not yet vouched for.
//!
//! The thread is stopped by the interrupt that runs us, so its stack cannot move meanwhile.
//! The work is cut into steps without inner state ([`Scratch`] holds it all): the BPF program
//! drives them with `bpf_loop`, which checks a step once, and the host with a plain loop.

mod chunks;
mod frames;
mod identity;
mod thread;

use crate::abi::{
    BODY_WORDS, CHUNK_COPY_BYTES, CHUNKS_MAX, ENTERING, FRAME_WORDS_MAX, IDENTITIES, OK, Outcome,
    ProcConfig, RecordHeader, TRUNCATED, TSTATE_WORDS_MAX, WHOLE,
};

/// The interrupted thread, as the capture sees it.
pub trait Target {
    /// Copies `words` words at `addr` of the target to `dst[pos..]`, all or nothing.
    ///
    /// `false` if the memory is not there, if `words` exceeds `L`, or if `pos` exceeds `N - L`:
    /// bounds that the verifier can check one by one.
    fn copy<const L: usize, const N: usize>(
        &self,
        addr: u64,
        dst: &mut [u64; N],
        pos: u64,
        words: u64,
    ) -> bool;
    /// One word at `addr`.
    fn word(&self, addr: u64) -> Option<u64>;
    /// Word `slot` of the vouched table.
    fn vouched(&self, slot: u32) -> u64;
}

/// A copied chunk: which target addresses, and where in the body.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkCopy {
    /// First byte.
    pub start: u64,
    /// Past the last byte.
    pub end: u64,
    /// Word of the body that holds the byte at `start`.
    pub pos: u64,
}

/// Everything that a capture keeps between steps. Zero is a valid value.
#[repr(C)]
pub struct Scratch {
    /// The process; copied here once a sample so that steps need one look-up only.
    pub config: ProcConfig,
    /// Next frame to follow; 0 when the chain ended.
    pub next: u64,
    /// Frames followed.
    pub frames: u64,
    /// Why the chain ended.
    pub outcome: u64,
    /// Words of `body` in use.
    pub pos: u64,
    /// Next chunk to copy; 0 when there is none.
    pub chunk_next: u64,
    /// Its end, where the thread state knows it; 0: the chunk's own `top`.
    pub chunk_end: u64,
    /// Chunks copied.
    pub chunk_count: u64,
    /// Chunk of the last frame; frames only move to older chunks.
    pub chunk_index: u64,
    /// The cframe of the level being matched (3.11, 3.12).
    pub cframe: u64,
    /// Its `previous`; 0 at the root.
    pub cframe_previous: u64,
    /// The `previous` of that one.
    pub cframe_older: u64,
    /// Frame that this level's entry frame must link to.
    pub cframe_expected: u64,
    /// Levels matched.
    pub cframe_matched: u64,
    /// Code objects whose identity this record has, by a hash of their address; a few may be asked
    /// again.
    pub asked: [u64; ASKED],
    /// Frames read one by one.
    pub off_chunk: u64,
    /// Identities read.
    pub identities: u64,
    /// The chunks this sample copied.
    pub chunks: [ChunkCopy; CHUNKS_MAX],
    /// The start of the thread state.
    pub tstate: [u64; TSTATE_WORDS_MAX],
    /// One frame's header, or a chunk's, in passing.
    pub frame: [u64; FRAME_WORDS_MAX],
    /// Head of the record; the body follows it in memory.
    pub header: RecordHeader,
    /// The record's segments. Chunk copies come first; where they are carried as frame heads
    /// instead, the heads are in `heads`.
    pub body: [u64; BODY_WORDS + COPY_WORDS],
    /// Head of the record that carries frame heads.
    pub heads_header: RecordHeader,
    /// Its segments.
    pub heads: [u64; BODY_WORDS],
    /// Never touched: the verifier of 6.1 knows a position in `heads` to within a few words only.
    pub slack: [u64; 64],
}
const _: () = assert!(CHUNKS_MAX.is_power_of_two());

/// Most words that one copy into the body takes.
const COPY_WORDS: usize = CHUNK_COPY_BYTES / 8;

impl Default for Scratch {
    fn default() -> Self {
        Self {
            config: ProcConfig::default(),
            next: 0,
            frames: 0,
            outcome: 0,
            pos: 0,
            chunk_next: 0,
            chunk_end: 0,
            chunk_count: 0,
            chunk_index: 0,
            cframe: 0,
            cframe_previous: 0,
            cframe_older: 0,
            cframe_expected: 0,
            cframe_matched: 0,
            asked: [0; ASKED],
            off_chunk: 0,
            identities: 0,
            chunks: <[ChunkCopy; CHUNKS_MAX]>::default(),
            tstate: [0; _],
            frame: [0; _],
            header: RecordHeader::default(),
            body: [0; _],
            heads_header: RecordHeader::default(),
            heads: [0; _],
            slack: [0; _],
        }
    }
}

/// Code objects remembered as asked for; a power of two.
const ASKED: usize = 32;

/// What a step asks its driver to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again.
    Next,
    /// The loop is over.
    Done,
}

impl Scratch {
    /// Fills the head of the record and returns its outcome. The loop's driver gave up at
    /// [`FRAMES_MAX`](crate::abi::FRAMES_MAX) if a frame is left.
    #[inline(always)]
    pub fn finish<T: Target>(&mut self, target: &T) -> Outcome {
        let mut outcome = self.outcome as u32;
        if self.next != 0 {
            outcome = TRUNCATED;
        }
        if outcome != OK
            && self.config.has_cframe != 0
            && !self.is_cut_chain_proved(target, outcome)
        {
            outcome = ENTERING;
        }
        self.header.outcome = outcome;
        self.header.frames = self.frames as u32;
        self.header.body_words = self.pos as u32;
        if self.identities != 0 {
            self.header.flags |= IDENTITIES;
        }
        if self.header.flags & WHOLE == 0 {
            self.heads_header = self.header;
        }
        outcome
    }

    #[inline(always)]
    fn end(&mut self, outcome: Outcome) -> Step {
        self.outcome = if outcome == u32::MAX {
            u64::MAX
        } else {
            outcome as u64
        };
        self.next = 0;
        Step::Done
    }

    #[inline(always)]
    fn tstate_word(&self, offset: u64) -> u64 {
        get(&self.tstate, offset >> 3)
    }

    #[inline(always)]
    fn tstate_byte(&self, offset: u64) -> u64 {
        byte(&self.tstate, 0, offset)
    }
}

#[inline(always)]
fn get<const N: usize>(words: &[u64; N], at: u64) -> u64 {
    match words.get(at as usize) {
        Some(word) => *word,
        None => 0,
    }
}

#[inline(always)]
fn set<const N: usize>(words: &mut [u64; N], at: u64, value: u64) {
    if let Some(word) = words.get_mut(at as usize) {
        *word = value;
    }
}

#[inline(always)]
fn byte<const N: usize>(words: &[u64; N], base: u64, offset: u64) -> u64 {
    (get(words, base + (offset >> 3)) >> ((offset & 7) * 8)) & 0xff
}

#[cfg(test)]
mod tests;
