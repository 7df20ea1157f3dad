//! What both halves of unwind agree on.
//!
//! [`abi`] describes the bytes that cross from the kernel to user space and back.
//! [`capture`] decides what to copy in the interrupt. It is generic over [`capture::Target`],
//! so the same code runs in the BPF program and, over recorded or single-stepped memory, in tests.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod capture;
