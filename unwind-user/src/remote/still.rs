//! Reading a thread that is not stopped, and knowing that it did not run meanwhile.
//!
//! We move to the CPU on which the thread last ran. While we run there, it does not; and if it was
//! given no CPU until afterwards, which the kernel counts when it does so, and has the same run
//! time, it did not run in between. So what was read is of one moment, whichever state the thread is in,
//! and long-lived states are not favoured: a read is thrown away for where the scheduler put the
//! thread, not for what the thread did.
//!
//! It proves nothing of other threads: they may free or change what the thread only refers to.
//! What the thread's own frames hold a reference to, their code objects above all, stays. It costs
//! the target the time that we take on that CPU, where it would have run.
//!
//! Sources: `proc_pid_stat(5)` (`processor`), `proc_pid_schedstat(5)` (`sum_exec_runtime`, and
//! `pcount`, which `sched_info_arrive` adds to).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::process::{Stat, printable};

/// Moves after a thread that the scheduler moves, too.
const MOVES: usize = 8;
/// Longer than the files that are read, which are one line of numbers each.
const LINE_MAX: usize = 1024;

/// Our own thread, which goes where the threads are that it reads, and in the end back.
#[derive(Debug)]
pub struct Reader {
    home: CpuSet,
}

/// A thread as it was when it held still.
#[derive(Debug)]
pub struct Still<'a> {
    thread: &'a Watched,
    /// What it had of the CPUs until then.
    pub usage: Usage,
    /// CPU on which it ran last.
    pub cpu: u32,
    /// Its state letter: `R` runs, or would if we had left it the CPU.
    pub state: u8,
    /// Its name, as the kernel knows it, safe to print.
    pub name: String,
}

/// What a thread has had of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Time on them, in ns, as of when it last left one or the last tick.
    pub run: u64,
    /// Times that it was given one.
    pub turns: u64,
}

/// What `/proc` tells of a thread, read again from files that stay open.
#[derive(Debug)]
pub struct Watched {
    stat: File,
    schedstat: File,
}

impl Reader {
    /// Remembers on which CPUs we may run.
    ///
    /// # Errors
    /// As `sched_getaffinity(2)`.
    pub fn new() -> io::Result<Self> {
        let home = sched_getaffinity(Pid::from_raw(0))?;
        Ok(Self { home })
    }

    /// Goes to the CPU of a thread, which was last seen as `seen`. Nothing when it cannot be told that
    /// it holds still: its CPU is none of ours, it is moved faster than we are, or it is a real-time
    /// thread, beside which we would not run until it sleeps.
    ///
    /// # Errors
    /// As `read(2)`: no such process when it has ended.
    pub fn hold<'a>(&self, thread: &'a Watched, seen: &Stat) -> io::Result<Option<Still<'a>>> {
        if seen.is_real_time() {
            return Ok(None);
        }
        let mut cpu = seen.cpu;
        for _ in 0..MOVES {
            let mut there = CpuSet::new();
            let moved = there
                .set(cpu as usize)
                .and_then(|()| sched_setaffinity(Pid::from_raw(0), &there));
            if moved.is_err() {
                return Ok(None);
            }
            let usage = thread.usage()?;
            let stat = thread.stat()?;
            if stat.cpu == cpu {
                return Ok(Some(Still {
                    thread,
                    cpu,
                    usage,
                    state: stat.state,
                    name: printable(&stat.comm),
                }));
            }
            cpu = stat.cpu;
        }
        Ok(None)
    }

    /// Lets the thread run.
    pub fn release(&self) {
        // We were there before; if that is forbidden by now, we stay where we are.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.home);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.release();
    }
}

impl Still<'_> {
    /// Whether the thread has not run since.
    #[must_use]
    pub fn held(&self) -> bool {
        let usage = self.thread.usage();
        usage.is_ok_and(|usage| usage == self.usage)
    }
}

impl Watched {
    /// The thread `tid` of the process `pid`.
    ///
    /// # Errors
    /// As `open(2)`: not found when it has ended.
    pub fn open(pid: i32, tid: i32) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/task/{tid}/{name}"));
        Ok(Self {
            stat: open("stat")?,
            schedstat: open("schedstat")?,
        })
    }

    /// A thread whose files hold these lines.
    #[cfg(test)]
    pub(super) fn of_lines(stat: &str, schedstat: &str) -> Self {
        use std::io::Write as _;
        let file = |line: &str| {
            let flags = nix::sys::memfd::MFdFlags::empty();
            let file = nix::sys::memfd::memfd_create(c"", flags);
            let mut file = file.map(File::from).expect("memfd_create");
            file.write_all(line.as_bytes()).expect("memory");
            file
        };
        Self {
            stat: file(stat),
            schedstat: file(schedstat),
        }
    }

    /// Its state.
    ///
    /// # Errors
    /// As `read(2)`: no such process when it has ended.
    pub fn stat(&self) -> io::Result<Stat> {
        let mut line = [0; LINE_MAX];
        let len = self.stat.read_at(&mut line, 0)?;
        let stat = Stat::parse(line.get(..len).unwrap_or_default());
        stat.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// What it has had of the CPUs.
    ///
    /// # Errors
    /// As `read(2)`: no such process when it has ended. Invalid data while it was never given one,
    /// and where the kernel does not count.
    pub fn usage(&self) -> io::Result<Usage> {
        let mut line = [0; LINE_MAX];
        let len = self.schedstat.read_at(&mut line, 0)?;
        let line = str::from_utf8(line.get(..len).unwrap_or_default()).ok();
        let mut fields = line.unwrap_or_default().split_ascii_whitespace();
        let mut next = || fields.next()?.parse::<u64>().ok();
        let (run, _waited, turns) = (next(), next(), next());
        run.zip(turns.filter(|turns| *turns > 0))
            .map(|(run, turns)| Usage { run, turns })
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

    use super::*;

    /// Runs `test` with the id of a thread of ours that is busy.
    fn beside_a_busy_thread(test: impl FnOnce(i32, i32)) {
        let (tid, done) = (AtomicI32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tid.store(nix::unistd::gettid().as_raw(), Ordering::Release);
                while !done.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            while tid.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let pid = std::process::id() as i32;
            let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                test(pid, tid.load(Ordering::Acquire));
            }));
            done.store(true, Ordering::Release);
            if let Err(panic) = tested {
                std::panic::resume_unwind(panic);
            }
        });
    }

    #[test]
    fn a_busy_thread_holds_still_and_then_does_not() {
        beside_a_busy_thread(|pid, tid| {
            let reader = Reader::new().expect("our own affinity");
            let thread = Watched::open(pid, tid).expect("it runs");
            let still = (0..1000).find_map(|_| {
                let seen = thread.stat().expect("it runs");
                let still = reader.hold(&thread, &seen).expect("it runs");
                still.filter(Still::held)
            });
            let still = still.expect("it holds still");
            reader.release();
            // It runs again, here or elsewhere.
            let begun = std::time::Instant::now();
            while still.held() {
                assert!(begun.elapsed().as_secs() < 10, "it never ran again");
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn we_may_run_where_we_could_before() {
        let home = sched_getaffinity(Pid::from_raw(0)).expect("our own affinity");
        let pid = std::process::id() as i32;
        {
            let reader = Reader::new().expect("our own affinity");
            let thread = Watched::open(pid, pid).expect("we run");
            let seen = thread.stat().expect("we run");
            let still = (0..1000).find_map(|_| reader.hold(&thread, &seen).expect("we run"));
            let still = still.expect("it holds still");
            let here = sched_getaffinity(Pid::from_raw(0)).expect("our own affinity");
            let cpus = (0..CpuSet::count()).filter(|&cpu| here.is_set(cpu) == Ok(true));
            assert_eq!(cpus.collect::<Vec<_>>(), [still.cpu as usize]);
        }
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).ok(), Some(home));
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        let error = Watched::open(std::process::id() as i32, i32::MAX).err();
        assert_eq!(error.map(|e| e.kind()), Some(io::ErrorKind::NotFound));
    }
}
