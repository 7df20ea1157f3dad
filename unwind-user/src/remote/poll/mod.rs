//! Sampling from outside, where eBPF may not run: a thread of ours looks at the threads of the
//! profiled processes at a steady pace.
//!
//! Each turn looks at every thread that runs, goes to its CPU and captures it there while it holds
//! still ([`super::still`]), with the code that runs in the interrupt: its stack is of one moment,
//! too. What a look meets becomes a sample when the thread has used a period of CPU time since the
//! last one (`bank`): as many samples as interrupts would have been, whoever waits for a CPU.
//! Turns that come late are not made good in bursts; periods without a sample count as missed.
//! In the other modes ([`Mode`]) a look becomes a sample when a period of all time has passed, and
//! waiting threads are looked at, too: one that did not wake up since is as it was.
//!
//! Between turns we sleep on the CPU where we were last: whoever wakes up there gets it at once,
//! whoever is moved there waits behind the thread for a time slice.
//!
//! Records, marks and counters are those of the kernel half ([`crate::sampler`]).

mod bank;
mod image;
mod interpreter;
mod table;
mod thread;
mod turn;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::gettid;
use unwind_ebpf::abi::{Counters, ProcConfig, VOUCHED_SLOTS};

use super::capture::Vouched;
use super::still::Watched;
use crate::bpf::LoadError;
use crate::layout::Layout;
use crate::memory::Addr;
use crate::pipeline::Vouch;
use crate::profile::Mode;
use crate::sampler::{Marks, Sampler, Table};
use image::Seen;
use table::Table as Processes;

/// Longest time that the polling thread may take to stop.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Samples from outside.
#[derive(Debug)]
pub struct Poller {
    shared: Arc<Shared>,
    records: Receiver<Box<[u8]>>,
    sender: Sender<Box<[u8]>>,
    marks: Marks<Vouched>,
    thread: Option<Polling>,
}

/// The polling thread.
#[derive(Debug)]
struct Polling {
    thread: JoinHandle<()>,
    /// Nothing comes; it is closed when the thread ends.
    end: Receiver<()>,
}

/// What the polling thread shares with the session.
#[derive(Debug)]
struct Shared {
    table: Mutex<Processes>,
    vouched: Vouched,
    /// Bytes of records that wait.
    waiting: AtomicU64,
    ring_bytes: u64,
    readiness: EventFd,
    mode: Mode,
    is_stopped: AtomicBool,
    /// The process that is looked at now; 0 between them.
    polled: AtomicU32,
}

/// How often threads are looked at, and at what expense.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Which time samples stand for.
    mode: Mode,
    /// How much of it.
    period: Duration,
    /// Threads of a process whose files in `/proc` are kept open.
    open_max: usize,
}

impl Pace {
    fn nanoseconds(self) -> u64 {
        u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Poller {
    /// A poller without processes. `ring_bytes` of records may wait; samples stand for the time that
    /// `mode` tells.
    ///
    /// # Errors
    /// As `eventfd(2)`.
    pub fn new(ring_bytes: u32, mode: Mode) -> io::Result<Self> {
        let vouched: Vouched = (0..VOUCHED_SLOTS).map(|_| AtomicU64::new(0)).collect();
        let (sender, records) = channel();
        Ok(Self {
            shared: Arc::new(Shared {
                table: Mutex::default(),
                vouched: Arc::clone(&vouched),
                waiting: AtomicU64::new(0),
                ring_bytes: u64::from(ring_bytes),
                readiness: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
                mode,
                is_stopped: AtomicBool::new(false),
                polled: AtomicU32::new(0),
            }),
            records,
            sender,
            marks: Marks::new(vouched),
            thread: None,
        })
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Processes> {
        // Who panicked left nothing half done that matters here.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the session read, soon.
    fn wake(&self) {
        // It fails only when nobody has read for 2^64 times.
        let _ = self.readiness.write(1);
    }
}

impl Sampler for Poller {
    fn name(&self) -> &'static str {
        "remote"
    }

    fn start(&mut self, rate: u64) -> Result<(), LoadError> {
        counts_usage().map_err(LoadError::Poller)?;
        let turns = turn::Turns::new(Arc::clone(&self.shared), self.sender.clone(), rate)
            .map_err(LoadError::Poller)?;
        let (closed_at_end, end) = channel();
        let thread = std::thread::Builder::new().name("unwind-poll".into());
        let thread = thread.spawn(move || {
            let _closed_at_end: Sender<()> = closed_at_end;
            turns.run();
        });
        let thread = thread.map_err(LoadError::Poller)?;
        self.thread = Some(Polling { thread, end });
        Ok(())
    }

    fn stop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        let Some(Polling { thread, end }) = self.thread.take() else {
            return;
        };
        if end.recv_timeout(STOP_MAX) == Err(RecvTimeoutError::Timeout) {
            // Reading a page that the target itself is to provide ends when it likes; with us at the
            // latest.
            let pid = self.shared.polled.load(Ordering::Acquire);
            tracing::error!(
                pid,
                "sampling hangs at this process (0: between processes) and was given up: samples may \
                 be missing"
            );
        } else if thread.join().is_err() {
            tracing::error!("the polling thread panicked");
        }
    }

    fn ring_bytes(&self) -> u64 {
        self.shared.ring_bytes
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.readiness.as_fd()
    }

    fn take(&mut self, with: &mut dyn FnMut(&[u8])) -> bool {
        let Ok(record) = self.records.try_recv() else {
            return false;
        };
        with(&record);
        let bytes = record.len() as u64;
        self.shared.waiting.fetch_sub(bytes, Ordering::AcqRel);
        true
    }

    fn set_process(&mut self, pid: u32, config: ProcConfig) -> Result<(), LoadError> {
        self.marks.set_salt(pid, config.salt);
        let is_known = {
            let table = self.shared.table();
            let entry = table.processes().get(&pid);
            entry.is_some_and(|entry| entry.image().is_some())
        };
        let image = if is_known {
            None
        } else {
            Seen::of(pid).image()
        };
        self.shared.table().set(pid, config, image);
        Ok(())
    }

    fn set_interpreter(&mut self, pid: u32, layout: &Layout, runtime: Addr) {
        let mut table = self.shared.table();
        table.set_place(pid, layout.clone(), runtime);
    }

    fn process(&self, pid: u32) -> Option<ProcConfig> {
        let table = self.shared.table();
        table.processes().get(&pid).map(|entry| entry.config)
    }

    fn process_ids(&self) -> Vec<u32> {
        self.shared.table().processes().keys().copied().collect()
    }

    fn remove_process(&mut self, pid: u32) {
        self.marks.remove(pid);
        self.shared.table().remove(pid);
    }

    fn take_stale(&mut self) -> Vec<u32> {
        self.marks.take_stale()
    }

    fn counters(&self, row: u32) -> Result<Counters, LoadError> {
        Ok(self.shared.table().counters(row))
    }

    fn clear_counters(&mut self, row: u32) -> Result<(), LoadError> {
        self.shared.table().clear_counters(row);
        Ok(())
    }
}

/// # Errors
/// When the kernel does not count what threads use of the CPUs.
fn counts_usage() -> io::Result<()> {
    let of_us = Watched::open(std::process::id().cast_signed(), gettid().as_raw());
    let told = of_us.and_then(|of_us| of_us.usage());
    told.map(|_| ()).map_err(|error| {
        let what = "/proc/PID/schedstat does not tell run times (CONFIG_SCHED_INFO)";
        io::Error::new(error.kind(), format!("{what}: {error}"))
    })
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Vouch for Poller {
    fn vouch(&mut self, pid: u32, code: Addr) {
        self.marks.vouch(pid, code);
    }

    fn revoke(&mut self, pid: u32, code: Addr) {
        self.marks.revoke(pid, code);
    }

    fn revoke_all(&mut self, pid: u32) {
        self.marks.revoke_all(pid);
    }
}

impl Table for Vouched {
    fn get(&self, slot: u32) -> u64 {
        let slot = self[..].get(slot as usize);
        slot.map_or(0, |mark| mark.load(Ordering::Acquire))
    }

    fn set(&mut self, slot: u32, mark: u64) {
        if let Some(slot) = self[..].get(slot as usize) {
            slot.store(mark, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_hangs_is_left_to_itself() {
        let (go_on, goes_on) = channel::<()>();
        let (closed_at_end, end) = channel();
        let thread = std::thread::spawn(move || {
            let _closed_at_end: Sender<()> = closed_at_end;
            // Ends when the test does.
            let _ = goes_on.recv();
        });
        let mut poller = Poller::new(1 << 16, Mode::Cpu).expect("an eventfd");
        poller.thread = Some(Polling { thread, end });
        poller.stop();
        assert!(poller.shared.is_stopped.load(Ordering::Acquire));
        assert!(poller.thread.is_none(), "it is not waited for again");
        drop(go_on);
    }
}
