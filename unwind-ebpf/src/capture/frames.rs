//! Follows the frame chain.

use super::window::{SINGLE, WHOLE_WORDS_MAX};
use super::{EPOCH, Scratch, Step, Target, byte, get, set};
use crate::abi::{
    BODY_WORDS, BOTTOM_BASE_FRAME, BOTTOM_NULL, ENTERING, FRAME_WORDS_MAX, HEAD_WORDS, INCOMPLETE,
    OK, Outcome, PAGE_FAULT, SEGMENT_HEAD, SEGMENT_RANGE, TRUNCATED, WHOLE, segment_tag,
};

/// Bytes of C stack within which a cframe and its entry frame lie: both are locals of
/// `_PyEval_EvalFrameDefault`.
const ENTRY_DISTANCE: u64 = 1024;

/// `FRAME_OWNED_BY_GENERATOR`, of every version.
const GENERATOR: u64 = 1;
/// `FRAME_EXECUTING` (3.11).
const EXECUTING: u8 = 0;

impl Scratch {
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
        self.cframe_matched = 0;
        self.epoch = self.epoch.wrapping_add(EPOCH);
        self.off_chunk = 0;
        self.identities = 0;
        self.next = self.tstate_word(self.config.current_frame);
        if self.config.has_cframe != 0
            && let Err(outcome) = self.begin_cframe(target)
        {
            self.end(outcome);
        }
        true
    }

    /// Follows one frame, or asks for the window to be moved first.
    #[inline(always)]
    pub(super) fn follow_frame<T: Target>(&mut self, target: &T) -> Step {
        let addr = self.next;
        let whole = self.header.flags & WHOLE != 0;
        if addr == self.header.base_frame {
            // Without a base frame this is the NULL of a thread that runs no Python code.
            let bottom = self.config.bottom == BOTTOM_BASE_FRAME || self.frames == 0;
            if self.config.has_cframe != 0 && !self.at_root_cframe() {
                return self.end(ENTERING);
            }
            return self.end(if bottom { OK } else { INCOMPLETE });
        }
        if addr == 0 || addr & 7 != 0 {
            return self.end(INCOMPLETE);
        }
        // The frame's words: in the window, else read now, to where they will be carried.
        let words = self.config.frame_words;
        let mut at = self.locate(addr);
        if at == 0 {
            if whole && self.pos > WHOLE_WORDS_MAX as u64 {
                return self.end(u32::MAX);
            }
            if !whole && self.should_slide(addr) {
                self.slide = addr;
                return Step::Next;
            }
            let base = if whole { self.pos } else { SINGLE as u64 - 2 };
            at = base + 2;
            if !target.copy::<FRAME_WORDS_MAX, _>(addr, &mut self.body, at, words) {
                return self.end(PAGE_FAULT);
            }
            if whole {
                set(&mut self.body, base, addr);
                set(
                    &mut self.body,
                    base + 1,
                    segment_tag(SEGMENT_RANGE, words, 0),
                );
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
            set(
                &mut self.heads,
                pos + 1,
                segment_tag(SEGMENT_HEAD, HEAD_WORDS as u64, owner),
            );
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
            if code != 0 {
                self.identify(target, code, whole);
            }
        }
        if self.config.has_cframe != 0 && entry && !self.match_entry(target, addr, previous) {
            return self.end(ENTERING);
        }
        if previous == 0 && self.config.bottom != BOTTOM_BASE_FRAME {
            if self.config.has_cframe != 0 && !self.at_root_cframe() {
                return self.end(ENTERING);
            }
            if self.config.generator_state != 0 && owner == GENERATOR {
                return self.end(self.generator_bottom(target, addr));
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
    pub(super) fn match_entry<T: Target>(&mut self, target: &T, entry: u64, previous: u64) -> bool {
        if self.config.is_entry == 0 && entry.abs_diff(self.cframe) > ENTRY_DISTANCE {
            return false;
        }
        if self.cframe_previous == 0 || previous != self.cframe_expected {
            return self.config.is_entry != 0;
        }
        self.cframe_matched += 1;
        let (cframe, previous) = (self.cframe_previous, self.cframe_older);
        self.enter_cframe(target, cframe, previous)
    }

    /// 3.11 publishes a callee's frame one store before its `previous`. What an earlier call left
    /// there can be a generator, suspended by now: its `previous` is NULL, too. A generator that is
    /// executing can be a bottom, where C code resumed it.
    #[inline(always)]
    fn generator_bottom<T: Target>(&self, target: &T, addr: u64) -> Outcome {
        let state = addr.wrapping_sub(self.config.generator_state);
        match target.word(state & !7) {
            Some(word) if (word >> ((state & 7) * 8)) as u8 == EXECUTING => OK,
            Some(_) => ENTERING,
            None => PAGE_FAULT,
        }
    }

    /// Whether a chain that was not followed to its end can be believed. Only the newest cframe can
    /// be half written, so its level must have been matched.
    ///
    /// Or, where no entry frame was met, its frame must be the last one on the data stack (what an
    /// older cframe left would not be), and the caller of that frame the one right below it: a
    /// frame that C code just pushed lies on top, too, with the `previous` of the one before it
    /// there. What lies below the top of the data stack is alive, and linked.
    #[inline(always)]
    pub(super) fn is_cut_chain_proved<T: Target>(&self, target: &T, outcome: Outcome) -> bool {
        if self.cframe_matched != 0 || self.at_root_cframe() {
            return true;
        }
        // A frame that is not there is where a pointer leads that is not written yet.
        if outcome != TRUNCATED {
            return false;
        }
        let leaf = self.header.frame;
        let top = self.tstate_word(self.config.datastack_chunk + 8);
        if !self.ends_at(target, leaf, top) {
            return false;
        }
        match target.word(leaf.wrapping_add(self.config.frame_previous)) {
            Some(caller) => self.ends_at(target, caller, leaf),
            None => false,
        }
    }

    /// Whether a frame on the data stack ends there, by the size that its code object tells.
    #[inline(always)]
    fn ends_at<T: Target>(&self, target: &T, frame: u64, end: u64) -> bool {
        let code = target.word(frame.wrapping_add(self.config.frame_code));
        let Some(code) = code else { return false };
        let int = |offset: u64| {
            let at = code.wrapping_add(offset);
            let word = target.word(at & !7)?;
            Some((word >> ((at & 7) * 8)) & 0xffff_ffff)
        };
        let Some(mut words) = int(self.config.frame_size) else {
            return false;
        };
        words += self.config.frame_size_fixed;
        if self.config.frame_size_more != 0 {
            words += int(self.config.frame_size_more).unwrap_or(0);
        }
        // What was just removed begins where the stack ends; no frame is that short.
        words >= self.config.frame_words && frame.wrapping_add(words * 8) == end
    }

    /// Whether the level being matched is the outermost: `PyThreadState.root_cframe`, that very
    /// address. A half-written one's `previous` can be anything, the thread state itself included,
    /// which compilers keep beside it on the C stack.
    #[inline(always)]
    pub(super) fn at_root_cframe(&self) -> bool {
        self.cframe == self.header.tstate.wrapping_add(self.config.root_cframe)
    }
}
