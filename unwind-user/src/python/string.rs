//! `str` and `bytes` objects.

use std::fmt::Write as _;

use crate::layout::{BytesLayout, HEAD_BYTES_MAX, UnicodeLayout};
use crate::memory::{Addr, Fault, Memory};

/// Characters of a name that are kept.
pub const NAME_CHARS_MAX: usize = 1024;
/// Bytes of a longer name that its hash covers.
const HASHED_BYTES_MAX: u64 = 64 << 10;
/// Bytes read at a time where a length is the target's word.
const PIECE: usize = 16 << 10;

/// A `str`, made showable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PyStr {
    /// The characters. A lone surrogate is `\udc80`, a number that is no character `\U00110000`,
    /// and a byte that is no ASCII in a string that says it is, `\xff`.
    pub text: String,
    /// Whether characters are missing: then the text ends in `…` and a hash of the whole.
    pub cut: bool,
}

/// Why no `str` or `bytes` can be made of the bytes at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Bytes are missing.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A `str` whose characters lie elsewhere, which no name's do.
    #[error("not a compact str (state {0:#x})")]
    NotCompact(u32),
    /// A `str` of no known kind, or one of several.
    #[error("no kind of str (state {0:#x})")]
    Kind(u32),
    /// A negative length, or more than the caller wants.
    #[error("length of {0} exceeds the limit")]
    Length(u64),
}

/// Reads the `str` at `addr`. Of one longer than `max_chars` the beginning is kept, followed by
/// `…` and a hash of its length and first 64 KiB, `max_chars` characters in all.
///
/// # Errors
/// When there is no compact `str` or its kept characters cannot be read.
pub fn read_str(
    memory: &dyn Memory,
    layout: &UnicodeLayout,
    addr: Addr,
    max_chars: usize,
) -> Result<PyStr, ObjectError> {
    let shape = Shape::read(memory, layout, addr)?;
    let data = addr.add(shape.data);
    let cut = shape.length > max_chars as u64;
    let suffix = if cut {
        shape.hash_suffix(memory, data)
    } else {
        String::new()
    };
    let kept = if cut {
        max_chars.saturating_sub(suffix.chars().count())
    } else {
        shape.length as usize // at most `max_chars`
    };
    let mut bytes = vec![0; kept.saturating_mul(shape.width)];
    memory.read(data, &mut bytes)?;
    let mut text = String::with_capacity(bytes.len() + suffix.len());
    for character in bytes.chunks_exact(shape.width) {
        push(&mut text, character, shape.ascii);
    }
    text.push_str(&suffix);
    Ok(PyStr { text, cut })
}

/// Reads the `bytes` at `addr`.
///
/// # Errors
/// When they cannot be read or are more than `max`.
pub fn read_bytes(
    memory: &dyn Memory,
    layout: &BytesLayout,
    addr: Addr,
    max: usize,
) -> Result<Vec<u8>, ObjectError> {
    let size = memory.u64(addr.add(layout.size))?;
    let within = usize::try_from(size).ok().filter(|size| *size <= max);
    let size = within.ok_or(ObjectError::Length(size))?;
    let data = addr.add(layout.data);
    // Grown by what is there, since the size may be a lie.
    let mut bytes = Vec::new();
    while bytes.len() < size {
        let at = bytes.len();
        bytes.resize((at + PIECE.max(at)).min(size), 0);
        if let Some(piece) = bytes.get_mut(at..) {
            memory.read(data.add(at as u64), piece)?;
        }
    }
    Ok(bytes)
}

/// How a `str` keeps its characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Characters.
    pub(super) length: u64,
    /// Bytes of each: 1, 2 or 4.
    pub(super) width: usize,
    /// Offset of the first.
    pub(super) data: u64,
    /// Whether all are below 128.
    ascii: bool,
}

impl Shape {
    fn read(memory: &dyn Memory, layout: &UnicodeLayout, addr: Addr) -> Result<Self, ObjectError> {
        let start = layout.length.min(layout.state);
        let end = (layout.length + 8).max(layout.state + 4);
        let mut head = [0; HEAD_BYTES_MAX as usize];
        let len = ((end - start) as usize).min(head.len());
        let head = head.get_mut(..len).unwrap_or_default();
        memory.read(addr.add(start), head)?;
        Self::parse(layout, head, start)
    }

    /// The shape stated in bytes that begin `start` bytes into the object and reach to its state.
    pub(super) fn parse(
        layout: &UnicodeLayout,
        head: &[u8],
        start: u64,
    ) -> Result<Self, ObjectError> {
        let length = field(head, layout.length - start).map_or(0, u64::from_le_bytes);
        let state = field(head, layout.state - start).map_or(0, u32::from_le_bytes);
        if state & layout.compact_mask == 0 {
            return Err(ObjectError::NotCompact(state));
        }
        let ascii = state & layout.ascii_mask != 0;
        let width = match (state & layout.kind_mask) >> layout.kind_mask.trailing_zeros().min(31) {
            1 => 1,
            2 if !ascii => 2,
            4 if !ascii => 4,
            _ => return Err(ObjectError::Kind(state)),
        };
        if i64::try_from(length).is_err() {
            return Err(ObjectError::Length(length));
        }
        let data = if ascii {
            layout.ascii_data
        } else {
            layout.compact_data
        };
        Ok(Self {
            length,
            width,
            data,
            ascii,
        })
    }

    /// What follows a cut name, so that two long names that begin alike differ: `…` and 12 digits.
    fn hash_suffix(&self, memory: &dyn Memory, data: Addr) -> String {
        let mut hash = fnv(FNV_START, &self.length.to_le_bytes());
        let total = self
            .length
            .saturating_mul(self.width as u64)
            .min(HASHED_BYTES_MAX);
        let mut piece = [0; 1024];
        let mut at = 0;
        while at < total {
            let len = (total - at).min(piece.len() as u64);
            let part = piece.get_mut(..len as usize).unwrap_or_default();
            if memory.read(data.add(at), part).is_err() {
                break;
            }
            hash = fnv(hash, part);
            at += len;
        }
        format!("…{:012x}", hash >> 16)
    }
}

/// The bytes of a field in a copied head.
pub(super) fn field<const N: usize>(head: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    head.get(at..)?.first_chunk::<N>().copied()
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, the same in every build: recordings replay to the same names.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Appends one character of 1, 2 or 4 bytes.
fn push(text: &mut String, bytes: &[u8], ascii: bool) {
    let code = bytes
        .iter()
        .rev()
        .fold(0, |code, byte| code << 8 | u32::from(*byte));
    // Writing to a String cannot fail.
    let _ = match char::from_u32(code) {
        Some(_) if ascii && code >= 0x80 => write!(text, "\\x{code:02x}"),
        Some(character) => {
            text.push(character);
            Ok(())
        }
        None if code <= 0xffff => write!(text, "\\u{code:04x}"),
        None => write!(text, "\\U{code:08x}"),
    };
}
