//! From a process id to everything that sampling it needs.

use unwind_ebpf::abi::TstatePath;

use super::error::AttachError;
use super::paths::{TlsFacts, learn};
use super::runtime::{self, Runtime, RuntimeImage};
use super::tstate::threads;
use crate::layout::Layout;
use crate::layout::debug_offsets::Trust;
use crate::memory::{Addr, Process, ReadError};
use crate::process::Identity;

/// A process that can be sampled.
#[derive(Debug)]
pub struct Attached {
    /// Who it is.
    pub process: Identity,
    /// Its memory.
    pub memory: Process,
    /// Address of `_PyRuntime`.
    pub runtime: Addr,
    /// Where its build of CPython keeps things.
    pub layout: Layout,
    /// How far the layout can be relied upon.
    pub trust: Trust,
    /// The file that holds the interpreter.
    pub image: RuntimeImage,
    /// Ways from a thread to its state, best first; at least one.
    pub paths: Vec<TstatePath>,
}

/// Finds the interpreter of the process `pid` (of our own PID namespace) and how its threads'
/// states are found. Neither stops nor changes the process.
///
/// # Errors
/// [`AttachError`]: in words, and whether it may pass ([`AttachError::may_pass`]).
pub fn attach(pid: u32) -> Result<Attached, AttachError> {
    let Located {
        process,
        memory,
        runtime: found,
    } = locate(pid)?;
    let pid = process.pid;
    let threads = threads(&memory, &found.layout, found.addr).states;
    let facts = TlsFacts {
        tls: found.image.tls,
        is_exe: found.image.is_exe,
    };
    let paths = learn(&memory, &threads, facts);
    if !process.is_alive() {
        return Err(AttachError::Gone { pid });
    }
    if paths.is_empty() {
        return Err(AttachError::NoThreadState { pid });
    }
    Ok(Attached {
        process,
        memory,
        runtime: found.addr,
        layout: found.layout,
        trust: found.trust,
        image: found.image,
        paths,
    })
}

/// A process and its interpreter.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) process: Identity,
    pub(crate) memory: Process,
    pub(crate) runtime: Runtime,
}

/// Finds the interpreter of the process `pid` (of our own PID namespace).
///
/// # Errors
/// As [`attach`].
pub(crate) fn locate(pid: u32) -> Result<Located, AttachError> {
    // The kernel gives no pid beyond i32: a larger number is nobody's.
    let pid = i32::try_from(pid).unwrap_or(i32::MAX);
    let process = Identity::of(pid).map_err(|error| runtime::io_error(pid, &error))?;
    let memory = Process::new(pid);
    let runtime = runtime::find(pid, &memory).map_err(|error| explain(error, pid, &memory))?;
    Ok(Located {
        process,
        memory,
        runtime,
    })
}

/// Nothing found may only mean that nothing could be read: the kernel checks that before the
/// address.
fn explain(error: AttachError, pid: i32, memory: &Process) -> AttachError {
    let nothing_found = matches!(
        error,
        AttachError::NotPython { .. }
            | AttachError::Starting { .. }
            | AttachError::VersionUnknown { .. }
    );
    match memory.try_read(Addr(8), &mut [0]) {
        Err(ReadError::NoPermission(_)) if nothing_found => AttachError::NoPermission { pid },
        Err(ReadError::Gone(_)) if nothing_found => AttachError::Gone { pid },
        _ => error,
    }
}
