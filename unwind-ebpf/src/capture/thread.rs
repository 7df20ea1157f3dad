//! From the thread pointer to the thread state, and what hangs on it.

use super::{EPOCH, Scratch, Target};
use crate::abi::{
    BOTTOM_BASE_FRAME, COLLECTING, ENTERING, FOREIGN_STATE, FRAME_WORDS_MAX, HOLDS_GIL, NO_STATE,
    OK, Outcome, PAGE_FAULT, PATHS_MAX, ProcConfig, TSTATE_WORDS_MAX,
};

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
        self.reset();
        let tstate = self.find_state(target, thread_pointer)?;
        self.begin_state(target, tstate)
    }

    /// The same for a thread that does not run, whose state somebody else found.
    ///
    /// # Errors
    /// The outcome that ends this sample without a stack.
    #[inline(always)]
    pub fn begin_at<T: Target>(&mut self, target: &T, tstate: u64) -> Result<(), Outcome> {
        self.reset();
        let words = self.config.tstate_words;
        if !target.copy::<TSTATE_WORDS_MAX, _>(tstate, &mut self.tstate, 0, words) {
            return Err(PAGE_FAULT);
        }
        self.begin_state(target, tstate)
    }

    #[inline(always)]
    fn reset(&mut self) {
        self.next = 0;
        self.frames = 0;
        self.outcome = OK as u64;
        self.pos = 0;
        self.slide = 0;
        self.slides = 0;
        self.cframe = 0;
        self.cframe_previous = 0;
        self.cframe_older = 0;
        self.cframe_expected = 0;
        self.cframe_matched = 0;
        self.epoch = self.epoch.wrapping_add(EPOCH);
        self.off_chunk = 0;
        self.identities = 0;
    }

    /// This thread's state, and a copy of its start.
    #[inline(always)]
    fn find_state<T: Target>(&mut self, target: &T, thread_pointer: u64) -> Result<u64, Outcome> {
        let mut worst = NO_STATE;
        let mut i = 0;
        while i < PATHS_MAX {
            let found = follow(&self.config, i, target, thread_pointer);
            if found != 0 {
                let words = self.config.tstate_words;
                if target.copy::<TSTATE_WORDS_MAX, _>(found, &mut self.tstate, 0, words) {
                    if self.tstate_word(self.config.thread_id) == thread_pointer {
                        return Ok(found);
                    }
                    worst = FOREIGN_STATE;
                } else {
                    worst = PAGE_FAULT;
                }
            }
            i += 1;
        }
        Err(worst)
    }

    #[inline(always)]
    fn begin_state<T: Target>(&mut self, target: &T, tstate: u64) -> Result<(), Outcome> {
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

        self.chunk = self.tstate_word(self.config.datastack_chunk);
        self.header.chunk = self.chunk;
        let top = self.tstate_word(self.config.datastack_chunk + 8);
        let limit = self.tstate_word(self.config.datastack_chunk + 16);
        // While chunks are being switched, `top` can lie outside the chunk: then it is not used.
        if self.chunk != 0 && top > self.chunk && top <= limit {
            self.chunk_end = top;
        } else {
            self.chunk_end = self.chunk;
        }
        self.interpreter_state(target);
        self.begin_window(target);
        Ok(())
    }

    /// Reads the newest cframe, whose `current_frame` is the leaf, and the one before it.
    #[inline(always)]
    pub(super) fn begin_cframe<T: Target>(&mut self, target: &T) -> Result<(), Outcome> {
        let cframe = self.next;
        if !self.read_cframe(target, cframe) {
            return Err(PAGE_FAULT);
        }
        self.next = self.frame[0];
        // A `previous` that leads nowhere is one that is not written yet.
        if self.enter_cframe(target, cframe, self.frame[1]) {
            Ok(())
        } else {
            Err(ENTERING)
        }
    }

    /// Goes to a level, and reads what its entry frame must link to:
    /// `cframe.previous->current_frame`.
    #[inline(always)]
    pub(super) fn enter_cframe<T: Target>(
        &mut self,
        target: &T,
        cframe: u64,
        previous: u64,
    ) -> bool {
        self.cframe = cframe;
        self.cframe_previous = previous;
        if previous == 0 {
            return true;
        }
        let is_there = self.read_cframe(target, previous);
        self.cframe_expected = self.frame[0];
        self.cframe_older = self.frame[1];
        is_there
    }

    /// Reads a cframe's `current_frame` and `previous`, which follows it.
    #[inline(always)]
    fn read_cframe<T: Target>(&mut self, target: &T, cframe: u64) -> bool {
        let at = cframe.wrapping_add(self.config.cframe_current);
        target.copy::<FRAME_WORDS_MAX, _>(at, &mut self.frame, 0, 2)
    }

    /// GIL holder and garbage collection, as they are in this interrupt. Absence is not an error.
    #[inline(always)]
    pub(super) fn interpreter_state<T: Target>(&mut self, target: &T) {
        let interp = self.header.interp;
        if self.config.has_gil_flag != 0 {
            if self.tstate_byte(self.config.holds_gil) != 0 {
                self.header.flags |= HOLDS_GIL;
                self.header.gil_holder = self.header.tstate;
            }
        } else if self.config.gil_holder != 0 {
            let mut gil = 0;
            if self.config.gil_pointer != 0 {
                gil = target
                    .word(interp.wrapping_add(self.config.gil_pointer))
                    .unwrap_or(0);
            }
            let at = gil.wrapping_add(self.config.gil_holder);
            // last_holder, then the int `locked` (CPython's `struct _gil_runtime_state`).
            if target.copy::<FRAME_WORDS_MAX, _>(at, &mut self.frame, 0, 2)
                && self.frame[1] as u32 == 1
            {
                self.header.gil_holder = self.frame[0];
                if self.frame[0] == self.header.tstate {
                    self.header.flags |= HOLDS_GIL;
                }
            }
        }
        if self.config.collecting != 0 {
            let at = interp.wrapping_add(self.config.collecting);
            if target
                .word(at & !7)
                .is_some_and(|w| (w >> ((at & 7) * 8)) as u32 != 0)
            {
                self.header.flags |= COLLECTING;
                if self.config.gc_frame != 0 {
                    let at = interp.wrapping_add(self.config.gc_frame);
                    self.header.gc_frame = target.word(at).unwrap_or(0);
                }
            }
        }
    }
}

/// Follows one way from the thread pointer; 0 if it leads nowhere.
#[inline(always)]
fn follow<T: Target>(config: &ProcConfig, path: usize, target: &T, thread_pointer: u64) -> u64 {
    let Some(path) = config.paths.get(path) else {
        return 0;
    };
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
