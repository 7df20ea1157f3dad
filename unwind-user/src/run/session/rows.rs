//! Rows of the kernel half's counter table, given back when a process has ended.

use unwind_ebpf::abi::PROCESSES_MAX;

/// The free rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Given back.
    free: Vec<u32>,
    /// Never used from here on.
    next: u32,
}

impl Rows {
    /// A row that counts from zero; none while [`PROCESSES_MAX`] are in use.
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(row) = self.free.pop() {
            return Some(row);
        }
        let row = self.next;
        (row < PROCESSES_MAX).then(|| {
            self.next += 1;
            row
        })
    }

    /// Gives a row back; its counters must be zero.
    pub(super) fn give_back(&mut self, row: u32) {
        self.free.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_the_table_has_and_each_once() {
        let mut rows = Rows::default();
        let taken: std::collections::BTreeSet<_> = std::iter::from_fn(|| rows.take()).collect();
        assert_eq!(taken.len(), PROCESSES_MAX as usize);
        assert!(taken.iter().all(|row| *row < PROCESSES_MAX));
        rows.give_back(7);
        assert_eq!((rows.take(), rows.take()), (Some(7), None));
    }
}
