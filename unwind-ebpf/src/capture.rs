//! What to copy in the interrupt: the thread state, the used part of the data-stack chunks,
//! every frame that lies outside them, and the identity of code objects not yet vouched for.
//!
//! The thread is stopped by the interrupt that runs us, so its stack cannot move meanwhile.
//! The work is cut into steps without inner state ([`Scratch`] holds it all): the BPF program
//! drives them with `bpf_loop`, which checks a step once, and the host with a plain loop.

use crate::abi::{
    BODY_WORDS, BOTTOM_BASE_FRAME, BOTTOM_NULL, CHUNK_COPY_BYTES, CHUNKS_MAX, COLLECTING,
    ENTERING, FOREIGN_STATE, FRAME_WORDS_MAX, HEAD_WORDS, HOLDS_GIL,
    IDENTITIES, IDENTITY_WORDS_MAX, INCOMPLETE, NAME_WORDS, NO_STATE, OK, Outcome, PAGE_FAULT, PATHS_MAX,
    ProcConfig, RecordHeader, SEGMENT_HEAD, SEGMENT_RANGE, TRUNCATED, TSTATE_WORDS_MAX, WHOLE,
    WHOLE_BYTES, segment_tag, vouched_mark, vouched_slot,
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
    /// Frame that this level's entry frame must link to.
    pub cframe_expected: u64,
    /// Levels matched.
    pub cframe_matched: u64,
    /// Code object of the frame before, whose identity need not be asked again.
    pub last_code: u64,
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
}

/// Most words that one copy into the body takes.
const COPY_WORDS: usize = CHUNK_COPY_BYTES / 8;

/// Bytes of C stack within which a cframe and its entry frame lie: both are locals of
/// `_PyEval_EvalFrameDefault`.
const ENTRY_DISTANCE: u64 = 1024;

/// What a step asks its driver to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again.
    Next,
    /// The loop is over.
    Done,
}

impl Scratch {
    /// Finds this thread's state from its thread pointer and prepares the loops.
    ///
    /// The state is believed only if its `thread_id` is the thread pointer (`pthread_self()` on
    /// x86-64 Linux), whichever way led to it.
    ///
    /// # Errors
    /// The outcome that ends this sample without a stack.
    #[inline(always)]
    pub fn begin<T: Target>(&mut self, target: &T, thread_pointer: u64) -> Result<(), Outcome> {
        self.next = 0;
        self.frames = 0;
        self.outcome = OK as u64;
        self.pos = 0;
        self.chunk_next = 0;
        self.chunk_end = 0;
        self.chunk_count = 0;
        self.chunk_index = 0;
        self.cframe = 0;
        self.cframe_previous = 0;
        self.cframe_expected = 0;
        self.cframe_matched = 0;
        self.last_code = 0;
        self.off_chunk = 0;
        self.identities = 0;

        let mut worst = NO_STATE;
        let mut tstate = 0;
        let mut i = 0;
        while i < PATHS_MAX {
            let found = follow(&self.config, i, target, thread_pointer);
            if found != 0 {
                let words = self.config.tstate_words;
                if target.copy::<TSTATE_WORDS_MAX, _>(found, &mut self.tstate, 0, words)
                {
                    if self.tstate_word(self.config.thread_id) == thread_pointer {
                        tstate = found;
                        break;
                    }
                    worst = FOREIGN_STATE;
                } else {
                    worst = PAGE_FAULT;
                }
            }
            i += 1;
        }
        if tstate == 0 {
            return Err(worst);
        }
        self.header.tstate = tstate;
        self.header.interp = self.tstate_word(self.config.interp);
        self.header.gc_frame = 0;
        self.header.gil_holder = 0;
        self.header.flags = 0;
        self.header.base_frame = 0;
        if self.config.bottom == BOTTOM_BASE_FRAME {
            self.header.base_frame = self.tstate_word(self.config.base_frame);
        }

        self.next = self.tstate_word(self.config.current_frame);
        if self.config.has_cframe != 0 {
            self.begin_cframe(target)?;
        }
        self.header.frame = self.next;

        self.chunk_next = self.tstate_word(self.config.datastack_chunk);
        self.header.chunk = self.chunk_next;
        let top = self.tstate_word(self.config.datastack_chunk + 8);
        let limit = self.tstate_word(self.config.datastack_chunk + 16);
        // While chunks are being switched, `top` can lie outside the chunk: then it is not used.
        if self.chunk_next != 0 && top > self.chunk_next && top <= limit {
            self.chunk_end = top;
        } else {
            self.chunk_end = self.chunk_next;
        }
        self.interpreter_state(target);
        Ok(())
    }

    /// Reads the newest cframe, whose `current_frame` is the leaf, and the one before it.
    #[inline(always)]
    fn begin_cframe<T: Target>(&mut self, target: &T) -> Result<(), Outcome> {
        let cframe = self.next;
        let current = target.word(cframe.wrapping_add(self.config.cframe_current));
        let previous = target.word(cframe.wrapping_add(self.config.cframe_previous));
        let (Some(current), Some(previous)) = (current, previous) else {
            return Err(PAGE_FAULT);
        };
        self.next = current;
        self.cframe = cframe;
        self.cframe_previous = previous;
        if previous != 0 && !self.expect(target) {
            return Err(PAGE_FAULT);
        }
        Ok(())
    }

    /// Sets what the entry frame of this level must link to: `cframe.previous->current_frame`.
    #[inline(always)]
    fn expect<T: Target>(&mut self, target: &T) -> bool {
        let at = self.cframe_previous.wrapping_add(self.config.cframe_current);
        match target.word(at) {
            Some(frame) => {
                self.cframe_expected = frame;
                true
            }
            None => false,
        }
    }

    /// GIL holder and garbage collection, as they are in this interrupt. Absence is not an error.
    #[inline(always)]
    fn interpreter_state<T: Target>(&mut self, target: &T) {
        let interp = self.header.interp;
        if self.config.has_gil_flag != 0 {
            if self.tstate_byte(self.config.holds_gil) != 0 {
                self.header.flags |= HOLDS_GIL;
                self.header.gil_holder = self.header.tstate;
            }
        } else if self.config.gil_holder != 0 {
            let mut gil = 0;
            if self.config.gil_pointer != 0 {
                gil = target.word(interp.wrapping_add(self.config.gil_pointer)).unwrap_or(0);
            }
            let at = gil.wrapping_add(self.config.gil_holder);
            // last_holder, then the int `locked` (CPython's `struct _gil_runtime_state`).
            if target.copy::<FRAME_WORDS_MAX, _>(at, &mut self.frame, 0, 2) && self.frame[1] as u32 == 1 {
                self.header.gil_holder = self.frame[0];
                if self.frame[0] == self.header.tstate {
                    self.header.flags |= HOLDS_GIL;
                }
            }
        }
        if self.config.collecting != 0 {
            let at = interp.wrapping_add(self.config.collecting);
            if target.word(at & !7).is_some_and(|w| (w >> ((at & 7) * 8)) as u32 != 0) {
                self.header.flags |= COLLECTING;
                if self.config.gc_frame != 0 {
                    let at = interp.wrapping_add(self.config.gc_frame);
                    self.header.gc_frame = target.word(at).unwrap_or(0);
                }
            }
        }
    }

    /// Copies the used part of the next chunk, newest first. At most [`CHUNKS_MAX`] calls.
    #[inline(always)]
    pub fn copy_chunk<T: Target>(&mut self, target: &T) -> Step {
        let chunk = self.chunk_next;
        let index = self.chunk_count as usize;
        if chunk == 0 || index >= CHUNKS_MAX || self.pos > (BODY_WORDS - COPY_WORDS - 16) as u64 {
            return Step::Done;
        }
        // _PyStackChunk: previous, size in bytes, top in 8-byte slots, data.
        if !target.copy::<FRAME_WORDS_MAX, _>(chunk, &mut self.frame, 0, 3) {
            return Step::Done;
        }
        self.chunk_next = self.frame[0];
        let mut end = self.chunk_end;
        if index != 0 {
            end = chunk.wrapping_add(24 + (self.frame[2] & 0xffff_ffff) * 8);
        }
        self.chunk_end = 0;
        let mut start = chunk;
        if end > chunk && end - chunk > CHUNK_COPY_BYTES as u64 {
            start = end - CHUNK_COPY_BYTES as u64;
        }
        let words = end.wrapping_sub(start) >> 3;
        if end <= chunk || (end | start) & 7 != 0 || words > (CHUNK_COPY_BYTES / 8) as u64 {
            end = start;
        }
        let words = (end - start) >> 3;
        let pos = self.pos + 2;
        if !target.copy::<COPY_WORDS, _>(start, &mut self.body, pos, words) {
            end = start;
        } else {
            set(&mut self.body, self.pos, start);
            set(&mut self.body, self.pos + 1, segment_tag(SEGMENT_RANGE, words, 0));
            self.pos = pos + words;
        }
        if let Some(copy) = self.chunks.get_mut(index) {
            *copy = ChunkCopy { start, end, pos };
        }
        self.chunk_count += 1;
        Step::Next
    }

    /// Decides how the frames are carried, once the chunks are copied.
    #[inline(always)]
    pub fn begin_frames(&mut self) {
        if self.pos <= (WHOLE_BYTES / 8) as u64 && self.chunk_next == 0 {
            self.header.flags |= WHOLE;
        } else {
            self.pos = 0;
        }
    }

    /// Starts the frames over as heads, when frames outside the chunks took too much room.
    /// `false` when this sample needs no second try.
    #[inline(always)]
    pub fn retry_as_heads<T: Target>(&mut self, target: &T) -> bool {
        if self.outcome != u64::MAX {
            return false;
        }
        self.header.flags &= !WHOLE;
        self.outcome = OK as u64;
        self.pos = 0;
        self.frames = 0;
        self.chunk_index = 0;
        self.cframe_matched = 0;
        self.last_code = 0;
        self.off_chunk = 0;
        self.identities = 0;
        self.next = self.tstate_word(self.config.current_frame);
        if self.config.has_cframe != 0 && self.begin_cframe(target).is_err() {
            self.outcome = PAGE_FAULT as u64;
            self.next = 0;
        }
        true
    }

    /// Follows one frame. At most [`FRAMES_MAX`] calls.
    #[inline(always)]
    pub fn follow_frame<T: Target>(&mut self, target: &T) -> Step {
        let addr = self.next;
        let whole = self.header.flags & WHOLE != 0;
        if addr == self.header.base_frame {
            // Without a base frame this is the NULL of a thread that runs no Python code.
            let bottom = self.config.bottom == BOTTOM_BASE_FRAME || self.frames == 0;
            return self.end(if bottom { OK } else { INCOMPLETE });
        }
        if addr == 0 || addr & 7 != 0 {
            return self.end(INCOMPLETE);
        }
        // The frame's words: in a chunk's copy, else read now, to where they will be carried.
        let words = self.config.frame_words;
        let mut at = self.locate(addr, words * 8);
        if at == 0 {
            if whole && self.pos > BODY_WORDS as u64 / 2 {
                return self.end(u32::MAX);
            }
            // Heads need the bytes in passing only: after the copied chunks.
            let base = if whole { self.pos } else { BODY_WORDS as u64 - 2 };
            at = base + 2;
            if !target.copy::<FRAME_WORDS_MAX, _>(addr, &mut self.body, at, words) {
                return self.end(PAGE_FAULT);
            }
            if whole {
                set(&mut self.body, base, addr);
                set(&mut self.body, base + 1, segment_tag(SEGMENT_RANGE, words, 0));
                self.pos = at + words;
            }
            self.off_chunk += 1;
        }
        let code = get(&self.body, at + (self.config.frame_code >> 3));
        let previous = get(&self.body, at + (self.config.frame_previous >> 3));
        let owner = byte(&self.body, at, self.config.frame_owner);
        if owner > self.config.owner_max {
            return self.end(INCOMPLETE);
        }
        if !whole {
            let instr = get(&self.body, at + (self.config.frame_instr >> 3));
            if self.pos > BODY_WORDS as u64 - 64 {
                return self.end(TRUNCATED);
            }
            let pos = self.pos;
            set(&mut self.heads, pos, addr);
            set(&mut self.heads, pos + 1, segment_tag(SEGMENT_HEAD, HEAD_WORDS as u64, owner));
            set(&mut self.heads, pos + 2, code);
            set(&mut self.heads, pos + 3, previous);
            set(&mut self.heads, pos + 4, instr);
            self.pos = pos + 5;
        }
        self.frames += 1;

        let entry = if self.config.is_entry != 0 {
            byte(&self.body, at, self.config.is_entry) != 0
        } else {
            owner >= self.config.entry_owner
        };
        if owner < self.config.entry_owner {
            let code = code & !self.config.code_tag;
            if code != 0 && code != self.last_code {
                self.last_code = code;
                self.identify(target, code, whole);
            }
        }
        if self.config.has_cframe != 0 && entry && !self.match_entry(target, addr, previous) {
            return self.end(ENTERING);
        }
        if previous == 0 && self.config.bottom != BOTTOM_BASE_FRAME {
            if self.config.has_cframe != 0 && self.cframe_previous != 0 {
                return self.end(ENTERING);
            }
            let bottom = self.config.bottom == BOTTOM_NULL || entry;
            return self.end(if bottom { OK } else { INCOMPLETE });
        }
        self.next = previous;
        Step::Next
    }

    /// 3.11 and 3.12 publish a new cframe before its fields are written. A chain is believed when
    /// at each level an entry frame links to the frame that the level below it was running.
    ///
    /// 3.12 has one entry frame a level, beside the cframe on the C stack, so the first one met
    /// must match. 3.11 marks Python frames, and `gen.throw` links some by hand: any may match.
    #[inline(always)]
    fn match_entry<T: Target>(&mut self, target: &T, entry: u64, previous: u64) -> bool {
        if self.config.is_entry == 0 && entry.abs_diff(self.cframe) > ENTRY_DISTANCE {
            return false;
        }
        if self.cframe_previous == 0 || previous != self.cframe_expected {
            return self.config.is_entry != 0;
        }
        let older = self.cframe_previous;
        let Some(previous) = target.word(older.wrapping_add(self.config.cframe_previous)) else {
            return false;
        };
        self.cframe_matched += 1;
        self.cframe = older;
        self.cframe_previous = previous;
        previous == 0 || self.expect(target)
    }

    /// Captures what names this code object for sure, unless user space vouches for the address.
    /// What finds no room is asked again by a later sample.
    #[inline(always)]
    fn identify<T: Target>(&mut self, target: &T, code: u64, whole: bool) {
        let salt = self.config.salt;
        if target.vouched(vouched_slot(code, salt)) == vouched_mark(code, salt) {
            return;
        }
        let words = self.config.identity_words;
        if self.pos > BODY_WORDS as u64 - 64 {
            return;
        }
        self.range(target, code.wrapping_add(self.config.identity), words, whole);
        if self.config.identity_name != 0 {
            let name = target.word(code.wrapping_add(self.config.identity_name)).unwrap_or(0);
            // Past ob_refcnt and ob_type, which change or tell nothing.
            self.range(target, name.wrapping_add(16), NAME_WORDS as u64, whole);
        }
        self.identities += 1;
    }

    /// Appends a range of target memory to the record, if it can be read.
    #[inline(always)]
    fn range<T: Target>(&mut self, target: &T, addr: u64, words: u64, whole: bool) {
        let pos = self.pos;
        let tag = segment_tag(SEGMENT_RANGE, words, 0);
        if whole {
            if target.copy::<IDENTITY_WORDS_MAX, _>(addr, &mut self.body, pos + 2, words) {
                set(&mut self.body, pos, addr);
                set(&mut self.body, pos + 1, tag);
                self.pos = pos + 2 + words;
            }
        } else if target.copy::<IDENTITY_WORDS_MAX, _>(addr, &mut self.heads, pos + 2, words) {
            set(&mut self.heads, pos, addr);
            set(&mut self.heads, pos + 1, tag);
            self.pos = pos + 2 + words;
        }
    }

    /// The word of the body where the frame's copy begins; 0 if it lies in no copied chunk.
    #[inline(always)]
    fn locate(&mut self, addr: u64, bytes: u64) -> u64 {
        let index = self.chunk_index;
        let mut step = 0;
        while step < 2 {
            if let Some(chunk) = self.chunks.get((index + step) as usize) {
                let known = index + step < self.chunk_count;
                if known && addr >= chunk.start && addr.wrapping_add(bytes) <= chunk.end {
                    let at = chunk.pos + ((addr - chunk.start) >> 3);
                    self.chunk_index = index + step;
                    return at;
                }
            }
            step += 1;
        }
        0
    }

    #[inline(always)]
    fn end(&mut self, outcome: Outcome) -> Step {
        self.outcome = if outcome == u32::MAX { u64::MAX } else { outcome as u64 };
        self.next = 0;
        Step::Done
    }

    /// Fills the head of the record and returns its outcome. The loop's driver gave up at
    /// [`FRAMES_MAX`] if a frame is left.
    #[inline(always)]
    pub fn finish(&mut self) -> Outcome {
        let mut outcome = self.outcome as u32;
        if self.next != 0 {
            outcome = TRUNCATED;
        }
        // Only the newest cframe can be half written: a cut chain needs its first level matched.
        let unproved = self.config.has_cframe != 0 && self.cframe_matched == 0;
        let cut = outcome == TRUNCATED || outcome == PAGE_FAULT;
        if cut && unproved && self.cframe_previous != 0 {
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
    fn tstate_word(&self, offset: u64) -> u64 {
        get(&self.tstate, offset >> 3)
    }

    #[inline(always)]
    fn tstate_byte(&self, offset: u64) -> u64 {
        byte(&self.tstate, 0, offset)
    }
}

/// Follows one way from the thread pointer; 0 if it leads nowhere.
#[inline(always)]
fn follow<T: Target>(config: &ProcConfig, path: usize, target: &T, thread_pointer: u64) -> u64 {
    let Some(path) = config.paths.get(path) else { return 0 };
    let mut at = thread_pointer;
    let mut step = 0;
    while step < 3 {
        if step as u64 >= path.steps {
            break;
        }
        match target.word(at.wrapping_add(path.offsets[step] as u64)) {
            // A dynamic TLS slot of all ones means "not allocated yet".
            Some(value) if value != 0 && value != u64::MAX => at = value,
            _ => return 0,
        }
        step += 1;
    }
    if step == 0 { 0 } else { at }
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
