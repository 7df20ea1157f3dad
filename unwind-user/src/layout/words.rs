//! Takes the words of `_Py_DebugOffsets` one after the other.

use super::debug_offsets::BYTES_MAX;
use super::{LayoutError, Version};

/// The words of the table, in order.
pub(super) struct Words<'a> {
    /// The table, and whatever follows it.
    pub(super) bytes: &'a [u8],
    /// Index of the next word.
    pub(super) at: usize,
    /// Whose order it is.
    pub(super) version: Version,
}

impl Words<'_> {
    /// The next word.
    pub(super) fn next(&mut self) -> Result<u64, LayoutError> {
        let word = self
            .bytes
            .get(self.at * 8..)
            .and_then(|rest| rest.first_chunk::<8>());
        self.at += 1;
        word.map(|word| u64::from_le_bytes(*word))
            .ok_or_else(|| self.short())
    }

    /// The next word, where this version has it.
    pub(super) fn next_if(&mut self, present: bool) -> Result<Option<u64>, LayoutError> {
        if present {
            self.next().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Passes over words that nobody needs.
    pub(super) fn skip(&mut self, words: usize) {
        self.at += words;
    }

    /// Checks that the rest of the table is there, too.
    pub(super) fn check_whole(&self) -> Result<(), LayoutError> {
        if self.bytes.len() < table_bytes(self.version.minor().1) {
            Err(self.short())
        } else {
            Ok(())
        }
    }

    fn short(&self) -> LayoutError {
        let needed = table_bytes(self.version.minor().1);
        LayoutError::Short {
            version: self.version,
            needed,
            got: self.bytes.len(),
        }
    }
}

/// Bytes of a minor version's table.
const fn table_bytes(minor: u8) -> usize {
    match minor {
        0..=13 => 584,
        14 => 760,
        _ => BYTES_MAX,
    }
}
