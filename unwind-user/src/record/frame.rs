//! Frames: length, kind, payload and sum.

use std::io::{self, Read, Write};

use super::PAYLOAD_MAX;

/// Length and kind.
const HEAD: usize = 5;

/// Writes one frame.
///
/// # Errors
/// Those of `out`, and [`io::ErrorKind::InvalidInput`] for a payload beyond [`PAYLOAD_MAX`].
pub(super) fn write(out: &mut dyn Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let len = u32::try_from(payload.len()).ok();
    let len = len.filter(|_| payload.len() <= PAYLOAD_MAX);
    let len = len.ok_or(io::ErrorKind::InvalidInput)?;
    let [a, b, c, d] = len.to_le_bytes();
    let head = [a, b, c, d, kind];
    out.write_all(&head)?;
    out.write_all(payload)?;
    out.write_all(&sum(&head, payload).to_le_bytes())
}

/// How reading a frame ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// One of this kind; its payload is in the buffer.
    Whole(u8),
    /// The input ends where a frame may begin.
    None,
    /// The input ends within the frame.
    Cut,
    /// Length or sum are wrong.
    Damaged,
}

/// Reads one frame; its payload goes to `payload`, which grows only by what is there.
///
/// # Errors
/// Those of `input`, but for its end.
pub(super) fn read(input: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<Frame> {
    payload.clear();
    let mut head = Vec::with_capacity(HEAD);
    input.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(Frame::None);
    }
    let Ok(head) = <[u8; HEAD]>::try_from(head) else {
        return Ok(Frame::Cut);
    };
    let [a, b, c, d, kind] = head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if len > PAYLOAD_MAX {
        return Ok(Frame::Damaged);
    }
    input.by_ref().take(len as u64).read_to_end(payload)?;
    let mut stated = Vec::with_capacity(4);
    input.by_ref().take(4).read_to_end(&mut stated)?;
    Ok(match <[u8; 4]>::try_from(stated) {
        Ok(stated) if u32::from_le_bytes(stated) == sum(&head, payload) => Frame::Whole(kind),
        Ok(_) => Frame::Damaged,
        Err(_) => Frame::Cut,
    })
}

/// Bytes that a frame with this payload takes.
pub(super) const fn size(payload: usize) -> u64 {
    (HEAD + payload + 4) as u64
}

fn sum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}
