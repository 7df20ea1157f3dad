//! Code addresses that user space vouches for, in a table that the sampler looks into.

use std::collections::HashMap;

use unwind_ebpf::abi::{vouched_mark, vouched_slot};

use crate::memory::Addr;
use crate::pipeline::Vouch;

/// The table: [`unwind_ebpf::abi::VOUCHED_SLOTS`] words, zero at first.
pub trait Table {
    /// A slot; 0 where it cannot be read.
    fn get(&self, slot: u32) -> u64;
    /// Sets a slot. A mark that cannot be written is only dearer: the identity is captured again.
    fn set(&mut self, slot: u32, mark: u64);
}

/// Writes marks.
pub struct Marks<T> {
    table: T,
    salts: HashMap<u32, u64>,
    stale: Vec<u32>,
}

impl<T: Table> Marks<T> {
    /// Marks in an empty table.
    pub fn new(table: T) -> Self {
        Self {
            table,
            salts: HashMap::new(),
            stale: Vec::new(),
        }
    }

    /// Sets the salt of a process, as it stands in the process table; old marks mean nothing then.
    pub fn set_salt(&mut self, pid: u32, salt: u64) {
        self.salts.insert(pid, salt);
    }

    /// Forgets a process.
    pub fn remove(&mut self, pid: u32) {
        self.salts.remove(&pid);
    }

    /// Processes whose salt must be changed in the process table, to void all of their marks.
    pub fn take_stale(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.stale)
    }

    fn write(&mut self, pid: u32, code: Addr, is_vouched: Vouched) {
        let Some(&salt) = self.salts.get(&pid) else {
            return;
        };
        let slot = vouched_slot(code.0, salt);
        let mark = vouched_mark(code.0, salt);
        let value = match is_vouched {
            Vouched::Yes => mark,
            // The slot may have passed to another code object.
            Vouched::No if self.table.get(slot) == mark => 0,
            Vouched::No => return,
        };
        self.table.set(slot, value);
    }
}

impl<T> std::fmt::Debug for Marks<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Marks")
            .field("salts", &self.salts)
            .finish_non_exhaustive()
    }
}

enum Vouched {
    Yes,
    No,
}

impl<T: Table> Vouch for Marks<T> {
    fn vouch(&mut self, pid: u32, code: Addr) {
        self.write(pid, code, Vouched::Yes);
    }

    fn revoke(&mut self, pid: u32, code: Addr) {
        self.write(pid, code, Vouched::No);
    }

    fn revoke_all(&mut self, pid: u32) {
        self.stale.push(pid);
    }
}
