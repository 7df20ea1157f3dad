//! Records of the ring buffer, taken apart without copying.
//!
//! They come from our own kernel half, but carry target bytes, and recordings of them come from
//! anywhere: every length is checked.

use bytes::Buf as _;
use thiserror::Error;
use unwind_ebpf::abi::{
    ABI_VERSION, HEAD_WORDS, HEADER_WORDS, RecordHeader, SEGMENT_HEAD, SEGMENT_RANGE, split_tag,
};

use crate::memory::{Addr, Fault, Memory};
use crate::python::frame::{FrameHead, Frames};

/// Why a record cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Shorter than it says.
    #[error("record of {0} bytes is cut")]
    Cut(usize),
    /// Made by another version of the kernel half.
    #[error("record layout {0} is not ours ({ABI_VERSION})")]
    Abi(u16),
    /// A segment leaves the record, or is of no known kind.
    #[error("malformed segment at word {0}")]
    Segment(usize),
}

/// A record of the ring: its head and the segments behind it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The head.
    pub header: RecordHeader,
    body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the head and checks the length.
    ///
    /// # Errors
    /// When the record is cut or of another layout.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let cut = RecordError::Cut(bytes.len());
        let (mut head, rest) = bytes.split_at_checked(HEADER_WORDS * 8).ok_or(cut)?;
        let head = &mut head;
        // In the order of the struct, whose size is asserted beside it.
        let header = RecordHeader {
            abi: head.get_u16_le(),
            kind: head.get_u16_le(),
            body_words: head.get_u32_le(),
            time: head.get_u64_le(),
            pid: head.get_u32_le(),
            tid: head.get_u32_le(),
            outcome: head.get_u32_le(),
            flags: head.get_u32_le(),
            tstate: head.get_u64_le(),
            interp: head.get_u64_le(),
            frame: head.get_u64_le(),
            base_frame: head.get_u64_le(),
            gc_frame: head.get_u64_le(),
            gil_holder: head.get_u64_le(),
            frames: head.get_u32_le(),
            cpu: head.get_u32_le(),
            chunk: head.get_u64_le(),
        };
        if header.abi != ABI_VERSION {
            return Err(RecordError::Abi(header.abi));
        }
        let length = header.body_words as usize * 8;
        let body = rest.get(..length).ok_or(cut)?;
        Ok(Self { header, body })
    }
}

/// Puts the bytes of a record into `bytes`: what [`Record::parse`] takes apart. The head says how many
/// words of the body belong to it.
pub fn write_record(header: &RecordHeader, body: &[u64], bytes: &mut Vec<u8>) {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let head = u32::from(header.abi) | u32::from(header.kind) << 16;
    let words = [
        pair(head, header.body_words),
        header.time,
        pair(header.pid, header.tid),
        pair(header.outcome, header.flags),
        header.tstate,
        header.interp,
        header.frame,
        header.base_frame,
        header.gc_frame,
        header.gil_holder,
        pair(header.frames, header.cpu),
        header.chunk,
    ];
    let body = body.get(..header.body_words as usize).unwrap_or(body);
    bytes.clear();
    bytes.extend(words.iter().chain(body).flat_map(|word| word.to_le_bytes()));
}

/// Dates a record anew; none that is too short.
pub fn set_time(record: &mut [u8], time: u64) {
    // As `write_record` puts it.
    if let Some(at) = record.get_mut(8..16) {
        at.copy_from_slice(&time.to_le_bytes());
    }
}

/// Where a segment's payload lies in the body.
#[derive(Clone, Copy, Debug)]
struct Piece {
    addr: u64,
    at: u32,
    len: u32,
}

/// The segments of one sample, indexed. Reused from sample to sample, so that warm ones allocate
/// nothing.
#[derive(Debug, Default)]
pub struct Snapshot {
    pieces: Vec<Piece>,
    heads: Vec<(Addr, FrameHead)>,
}

impl Snapshot {
    /// Indexes the segments of a record, forgetting the one before.
    ///
    /// # Errors
    /// When a segment is malformed.
    pub fn index(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        self.pieces.clear();
        self.heads.clear();
        let body = record.body;
        let mut at = 0;
        while at < body.len() {
            let bad = RecordError::Segment(at / 8);
            let addr = u64_at(body, at).ok_or(bad)?;
            let (kind, words, owner) = split_tag(u64_at(body, at + 8).ok_or(bad)?);
            let start = at + 16;
            let end = start + words as usize * 8;
            if end > body.len() {
                return Err(bad);
            }
            match kind {
                SEGMENT_RANGE => self.pieces.push(Piece {
                    addr,
                    at: start as u32,
                    len: (end - start) as u32,
                }),
                SEGMENT_HEAD if words as usize == HEAD_WORDS => {
                    let word = |i: usize| u64_at(body, start + i * 8).map(Addr).ok_or(bad);
                    let head = FrameHead {
                        code: word(0)?,
                        previous: word(1)?,
                        instr: word(2)?,
                        owner,
                        flag: 0,
                    };
                    self.heads.push((Addr(addr), head));
                }
                _ => return Err(bad),
            }
            at = end;
        }
        Ok(())
    }

    /// The target memory that the record carries.
    #[must_use]
    pub fn memory<'a>(&'a self, record: &Record<'a>) -> Captured<'a> {
        Captured {
            pieces: &self.pieces,
            body: record.body,
            hint: std::cell::Cell::new(0),
        }
    }

    /// The ranges of target memory in the record: first address, and which bytes of the body.
    pub fn ranges(&self) -> impl Iterator<Item = (Addr, std::ops::Range<usize>)> + '_ {
        self.pieces.iter().map(|piece| {
            let start = piece.at as usize;
            (Addr(piece.addr), start..start + piece.len as usize)
        })
    }

    /// The frame heads, where the record carries those, innermost first.
    #[must_use]
    pub fn heads(&self) -> Heads<'_> {
        Heads {
            heads: &self.heads,
            next: std::cell::Cell::new(0),
        }
    }
}

/// The ranges of target memory in one record.
#[derive(Debug)]
pub struct Captured<'a> {
    pieces: &'a [Piece],
    body: &'a [u8],
    /// Where the last read was found: frames come in the order of the walk.
    hint: std::cell::Cell<usize>,
}

impl<'a> Captured<'a> {
    /// `len` bytes at `addr`, if one range holds them all.
    #[must_use]
    pub fn get(&self, addr: Addr, len: usize) -> Option<&'a [u8]> {
        let within = |piece: &Piece| {
            let offset = addr.0.wrapping_sub(piece.addr);
            (offset <= u64::from(piece.len) && len as u64 <= u64::from(piece.len) - offset)
                .then(|| piece.at as usize + offset as usize)
        };
        let hint = self.hint.get();
        let (before, after) = self.pieces.split_at(hint.min(self.pieces.len()));
        // The newest chunk is the first piece and holds most frames.
        let first = self.pieces.first().and_then(within);
        let at = first.or_else(|| {
            let found = after.iter().enumerate().map(|(i, p)| (hint + i, p));
            let mut all = found.chain(before.iter().enumerate());
            all.find_map(|(i, piece)| within(piece).inspect(|_| self.hint.set(i)))
        })?;
        self.body.get(at..at + len)
    }

    /// Whether the record carries bytes at `addr`.
    #[must_use]
    pub fn has(&self, addr: Addr) -> bool {
        self.pieces.iter().any(|piece| piece.addr == addr.0)
    }
}

impl Memory for Captured<'_> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.get(addr, buf.len()).ok_or(Fault {
            addr,
            len: buf.len(),
        })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// Frame heads in the order in which the kernel half followed them.
#[derive(Debug)]
pub struct Heads<'a> {
    heads: &'a [(Addr, FrameHead)],
    next: std::cell::Cell<usize>,
}

impl Frames for Heads<'_> {
    fn head(&self, addr: Addr) -> Result<FrameHead, Fault> {
        let at = self.next.get();
        match self.heads.get(at) {
            Some((head_addr, head)) if *head_addr == addr => {
                self.next.set(at + 1);
                Ok(*head)
            }
            _ => Err(Fault { addr, len: 0 }),
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..at.checked_add(8)?)?
        .try_into()
        .ok()
        .map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
