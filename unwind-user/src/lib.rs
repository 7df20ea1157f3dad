//! User half of unwind.
pub mod sys;
pub mod bpf;
