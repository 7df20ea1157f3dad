//! Sampling from outside, where eBPF may not run: a thread of ours looks at the threads of the
//! profiled processes at a steady pace.
//!
//! Each turn looks at every thread that runs, goes to its CPU and captures it there while it holds
//! still ([`super::still`]), with the code that runs in the interrupt: its stack is of one moment,
//! too. What a look meets becomes a sample when the thread has used a period of CPU time since the
//! last one ([`bank`]): as many samples as interrupts would have been, whoever waits for a CPU.
//! Turns that come late are not made good in bursts; periods without a sample count as missed.
//!
//! Between turns we sleep on the CPU where we were last: whoever wakes up there gets it at once,
//! whoever is moved there waits behind the thread for a time slice.
//!
//! Records, marks and counters are those of the kernel half ([`crate::sampler`]).

pub mod bank;
mod interpreter;
mod process;
mod turn;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};
use unwind_ebpf::abi::{Counters, ProcConfig, VOUCHED_SLOTS};

use super::capture::Vouched;
use crate::bpf::LoadError;
use crate::layout::Layout;
use crate::memory::Addr;
use crate::pipeline::Vouch;
use crate::sampler::{Marks, Sampler, Table};
use process::Polled;

/// Samples from outside.
#[derive(Debug)]
pub struct Poller {
    shared: Arc<Shared>,
    records: Receiver<Box<[u8]>>,
    sender: Sender<Box<[u8]>>,
    marks: Marks<Vouched>,
    thread: Option<JoinHandle<()>>,
}

/// What the polling thread shares with the session.
#[derive(Debug)]
struct Shared {
    tables: Mutex<Tables>,
    vouched: Vouched,
    /// Bytes of records that wait.
    waiting: AtomicU64,
    ring_bytes: u64,
    readiness: EventFd,
    is_stopped: AtomicBool,
}

/// The processes and what was counted for each row. Locked for a turn.
#[derive(Debug, Default)]
struct Tables {
    processes: BTreeMap<u32, Polled>,
    counters: BTreeMap<u32, Counters>,
}

impl Poller {
    /// A poller without processes. `ring_bytes` of records may wait.
    ///
    /// # Errors
    /// As `eventfd(2)`.
    pub fn new(ring_bytes: u32) -> io::Result<Self> {
        let vouched: Vouched = (0..VOUCHED_SLOTS).map(|_| AtomicU64::new(0)).collect();
        let (sender, records) = channel();
        Ok(Self {
            shared: Arc::new(Shared {
                tables: Mutex::default(),
                vouched: Arc::clone(&vouched),
                waiting: AtomicU64::new(0),
                ring_bytes: u64::from(ring_bytes),
                readiness: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
                is_stopped: AtomicBool::new(false),
            }),
            records,
            sender,
            marks: Marks::new(vouched),
            thread: None,
        })
    }
}

impl Shared {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A turn that panicked left nothing half done that matters here.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
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
        let turns = turn::Turns::new(Arc::clone(&self.shared), self.sender.clone(), rate)
            .map_err(LoadError::Poller)?;
        let thread = std::thread::Builder::new().name("unwind-poll".into());
        let thread = thread.spawn(move || turns.run());
        self.thread = Some(thread.map_err(LoadError::Poller)?);
        Ok(())
    }

    fn stop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
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
        let mut tables = self.shared.tables();
        let polled = tables.processes.entry(pid);
        polled
            .or_insert_with(|| Polled::new(pid, Vouched::clone(&self.shared.vouched)))
            .set(config);
        Ok(())
    }

    fn set_interpreter(&mut self, pid: u32, layout: &Layout, runtime: Addr) {
        if let Some(polled) = self.shared.tables().processes.get_mut(&pid) {
            polled.set_interpreter(layout.clone(), runtime);
        }
    }

    fn process(&self, pid: u32) -> Option<ProcConfig> {
        self.shared.tables().processes.get(&pid).map(Polled::config)
    }

    fn process_ids(&self) -> Vec<u32> {
        self.shared.tables().processes.keys().copied().collect()
    }

    fn remove_process(&mut self, pid: u32) {
        self.marks.remove(pid);
        self.shared.tables().processes.remove(&pid);
    }

    fn take_stale(&mut self) -> Vec<u32> {
        self.marks.take_stale()
    }

    fn counters(&self, row: u32) -> Result<Counters, LoadError> {
        let tables = self.shared.tables();
        Ok(tables.counters.get(&row).copied().unwrap_or_default())
    }

    fn clear_counters(&mut self, row: u32) -> Result<(), LoadError> {
        self.shared.tables().counters.remove(&row);
        Ok(())
    }
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
