//! Reads of a process that were noted down, given back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Addr, Fault, Memory};

/// What reads of one process gave, by address and length. Clones share it.
///
/// The same read asked again gets the next answer, the last one again and again. A read that was
/// not noted is answered from a longer one at or before its address, if that covers it: code that
/// reads in other pieces than when the notes were taken still finds the bytes.
#[derive(Clone, Debug, Default)]
pub struct Recorded(Rc<RefCell<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    reads: BTreeMap<(Addr, usize), Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    all: Vec<Option<Box<[u8]>>>,
    next: usize,
}

impl Answers {
    fn next(&mut self) -> Option<&[u8]> {
        let at = self.next.min(self.all.len().saturating_sub(1));
        self.next = at + 1;
        self.all.get(at)?.as_deref()
    }
}

impl Recorded {
    /// Adds what a read gave. It is held until [`Self::clear`]: the caller bounds how much.
    pub fn push(&self, addr: Addr, result: Result<&[u8], Fault>) {
        let (len, bytes) = match result {
            Ok(bytes) => (bytes.len(), Some(Box::from(bytes))),
            Err(fault) => (fault.len, None),
        };
        self.0
            .borrow_mut()
            .reads
            .entry((addr, len))
            .or_default()
            .all
            .push(bytes);
    }

    /// Forgets all reads.
    pub fn clear(&self) {
        self.0.borrow_mut().reads.clear();
    }
}

impl Memory for Recorded {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        let fault = Fault {
            addr,
            len: buf.len(),
        };
        let mut notes = self.0.borrow_mut();
        if let Some(answers) = notes.reads.get_mut(&(addr, buf.len())) {
            buf.copy_from_slice(answers.next().ok_or(fault)?);
            return Ok(());
        }
        let before = notes.reads.range(..=(addr, usize::MAX)).next_back();
        let (&(start, _), answers) = before.ok_or(fault)?;
        let offset = usize::try_from(addr.0 - start.0).map_err(|_| fault)?;
        let longer = answers.all.last().and_then(Option::as_deref).ok_or(fault)?;
        let end = offset.checked_add(buf.len()).ok_or(fault)?;
        buf.copy_from_slice(longer.get(offset..end).ok_or(fault)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Addr = Addr(0x1000);

    fn read<const N: usize>(memory: &Recorded, addr: Addr) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        memory.read(addr, &mut bytes).ok().map(|()| bytes)
    }

    #[test]
    fn answers_come_in_order_and_the_last_stays() {
        let memory = Recorded::default();
        memory.push(AT, Ok(&[1, 2]));
        memory.push(AT, Err(Fault { addr: AT, len: 2 }));
        memory.push(AT, Ok(&[3, 4]));
        let answers: Vec<_> = (0..5).map(|_| read(&memory, AT)).collect();
        let last = Some([3, 4]);
        assert_eq!(answers, [Some([1, 2]), None, last, last, last]);
        memory.clear();
        assert_eq!(read::<2>(&memory, AT), None);
    }

    #[test]
    fn other_pieces_are_found_in_longer_reads() {
        let memory = Recorded::default();
        memory.push(AT, Ok(&[1, 2, 3, 4]));
        assert_eq!(read(&memory, AT.add(1)), Some([2, 3]));
        assert_eq!(read(&memory, AT), Some([1]));
        assert_eq!(read::<2>(&memory, AT.add(3)), None);
        assert_eq!(read::<5>(&memory, AT), None);
        assert_eq!(read::<1>(&memory, Addr(0xfff)), None);
    }
}
