//! What CPython's objects and frames mean.
//!
//! Functions over [`crate::memory::Memory`] and a [`crate::layout::Layout`]; what they read is
//! hostile, so every length is bounded and every failure a typed error or a visible placeholder.

pub mod code;
pub mod frame;
pub mod identity;
pub mod linetable;
pub mod string;

#[cfg(test)]
mod tests;
