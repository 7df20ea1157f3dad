//! Copies the used part of the data-stack chunks.

use super::{COPY_WORDS, ChunkCopy, Scratch, Step, Target, get, set};
use crate::abi::{
    BODY_WORDS, CHUNK_COPY_BYTES, CHUNKS_MAX, FRAME_WORDS_MAX, SEGMENT_RANGE, WHOLE, WHOLE_BYTES,
    segment_tag,
};

impl Scratch {
    /// Copies the used part of the next chunk, newest first. At most [`CHUNKS_MAX`] calls.
    #[inline(always)]
    pub fn copy_chunk<T: Target>(&mut self, target: &T) -> Step {
        let chunk = self.chunk_next;
        let index = self.chunk_count as usize;
        if chunk == 0 || index >= CHUNKS_MAX || self.pos > (BODY_WORDS - COPY_WORDS - 16) as u64 {
            return Step::Done;
        }
        let mut end = self.chunk_end;
        // _PyStackChunk: previous, size in bytes, top in 8-byte slots, data. The newest chunk's
        // end is known, so its head comes with the copy, which saves a read.
        let head_read = index != 0 || end <= chunk || end - chunk > CHUNK_COPY_BYTES as u64;
        if head_read {
            if !target.copy::<FRAME_WORDS_MAX, _>(chunk, &mut self.frame, 0, 3) {
                return Step::Done;
            }
            self.chunk_next = self.frame[0];
        }
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
            if !head_read {
                return Step::Done;
            }
        } else {
            if !head_read {
                self.chunk_next = get(&self.body, pos);
            }
            set(&mut self.body, self.pos, start);
            set(
                &mut self.body,
                self.pos + 1,
                segment_tag(SEGMENT_RANGE, words, 0),
            );
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

    /// The word of the body where the frame's copy begins; 0 if it lies in no copied chunk.
    #[inline(always)]
    pub(super) fn locate(&mut self, addr: u64, bytes: u64) -> u64 {
        let mut step = 0;
        while step < 2 {
            let index = self.chunk_index.wrapping_add(step);
            // Masked for the verifier; `chunk_count` is what bounds it.
            if let Some(chunk) = self.chunks.get(index as usize & (CHUNKS_MAX - 1)) {
                let known = index < self.chunk_count;
                if known && addr >= chunk.start && addr.wrapping_add(bytes) <= chunk.end {
                    let at = chunk.pos + ((addr - chunk.start) >> 3);
                    self.chunk_index = index;
                    return at;
                }
            }
            step += 1;
        }
        0
    }
}
