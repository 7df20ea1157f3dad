//! Recordings: all that a session learnt from outside, so that a replay gives the same profile on
//! any machine.
//!
//! A recording is an append-only log, numbers little-endian. It begins with
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 2 | [`FORMAT_VERSION`] |
//! | 2 | `ABI_VERSION` of the records of the ring |
//! | 4 | CRC-32 of the three above |
//!
//! and goes on with frames, which hold one [`Event`] each:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | bytes of payload, at most [`PAYLOAD_MAX`] |
//! | 1 | kind of event |
//! | n | payload |
//! | 4 | CRC-32 of the three above |
//!
//! Reads of target memory stand before the sample or the end of batch that asked for them, so that
//! a replay needs no look ahead. A frame that is cut, or whose sum is wrong, ends a recording; what
//! is before it is good. Samples whose batch has no end are not: they were not proved yet.

mod event;
#[cfg(test)]
pub(crate) mod fixtures;
mod frame;
mod reader;
mod replay;
mod report;
mod scrub;
#[cfg(test)]
mod tests;
mod writer;

pub use event::{Described, End, Event, Opened, Start};
pub use reader::{Damage, Recording, RecordingError};
pub use replay::{BATCH_FRAMES_MAX, READ_BYTES_MAX, Replayed, replay};
pub use report::{Report, ReportError, report};
pub use scrub::{Keep, copy_scrubbed};
pub use writer::{ProcessLog, Recorder};

/// First bytes of every recording.
pub const MAGIC: [u8; 8] = *b"unwind\r\n";
/// Version of what this module describes. A recording of another one is refused.
pub const FORMAT_VERSION: u16 = 1;
/// Longest payload. The longest event is a read of a whole location table.
pub const PAYLOAD_MAX: usize = (16 << 20) + 64;
/// What file names of recordings end with, after a dot.
pub const EXTENSION: &str = "unwind";
