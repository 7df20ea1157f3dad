//! Objects of made-up memory, well formed and not.

mod code;
mod linetable;
mod string;

use crate::memory::{Addr, Fault, Memory};

/// Memory that answers every read with bytes made of its seed: pointers lead somewhere.
pub(super) struct Noise<'a>(pub(super) &'a [u8]);

impl Memory for Noise<'_> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        if self.0.is_empty() || addr.0.is_multiple_of(61) {
            return Err(Fault {
                addr,
                len: buf.len(),
            });
        }
        let start = (addr.0 % self.0.len() as u64) as usize;
        for (to, from) in buf.iter_mut().zip(self.0.iter().cycle().skip(start)) {
            *to = *from;
        }
        Ok(())
    }
}

/// Bytes of an object being put together.
pub(super) fn put(bytes: &mut Vec<u8>, at: u64, value: &[u8]) {
    let at = at as usize;
    bytes.resize(bytes.len().max(at + value.len()), 0);
    bytes[at..at + value.len()].copy_from_slice(value);
}
