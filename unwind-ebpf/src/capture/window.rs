//! The window: a copy of the data-stack chunk that holds the frames to come.
//!
//! A frame's caller lies below it in the same chunk or in the next older one, so a window that
//! only moves that way meets every frame there once.

use super::{FRAME_WORDS_MAX, Scratch, Target, get, set};
use crate::abi::{SEGMENT_RANGE, SLIDES_MAX, WHOLE, WHOLE_BYTES, WINDOW_BYTES, segment_tag};

/// Words of the window.
const WINDOW_WORDS: usize = WINDOW_BYTES / 8;
/// Word of the body where it begins: behind the head of a segment.
pub(super) const START: usize = 2;
/// Word of the body for a frame that is looked at alone, behind the window.
pub(super) const SINGLE: usize = START + WINDOW_WORDS;
/// Words of body from which on a record that carries its chunk whole takes nothing more: an
/// identity with its objects still has room.
pub(super) const WHOLE_WORDS_MAX: usize = SINGLE - 64;

/// Bytes of `_PyStackChunk` before its data: previous, size in bytes, top in 8-byte slots.
const CHUNK_HEAD: u64 = 24;

impl Scratch {
    /// Copies the newest chunk and decides how the frames are carried.
    #[inline(always)]
    pub(super) fn begin_window<T: Target>(&mut self, target: &T) {
        self.older = 0;
        self.older_end = 0;
        self.empty_window();
        let (chunk, end) = (self.chunk, self.chunk_end);
        let used = end.wrapping_sub(chunk);
        if chunk == 0 {
            self.header.flags |= WHOLE;
            return;
        }
        if used == 0 || (chunk | end) & 7 != 0 {
            return;
        }
        let words = self.copy_window(target, end);
        if words == 0 {
            return;
        }
        if self.window == chunk {
            self.older = get(&self.body, START as u64);
        } else if target.copy::<FRAME_WORDS_MAX, _>(chunk, &mut self.frame, 0, 1) {
            self.older = self.frame[0];
        }
        if self.older == 0 && used <= WHOLE_BYTES as u64 {
            set(&mut self.body, 0, chunk);
            set(&mut self.body, 1, segment_tag(SEGMENT_RANGE, words, 0));
            self.pos = START as u64 + words;
            self.header.flags |= WHOLE;
        }
    }

    /// The word of the body where the frame's copy begins; 0 if it is not in the window.
    #[inline(always)]
    pub(super) fn locate(&self, addr: u64) -> u64 {
        let offset = addr.wrapping_sub(self.window);
        if offset > self.window_room {
            return 0;
        }
        START as u64 + (offset >> 3)
    }

    /// Whether the window can be moved to this frame.
    #[inline(always)]
    pub(super) fn should_slide(&self, addr: u64) -> bool {
        self.slides < SLIDES_MAX
            && (self.is_in_chunk(addr)
                || self.older != 0 && (self.older_end == 0 || self.is_in_older(addr)))
    }

    /// Moves the window so that the asked frame is its last, if it lies in this chunk or the next.
    #[inline(always)]
    pub(super) fn slide<T: Target>(&mut self, target: &T) {
        let addr = self.slide;
        self.slide = 0;
        self.slides += 1;
        if !self.is_in_chunk(addr) {
            if self.older_end == 0 && !self.read_older(target) {
                self.older = 0;
                return;
            }
            if !self.is_in_older(addr) {
                return;
            }
            self.chunk = self.older;
            self.chunk_end = self.older_end;
            self.older = self.oldest;
            self.older_end = 0;
        }
        if self.copy_window(target, addr.wrapping_add(self.config.frame_words * 8)) == 0 {
            self.slides = SLIDES_MAX;
        }
    }

    #[inline(always)]
    fn is_in_chunk(&self, addr: u64) -> bool {
        addr >= self.chunk && addr < self.chunk_end
    }

    #[inline(always)]
    fn is_in_older(&self, addr: u64) -> bool {
        addr >= self.older && addr < self.older_end
    }

    #[inline(always)]
    fn read_older<T: Target>(&mut self, target: &T) -> bool {
        if !target.copy::<FRAME_WORDS_MAX, _>(self.older, &mut self.frame, 0, 3) {
            return false;
        }
        self.oldest = self.frame[0];
        let used = CHUNK_HEAD + (self.frame[2] & 0xffff_ffff) * 8;
        self.older_end = self.older.wrapping_add(used);
        self.older & 7 == 0
    }

    #[inline(always)]
    fn empty_window(&mut self) {
        // No frame lies at address 0.
        self.window = 0;
        self.window_room = 0;
    }

    /// Copies the bytes of the chunk before `end`, as many as there is room for. Returns the
    /// words copied: 0, and an empty window, where they are not there.
    #[inline(always)]
    fn copy_window<T: Target>(&mut self, target: &T, end: u64) -> u64 {
        let mut start = self.chunk;
        if end.wrapping_sub(start) > WINDOW_BYTES as u64 {
            start = end.wrapping_sub(WINDOW_BYTES as u64);
        }
        let bytes = end.wrapping_sub(start);
        let frame = self.config.frame_words * 8;
        let words = bytes >> 3;
        if !target.copy::<WINDOW_WORDS, _>(start, &mut self.body, START as u64, words) {
            self.empty_window();
            return 0;
        }
        self.window = start;
        self.window_room = bytes.saturating_sub(frame);
        words
    }
}
