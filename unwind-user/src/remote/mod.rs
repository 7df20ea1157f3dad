//! Stacks of threads that do not run at the moment, read from outside, without stopping them.
//!
//! The same capture and the same walk as for samples, over `process_vm_readv`. What is shown is
//! one moment of each thread ([`still`] says what that proves and what it costs); the threads of a
//! process are read one after the other, each at a moment of its own.
//!
//! ```no_run
//! use unwind_user::remote::{Frame, Unwinder};
//!
//! # fn main() -> Result<(), unwind_user::python::AttachError> {
//! let mut unwinder = Unwinder::attach(1234)?;
//! for thread in unwinder.threads()?.list {
//!     println!("thread {}", thread.native_id);
//!     for frame in &thread.stack.frames {
//!         match frame {
//!             Frame::Python { function, location } => {
//!                 println!("  {} ({}:{:?})", function.qualname, function.filename, location.line);
//!             }
//!             Frame::Marker(marker) => println!("  {}", marker.text()),
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod capture;
mod codes;
pub mod poll;
pub mod still;
mod thread;

use std::collections::HashMap;
use std::io;

use unwind_ebpf::abi::{ENTERING, HOLDS_GIL, OK, TRUNCATED, WHOLE};

use crate::layout::Layout;
use crate::memory::{Addr, Memory as _, Process};
use crate::process::{Identity, namespace};
use crate::python::exception::has_exception;
use crate::python::frame::{Chain, End, Parsed, RawFrame, walk};
use crate::python::tstate::{self, ThreadState};
use crate::python::{self, AttachError, runtime};
use crate::sample::Snapshot;
use capture::{Capture, Origin};
use codes::Codes;
use still::{Reader, Still, Watched};

pub use thread::{Frame, Function, Incomplete, Stack, Thread, Threads};

/// Tries to read one thread in one moment.
const TRIES: usize = 50;

/// Reads the stacks of one process.
#[derive(Debug)]
pub struct Unwinder {
    /// Who it is.
    pub process: Identity,
    /// Where its build of CPython keeps things.
    pub layout: Layout,
    memory: Process,
    runtime: Addr,
    reader: Reader,
    capture: Capture,
    snapshot: Snapshot,
    raw: Vec<RawFrame>,
    codes: Codes,
}

impl Unwinder {
    /// Finds the interpreter of the process `pid` (of our own PID namespace). Neither stops nor
    /// changes the process.
    ///
    /// # Errors
    /// [`AttachError`]: what the process is instead, or why it cannot be read.
    pub fn attach(pid: u32) -> Result<Self, AttachError> {
        let found = python::locate(pid)?;
        let gone = |error: io::Error| runtime::io_error(found.process.pid, &error);
        let reader = Reader::new().map_err(gone)?;
        let config = found.runtime.layout.kernel_config(found.runtime.addr);
        Ok(Self {
            process: found.process,
            layout: found.runtime.layout,
            memory: found.memory,
            runtime: found.runtime.addr,
            reader,
            capture: Capture::new(config),
            snapshot: Snapshot::default(),
            raw: Vec::new(),
            codes: Codes::default(),
        })
    }

    /// The stacks of all threads that have a Python thread state. A thread that cannot be read is
    /// listed, and why.
    ///
    /// # Errors
    /// [`AttachError::Gone`] when the process has ended.
    pub fn threads(&mut self) -> Result<Threads, AttachError> {
        let pid = self.process.pid;
        let mut listed = tstate::threads(&self.memory, &self.layout, self.runtime);
        // One that no thread uses has no id.
        listed.states.retain(|state| state.thread_id != 0);
        listed.states.reverse();
        let tids = namespace::tids(pid).map_err(|error| runtime::io_error(pid, &error))?;
        let mut states_of: HashMap<u64, usize> = HashMap::new();
        for state in &listed.states {
            *states_of.entry(state.native_thread_id).or_default() += 1;
        }
        let mut list: Vec<Thread> = Vec::with_capacity(listed.states.len());
        for state in &listed.states {
            let native = &state.native_thread_id;
            let is_only = states_of.get(native) == Some(&1);
            list.push(self.thread(state, tids.get(native).copied(), is_only));
        }
        self.reader.release();
        if !self.process.is_alive() {
            return Err(AttachError::Gone { pid });
        }
        list.sort_by_key(|thread| !thread.is_main);
        Ok(Threads {
            list,
            is_whole: listed.is_whole,
        })
    }

    /// Reads one thread, which `/proc` knows as `tid`; `is_only` if no other state names it.
    fn thread(&mut self, state: &ThreadState, tid: Option<i32>, is_only: bool) -> Thread {
        let pid = self.process.pid;
        let mut thread = Thread {
            tid,
            native_id: state.native_thread_id,
            name: String::new(),
            interpreter: self
                .memory
                .u64(state.interp.add(self.layout.interp.id))
                .ok(),
            is_main: tid == Some(pid),
            holds_gil: false,
            wants_gil: None,
            has_exception: None,
            state: None,
            stack: Stack::default(),
        };
        thread.stack.incomplete = match tid {
            Some(_) if self.is_anyones(&thread, is_only) => Some(Incomplete::Shared),
            Some(tid) => self.stack(state, tid, &mut thread),
            None => Some(Incomplete::Ended),
        };
        thread
    }

    /// Whether a state can be run by another thread than it names.
    fn is_anyones(&self, thread: &Thread, is_only: bool) -> bool {
        self.layout.sub_states_keep_ids() && !is_only && thread.interpreter != Some(0)
    }

    /// Reads the stack of one thread in one moment, and what is missing of it.
    fn stack(&mut self, state: &ThreadState, tid: i32, thread: &mut Thread) -> Option<Incomplete> {
        let watched = match Watched::open(self.process.pid, tid) {
            Ok(watched) => watched,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Some(Incomplete::Forbidden);
            }
            Err(_) => return Some(Incomplete::Ended),
        };
        let mut why = Incomplete::Moving;
        for _ in 0..TRIES {
            let seen = watched.stat();
            let still = match seen.and_then(|seen| self.reader.hold(&watched, &seen)) {
                Ok(Some(still)) => still,
                Ok(None) => {
                    why = Incomplete::Moving;
                    self.reader.release();
                    continue;
                }
                Err(_) => return Some(Incomplete::Ended),
            };
            let incomplete = self.moment(state.addr, &still, thread);
            // It may have been freed and taken by another thread since it was listed.
            let is_its_own = tstate::is_still(&self.memory, &self.layout, state);
            if !is_its_own {
                why = Incomplete::Ended;
                break;
            }
            if !still.held() {
                why = Incomplete::Moving;
            } else if incomplete == Some(Incomplete::Entering) {
                // Some instructions on it will be clear.
                why = Incomplete::Entering;
            } else {
                return incomplete;
            }
            self.reader.release();
            std::thread::yield_now();
        }
        thread.stack.frames.clear();
        (thread.holds_gil, thread.wants_gil, thread.has_exception) = (false, None, None);
        Some(why)
    }

    /// Reads a stack, names and lines included, while its thread holds still.
    fn moment(
        &mut self,
        state: Addr,
        still: &Still<'_>,
        thread: &mut Thread,
    ) -> Option<Incomplete> {
        thread.state = Some(char::from(still.state));
        thread.name.clone_from(&still.name);
        thread.stack.frames.clear();
        let outcome = match self.capture.take(&self.memory, Origin::State(state)) {
            Ok(outcome) => outcome,
            Err(ENTERING) => return Some(Incomplete::Entering),
            Err(_) => return Some(Incomplete::Unreadable),
        };
        let Ok(record) = self.capture.record() else {
            return Some(Incomplete::Unreadable);
        };
        thread.holds_gil = record.header.flags & HOLDS_GIL != 0;
        // Both are set for a moment when it is handed over.
        thread.wants_gil = self.layout.thread.gil_requested.and_then(|at| {
            let requested = self.memory.u32(state.add(at)).ok()?;
            Some(requested != 0 && !thread.holds_gil)
        });
        thread.has_exception = has_exception(&self.memory, &self.layout, state);
        if outcome == ENTERING {
            return Some(Incomplete::Entering);
        }
        if self.snapshot.index(&record).is_err() {
            return Some(Incomplete::Unreadable);
        }
        let (layout, raw) = (&self.layout, &mut self.raw);
        let chain = Chain::of(&record.header);
        raw.clear();
        let captured = self.snapshot.memory(&record);
        let (end, met) = if record.header.flags & WHOLE != 0 {
            let frames = Parsed {
                layout: &layout.frame,
                memory: &captured,
            };
            walk(layout, &frames, chain, raw)
        } else {
            walk(layout, &self.snapshot.heads(), chain, raw)
        };
        self.codes
            .resolve(&self.memory, layout, raw, &mut thread.stack.frames);
        match (outcome, end) {
            (OK, End::Complete) if met == record.header.frames => None,
            (TRUNCATED, _) => Some(Incomplete::Truncated),
            (_, End::Fault(_)) => Some(Incomplete::Unreadable),
            _ => Some(Incomplete::Broken),
        }
    }
}

#[cfg(test)]
mod tests;
