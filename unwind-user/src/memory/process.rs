//! Memory of a live process, read without stopping it.

use std::cell::Cell;
use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::pages::Pages;
use super::{Addr, Fault, Memory, Piece, Reads};
use crate::patience::{Unfinished, patiently};

/// Pieces asked for in one call: enough that the call itself costs little, few enough that their
/// descriptions lie on the stack. (The kernel takes 1,024.)
const PIECES_MAX: usize = 128;

/// Memory of a live process through `process_vm_readv`.
///
/// The target runs on while we read: two reads can see two moments. Who reads does not wait for it:
/// pages that are not there yet are read by another thread, and where one is not provided soon, all
/// of them count as missing from then on.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pages: Pages,
    /// Whether a page of it was waited for in vain.
    is_silent: Cell<bool>,
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
    /// Whoever is to provide the page, by `userfaultfd(2)` or a file system in user space, does not.
    #[error("nobody provides the {} bytes at {:?} of process {pid}", fault.len, fault.addr)]
    Silent {
        /// The process.
        pid: i32,
        /// The bytes.
        fault: Fault,
    },
}

impl Process {
    /// The memory of the process `pid`, a number of our own PID namespace. Touches nothing yet.
    #[must_use]
    pub const fn new(pid: i32) -> Self {
        Self {
            pid: Pid::from_raw(pid),
            pages: Pages::new(pid),
            is_silent: Cell::new(false),
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
        let read = if self.pages.may_wait(addr, len) {
            self.read_patiently(addr, buf)?
        } else {
            read_whole(self.pid, addr, buf)
        };
        self.calls.set(self.calls.get() + read.calls);
        self.bytes.set(self.bytes.get() + read.bytes as u64);
        read.end.map_err(|errno| self.error(errno, addr, len))
    }

    fn read_patiently(&self, addr: Addr, buf: &mut [u8]) -> Result<Whole, ReadError> {
        let (pid, len) = (self.pid, buf.len());
        let silent = ReadError::Silent {
            pid: pid.as_raw(),
            fault: Fault { addr, len },
        };
        if self.is_silent.get() {
            return Err(silent);
        }
        let read = patiently(pid.as_raw(), move || {
            let mut bytes = vec![0; len];
            let read = read_whole(pid, addr, &mut bytes);
            (read, bytes)
        });
        let (read, bytes) = match read {
            Ok(read) => read,
            Err(Unfinished::Late) => {
                self.is_silent.set(true);
                tracing::warn!(
                    "{silent}: its pages that are not there yet are not waited for any more"
                );
                return Err(silent);
            }
            Err(Unfinished::NotBegun) => return Err(Fault { addr, len }.into()),
        };
        buf.copy_from_slice(&bytes);
        Ok(read)
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
                Err(ReadError::Fault(_) | ReadError::Silent { .. }) => false,
                Err(error) => return Err(error),
            };
            next += 1;
        }
        Ok(())
    }

    /// One call for up to [`PIECES_MAX`] pieces; returns how many were read whole, from the first.
    /// What may have to be waited for ends it.
    fn read_batch(&self, pieces: &mut [Piece<'_>]) -> usize {
        let pieces_max = pieces.iter().take(PIECES_MAX);
        let count = pieces_max
            .take_while(|piece| !self.pages.may_wait(piece.addr, piece.buf.len()))
            .count();
        let mut remote = [RemoteIoVec { base: 0, len: 0 }; PIECES_MAX];
        let mut local: [_; PIECES_MAX] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for ((remote, local), piece) in remote.iter_mut().zip(&mut local).zip(&mut *pieces) {
            *remote = RemoteIoVec {
                base: piece.addr.0 as usize,
                len: piece.buf.len(),
            };
            *local = IoSliceMut::new(piece.buf);
        }
        self.calls.set(self.calls.get() + 1);
        // An error here belongs to the first piece, which the caller then reads alone.
        let read = process_vm_readv(self.pid, &mut local[..count], &remote[..count]);
        let mut left = read.unwrap_or(0);
        self.bytes.set(self.bytes.get() + left as u64);
        for (index, piece) in pieces.iter_mut().enumerate() {
            if index == count || piece.buf.len() > left {
                return index;
            }
            left -= piece.buf.len();
            piece.present = true;
        }
        pieces.len()
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

/// What reading a piece alone amounted to.
struct Whole {
    end: Result<(), Errno>,
    calls: u64,
    bytes: usize,
}

fn read_whole(pid: Pid, addr: Addr, buf: &mut [u8]) -> Whole {
    let (mut calls, mut bytes) = (0, 0);
    let mut end = Ok(());
    while bytes < buf.len() && end.is_ok() {
        let rest = &mut buf[bytes..];
        let remote = RemoteIoVec {
            base: addr.add(bytes as u64).0 as usize,
            len: rest.len(),
        };
        calls += 1;
        match process_vm_readv(pid, &mut [IoSliceMut::new(rest)], &[remote]) {
            // A short count means that a page further on is missing: the next call says so.
            Ok(read) if read > 0 => bytes += read,
            Ok(_) => end = Err(Errno::EFAULT),
            Err(errno) => end = Err(errno),
        }
    }
    Whole { end, calls, bytes }
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
