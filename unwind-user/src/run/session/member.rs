//! One process of a session: where it stands and what it has used so far.

use std::time::{Duration, Instant};

use unwind_ebpf::abi::Counters;

use crate::python::AttachError;
use crate::run::oncpu::OnCpu;
use crate::run::procs;

/// Shortest pause between two looks for an interpreter.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(2);
/// The same where the program is none that starts Python: it may open a library later.
const LOOK_AGAIN_MIN_NOT_PYTHON: Duration = Duration::from_millis(100);
/// Longest pause between two looks.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(10);

/// Whether children are profiled too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Only the processes asked for.
    No,
    /// Their children, too.
    Children,
}

/// Where a process stands.
#[derive(Clone, Debug)]
pub enum State {
    /// It has not become the command yet.
    Held,
    /// Its interpreter is looked for; why it was not found so far.
    Attaching(Look, Option<AttachError>),
    /// It is sampled.
    Attached,
    /// It runs no Python now. That may change: by exec, or when it opens a library.
    NotPython(Look, AttachError),
    /// It runs a Python that cannot be sampled. Only exec changes that.
    Refused(AttachError),
    /// It ended.
    Exited,
}

/// When to look for an interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Since when.
    pub since: Instant,
    /// When next.
    pub next: Instant,
}

impl Look {
    /// From now on, at once.
    #[must_use]
    pub fn now() -> Self {
        let since = Instant::now();
        Self { since, next: since }
    }

    /// Looks again after an eighth of the time already spent, so that looking stays cheap and
    /// what is late is found only a little later.
    fn again(self, min: Duration) -> Self {
        let pause = (self.since.elapsed() / 8).clamp(min, LOOK_AGAIN_MAX);
        Self {
            since: self.since,
            next: Instant::now() + pause,
        }
    }
}

impl State {
    /// Its interpreter is looked for from now on.
    #[must_use]
    pub fn attaching() -> Self {
        Self::Attaching(Look::now(), None)
    }

    /// The state after a look that found `error` instead of an interpreter.
    #[must_use]
    pub fn after(&self, error: AttachError) -> Self {
        let look = match self {
            Self::Attaching(look, _) | Self::NotPython(look, _) => *look,
            _ => Look::now(),
        };
        match error {
            AttachError::Gone { .. } | AttachError::Zombie { .. } => Self::Exited,
            AttachError::NotPython { .. } => {
                Self::NotPython(look.again(LOOK_AGAIN_MIN_NOT_PYTHON), error)
            }
            _ if error.may_pass() => Self::Attaching(look.again(LOOK_AGAIN_MIN), Some(error)),
            _ => Self::Refused(error),
        }
    }

    /// When to look for an interpreter next.
    #[must_use]
    pub const fn look(&self) -> Option<Look> {
        match self {
            Self::Attaching(look, _) | Self::NotPython(look, _) => Some(*look),
            _ => None,
        }
    }

    /// Whether the process has not ended.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !matches!(self, Self::Exited)
    }

    /// Whether it is sampled.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        matches!(self, Self::Attached)
    }

    /// Why it gives no samples, if that is known.
    #[must_use]
    pub const fn reason(&self) -> Option<&AttachError> {
        match self {
            Self::Attaching(_, error) => error.as_ref(),
            Self::NotPython(_, error) | Self::Refused(error) => Some(error),
            _ => None,
        }
    }

    /// Its name in counters and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Held | Self::Attaching(..) => "attaching",
            Self::Attached => "attached",
            Self::NotPython(..) => "not_python",
            Self::Refused(_) => "refused",
            Self::Exited => "exited",
        }
    }
}

/// A process of this session.
#[derive(Debug)]
pub struct Member {
    /// Where it stands.
    pub state: State,
    /// Its start in clock ticks since boot; none if it was gone already.
    pub start_time: Option<u64>,
    /// Programs it was before (exec).
    pub image: u32,
    /// Since when it is this one.
    pub since: Instant,
    /// Row of the kernel half's counters; after its end, what they were.
    pub counters: Row,
    /// CPU time it used as a Python process, or since its last exec.
    pub on_cpu: OnCpu,
    /// Whether it was asked for, or came as a child.
    pub is_child: bool,
    /// Whether it ever was attached to.
    pub was_python: bool,
    /// Samples of the programs it was before.
    pub past_samples: u64,
    /// CPython version once attached.
    pub version: Option<String>,
    /// Command line.
    pub command: String,
    /// A note about why it gives no samples was printed.
    pub is_noted: bool,
}

/// Where a process's counters are.
#[derive(Clone, Copy, Debug)]
pub enum Row {
    /// In this row of the kernel half's table.
    Live(u32),
    /// Read when the process had ended; the row may be another's by now.
    Final(Counters),
}

impl Member {
    /// A process that was asked for: its CPU time counts from now on.
    pub(super) fn new(pid: u32, row: u32, state: State) -> Self {
        Self {
            state,
            start_time: procs::start_time(pid),
            image: 0,
            since: procs::began(pid),
            counters: Row::Live(row),
            on_cpu: OnCpu::begin(pid),
            is_child: false,
            was_python: false,
            past_samples: 0,
            version: None,
            command: procs::command_line(pid),
            is_noted: false,
        }
    }

    /// A child: all of its CPU time counts.
    pub(super) fn child(pid: u32, row: u32, state: State) -> Self {
        let mut member = Self::new(pid, row, state);
        member.is_child = true;
        member.on_cpu = OnCpu::default();
        member
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_python() -> AttachError {
        AttachError::NotPython {
            pid: 1,
            comm: "sh".into(),
            children: Vec::new(),
        }
    }

    #[test]
    fn looks_become_rarer() {
        let begun = Instant::now() - Duration::from_secs(8);
        let look = Look {
            since: begun,
            next: begun,
        };
        let state = State::Attaching(look, None).after(AttachError::Starting { pid: 1 });
        let next = state.look().expect("still looking");
        assert_eq!(next.since, begun);
        let pause = next.next - Instant::now();
        assert!(
            pause > Duration::from_millis(900) && pause < Duration::from_secs(2),
            "{pause:?}"
        );
        let first = State::attaching()
            .after(AttachError::Starting { pid: 1 })
            .look();
        let first = first.expect("still looking");
        assert!(first.next - first.since < Duration::from_millis(100));
    }

    #[test]
    fn what_cannot_be_sampled_is_not_looked_at_again() {
        let version = crate::layout::Version(0x030a_00f0);
        let old = AttachError::VersionUnsupported { pid: 1, version };
        let state = State::attaching().after(old);
        assert!(matches!(state, State::Refused(_)) && state.look().is_none());
        assert!(matches!(
            State::attaching().after(not_python()),
            State::NotPython(..)
        ));
        let gone = State::attaching().after(AttachError::Gone { pid: 1 });
        assert!(!gone.is_live());
    }
}
