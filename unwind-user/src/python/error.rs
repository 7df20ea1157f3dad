//! Why a process cannot be profiled, in words that say what to do next.

use std::fmt;

use crate::layout::{LayoutError, Version};

/// A Python process found below one that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonChild {
    /// Its process id.
    pub pid: i32,
    /// Its name.
    pub comm: String,
}

/// Why a process cannot be profiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// There is no such process, or it ended meanwhile.
    #[error("there is no process {pid} (any more)")]
    Gone {
        /// The process asked for.
        pid: i32,
    },
    /// It has ended, and its parent has not waited for it.
    #[error("process {pid} has ended and is a zombie: its parent has not collected it")]
    Zombie {
        /// The process asked for.
        pid: i32,
    },
    /// Its first thread has ended and others have not: `/proc` shows nothing of its memory.
    #[error(
        "the first thread of process {pid} has ended while others run on: its memory cannot be \
         found any more"
    )]
    FirstThreadEnded {
        /// The process asked for.
        pid: i32,
    },
    /// A thread of the kernel.
    #[error("{pid} ({comm}) is a kernel thread: it runs no Python")]
    KernelThread {
        /// The process asked for.
        pid: i32,
        /// Its name.
        comm: String,
    },
    /// A thread, not a process.
    #[error("{tid} is a thread of process {process}: use --pid {process}")]
    Thread {
        /// The number asked for.
        tid: i32,
        /// The process it belongs to.
        process: i32,
    },
    /// The kernel keeps its memory from us.
    #[error(
        "not permitted to read process {pid}: run as root or with CAP_SYS_PTRACE (as its own user \
         it takes kernel.yama.ptrace_scope = 0)"
    )]
    NoPermission {
        /// The process asked for.
        pid: i32,
    },
    /// No interpreter was found, and there is a file that may be one.
    #[error(
        "not permitted to open {path}, which process {pid} runs: run as root or with \
         CAP_DAC_READ_SEARCH"
    )]
    FileUnreadable {
        /// The process asked for.
        pid: i32,
        /// The file, as the kernel shows it.
        path: String,
    },
    /// No interpreter is mapped.
    #[error("process {pid} ({comm}) runs no Python that we can find{}", Children(.children))]
    NotPython {
        /// The process asked for.
        pid: i32,
        /// Its name.
        comm: String,
        /// Python processes below it.
        children: Vec<PythonChild>,
    },
    /// The dynamic linker is not through with the program's libraries.
    #[error("process {pid} is still loading its program")]
    Starting {
        /// The process asked for.
        pid: i32,
    },
    /// The interpreter is there and has no thread yet, or no longer.
    #[error("the Python of process {pid} is not initialised (yet, or any more)")]
    NotInitialised {
        /// The process asked for.
        pid: i32,
    },
    /// No way from a thread to its thread state: none of its threads is far enough.
    #[error("no thread of process {pid} shows where its Python state is kept (yet)")]
    NoThreadState {
        /// The process asked for.
        pid: i32,
    },
    /// It says no version, which every CPython from 3.11 on does.
    #[error(
        "process {pid} runs a CPython older than 3.11, or one whose symbols are stripped: \
         3.11 to 3.15 are supported"
    )]
    VersionUnknown {
        /// The process asked for.
        pid: i32,
    },
    /// A version without a layout.
    #[error("process {pid} runs CPython {version}: 3.11 to 3.15 are supported")]
    VersionUnsupported {
        /// The process asked for.
        pid: i32,
        /// Its version.
        version: Version,
    },
    /// A build without the GIL.
    #[error(
        "process {pid} runs a free-threaded CPython {version}, which is not supported yet: use the \
         build with the GIL"
    )]
    FreeThreaded {
        /// The process asked for.
        pid: i32,
        /// Its version.
        version: Version,
    },
    /// An alpha or a beta.
    #[error("process {pid} runs CPython {version}, a pre-release: use a final release")]
    PreRelease {
        /// The process asked for.
        pid: i32,
        /// Its version.
        version: Version,
    },
    /// What the interpreter says about itself cannot be.
    #[error("the offsets that the Python of process {pid} publishes are damaged: {reason}")]
    OffsetsInvalid {
        /// The process asked for.
        pid: i32,
        /// What is wrong with them.
        reason: LayoutError,
    },
}

impl AttachError {
    /// Whether the same process may be attached to a little later.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Starting { .. } | Self::NotInitialised { .. } | Self::NoThreadState { .. }
        )
    }

    pub(super) fn layout(pid: i32, reason: LayoutError) -> Self {
        match reason {
            LayoutError::Unsupported(version) => Self::VersionUnsupported { pid, version },
            LayoutError::FreeThreaded(version) => Self::FreeThreaded { pid, version },
            LayoutError::PreRelease(version) => Self::PreRelease { pid, version },
            reason => Self::OffsetsInvalid { pid, reason },
        }
    }
}

struct Children<'a>(&'a [PythonChild]);

impl fmt::Display for Children<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(", nor does a child of it");
        }
        let mut lead = "; below it Python runs: use --pid ";
        for PythonChild { pid, comm } in self.0 {
            write!(f, "{lead}{pid} ({comm})")?;
            lead = " or --pid ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_children_to_use_instead() {
        let child = |pid| PythonChild {
            pid,
            comm: "python3".into(),
        };
        let shell = |children| AttachError::NotPython {
            pid: 5,
            comm: "sh".into(),
            children,
        };
        assert_eq!(
            shell(vec![child(6), child(7)]).to_string(),
            "process 5 (sh) runs no Python that we can find; below it Python runs: \
             use --pid 6 (python3) or --pid 7 (python3)"
        );
        assert!(
            shell(vec![])
                .to_string()
                .ends_with(", nor does a child of it")
        );
    }

    #[test]
    fn only_a_beginning_may_pass() {
        assert!(AttachError::NotInitialised { pid: 1 }.may_pass());
        assert!(!AttachError::Gone { pid: 1 }.may_pass());
        let old = AttachError::layout(1, LayoutError::Unsupported(Version(0x030a_00f0)));
        assert_eq!(
            old.to_string(),
            "process 1 runs CPython 3.10.0: 3.11 to 3.15 are supported"
        );
        assert!(!old.may_pass());
    }
}
