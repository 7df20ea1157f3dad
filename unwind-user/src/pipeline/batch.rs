//! Samples of one process that wait for the end of their batch.

use crate::cache::code::CodeIndex;
use crate::cache::stack::StackIndex;
use crate::memory::Addr;
use crate::profile::{Marker, ThreadKey};
use crate::python::frame::{Chain, RawFrame};
use crate::sample::Captured;

/// What is known of a waiting sample beside its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Whose it is.
    pub(super) thread: ThreadKey,
    /// Why outer frames are missing, if so.
    pub(super) cut: Option<Marker>,
}

/// What a sample tells of the code objects in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// `CLOCK_MONOTONIC` when its interrupt began, in ns.
    pub(super) time: u64,
    /// None where it carries only what a walk needs of each frame.
    pub(super) chain: Option<Chain>,
    pub(super) captured: &'a Captured<'a>,
}

/// What is known of one frame, of its code object above all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Its identity, captured in the interrupt, is the known one's.
    Proved(CodeIndex),
    /// Vouched for: to be proved at the end of the batch.
    Vouched(CodeIndex),
    /// Read, but perhaps when another one was in the making at its address.
    Uncertain(CodeIndex),
    /// Gone before it could be read.
    Freed,
    /// It has none.
    Marker(Marker),
}

impl Known {
    pub(super) const fn index(self) -> Option<CodeIndex> {
        match self {
            Self::Proved(index) | Self::Vouched(index) => Some(index),
            Self::Uncertain(_) | Self::Freed | Self::Marker(_) => None,
        }
    }
}

/// A sample whose stack was not in the cache.
#[derive(Debug)]
pub(super) struct Cold {
    pub(super) waiting: Waiting,
    pub(super) frames: Box<[(RawFrame, Known)]>,
}

/// The samples of one process in the current batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) warm: Vec<(Waiting, StackIndex)>,
    pub(super) cold: Vec<Cold>,
    /// Code objects read in this batch, to be vouched for at its end.
    pub(super) fresh: Vec<CodeIndex>,
    /// Code objects read in this batch of which it is not certain that what was read is theirs.
    pub(super) uncertain: Vec<CodeIndex>,
    /// Of those that wait to be vouched for, the ones that cannot: see `RECURSIVE`.
    pub(super) recursive: Vec<CodeIndex>,
    /// Addresses at which a sample met another code object than the one known there.
    pub(super) contested: Vec<Addr>,
}
