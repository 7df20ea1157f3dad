//! What to copy in the interrupt: the thread state, the used part of the data-stack chunks,
//! every frame that lies outside them, and the identity of code objects not yet vouched for.
//!
//! The thread is stopped by the interrupt that runs us, so its stack cannot move meanwhile.
//! The work is cut into steps without inner state ([`Scratch`] holds it all): the BPF program
//! drives them with `bpf_loop`, which checks a step once, and the host with a plain loop.

mod frames;
mod identity;
mod thread;
mod window;

use crate::abi::{
    BODY_WORDS, ENTERING, FRAME_WORDS_MAX, FRAMES_MAX, IDENTITIES, OK, Outcome, ProcConfig,
    RecordHeader, SLIDES_MAX, TRUNCATED, TSTATE_WORDS_MAX, WHOLE,
};
use window::{SINGLE, WHOLE_WORDS_MAX};

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
    /// First target address of the window, whose bytes are in `body` behind the head of a segment.
    pub window: u64,
    /// Bytes from it to the last place where a frame's words are in the window.
    pub window_room: u64,
    /// Chunk in which the window lies; frames only move to older chunks.
    pub chunk: u64,
    /// Past its last used byte.
    pub chunk_end: u64,
    /// The next older chunk; 0 at the oldest.
    pub older: u64,
    /// Past its last used byte; 0 while its head was not read.
    pub older_end: u64,
    /// The chunk before that one.
    pub oldest: u64,
    /// Frame for which the window is to move; 0 when it stays.
    pub slide: u64,
    /// Times it moved.
    pub slides: u64,
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
    /// Code objects whose identity this record has, by a hash of their address and marked with
    /// `epoch`; a few may be asked again.
    pub asked: [u64; ASKED],
    /// Another one for each try, above the bits of an address: `asked` need not be emptied.
    pub epoch: u64,
    /// Frames read one by one.
    pub off_chunk: u64,
    /// Identities read.
    pub identities: u64,
    /// The start of the thread state.
    pub tstate: [u64; TSTATE_WORDS_MAX],
    /// One frame's header, or a chunk's, in passing.
    pub frame: [u64; FRAME_WORDS_MAX],
    /// Head of the record; the body follows it in memory.
    pub header: RecordHeader,
    /// The window, behind the two words that make it the first segment of a record that carries
    /// its chunk whole; behind that the other segments, or the frame that is looked at.
    pub body: [u64; SINGLE + FRAME_WORDS_MAX],
    /// Head of the record that carries frame heads.
    pub heads_header: RecordHeader,
    /// Its segments.
    pub heads: [u64; BODY_WORDS],
    /// Never touched: the verifier of 6.1 knows a position in `heads` to within a few words only.
    pub slack: [u64; 64],
}
const _: () = assert!(WHOLE_WORDS_MAX < BODY_WORDS);

impl Default for Scratch {
    fn default() -> Self {
        Self {
            config: ProcConfig::default(),
            next: 0,
            frames: 0,
            outcome: 0,
            pos: 0,
            window: 0,
            window_room: 0,
            chunk: 0,
            chunk_end: 0,
            older: 0,
            older_end: 0,
            oldest: 0,
            slide: 0,
            slides: 0,
            cframe: 0,
            cframe_previous: 0,
            cframe_older: 0,
            cframe_expected: 0,
            cframe_matched: 0,
            asked: [0; ASKED],
            epoch: 0,
            off_chunk: 0,
            identities: 0,
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
const ASKED: usize = 256;
/// What is added to [`Scratch::epoch`]: more than any address of user space.
const EPOCH: u64 = 1 << 47;

/// Frames followed in one [`Scratch::step`]: to be called by the kernel costs more than a frame.
const FRAMES_A_STEP: u32 = 8;
/// Steps that one sample can take.
pub const STEPS_MAX: u32 = FRAMES_MAX / FRAMES_A_STEP + 2 * SLIDES_MAX as u32;

/// What a step asks its driver to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again.
    Next,
    /// The loop is over.
    Done,
}

impl Scratch {
    /// Follows some frames. At most [`STEPS_MAX`] calls.
    #[inline(always)]
    pub fn step<T: Target>(&mut self, target: &T) -> Step {
        if self.slide != 0 {
            self.slide(target);
        }
        let mut i = 0;
        while i < FRAMES_A_STEP {
            // A step that the window cuts short leaves the count off the multiples of a step.
            if self.frames >= u64::from(FRAMES_MAX) || self.follow_frame(target) == Step::Done {
                return Step::Done;
            }
            if self.slide != 0 {
                break;
            }
            i += 1;
        }
        Step::Next
    }

    /// Fills the head of the record and returns its outcome. Its driver gave up at
    /// [`FRAMES_MAX`] if a frame is left.
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
