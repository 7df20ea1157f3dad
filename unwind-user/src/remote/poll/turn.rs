//! The polling thread: one turn after the other, at a steady pace.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_timerslack;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use unwind_ebpf::abi::{
    ABI_VERSION, Counters, EXEC, EXIT, FORK, HEADER_WORDS, MISSED, RecordHeader,
};

use super::image::{Change, Seen};
use super::interpreter::{Interpreter, Outlet};
use super::{Pace, Shared};
use crate::process;
use crate::remote::still::Reader;
use crate::run::session::monotonic_ns;
use crate::sample::write_record;

/// Between two looks whether processes have changed their program or ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Between two looks for new children.
const CHILDREN_EVERY: Duration = Duration::from_millis(100);
/// Files in `/proc` that are read of each thread, turn by turn.
const FILES_A_THREAD: usize = 2;
/// More files than this are not kept open, whatever the limit.
const FILES_MAX: usize = 1 << 15;
/// Longest time between two turns in which we do not hear that we are to stop.
const NAP_MAX: Duration = Duration::from_millis(100);
/// Part of a turn's CPU time for which we sleep at least when it used more than there is. Waiting for
/// a thread's CPU is no work.
const REST: u32 = 4;

/// The polling thread.
pub(super) struct Turns {
    shared: Arc<Shared>,
    reader: Reader,
    outlet: Outgoing,
    period: Duration,
    /// Threads whose files are kept open, of all processes together.
    open_max: usize,
    interpreters: BTreeMap<u32, Interpreter>,
    /// State of the table from which they are.
    changes: Option<u64>,
    looked: Instant,
    looked_for_children: Instant,
}

/// Where records go.
struct Outgoing {
    shared: Arc<Shared>,
    records: Sender<Box<[u8]>>,
    event: Vec<u8>,
}

impl Turns {
    /// # Errors
    /// As `sched_getaffinity(2)` and `getrlimit(2)`.
    pub(super) fn new(
        shared: Arc<Shared>,
        records: Sender<Box<[u8]>>,
        rate: u64,
    ) -> io::Result<Self> {
        let outlet = Outgoing {
            shared: Arc::clone(&shared),
            records,
            event: Vec::new(),
        };
        Ok(Self {
            shared,
            reader: Reader::new()?,
            outlet,
            period: Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX).max(1),
            open_max: files_max()? / FILES_A_THREAD / 2,
            interpreters: BTreeMap::new(),
            changes: None,
            looked: Instant::now(),
            looked_for_children: Instant::now(),
        })
    }

    /// Polls until stopped.
    pub(super) fn run(mut self) {
        // The kernel may add 50 us to each sleep otherwise, more than half a turn at 10 kHz. If it
        // refuses, turns come a little late.
        let _ = set_timerslack(1);
        let mut next = monotonic();
        while !self.shared.is_stopped.load(Ordering::Acquire) {
            let begun = own_cpu_time();
            self.turn();
            let (now, worked) = (monotonic(), own_cpu_time().saturating_sub(begun));
            // What came late is not made good by turns in a burst.
            next = (next + self.period).max(now.saturating_sub(self.period));
            if worked > self.period {
                next = next.max(now + worked / REST);
            }
            self.sleep_until(next);
        }
        let pids: Vec<u32> = self.interpreters.keys().copied().collect();
        for pid in pids {
            self.leave(pid);
        }
    }

    fn sleep_until(&self, next: Duration) {
        while !self.shared.is_stopped.load(Ordering::Acquire) {
            let now = monotonic();
            if now >= next {
                break;
            }
            let until = TimeSpec::from(next.min(now + NAP_MAX));
            // Woken by a signal, we look again.
            let _ = clock_nanosleep(
                ClockId::CLOCK_MONOTONIC,
                ClockNanosleepFlags::TIMER_ABSTIME,
                &until,
            );
        }
    }

    fn turn(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.outlet.look();
        }
        if self.looked_for_children.elapsed() >= CHILDREN_EVERY {
            self.looked_for_children = Instant::now();
            self.outlet.look_for_children();
        }
        self.keep_up();
        let pace = self.pace();
        for (&pid, interpreter) in &mut self.interpreters {
            let (mut counters, begun) = (Counters::default(), monotonic_ns());
            self.shared.polled.store(pid, Ordering::Release);
            interpreter.poll(&self.reader, pace, &mut counters, &mut self.outlet);
            self.shared.polled.store(0, Ordering::Release);
            counters.run_ns = monotonic_ns().saturating_sub(begun);
            self.shared.table().count(pid, &counters);
        }
    }

    fn pace(&self) -> Pace {
        Pace {
            mode: self.shared.mode,
            period: self.period,
            open_max: self.open_max / self.interpreters.len().max(1),
        }
    }

    /// Polls what the table says by now.
    fn keep_up(&mut self) {
        let shared = Arc::clone(&self.shared);
        let table = shared.table();
        if self.changes.replace(table.changes()) == Some(table.changes()) {
            return;
        }
        let processes = table.processes().clone();
        // What follows reads processes.
        drop(table);
        let is_polled = |pid: &u32, interpreter: &Interpreter| {
            let place = processes.get(pid).and_then(|entry| entry.polled());
            place.is_some_and(|place| interpreter.is_at(place))
        };
        let held = self.interpreters.iter();
        let over: Vec<u32> = held
            .filter(|(pid, interpreter)| !is_polled(pid, interpreter))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in over {
            self.leave(pid);
        }
        for (pid, entry) in processes {
            if let Some(place) = entry.polled() {
                let interpreter = self.interpreters.entry(pid).or_insert_with(|| {
                    Interpreter::new(pid, &entry, place, Arc::clone(&shared.vouched))
                });
                interpreter.set_config(entry.config);
            }
        }
    }

    /// Polls a process no more.
    fn leave(&mut self, pid: u32) {
        let pace = self.pace();
        if let Some(mut interpreter) = self.interpreters.remove(&pid) {
            let mut counters = Counters::default();
            if let Some(missed) = counters.outcomes.get_mut(MISSED as usize) {
                *missed = interpreter.leave(pace);
            }
            self.shared.table().count(pid, &counters);
        }
    }
}

impl Outgoing {
    /// Finds processes that run another program now, and those that ended.
    fn look(&mut self) {
        let processes = self.shared.table().processes().clone();
        for (pid, entry) in processes {
            let Some(image) = entry.image() else {
                continue;
            };
            let seen = Seen::again(pid, image);
            let change = self.shared.table().look(pid, seen);
            match change {
                Change::None => {}
                Change::Exec => self.tell(EXEC, pid, pid),
                Change::Exit => self.tell(EXIT, pid, pid),
            }
        }
    }

    /// Enters the children of those processes whose children are followed.
    fn look_for_children(&mut self) {
        let table = self.shared.table();
        let processes = table.processes().iter();
        let followed: Vec<u32> = processes
            .filter(|(_, entry)| entry.config.follow != 0)
            .map(|(pid, _)| *pid)
            .collect();
        drop(table);
        for parent in followed {
            for child in process::children(parent.cast_signed()) {
                let child = child.cast_unsigned();
                if self.shared.table().processes().contains_key(&child) {
                    continue;
                }
                // Else it has ended, or will be looked at the next time.
                let image = Seen::of(child).image();
                if image.is_some_and(|image| self.shared.table().fork(parent, child, image)) {
                    self.tell(FORK, parent, child);
                }
            }
        }
    }

    fn tell(&mut self, kind: u16, pid: u32, tid: u32) {
        let header = RecordHeader {
            abi: ABI_VERSION,
            kind,
            time: monotonic_ns(),
            pid,
            tid,
            ..RecordHeader::default()
        };
        let mut event = std::mem::take(&mut self.event);
        write_record(&header, &[], &mut event);
        debug_assert_eq!(event.len(), HEADER_WORDS * 8);
        // These few bytes are passed on even where there is no room for a sample.
        self.send(&event);
        self.event = event;
        self.shared.wake();
    }

    fn send(&self, record: &[u8]) -> u64 {
        let bytes = record.len() as u64;
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::AcqRel);
        // The session reads until it has stopped us.
        let _ = self.records.send(record.into());
        waiting + bytes
    }
}

impl Outlet for Outgoing {
    fn submit(&mut self, record: &[u8], is_urgent: bool) -> bool {
        let room = self.shared.ring_bytes;
        if self.shared.waiting.load(Ordering::Acquire) + record.len() as u64 > room {
            return false;
        }
        if self.send(record) > room / 4 || is_urgent {
            self.shared.wake();
        }
        true
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }
}

/// Files that this process may have open.
fn files_max() -> io::Result<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(usize::try_from(soft).unwrap_or(usize::MAX).min(FILES_MAX))
}

fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

/// CPU time that this thread has used.
fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
