//! CPU time that a process used, to the nanosecond: what its samples are measured against.

use std::collections::HashMap;
use std::fs;

/// Sums the run time of all threads, from `/proc/PID/task/TID/schedstat` (first field, ns).
///
/// What a thread used between the last update and its end is missed.
#[derive(Debug, Default)]
pub struct OnCpu {
    /// First and last value by thread.
    threads: HashMap<u32, (u64, u64)>,
}

impl OnCpu {
    /// Counts from now on.
    #[must_use]
    pub fn begin(pid: u32) -> Self {
        let threads = read(pid).map(|(tid, ns)| (tid, (ns, ns))).collect();
        Self { threads }
    }

    /// Counts up to now. Threads that are new count from their start.
    pub fn update(&mut self, pid: u32) {
        for (tid, ns) in read(pid) {
            self.threads.entry(tid).or_insert((0, ns)).1 = ns;
        }
    }

    /// Nanoseconds between begin and the last update.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.threads.values().map(|(first, last)| last.saturating_sub(*first)).sum()
    }
}

fn read(pid: u32) -> impl Iterator<Item = (u32, u64)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let tid = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        Some((tid, text.split(' ').next()?.parse().ok()?))
    })
}
