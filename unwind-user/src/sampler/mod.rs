//! What takes the samples: the BPF program in the interrupt, or a thread of ours from outside.

mod marks;

use std::os::fd::BorrowedFd;

use unwind_ebpf::abi::{Counters, ProcConfig};

use crate::bpf::{LoadError, Logger};
use crate::layout::Layout;
use crate::memory::Addr;
use crate::pipeline::Vouch;
pub use marks::{Marks, Table};

/// Which of them to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The BPF program, or an error that says what it lacks.
    #[default]
    Ebpf,
    /// A thread of ours.
    Remote,
    /// The BPF program where it may run, else a thread of ours.
    Auto,
}

/// Takes samples of the processes in its table, and counts by process what became of each.
///
/// Whichever it is, it hands on the same records, in their order, and takes the same marks for code
/// objects whose identity they need not carry.
pub trait Sampler: Vouch {
    /// The name of its backend.
    fn name(&self) -> &'static str;

    /// Starts to sample, `rate` times a second of CPU time.
    ///
    /// # Errors
    /// When the kernel does not let us.
    fn start(&mut self, rate: u64) -> Result<(), LoadError>;

    /// Takes no more samples; records that wait are kept.
    fn stop(&mut self);

    /// Room for records that wait to be read, in bytes.
    fn ring_bytes(&self) -> u64;

    /// Becomes readable when records should be read soon.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Hands on the oldest record that waits; `false` if there is none.
    fn take(&mut self, with: &mut dyn FnMut(&[u8])) -> bool;

    /// Enters a process into the table, or changes its entry. The entry's salt is that of its marks.
    ///
    /// # Errors
    /// When the table is full.
    fn set_process(&mut self, pid: u32, config: ProcConfig) -> Result<(), LoadError>;

    /// Where a process in the table keeps its interpreter, for whoever must look for its threads.
    fn set_interpreter(&mut self, pid: u32, layout: &Layout, runtime: Addr) {
        let _ = (pid, layout, runtime);
    }

    /// A process's entry.
    fn process(&self, pid: u32) -> Option<ProcConfig>;

    /// The processes in the table, children that it entered itself included.
    fn process_ids(&self) -> Vec<u32>;

    /// Takes a process out of the table. One that is not there is fine.
    fn remove_process(&mut self, pid: u32);

    /// Processes that need another salt, to void all of their marks.
    fn take_stale(&mut self) -> Vec<u32>;

    /// What was counted for a row.
    ///
    /// # Errors
    /// When it cannot be read.
    fn counters(&self, row: u32) -> Result<Counters, LoadError>;

    /// Sets what was counted for a row to zero. No process may be using it.
    ///
    /// # Errors
    /// When it cannot be written.
    fn clear_counters(&mut self, row: u32) -> Result<(), LoadError>;

    /// Switches log lines on or off, if it has any.
    ///
    /// # Errors
    /// When the switch cannot be written.
    fn set_logging(&mut self, on: bool) -> Result<(), LoadError> {
        let _ = on;
        Ok(())
    }

    /// The log lines, if it has any.
    ///
    /// # Errors
    /// When they cannot be had.
    fn logger(&mut self) -> Result<Option<Logger>, LoadError> {
        Ok(None)
    }
}

/// Adds what was counted.
pub fn add_counters(sum: &mut Counters, more: &Counters) {
    for (total, count) in sum.outcomes.iter_mut().zip(more.outcomes) {
        *total += count;
    }
    sum.run_ns += more.run_ns;
    sum.bytes += more.bytes;
    sum.frames_off_chunk += more.frames_off_chunk;
    sum.identities += more.identities;
}
