//! The profile itself.

use super::hash::IdHash;
use super::{Mode, StackId, Tables};
use std::collections::{BTreeMap, HashMap};

/// One program run by one process: `exec` keeps the pid and changes everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    /// Process id (thread group id) as we see it.
    pub pid: u32,
    /// How often the process was seen to `exec`: 0 for the program first met.
    pub image: u32,
}

/// One thread of one [`ProcessKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadKey {
    /// Process id (thread group id) as we see it.
    pub pid: u32,
    /// See [`ProcessKey::image`].
    pub image: u32,
    /// Thread id as we see it.
    pub tid: u32,
}

impl ThreadKey {
    /// The thread's process.
    #[must_use]
    pub const fn process(self) -> ProcessKey {
        ProcessKey {
            pid: self.pid,
            image: self.image,
        }
    }
}

/// What is known of a thread besides its ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its name (`comm`), unescaped.
    pub name: Option<String>,
    /// Its id in its own PID namespace, if that is another one.
    pub native_tid: Option<u32>,
}

/// What is known of a process besides its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its command line, unescaped, possibly cut.
    pub command: String,
    /// Version of its CPython, such as `3.14.2`; empty when unknown.
    pub python: String,
}

/// Counted stacks of a time window.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// What the numbers in `samples` stand for.
    pub tables: Tables,
    /// Samples by thread and stack. Counts are above 0.
    pub samples: HashMap<(ThreadKey, StackId), u64, IdHash>,
    /// Which time its samples stand for.
    pub mode: Mode,
    /// Nanoseconds of it that one sample stands for.
    pub period_ns: u64,
    /// Begin of the window, Unix time, ns.
    pub start_ns: u64,
    /// Length of the window.
    pub duration_ns: u64,
    /// Processes seen.
    pub processes: BTreeMap<ProcessKey, ProcessInfo>,
    /// Threads seen.
    pub threads: BTreeMap<ThreadKey, ThreadInfo>,
    /// Interrupts by how they ended, to be printed beside the samples.
    pub outcomes: Vec<(String, u64)>,
    /// Why there are no samples, when there are none; unescaped.
    pub empty_reason: Option<String>,
}

impl Profile {
    /// Counts `count` samples more of `thread` in `stack`, which is of [`Profile::tables`].
    ///
    /// Allocates only on the first sight of the pair. The sum stops at `u64::MAX`.
    pub fn add(&mut self, thread: ThreadKey, stack: StackId, count: u64) {
        if count == 0 {
            return;
        }
        let total = self.samples.entry((thread, stack)).or_insert(0);
        *total = total.saturating_add(count);
    }

    /// All samples.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.samples
            .values()
            .fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Samples a second, from the period; 0 when there is none.
    #[must_use]
    pub fn rate_hz(&self) -> u64 {
        // Periods of most rates are no whole number of nanoseconds: 99 Hz is 10,101,010.1.
        1_000_000_000_u64
            .checked_add(self.period_ns / 2)
            .and_then(|second| second.checked_div(self.period_ns))
            .unwrap_or(0)
    }

    /// The samples in the order of their keys: the same for equal profiles.
    #[must_use]
    pub fn sorted_samples(&self) -> Vec<(ThreadKey, StackId, u64)> {
        let mut samples: Vec<_> = self
            .samples
            .iter()
            .map(|(&(thread, stack), &count)| (thread, stack, count))
            .collect();
        samples.sort_unstable();
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Marker;

    const THREAD: ThreadKey = ThreadKey {
        pid: 7,
        image: 0,
        tid: 8,
    };

    #[test]
    fn samples_of_one_stack_add_up_and_threads_stay_apart() {
        let mut profile = Profile::default();
        let gc = profile.tables.marker(Marker::Gc);
        let stack = profile.tables.stack([gc]);
        profile.add(THREAD, stack, 2);
        profile.add(THREAD, stack, 3);
        profile.add(ThreadKey { image: 1, ..THREAD }, stack, 1);
        profile.add(ThreadKey { tid: 9, ..THREAD }, stack, 0);
        let expected = [
            (THREAD, stack, 5),
            (ThreadKey { image: 1, ..THREAD }, stack, 1),
        ];
        assert_eq!(profile.sorted_samples(), expected);
        assert_eq!(profile.total(), 6);
    }

    #[test]
    fn the_sum_does_not_wrap() {
        let mut profile = Profile::default();
        let stack = profile.tables.stack([]);
        profile.add(THREAD, stack, u64::MAX);
        profile.add(THREAD, stack, 1);
        assert_eq!(profile.total(), u64::MAX);
    }

    #[test]
    fn the_rate_is_the_one_asked_for() {
        for rate in [1, 99, 997, 1000, 9_999, 10_000] {
            let profile = Profile {
                period_ns: 1_000_000_000 / rate,
                ..Profile::default()
            };
            assert_eq!(profile.rate_hz(), rate);
        }
        assert_eq!(Profile::default().rate_hz(), 0);
    }
}
