//! CPU time that a process used, to the nanosecond: what its samples are measured against.

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The process's CPU-time clock: all of its threads, those that have ended too, until its parent
/// has waited for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnCpu {
    first: u64,
    last: u64,
}

impl OnCpu {
    /// Counts from now on.
    #[must_use]
    pub fn begin(pid: u32) -> Self {
        let now = read(pid).unwrap_or(0);
        Self {
            first: now,
            last: now,
        }
    }

    /// Counts up to now; a process that is gone keeps what it had.
    pub fn update(&mut self, pid: u32) {
        self.last = read(pid).unwrap_or(self.last);
    }

    /// Nanoseconds between begin and the last update.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

/// Largest process id of any kernel (`PID_MAX_LIMIT`).
const PID_MAX: i32 = 1 << 22;

fn read(pid: u32) -> Option<u64> {
    // 0 would be our own clock; so would a number so large that its clock's id overflows.
    let pid = i32::try_from(pid).ok();
    let pid = pid.filter(|pid| (1..=PID_MAX).contains(pid))?;
    let clock: ClockId = clock_getcpuclockid(Pid::from_raw(pid)).ok()?;
    let time = std::time::Duration::from(clock_gettime(clock).ok()?);
    u64::try_from(time.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_threads_that_have_ended() {
        let pid = std::process::id();
        let mut clock = OnCpu::begin(pid);
        let used = std::thread::spawn(|| {
            let thread = ClockId::CLOCK_THREAD_CPUTIME_ID;
            let used = || std::time::Duration::from(clock_gettime(thread).expect("our own clock"));
            while used().as_millis() < 20 {}
            used()
        });
        let used = used.join().expect("no panic");
        clock.update(pid);
        assert!(u128::from(clock.total_ns()) >= used.as_nanos());
    }

    #[test]
    fn a_process_that_is_gone_keeps_its_time() {
        let mut clock = OnCpu { first: 1, last: 5 };
        clock.update(i32::MAX as u32);
        clock.update(u32::MAX);
        assert_eq!(clock.total_ns(), 4);
    }
}
