//! Work that may never end, and how long we wait for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

/// How long we wait: long against a page that is read from a disk, short against what the ring holds
/// meanwhile.
const PATIENCE: Duration = Duration::from_millis(250);
/// Pieces of work in progress, those that were given up included. What is given up keeps its thread.
const WORK_MAX: usize = 64;

static WORK: AtomicUsize = AtomicUsize::new(0);

struct Counted;

impl Counted {
    fn new() -> Option<Self> {
        let more = |count| (count < WORK_MAX).then_some(count + 1);
        let added = WORK.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        added.ok().map(|_| Self)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        WORK.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Does `work` in a thread of its own. None if it takes longer than a quarter of a second, and is left
/// to itself; or if too much was left before.
pub(crate) fn patiently<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let counted = Counted::new()?;
    let (sender, receiver) = channel();
    let thread = Builder::new().name("unwind-wait".into());
    let started = thread.spawn(move || {
        let _counted = counted;
        // Nobody waits any more if that fails.
        let _ = sender.send(work());
    });
    started.ok()?;
    receiver.recv_timeout(PATIENCE).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn what_ends_is_returned_and_what_does_not_is_left() {
        assert_eq!(patiently(|| 7), Some(7));
        let barrier = Arc::new(Barrier::new(2));
        let end = Arc::clone(&barrier);
        assert_eq!(patiently(move || end.wait().is_leader()), None);
        barrier.wait();
    }
}
