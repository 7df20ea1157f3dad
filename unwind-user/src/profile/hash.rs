//! A hash for keys made of our own small numbers.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds the hasher of maps whose keys are ids: fast, and the same in every run, so that a replay
/// meets the same order.
///
/// Not for keys that a target chooses: collisions are easy to construct.
pub type IdHash = BuildHasherDefault<IdHasher>;

/// 2^64 divided by the golden ratio, made odd: spreads consecutive ids over the upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Adds and multiplies each word; see [`IdHash`].
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // The good bits are the upper ones; the table takes its bucket from the lower ones.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(SPREAD);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}
