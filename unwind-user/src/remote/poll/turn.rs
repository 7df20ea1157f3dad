//! The polling thread: one turn after the other, at a steady pace.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_timerslack;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use unwind_ebpf::abi::{ABI_VERSION, EXEC, EXIT, FORK, HEADER_WORDS, PROCESSES_MAX, RecordHeader};

use super::interpreter::{Outlet, Pace};
use super::process::{Change, Image};
use super::{Shared, Tables};
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

/// The polling thread.
pub(super) struct Turns {
    shared: Arc<Shared>,
    outlet: Outgoing,
    period: Duration,
    /// Threads whose files are kept open, of all processes together.
    open_max: usize,
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
            outlet,
            period: Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX).max(1),
            open_max: files_max()? / FILES_A_THREAD / 2,
            looked: Instant::now(),
            looked_for_children: Instant::now(),
        })
    }

    /// Polls until stopped.
    pub(super) fn run(mut self) {
        let reader = match Reader::new() {
            Ok(reader) => reader,
            Err(error) => {
                tracing::error!(%error, "cannot tell on which CPUs we may run: nothing is sampled");
                return;
            }
        };
        // The kernel may add 50 us to each sleep otherwise, more than half a turn at 10 kHz. If it
        // refuses, turns come a little late.
        let _ = set_timerslack(1);
        let mut next = monotonic();
        while !self.shared.is_stopped.load(Ordering::Acquire) {
            self.turn(&reader);
            next += self.period;
            // What came late is not made good by turns in a burst.
            next = next.max(monotonic().saturating_sub(self.period));
            self.sleep_until(next);
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

    fn turn(&mut self, reader: &Reader) {
        let shared = Arc::clone(&self.shared);
        let mut tables = shared.tables();
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.outlet.look(&mut tables);
        }
        if self.looked_for_children.elapsed() >= CHILDREN_EVERY {
            self.looked_for_children = Instant::now();
            self.outlet.look_for_children(&mut tables);
        }
        let Tables {
            processes,
            counters,
        } = &mut *tables;
        let pace = Pace {
            period: self.period,
            open_max: self.open_max / processes.len().max(1),
        };
        for polled in processes.values_mut() {
            let counters = counters.entry(polled.config().slot).or_default();
            polled.poll(reader, pace, counters, &mut self.outlet);
        }
    }
}

impl Outgoing {
    /// Finds processes that run another program now, and those that ended.
    fn look(&mut self, tables: &mut Tables) {
        for (&pid, polled) in &mut tables.processes {
            match polled.look(Image::of(pid)) {
                Change::None => {}
                Change::Exec => self.tell(EXEC, pid, pid),
                Change::Exit => self.tell(EXIT, pid, pid),
            }
        }
    }

    /// Enters the children of those processes whose children are followed.
    fn look_for_children(&mut self, tables: &mut Tables) {
        let followed: Vec<u32> = tables
            .processes
            .iter()
            .filter(|(_, polled)| polled.config().follow != 0)
            .map(|(pid, _)| *pid)
            .collect();
        for parent in followed {
            let children = process::children(parent.cast_signed());
            for child in children.into_iter().map(i32::cast_unsigned) {
                if tables.processes.contains_key(&child) {
                    continue;
                }
                if tables.processes.len() >= PROCESSES_MAX as usize {
                    return;
                }
                let Some(polled) = tables.processes.get(&parent) else {
                    break;
                };
                let Some(child_polled) = polled.child(child) else {
                    continue;
                };
                tables.processes.insert(child, child_polled);
                self.tell(FORK, parent, child);
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
}

/// Files that this process may have open.
fn files_max() -> io::Result<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(usize::try_from(soft).unwrap_or(usize::MAX).min(FILES_MAX))
}

fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
