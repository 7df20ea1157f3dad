//! The only `unsafe` of the user half: marks for the records that cross to the kernel, and the
//! event loop's promise that a descriptor stays what it is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::unix::AsyncFd;
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

/// Has tokio tell when a descriptor is readable, by a duplicate of it. Call within the runtime.
///
/// # Errors
/// As `fcntl(2)` and `epoll_ctl(2)`.
pub fn readiness_of(fd: impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    let duplicate = fd.as_fd().try_clone_to_owned()?;
    // SAFETY: the descriptor is owned by the value registered, which shows no other and closes it
    // only after tokio has let go of it.
    unsafe { AsyncFd::register(duplicate) }.map_err(|error| error.into_parts().1)
}
