//! Memory of a live process, read without stopping it.

use std::cell::Cell;
use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::{Addr, Fault, Memory, Piece, Reads};

/// Pieces asked for in one call: enough that the call itself costs little, few enough that their
/// descriptions lie on the stack. (The kernel takes 1,024.)
const PIECES_MAX: usize = 128;

/// Memory of a live process through `process_vm_readv`.
///
/// The target runs on while we read: two reads can see two moments.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    calls: Cell<u64>,
    bytes: Cell<u64>,
}

/// Why a live process could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The process has ended (`ESRCH`).
    #[error("process {0} has ended")]
    Gone(i32),
    /// The kernel does not let us (`EPERM`): ptrace rights over the process are needed.
    #[error("not permitted to read the memory of process {0}")]
    NoPermission(i32),
    /// Nothing is mapped there.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Process {
    /// The memory of the process `pid`, a number of our own PID namespace. Touches nothing yet.
    #[must_use]
    pub const fn new(pid: i32) -> Self {
        Self {
            pid: Pid::from_raw(pid),
            calls: Cell::new(0),
            bytes: Cell::new(0),
        }
    }

    /// System calls made so far.
    pub const fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Bytes read so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Fills `buf` with the bytes at `addr`, all or nothing, and tells why not.
    ///
    /// # Errors
    /// [`ReadError`]: the process is gone or closed to us, or a byte is not mapped.
    pub fn try_read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), ReadError> {
        let len = buf.len();
        let mut done = 0;
        while done < len {
            let rest = &mut buf[done..];
            let remote = RemoteIoVec {
                base: addr.add(done as u64).0 as usize,
                len: rest.len(),
            };
            match self.call(&mut [IoSliceMut::new(rest)], &[remote]) {
                // A short count means that a page further on is missing: the next call says so.
                Ok(read) if read > 0 => done += read,
                Ok(_) => return Err(Fault { addr, len }.into()),
                Err(errno) => return Err(self.error(errno, addr, len)),
            }
        }
        Ok(())
    }

    /// Reads many pieces in few calls; each tells by [`Piece::present`] whether it was read.
    ///
    /// A piece that is not mapped costs two calls more and loses no other.
    ///
    /// # Errors
    /// [`ReadError::Gone`] or [`ReadError::NoPermission`], which no later piece can survive.
    pub fn try_read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), ReadError> {
        let mut next = 0;
        while next < pieces.len() {
            let end = pieces.len().min(next + PIECES_MAX);
            let whole = self.read_batch(&mut pieces[next..end]);
            next += whole;
            if next == end {
                continue;
            }
            let piece = &mut pieces[next];
            piece.present = match self.try_read(piece.addr, piece.buf) {
                Ok(()) => true,
                Err(ReadError::Fault(_)) => false,
                Err(error) => return Err(error),
            };
            next += 1;
        }
        Ok(())
    }

    /// One call for up to [`PIECES_MAX`] pieces; returns how many were read whole, from the first.
    fn read_batch(&self, pieces: &mut [Piece<'_>]) -> usize {
        let count = pieces.len().min(PIECES_MAX);
        let mut remote = [RemoteIoVec { base: 0, len: 0 }; PIECES_MAX];
        let mut local: [_; PIECES_MAX] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for ((remote, local), piece) in remote.iter_mut().zip(&mut local).zip(&mut *pieces) {
            *remote = RemoteIoVec {
                base: piece.addr.0 as usize,
                len: piece.buf.len(),
            };
            *local = IoSliceMut::new(piece.buf);
        }
        // An error here belongs to the first piece, which the caller then reads alone.
        let mut left = self
            .call(&mut local[..count], &remote[..count])
            .unwrap_or(0);
        for (index, piece) in pieces.iter_mut().enumerate() {
            if index == count || piece.buf.len() > left {
                return index;
            }
            left -= piece.buf.len();
            piece.present = true;
        }
        pieces.len()
    }

    fn call(&self, local: &mut [IoSliceMut<'_>], remote: &[RemoteIoVec]) -> Result<usize, Errno> {
        self.calls.set(self.calls.get() + 1);
        let read = process_vm_readv(self.pid, local, remote)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }

    const fn error(&self, errno: Errno, addr: Addr, len: usize) -> ReadError {
        match errno {
            Errno::ESRCH => ReadError::Gone(self.pid.as_raw()),
            Errno::EPERM => ReadError::NoPermission(self.pid.as_raw()),
            // EFAULT, or EINVAL for an address range that wraps.
            _ => ReadError::Fault(Fault { addr, len }),
        }
    }
}

impl Memory for Process {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        let len = buf.len();
        self.try_read(addr, buf).map_err(|_| Fault { addr, len })
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        // Of a process that is gone no piece is present.
        let _ = self.try_read_many(pieces);
    }

    fn reads(&self) -> Reads {
        Reads {
            calls: self.calls.get(),
            bytes: self.bytes.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> Process {
        Process::new(std::process::id() as i32)
    }

    fn address(bytes: &[u8]) -> Addr {
        Addr(bytes.as_ptr().addr() as u64)
    }

    #[test]
    fn reads_ourselves_and_counts() {
        let memory = ourselves();
        let source: Vec<u8> = (0..=255).collect();
        let mut buf = [0; 256];
        memory
            .try_read(address(&source), &mut buf)
            .expect("own memory");
        assert_eq!(&buf[..], &source[..]);
        assert_eq!((memory.calls(), memory.bytes()), (1, 256));
    }

    #[test]
    fn says_why_not() {
        let mut buf = [0; 8];
        let fault = Fault {
            addr: Addr(8),
            len: 8,
        };
        assert_eq!(
            ourselves().try_read(Addr(8), &mut buf),
            Err(ReadError::Fault(fault))
        );
        assert_eq!(
            ourselves()
                .read(Addr(u64::MAX - 3), &mut buf)
                .map_err(|f| f.len),
            Err(8)
        );
        // Larger than any pid the kernel gives.
        let nobody = Process::new(i32::MAX);
        assert_eq!(
            nobody.try_read(Addr(8), &mut buf),
            Err(ReadError::Gone(i32::MAX))
        );
    }

    #[test]
    fn faults_lose_no_other_piece_of_a_batch() {
        let source: Vec<u8> = (0..4000u32).flat_map(u32::to_le_bytes).collect();
        let mut buffers = vec![[0; 4]; 4000];
        let bad = |index: usize| index % 1000 == 7 || index == 0 || index == 3999;
        let mut pieces: Vec<_> = buffers
            .iter_mut()
            .enumerate()
            .map(|(index, buf)| {
                let good = address(&source).add(4 * index as u64);
                Piece::new(if bad(index) { Addr(16) } else { good }, buf)
            })
            .collect();
        let memory = ourselves();
        memory.try_read_many(&mut pieces).expect("we are alive");
        for (index, piece) in pieces.iter().enumerate() {
            assert_eq!(piece.present, !bad(index), "piece {index}");
            if piece.present {
                assert_eq!(*piece.buf, (index as u32).to_le_bytes());
            }
        }
        assert!(memory.calls() < 60, "{} calls", memory.calls());
    }

    #[test]
    fn a_dead_process_ends_a_batch() {
        let mut buf = [0; 4];
        let mut pieces = [Piece::new(Addr(4096), &mut buf)];
        let nobody = Process::new(i32::MAX);
        assert_eq!(
            nobody.try_read_many(&mut pieces),
            Err(ReadError::Gone(i32::MAX))
        );
    }
}
