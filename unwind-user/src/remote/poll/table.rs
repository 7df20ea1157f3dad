//! The processes, and what was counted for each row: what the maps are for the kernel half.

use std::collections::BTreeMap;
use std::sync::Arc;

use unwind_ebpf::abi::{Counters, PROCESSES_MAX, ProcConfig};

use super::image::{Change, Image, Seen};
use crate::layout::Layout;
use crate::memory::Addr;
use crate::run::session::monotonic_ns;
use crate::sampler::add_counters;

/// What the session and the polling thread share. Locked for moments, never while a process is
/// read.
#[derive(Debug, Default)]
pub(super) struct Table {
    processes: BTreeMap<u32, Entry>,
    counters: BTreeMap<u32, Counters>,
    /// Times that a process was changed.
    changes: u64,
}

/// A process.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) config: ProcConfig,
    /// None when it has ended.
    image: Option<Image>,
    /// Where its interpreter is, once known.
    place: Option<Arc<Place>>,
    /// Whether all of its CPU time counts, or what it uses from now on.
    pub(super) is_child: bool,
}

/// Where a process keeps its interpreter.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) layout: Layout,
    pub(super) runtime: Addr,
}

impl Table {
    /// Tells this state of the processes from others.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) const fn processes(&self) -> &BTreeMap<u32, Entry> {
        &self.processes
    }

    /// Enters a process, which was seen running the program `image`, or changes its entry.
    pub(super) fn set(&mut self, pid: u32, config: ProcConfig, image: Option<Image>) {
        self.changes += 1;
        let entry = self.processes.entry(pid).or_insert_with(|| Entry {
            config,
            image,
            place: None,
            is_child: false,
        });
        // It may be another process of the same number.
        entry.image = entry.image.or(image);
        entry.set(config);
    }

    /// Says where the interpreter of a process is, which is polled once its entry is set to ready.
    pub(super) fn set_place(&mut self, pid: u32, layout: Layout, runtime: Addr) {
        self.changes += 1;
        if let Some(entry) = self.processes.get_mut(&pid) {
            entry.config.ready = 0;
            entry.place = Some(Arc::new(Place { layout, runtime }));
        }
    }

    pub(super) fn remove(&mut self, pid: u32) {
        self.changes += 1;
        self.processes.remove(&pid);
    }

    /// Takes note of the program that a process runs now.
    pub(super) fn look(&mut self, pid: u32, seen: Seen) -> Change {
        let Some(entry) = self.processes.get_mut(&pid) else {
            return Change::None;
        };
        let change = entry.look(seen);
        self.changes += u64::from(change != Change::None);
        change
    }

    /// Enters a child of `parent` that runs `image`; `false` if there is no room, or it is known.
    pub(super) fn fork(&mut self, parent: u32, child: u32, image: Image) -> bool {
        if self.processes.contains_key(&child) || self.processes.len() >= PROCESSES_MAX as usize {
            return false;
        }
        let Some(entry) = self.processes.get(&parent) else {
            return false;
        };
        let entry = entry.child(child, image);
        self.changes += 1;
        self.processes.insert(child, entry);
        true
    }

    pub(super) fn counters(&self, row: u32) -> Counters {
        self.counters.get(&row).copied().unwrap_or_default()
    }

    /// Adds to what was counted for a process, unless it is none of ours any more.
    pub(super) fn count(&mut self, pid: u32, more: &Counters) {
        if let Some(entry) = self.processes.get(&pid) {
            let sum = self.counters.entry(entry.config.slot).or_default();
            add_counters(sum, more);
        }
    }

    pub(super) fn clear_counters(&mut self, row: u32) {
        self.counters.remove(&row);
    }
}

impl Entry {
    /// The program that it runs; none when it has ended.
    pub(super) const fn image(&self) -> Option<&Image> {
        self.image.as_ref()
    }

    /// Where its interpreter is, if its threads are to be looked at.
    pub(super) fn polled(&self) -> Option<&Arc<Place>> {
        let is_ready = self.config.ready != 0 && self.image.is_some();
        self.place.as_ref().filter(|_| is_ready)
    }

    fn set(&mut self, config: ProcConfig) {
        self.config = config;
        if config.ready == 0 {
            self.place = None;
        }
    }

    fn look(&mut self, seen: Seen) -> Change {
        let Some(before) = self.image else {
            return Change::None;
        };
        let change = before.change(seen);
        if change != Change::None {
            self.config.ready = 0;
            self.place = None;
            self.image = seen.image().filter(|_| change == Change::Exec);
        }
        change
    }

    /// A child as it is after fork: a copy of this process, unless it runs another program already,
    /// which the next look finds.
    fn child(&self, pid: u32, image: Image) -> Self {
        let inherited = self.image.map(|parent| parent.inherited(&image));
        let mut child = Self {
            is_child: true,
            image: inherited,
            ..self.clone()
        };
        let config = &mut child.config;
        config.salt = config.salt.rotate_left(17) ^ monotonic_ns() ^ u64::from(pid) << 40;
        if inherited != Some(image) {
            config.ready = 0;
            child.place = None;
        }
        child
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: u32 = 10;
    const CHILD: u32 = 11;

    /// A table with a process that is polled.
    fn table() -> Table {
        let mut table = Table::default();
        let blank = ProcConfig {
            slot: 3,
            follow: 1,
            ..ProcConfig::default()
        };
        table.set(PARENT, blank, Some(Image::example()));
        let layout = crate::layout::v3_12(crate::layout::Version(0x030c_00f0));
        table.set_place(PARENT, layout, Addr(0x1000));
        assert!(!polled(&table, PARENT), "it has no offsets yet");
        table.set(PARENT, ProcConfig { ready: 1, ..blank }, None);
        assert!(polled(&table, PARENT));
        table
    }

    fn polled(table: &Table, pid: u32) -> bool {
        table
            .processes()
            .get(&pid)
            .and_then(Entry::polled)
            .is_some()
    }

    #[test]
    fn a_forked_child_is_polled_like_its_parent() {
        let mut table = table();
        let image = Image::example().of_another_process();
        assert!(table.fork(PARENT, CHILD, image));
        assert!(!table.fork(PARENT, CHILD, image), "it is known");
        assert!(polled(&table, CHILD) && polled(&table, PARENT));
        assert_eq!(table.look(CHILD, Seen::Program(image)), Change::None);
        let [parent, child] = [PARENT, CHILD].map(|pid| table.processes()[&pid].config.salt);
        assert_ne!(parent, child, "their code objects are not the same");
    }

    #[test]
    fn a_child_that_runs_another_program_already_has_made_an_exec() {
        let mut table = table();
        let image = Image::example().of_another_process().after_exec();
        assert!(table.fork(PARENT, CHILD, image));
        assert!(!polled(&table, CHILD));
        assert_eq!(table.look(CHILD, Seen::Program(image)), Change::Exec);
        assert_eq!(table.look(CHILD, Seen::Program(image)), Change::None);
    }

    #[test]
    fn a_changed_program_is_polled_no_more_and_an_end_is_told_once() {
        let mut table = table();
        let exec = Image::example().after_exec();
        assert_eq!(table.look(PARENT, Seen::Unknown), Change::None);
        assert!(polled(&table, PARENT));
        assert_eq!(table.look(PARENT, Seen::Program(exec)), Change::Exec);
        assert!(!polled(&table, PARENT));
        assert_eq!(table.look(PARENT, Seen::Ended), Change::Exit);
        assert_eq!(table.look(PARENT, Seen::Ended), Change::None);
        assert_eq!(table.look(CHILD, Seen::Ended), Change::None);
    }

    #[test]
    fn what_is_polled_without_a_way_to_its_states_is_not() {
        let mut table = Table::default();
        let config = ProcConfig {
            ready: 1,
            ..ProcConfig::default()
        };
        table.set(PARENT, config, Some(Image::example()));
        assert!(!polled(&table, PARENT));
    }

    #[test]
    fn counts_are_of_the_row_that_a_process_has_now() {
        let mut table = table();
        let more = Counters {
            bytes: 5,
            ..Counters::default()
        };
        table.count(PARENT, &more);
        table.count(PARENT, &more);
        table.count(CHILD, &more);
        assert_eq!((table.counters(3).bytes, table.counters(0).bytes), (10, 0));
        table.clear_counters(3);
        table.remove(PARENT);
        table.count(PARENT, &more);
        assert_eq!(table.counters(3).bytes, 0);
    }
}
