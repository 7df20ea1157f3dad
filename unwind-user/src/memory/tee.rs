//! Memory that is read, and noted down, at the same time.

use super::{Addr, Fault, Memory, Piece, Reads};

/// Takes note of reads.
pub trait ReadLog {
    /// A read of `addr` gave these bytes, or none.
    fn note(&self, addr: Addr, result: Result<&[u8], Fault>);
}

/// Passes reads on and notes what they gave.
#[derive(Debug)]
pub struct Tee<M, L> {
    memory: M,
    log: L,
}

impl<M, L> Tee<M, L> {
    /// Reads from `memory`, notes to `log`.
    pub const fn new(memory: M, log: L) -> Self {
        Self { memory, log }
    }
}

impl<M: Memory, L: ReadLog> Memory for Tee<M, L> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        let result = self.memory.read(addr, buf);
        self.log.note(addr, result.map(|()| &*buf));
        result
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        self.memory.read_many(pieces);
        for piece in pieces {
            let fault = Fault {
                addr: piece.addr,
                len: piece.buf.len(),
            };
            let result = piece.present.then_some(&*piece.buf).ok_or(fault);
            self.log.note(piece.addr, result);
        }
    }

    fn reads(&self) -> Reads {
        self.memory.reads()
    }
}
