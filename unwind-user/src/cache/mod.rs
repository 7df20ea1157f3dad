//! What is known of a process's code objects and stacks, so that a warm sample costs one look-up.
//!
//! Neither cache does I/O. Both are bounded and say what happens when full.

pub mod code;
pub mod stack;
