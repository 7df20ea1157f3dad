//! What is known of a thread.

use std::fmt;
use std::rc::Rc;

use crate::profile::{Location, Marker};

/// A thread with a Python thread state. One of several interpreters may be listed once for each.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its id in our PID namespace; none when it has ended, or the process made the id up.
    pub tid: Option<i32>,
    /// Its id as the process knows it (`threading.get_native_id()`).
    pub native_id: u64,
    /// The name that the kernel knows, at most 15 bytes, safe to print.
    pub name: String,
    /// `PyInterpreterState.id`: 0 is the main interpreter.
    pub interpreter: Option<u64>,
    /// Whether it is the process's first thread.
    pub is_main: bool,
    /// Whether it held its interpreter's GIL.
    pub holds_gil: bool,
    /// Whether it waited for the GIL; none where the version does not tell (before 3.15).
    pub wants_gil: Option<bool>,
    /// Whether it raised or handled an exception; none where the build does not tell.
    pub has_exception: Option<bool>,
    /// The kernel's state letter at the moment of its stack: `R` runs, or would if we had left it
    /// the CPU.
    pub state: Option<char>,
    /// Its stack at that moment.
    pub stack: Stack,
}

/// The Python frames of a thread, innermost first.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// The frames; none where the thread runs no Python code.
    pub frames: Vec<Frame>,
    /// What is missing, if anything.
    pub incomplete: Option<Incomplete>,
}

/// The threads of a process, each at a moment of its own.
#[derive(Clone, Debug)]
pub struct Threads {
    /// The main thread, then the others in the order in which they were started.
    pub list: Vec<Thread>,
    /// Whether the interpreters' lists were followed to their ends: some threads may be missing
    /// where they changed each time that they were read.
    pub is_whole: bool,
}

/// What a frame's code is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// `co_qualname`.
    pub qualname: String,
    /// `co_filename`.
    pub filename: String,
    /// `co_firstlineno`.
    pub first_line: u32,
}

/// What a stack is made of.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A Python function's frame.
    Python {
        /// Its code.
        function: Rc<Function>,
        /// Where in it.
        location: Location,
    },
    /// The garbage collector or C code, which called the frame before and was called by the one after.
    Marker(Marker),
}

/// Why frames are missing. The inner frames that are there, are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incomplete {
    /// Deeper than [`crate::python::frame::DEPTH_MAX`]: the outer ones are missing.
    Truncated,
    /// The chain ends where no stack can end.
    Broken,
    /// Memory of the thread state or of a frame cannot be read.
    Unreadable,
    /// Met between two instructions of a call from C, each time (3.11, 3.12).
    Entering,
    /// It ran, or was moved, whenever it was read, or runs on a CPU where we may not.
    Moving,
    /// `/proc` does not let us see whether it runs.
    Forbidden,
    /// A sub-interpreter's state that names a thread which has another state, too: which thread
    /// runs it cannot be told.
    Shared,
    /// It has ended.
    Ended,
}

impl Incomplete {
    /// A word for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Broken => "broken",
            Self::Unreadable => "unreadable",
            Self::Entering => "entering",
            Self::Moving => "moving",
            Self::Forbidden => "forbidden",
            Self::Shared => "shared",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "too deep: the outer frames are not shown",
            Self::Broken => "the chain of frames ends where no stack can end",
            Self::Unreadable => "memory of its stack cannot be read",
            Self::Entering => "met between two instructions of a call, where no stack is linked",
            Self::Moving => {
                "it never held still while it was read, or runs on a CPU where we may not: try \
                 again, or run unwind on all CPUs"
            }
            Self::Forbidden => "not permitted to see whether it runs",
            Self::Shared => {
                "a sub-interpreter's, which names a thread with another stack: whose it is cannot \
                 be told"
            }
            Self::Ended => "it has ended",
        })
    }
}
