//! The only way to see a target's bytes.
//!
//! Whatever is read here is hostile input: callers bound every length and count they take from it.

mod pages;
mod process;
mod ranges;
mod recorded;
mod tee;

pub use process::{Process, ReadError};
pub use ranges::Ranges;
pub use recorded::Recorded;
pub use tee::{ReadLog, Tee};

use std::fmt;

/// An address in the target. A number, never a pointer of ours.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub u64);

impl Addr {
    /// The null pointer.
    pub const NULL: Self = Self(0);

    /// The address `offset` bytes on; wraps, since the sum is only ever read, checked.
    #[must_use]
    pub const fn add(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset))
    }

    /// Whether this is the null pointer.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The bytes asked for are not there: unmapped, not captured, or the process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {len} bytes at {addr:?} in the target")]
pub struct Fault {
    /// First byte asked for.
    pub addr: Addr,
    /// Bytes asked for.
    pub len: usize,
}

/// One piece of a batch.
#[derive(Debug)]
pub struct Piece<'a> {
    /// First byte wanted.
    pub addr: Addr,
    /// Filled when [`Self::present`]; of unspecified content otherwise.
    pub buf: &'a mut [u8],
    /// Whether all of [`Self::buf`] was read.
    pub present: bool,
}

impl<'a> Piece<'a> {
    /// Asks for the bytes at `addr`, as many as `buf` holds.
    pub const fn new(addr: Addr, buf: &'a mut [u8]) -> Self {
        Self {
            addr,
            buf,
            present: false,
        }
    }
}

/// What reading a live process has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// System calls.
    pub calls: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A view of a target's memory.
pub trait Memory {
    /// Fills `buf` with the bytes at `addr`, all or nothing. Never blocks on the target.
    ///
    /// # Errors
    /// [`Fault`] when any of the bytes is not there.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault>;

    /// Reads many pieces, each all or nothing; [`Piece::present`] tells which were there.
    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        for piece in pieces {
            piece.present = self.read(piece.addr, piece.buf).is_ok();
        }
    }

    /// What it took to read a live process; nothing for a copy.
    fn reads(&self) -> Reads {
        Reads::default()
    }

    /// The `u64` at `addr`.
    ///
    /// # Errors
    /// [`Fault`] as for [`Memory::read`].
    fn u64(&self, addr: Addr) -> Result<u64, Fault> {
        let mut buf = [0; 8];
        self.read(addr, &mut buf)?;
        Ok(u64::from_le_bytes(buf))
    }

    /// The `u32` at `addr`.
    ///
    /// # Errors
    /// [`Fault`] as for [`Memory::read`].
    fn u32(&self, addr: Addr) -> Result<u32, Fault> {
        let mut buf = [0; 4];
        self.read(addr, &mut buf)?;
        Ok(u32::from_le_bytes(buf))
    }

    /// The pointer at `addr`.
    ///
    /// # Errors
    /// [`Fault`] as for [`Memory::read`].
    fn addr(&self, addr: Addr) -> Result<Addr, Fault> {
        self.u64(addr).map(Addr)
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        (**self).read(addr, buf)
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        (**self).read_many(pieces);
    }

    fn reads(&self) -> Reads {
        (**self).reads()
    }
}
