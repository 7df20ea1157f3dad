//! The only `unsafe` of the user half: marks for the records that cross to the kernel, and two
//! system calls that nix does not wrap.

use unwind_ebpf::abi::{Counters, ProcConfig};

/// [`ProcConfig`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct ConfigValue(pub ProcConfig);

// SAFETY: repr(C) integers without padding (its size is asserted beside its definition), so every
// bit pattern is valid.
unsafe impl aya::Pod for ConfigValue {}

/// [`Counters`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct CountersValue(pub Counters);

// SAFETY: repr(C) u64 only, so no padding, and every bit pattern is valid.
unsafe impl aya::Pod for CountersValue {}
