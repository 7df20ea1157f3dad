//! What both halves of unwind agree on.
#![no_std]
#![forbid(unsafe_code)]
