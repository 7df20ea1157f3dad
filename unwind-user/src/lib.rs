//! User half of unwind: turns what the kernel half captured into profiles.

pub mod memory;
pub mod layout;
pub mod process;
pub mod profile;
pub mod bpf;
pub mod sys;
