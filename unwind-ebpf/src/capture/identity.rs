//! Captures what identifies a code object for which user space does not vouch.

use super::window::WHOLE_WORDS_MAX;
use super::{ASKED, Scratch, Target, set};
use crate::abi::{
    BODY_WORDS, FRAMES_MAX, HEAD_WORDS, IDENTITY_OBJECTS, IDENTITY_WORDS_MAX, OBJECT_WORDS,
    SEGMENT_RANGE, segment_tag, vouched_mark, vouched_slot,
};

/// Words of a frame head's segment.
const HEAD_SEGMENT_WORDS: u64 = 2 + HEAD_WORDS as u64;
/// Words of a record of heads that identities may take.
const IDENTITIES_WORDS: u64 = BODY_WORDS as u64 - FRAMES_MAX as u64 * HEAD_SEGMENT_WORDS - 128;

impl Scratch {
    /// Captures what names this code object for sure, unless user space vouches for the address.
    /// What finds no room is asked again by a later sample.
    #[inline(always)]
    pub(super) fn identify<T: Target>(&mut self, target: &T, code: u64, whole: bool) {
        let salt = self.config.salt;
        if target.vouched(vouched_slot(code, salt)) == vouched_mark(code, salt) {
            return;
        }
        let Some(asked) = self
            .asked
            .get_mut((code >> 4 ^ code >> 12) as usize & (ASKED - 1))
        else {
            return;
        };
        let mark = code ^ self.epoch;
        if *asked == mark {
            return;
        }
        *asked = mark;
        let words = self.config.identity_words;
        if whole && self.pos > WHOLE_WORDS_MAX as u64 || self.pos > BODY_WORDS as u64 - 64 {
            return;
        }
        // Identities must leave room for the frames: a deep recursion meets the same few codes over
        // and over, and the first of each is enough.
        if !whole && self.pos.wrapping_sub(self.frames * HEAD_SEGMENT_WORDS) > IDENTITIES_WORDS {
            return;
        }
        self.range(
            target,
            code.wrapping_add(self.config.identity),
            words,
            whole,
        );
        let mut i = 0;
        while i < IDENTITY_OBJECTS {
            let offset = self.config.identity_objects[i];
            if offset == 0 {
                break;
            }
            let object = target.word(code.wrapping_add(offset)).unwrap_or(0);
            // Past ob_refcnt and ob_type, which change or tell nothing.
            self.range(target, object.wrapping_add(16), OBJECT_WORDS as u64, whole);
            i += 1;
        }
        self.identities += 1;
    }

    /// Appends a range of target memory to the record, if it can be read.
    #[inline(always)]
    pub(super) fn range<T: Target>(&mut self, target: &T, addr: u64, words: u64, whole: bool) {
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
}
