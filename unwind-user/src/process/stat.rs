//! `/proc/PID/stat`: state, parent, start time.

use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What we use of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the program, at most 15 bytes (the main thread's name).
    pub comm: Vec<u8>,
    /// State letter: `R`, `S`, `D`, `Z` (ended, not waited for), `T`, `I`, `X`, …
    pub state: u8,
    /// Parent's process id; 0 where it has none that we can see.
    pub parent: i32,
    /// The kernel's `PF_*` flags.
    pub flags: u32,
    /// Start, in clock ticks (1/100 s) since boot: with the pid it names one process for good.
    pub start_time: u64,
    /// Bottom of the first thread's stack: another address after each exec; 0 or 1 where we may not
    /// know it.
    pub stack: u64,
    /// CPU on which it runs or last ran.
    pub cpu: u32,
    /// How it is scheduled (`SCHED_*`).
    pub policy: u32,
}

/// Milliseconds of a clock tick: `USER_HZ` is 100 on every machine that we run on.
const TICK_MS: u64 = 10;
/// `PF_EXITING`: its memory may be gone already.
const EXITING: u32 = 0x4;
/// `SCHED_FIFO`, `SCHED_RR` and `SCHED_DEADLINE` of `linux/sched.h`.
const REAL_TIME: [u32; 3] = [1, 2, 6];
/// `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x0020_0000;

impl Stat {
    /// Reads the state of a process (or thread).
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`: not found where there is no such process (any more).
    pub fn of(pid: i32) -> io::Result<Self> {
        let bytes = std::fs::read(format!("/proc/{pid}/stat"))?;
        Self::parse(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Takes the line apart. The name may hold spaces and `)`: it ends at the last one.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|&byte| byte == b'(')?;
        let close = line.iter().rposition(|&byte| byte == b')')?;
        let comm = line.get(open + 1..close)?.to_vec();
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        // The state is field 3 of proc(5); parent 4, flags 9, start time 22, start of the stack 28,
        // CPU 39, policy 41.
        let mut fields = rest.split_ascii_whitespace();
        let &[state] = fields.next()?.as_bytes() else {
            return None;
        };
        let parent = fields.next()?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        let start_time = fields.nth(12)?.parse().ok()?;
        let stack = fields.nth(5)?.parse().ok()?;
        let cpu = fields.nth(10)?.parse().ok()?;
        let policy = fields.nth(1)?.parse().ok()?;
        Some(Self {
            comm,
            state,
            parent,
            flags,
            start_time,
            stack,
            cpu,
            policy,
        })
    }

    /// How long ago the process started; zero where the clock cannot be read.
    #[must_use]
    pub fn age(&self) -> Duration {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        now.saturating_sub(Duration::from_millis(
            self.start_time.saturating_mul(TICK_MS),
        ))
    }

    /// Whether it is a thread of the kernel, which has no memory of its own.
    #[must_use]
    pub const fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether it runs before all others for as long as it wants to.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        REAL_TIME.contains(&self.policy)
    }

    /// Whether it has ended, or is about to: a zombie, or its main thread is exiting.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.flags & EXITING != 0 || matches!(self.state, b'Z' | b'X' | b'x')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_ends_at_the_last_parenthesis() {
        let line = b"77 (a) R (b)) S 12 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 99 1 \
            0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 1";
        let stat = Stat::parse(line).expect("a line");
        assert_eq!(stat.comm, b"a) R (b)");
        assert_eq!(
            (
                stat.state,
                stat.parent,
                stat.start_time,
                stat.stack,
                stat.cpu
            ),
            (b'S', 12, 987_654, 0, 3)
        );
        assert!(!stat.is_kernel_thread() && !stat.has_ended() && stat.is_real_time());
    }

    #[test]
    fn we_are_younger_than_the_machine() {
        let ours = Stat::of(std::process::id().cast_signed()).expect("our own");
        let first = Stat {
            start_time: 0,
            ..ours.clone()
        };
        assert!(ours.age() < first.age() && first.age() > Duration::from_secs(1));
        let future = Stat {
            start_time: u64::MAX,
            ..ours
        };
        assert_eq!(future.age(), Duration::ZERO);
    }

    #[test]
    fn knows_kernel_threads() {
        let line = b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 13 0 0 \
            0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";
        assert!(Stat::parse(line).expect("a line").is_kernel_thread());
    }

    #[test]
    fn refuses_half_a_line() {
        for line in [
            &b""[..],
            b")(",
            b"1 (a",
            b"1 (a) S 2 3",
            b"1 (a) SS 2 3 4 5 6 7 8 9 10",
        ] {
            assert_eq!(Stat::parse(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn reads_our_own() {
        let stat = Stat::of(std::process::id() as i32).expect("we are alive");
        assert_eq!(stat.parent, nix::unistd::getppid().as_raw());
        assert!(stat.start_time > 0);
        let error = Stat::of(i32::MAX).expect_err("no such pid");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
