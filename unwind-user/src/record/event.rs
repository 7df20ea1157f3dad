//! What a recording is made of, and its bytes.

use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::memory::{Addr, Fault};
use crate::profile::Mode;

/// One event, in the order in which the session met them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Always the first.
    Start(Start),
    /// Samples of a process are taken from here on, or anew after an exec.
    Opened(Box<Opened>),
    /// What a process and its threads are called; the latest holds.
    Described(Described),
    /// Samples of this process are not taken any more.
    Closed(u32),
    /// A record of the ring: a sample, fork, exec or exit.
    Record(&'a [u8]),
    /// Target memory that the next sample, or end of batch, relied on.
    Read {
        /// Whose.
        pid: u32,
        /// Where.
        addr: Addr,
        /// What was there, or that nothing was.
        result: Result<&'a [u8], Fault>,
    },
    /// End of a batch, and the time (`CLOCK_MONOTONIC`, ns) after its last record.
    Batch(u64),
    /// Always the last; missing in a recording that was cut.
    End(End),
}

/// What holds for the whole recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Which time samples stand for; CPU time is not written, as it was before there was another.
    #[serde(default, skip_serializing_if = "Mode::is_cpu")]
    pub mode: Mode,
    /// Nanoseconds of it that one sample stands for.
    pub period_ns: u64,
    /// Begin of the session, Unix time, ns.
    pub start_ns: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Version of unwind.
    pub unwind: String,
}

/// A process whose samples are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Process id.
    pub pid: u32,
    /// Programs it was before (exec).
    pub image: u32,
    /// How its interpreter is laid out.
    pub layout: Layout,
}

/// What a process and its threads are called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Process id.
    pub pid: u32,
    /// Programs it was before (exec).
    pub image: u32,
    /// Command line.
    pub command: String,
    /// CPython version, once attached.
    pub python: Option<String>,
    /// Names by thread id.
    pub threads: Vec<(u32, String)>,
}

/// What the session knew at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Length of the session.
    pub duration_ns: u64,
    /// Interrupts by how they ended.
    pub outcomes: Vec<(String, u64)>,
    /// Why there are no samples, when there are none.
    pub empty_reason: Option<String>,
}

const START: u8 = 1;
const OPENED: u8 = 2;
const DESCRIBED: u8 = 3;
const CLOSED: u8 = 4;
const RECORD: u8 = 5;
const READ: u8 = 6;
const FAULT: u8 = 7;
const BATCH: u8 = 8;
const END: u8 = 9;

impl<'a> Event<'a> {
    /// Puts the payload into `out`, which is emptied first, and returns the kind.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> u8 {
        out.clear();
        match self {
            Self::Start(start) => json(START, start, out),
            Self::Opened(opened) => json(OPENED, opened, out),
            Self::Described(described) => json(DESCRIBED, described, out),
            Self::Closed(pid) => {
                out.extend(pid.to_le_bytes());
                CLOSED
            }
            Self::Record(bytes) => {
                out.extend(*bytes);
                RECORD
            }
            Self::Read { pid, addr, result } => {
                out.extend(pid.to_le_bytes());
                out.extend(addr.0.to_le_bytes());
                match result {
                    Ok(bytes) => {
                        out.extend(*bytes);
                        READ
                    }
                    Err(fault) => {
                        out.extend((fault.len as u64).to_le_bytes());
                        FAULT
                    }
                }
            }
            Self::Batch(now) => {
                out.extend(now.to_le_bytes());
                BATCH
            }
            Self::End(end) => json(END, end, out),
        }
    }

    /// The event of a kind with this payload; nothing when they do not fit.
    pub(super) fn decode(kind: u8, payload: &'a [u8]) -> Option<Self> {
        Some(match kind {
            START => Self::Start(serde_json::from_slice(payload).ok()?),
            OPENED => Self::Opened(serde_json::from_slice(payload).ok()?),
            DESCRIBED => Self::Described(serde_json::from_slice(payload).ok()?),
            CLOSED => Self::Closed(u32::from_le_bytes(payload.try_into().ok()?)),
            RECORD => Self::Record(payload),
            READ | FAULT => {
                let (pid, rest) = payload.split_first_chunk()?;
                let (addr, rest) = rest.split_first_chunk()?;
                let addr = Addr(u64::from_le_bytes(*addr));
                let result = if kind == READ {
                    Ok(rest)
                } else {
                    let len = u64::from_le_bytes(rest.try_into().ok()?);
                    let len = usize::try_from(len).ok()?;
                    Err(Fault { addr, len })
                };
                let pid = u32::from_le_bytes(*pid);
                Self::Read { pid, addr, result }
            }
            BATCH => Self::Batch(u64::from_le_bytes(payload.try_into().ok()?)),
            END => Self::End(serde_json::from_slice(payload).ok()?),
            _ => return None,
        })
    }
}

fn json(kind: u8, value: &impl Serialize, out: &mut Vec<u8>) -> u8 {
    // Neither strings nor numbers can fail to become JSON, nor a Vec to take it.
    let _ = serde_json::to_writer(out, value);
    kind
}
