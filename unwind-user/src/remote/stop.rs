//! Stopping threads with ptrace, where that was asked for.
//!
//! None stays stopped: the kernel detaches from all when their tracer ends, however it does
//! (`exit_ptrace`, Linux 3.4+). A system call that waits goes on, or fails with `EINTR`, which Python
//! tries again.

use std::marker::PhantomData;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::process::{Stat, threads};

/// Lists of threads that are read until one has no new thread.
const LISTS_MAX: usize = 16;

/// A stopped thread, which goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Stop {
    tid: Pid,
    /// Arrived meanwhile, and is to be passed on.
    signal: Option<Signal>,
    /// Only the thread that stopped it can let it go on.
    _is_of_this_thread: PhantomData<*const ()>,
}

impl Stop {
    /// Stops a thread. Waits while it is in an uninterruptible wait.
    ///
    /// # Errors
    /// As `ptrace(2)`: not permitted, which it is not either where another traces it; no such process
    /// when it has ended.
    pub(super) fn new(tid: i32) -> nix::Result<Self> {
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, ptrace::Options::empty())?;
        let mut stop = Self {
            tid,
            signal: None,
            _is_of_this_thread: PhantomData,
        };
        ptrace::interrupt(tid)?;
        let status = loop {
            match waitpid(tid, Some(WaitPidFlag::__WALL)) {
                Err(Errno::EINTR) => {}
                status => break status?,
            }
        };
        match status {
            WaitStatus::PtraceEvent(..) => {}
            WaitStatus::Stopped(_, signal) => stop.signal = Some(signal),
            _ => return Err(Errno::ESRCH),
        }
        // It may be on its way off the CPU still, and its run time grow: requests wait for that
        // (`ptrace_check_attach`).
        ptrace::getevent(tid)?;
        Ok(stop)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // It fails only where it has ended.
        let _ = ptrace::detach(self.tid, self.signal);
    }
}

/// All threads of a process, stopped.
#[derive(Debug, Default)]
pub(super) struct Stopped(Vec<(i32, u8, Stop)>);

impl Stopped {
    /// Stops all threads of the process `pid`.
    ///
    /// # Errors
    /// As [`Stop::new`]; not where single threads have ended.
    pub(super) fn all(pid: i32) -> nix::Result<Self> {
        let mut all = Self::default();
        for _ in 0..LISTS_MAX {
            let tids = threads(pid).unwrap_or_default();
            let before = all.0.len();
            for tid in tids {
                if all.state(tid).is_some() {
                    continue;
                }
                let Ok(stat) = Stat::of(tid) else { continue };
                match Stop::new(tid) {
                    Ok(stop) => all.0.push((tid, stat.state, stop)),
                    Err(Errno::ESRCH) => {}
                    Err(error) => return Err(error),
                }
            }
            if all.0.len() == before {
                break;
            }
        }
        Ok(all)
    }

    /// The state letter of a thread before it was stopped.
    pub(super) fn state(&self, tid: i32) -> Option<u8> {
        let found = self.0.iter().find(|(known, ..)| *known == tid);
        found.map(|(_, state, _)| *state)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn state(child: &Child) -> u8 {
        let stat = Stat::of(child.id().cast_signed());
        stat.expect("our child").state
    }

    #[test]
    fn a_stopped_thread_goes_on() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id().cast_signed();
        {
            let stop = Stop::new(pid).expect("our child");
            assert_eq!(state(&child), b't');
            assert_eq!(Stop::new(pid).err(), Some(Errno::EPERM), "traced already");
            drop(stop);
        }
        assert_ne!(state(&child), b't');
        {
            let all = Stopped::all(pid).expect("our child");
            assert_eq!(state(&child), b't');
            assert!(all.state(pid).is_some_and(|before| before != b't'));
            assert_eq!(all.state(1), None);
        }
        assert_ne!(state(&child), b't');
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert_eq!(Stop::new(pid).err(), Some(Errno::ESRCH));
    }

    #[test]
    fn a_signal_that_arrives_meanwhile_is_passed_on() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = Pid::from_raw(child.id().cast_signed());
        let stop = Stop::new(pid.as_raw()).expect("our child");
        nix::sys::signal::kill(pid, Signal::SIGTERM).expect("our child");
        assert_eq!(state(&child), b't');
        drop(stop);
        let status = child.wait().expect("our child");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(15)
        );
    }
}
