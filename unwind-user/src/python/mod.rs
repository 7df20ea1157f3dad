//! What CPython's objects and frames mean.
//!
//! Functions over [`crate::memory::Memory`] and a [`crate::layout::Layout`]; what they read is
//! hostile, so every length is bounded and every failure a typed error or a visible placeholder.

pub mod alive;
mod attach;
pub mod code;
mod error;
pub mod exception;
pub mod frame;
pub mod identity;
pub mod linetable;
pub mod paths;
pub mod runtime;
pub mod string;
pub mod tstate;

pub(crate) use attach::locate;
pub use attach::{Attached, attach};
pub use error::{AttachError, PythonChild};

#[cfg(test)]
mod tests;
