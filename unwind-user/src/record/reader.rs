//! Reads a recording, which may come from anyone.

use std::io::{self, Read};

use thiserror::Error;
use unwind_ebpf::abi::ABI_VERSION;

use super::event::{Event, Start};
use super::frame::{self, Frame};
use super::{FORMAT_VERSION, MAGIC};

/// Why a file cannot be read as a recording at all.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// It does not begin as recordings do.
    #[error("this is not a recording of unwind (`unwind run --format raw` makes them)")]
    NotOurs,
    /// Another format.
    #[error(
        "this recording has format {0}, this unwind reads format {FORMAT_VERSION}: \
         use the version of unwind that made it"
    )]
    Format(u16),
    /// Records of another kernel half.
    #[error(
        "the samples in this recording have layout {0}, this unwind reads layout {ABI_VERSION}: \
         use the version of unwind that made it"
    )]
    Abi(u16),
    /// Cut or damaged before the first event.
    #[error("nothing in this recording is whole")]
    Nothing,
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why reading ended before the end of the session. What came before is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The file ends early.
    #[error("the recording is cut after {0} bytes")]
    Cut(u64),
    /// A frame's sum or length is wrong.
    #[error("the recording is damaged from byte {0} on")]
    Damaged(u64),
    /// A frame is whole and holds nothing that this version knows or believes.
    #[error("the recording has a malformed event at byte {0}")]
    Malformed(u64),
}

/// A recording being read.
#[derive(Debug)]
pub struct Recording<R> {
    input: R,
    payload: Vec<u8>,
    start: Start,
    /// Where the next frame begins.
    at: u64,
    /// Where the last one began.
    last: u64,
    is_ended: bool,
}

impl<R: Read> Recording<R> {
    /// Checks what the file is, and reads its first event. `input` should be buffered.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn open(mut input: R) -> Result<Self, RecordingError> {
        let mut head = Vec::with_capacity(16);
        input.by_ref().take(16).read_to_end(&mut head)?;
        let head = <[u8; 16]>::try_from(head).map_err(|_| RecordingError::NotOurs)?;
        let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        if head[..8] != MAGIC {
            return Err(RecordingError::NotOurs);
        }
        if number(8) != FORMAT_VERSION {
            return Err(RecordingError::Format(number(8)));
        }
        if number(10) != ABI_VERSION {
            return Err(RecordingError::Abi(number(10)));
        }
        let (fields, sum) = head.split_at(12);
        if crc32fast::hash(fields).to_le_bytes() != sum {
            return Err(RecordingError::Nothing);
        }
        let mut payload = Vec::new();
        let frame = frame::read(&mut input, &mut payload)?;
        let event = match frame {
            Frame::Whole(kind) => Event::decode(kind, &payload),
            _ => None,
        };
        let Some(Event::Start(start)) = event else {
            return Err(RecordingError::Nothing);
        };
        let at = 16 + frame::size(payload.len());
        Ok(Self {
            input,
            payload,
            start,
            at,
            last: at,
            is_ended: false,
        })
    }

    /// What holds for the whole recording.
    pub const fn start(&self) -> &Start {
        &self.start
    }

    /// The next event, nothing after [`Event::End`], or why there is none before it.
    ///
    /// # Errors
    /// [`io::Error`] when the file cannot be read.
    pub fn next_event(&mut self) -> io::Result<Result<Option<Event<'_>>, Damage>> {
        if self.is_ended {
            return Ok(Ok(None));
        }
        self.last = self.at;
        let frame = frame::read(&mut self.input, &mut self.payload)?;
        self.at += frame::size(self.payload.len());
        let at = self.last;
        Ok(match frame {
            Frame::None | Frame::Cut => Err(Damage::Cut(at)),
            Frame::Damaged => Err(Damage::Damaged(at)),
            Frame::Whole(kind) => match Event::decode(kind, &self.payload) {
                None | Some(Event::Start(_)) => Err(Damage::Malformed(at)),
                Some(event) => {
                    self.is_ended = matches!(event, Event::End(_));
                    Ok(Some(event))
                }
            },
        })
    }

    /// Byte at which the last event began.
    pub const fn position(&self) -> u64 {
        self.last
    }
}
