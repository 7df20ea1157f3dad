//! The kernel half's table of code addresses that user space vouches for.

use std::collections::HashMap;

use aya::maps::{Array, MapData};
use unwind_ebpf::abi::{vouched_mark, vouched_slot};

use crate::memory::Addr;
use crate::pipeline::Vouch;

/// Writes marks. A mark that cannot be written is only dearer: the identity is captured again.
pub struct Marks {
    table: Array<MapData, u64>,
    salts: HashMap<u32, u64>,
    stale: Vec<u32>,
}

impl Marks {
    pub(super) fn new(table: Array<MapData, u64>) -> Self {
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
            Vouched::No if self.table.get(&slot, 0).is_ok_and(|value| value == mark) => 0,
            Vouched::No => return,
        };
        if let Err(error) = self.table.set(slot, value, 0) {
            tracing::debug!(%error, "cannot write a mark");
        }
    }
}

impl std::fmt::Debug for Marks {
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

impl Vouch for Marks {
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
