//! A sparse copy of target memory: a sample's ranges, a fixture, a fuzz input.

use super::{Addr, Fault, Memory};

/// Pieces of target memory, borrowed. Filled in any order; overlapping pieces are allowed, the
/// one added first answers.
#[derive(Clone, Debug, Default)]
pub struct Ranges<'a> {
    pieces: Vec<(Addr, &'a [u8])>,
}

impl<'a> Ranges<'a> {
    /// No memory at all.
    #[must_use]
    pub const fn new() -> Self {
        Self { pieces: Vec::new() }
    }

    /// Adds the bytes at `addr`.
    pub fn push(&mut self, addr: Addr, bytes: &'a [u8]) {
        self.pieces.push((addr, bytes));
    }

    /// The bytes from `addr` on, `len` of them, if one piece holds them all.
    #[must_use]
    pub fn get(&self, addr: Addr, len: usize) -> Option<&'a [u8]> {
        self.pieces.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(addr.0.checked_sub(start.0)?).ok()?;
            bytes.get(offset..offset.checked_add(len)?)
        })
    }
}

impl Memory for Ranges<'_> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.get(addr, buf.len()).ok_or(Fault {
            addr,
            len: buf.len(),
        })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}
