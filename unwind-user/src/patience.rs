//! Work that may never end, and how long we wait for it.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long we wait: long against a page that is read from a disk, short against what the ring holds
/// meanwhile.
const PATIENCE: Duration = Duration::from_millis(250);
/// Pieces of work for one process in progress, those that were given up included, which keep their
/// threads. More than those who read it at a time, so that so many mean that it does not answer.
const OF_ONE_MAX: usize = 4;
/// The same, for all processes.
const OF_ALL_MAX: usize = 256;

/// Pieces of work in progress, by process.
static WORK: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());

/// Why work did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// The process did not answer in time, now or often enough before.
    Late,
    /// It was not begun: too much waits for other processes, or there can be no more threads.
    NotBegun,
}

struct Counted(i32);

impl Counted {
    fn new(pid: i32) -> Result<Self, Unfinished> {
        let mut work = work();
        if work.get(&pid).is_some_and(|count| *count >= OF_ONE_MAX) {
            return Err(Unfinished::Late);
        }
        if work.values().sum::<usize>() >= OF_ALL_MAX {
            return Err(Unfinished::NotBegun);
        }
        *work.entry(pid).or_default() += 1;
        Ok(Self(pid))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut work = work();
        if let Some(count) = work.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                work.remove(&self.0);
            }
        }
    }
}

fn work() -> MutexGuard<'static, BTreeMap<i32, usize>> {
    // Nobody panics with it locked.
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work`, which may have to wait for the process `pid`, in a thread of its own.
///
/// # Errors
/// [`Unfinished`]: when it takes longer than a quarter of a second, and is left to itself, among
/// others.
pub(crate) fn patiently<T: Send + 'static>(
    pid: i32,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let counted = Counted::new(pid)?;
    let (sender, receiver) = channel();
    let thread = Builder::new().name("unwind-wait".into());
    let started = thread.spawn(move || {
        let _counted = counted;
        // Nobody waits any more if that fails.
        let _ = sender.send(work());
    });
    started.map_err(|_| Unfinished::NotBegun)?;
    receiver
        .recv_timeout(PATIENCE)
        .map_err(|_| Unfinished::Late)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn what_does_not_end_is_left_and_bounded_by_process() {
        // Numbers that no process has.
        let (silent, other) = (i32::MAX, i32::MAX - 1);
        assert_eq!(patiently(silent, || 7), Ok(7));
        let barrier = Arc::new(Barrier::new(1 + OF_ONE_MAX));
        for _ in 0..OF_ONE_MAX {
            let end = Arc::clone(&barrier);
            let left = patiently(silent, move || end.wait().is_leader());
            assert_eq!(left, Err(Unfinished::Late));
        }
        let begun = std::time::Instant::now();
        assert_eq!(patiently(silent, || 7), Err(Unfinished::Late));
        assert!(begun.elapsed() < PATIENCE, "it was not waited for again");
        assert_eq!(patiently(other, || 7), Ok(7));
        barrier.wait();
    }
}
