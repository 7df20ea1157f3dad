//! Keeps of target memory only what the layout names, and what that changes nothing in a replay.
//!
//! The ranges of a sample hold whole data-stack chunks: local variables and evaluation stacks of
//! every frame. They are addresses, not values; but a recording is meant to be shared.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};

use unwind_ebpf::abi::{HEADER_WORDS, NAME_WORDS, WHOLE};

use super::event::Event;
use super::reader::{Damage, Recording, RecordingError};
use super::writer::{ProcessLog, Recorder};
use crate::layout::{Entry, FrameLayout, Identity, Instr, Layout};
use crate::memory::{Addr, Fault, Memory, ReadLog};
use crate::python::frame::{FrameHead, Frames, Parsed, RawFrame, walk};
use crate::python::identity::{NAME_START, keep_lasting};
use crate::sample::{Captured, Record, Snapshot};

/// How much of captured memory a recording keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only the bytes that the layout names.
    Named,
    /// All.
    All,
}

/// Names that may wait for their bytes to be read; more than are read at once.
const NAMES_MAX: usize = 1024;
/// Bytes of a name that belong to a fingerprint.
const NAME_BYTES: usize = NAME_WORDS * 8;

/// Blanks samples. Reused from sample to sample.
#[derive(Debug, Default)]
pub(super) struct Scrubber {
    snapshot: Snapshot,
    raw: Vec<RawFrame>,
    /// What is kept: address and length.
    kept: Vec<(Addr, usize)>,
    names: Vec<Addr>,
    out: Vec<u8>,
}

impl Scrubber {
    /// The record with everything blank that the layout does not name; its length stays.
    /// Nothing when it is malformed.
    pub(super) fn record(&mut self, bytes: &[u8], layout: &Layout) -> Option<&[u8]> {
        let record = Record::parse(bytes).ok()?;
        self.snapshot.index(&record).ok()?;
        let captured = self.snapshot.memory(&record);
        self.kept.clear();
        self.raw.clear();
        let (first, base) = (Addr(record.header.frame), Addr(record.header.base_frame));
        if record.header.flags & WHOLE != 0 {
            let parsed = Parsed {
                layout: &layout.frame,
                memory: &captured,
            };
            let met = Met {
                frames: parsed,
                addrs: RefCell::default(),
            };
            walk(layout, &met, first, base, &mut self.raw);
            for addr in met.addrs.into_inner() {
                self.kept
                    .extend(fields(&layout.frame).map(|(at, len)| (addr.add(at), len)));
            }
        } else {
            walk(layout, &self.snapshot.heads(), first, base, &mut self.raw);
        }
        keep_identities(
            layout,
            &captured,
            &self.raw,
            &mut self.kept,
            &mut self.names,
        );
        self.kept.sort_unstable();
        self.names.sort_unstable();

        let length = HEADER_WORDS * 8 + record.header.body_words as usize * 8;
        let whole = bytes.get(..length)?;
        self.out.clear();
        self.out.extend(whole);
        for (start, range) in self.snapshot.ranges() {
            let from = HEADER_WORDS * 8 + range.start;
            let until = HEADER_WORDS * 8 + range.end;
            let (before, after) = (whole.get(from..until)?, self.out.get_mut(from..until)?);
            after.fill(0);
            let within = |addr: Addr, len: usize| {
                let at = usize::try_from(addr.0.checked_sub(start.0)?).ok()?;
                Some(at..at.checked_add(len)?)
            };
            for &(addr, len) in from_on(&self.kept, |(addr, _)| addr < start) {
                let Some(range) = within(addr, len).filter(|range| range.start < before.len())
                else {
                    break;
                };
                if let (Some(from), Some(to)) = (before.get(range.clone()), after.get_mut(range)) {
                    to.copy_from_slice(from);
                }
            }
            for &addr in from_on(&self.names, |addr| addr < start) {
                let Some(range) = within(addr, NAME_BYTES).filter(|r| r.start < before.len())
                else {
                    break;
                };
                let name = before.get(range.clone()).and_then(<[u8]>::first_chunk);
                if let (Some(name), Some(to)) = (name, after.get_mut(range)) {
                    to.copy_from_slice(&lasting(layout, *name));
                }
            }
        }
        Some(&self.out)
    }
}

/// The part of a sorted list that begins where `is_before` ends.
fn from_on<T: Copy>(sorted: &[T], is_before: impl Fn(T) -> bool) -> &[T] {
    let at = sorted.partition_point(|item| is_before(*item));
    sorted.get(at..).unwrap_or_default()
}

/// Offset and length of the fields of a frame that a walk reads.
fn fields(layout: &FrameLayout) -> impl Iterator<Item = (u64, usize)> + use<> {
    let (Instr::Previous(instr) | Instr::Current(instr)) = layout.instr;
    let flag = match layout.entry {
        Entry::Flag(offset) => offset,
        Entry::Owner(_) => layout.owner,
    };
    [
        (layout.code, 8),
        (layout.previous, 8),
        (instr, 8),
        (layout.owner, 1),
        (flag, 1),
    ]
    .into_iter()
}

/// Adds the identities that the record may carry to what is kept.
fn keep_identities(
    layout: &Layout,
    captured: &Captured<'_>,
    raw: &[RawFrame],
    kept: &mut Vec<(Addr, usize)>,
    names: &mut Vec<Addr>,
) {
    names.clear();
    let (start, words) = layout.code.identity_words();
    for frame in raw {
        let identity = frame.code.add(start);
        kept.push((identity, words as usize * 8));
        if layout.code.identity == Identity::Fields
            && let Ok(name) = captured.addr(frame.code.add(layout.code.qualname))
        {
            names.push(name.add(NAME_START));
        }
    }
}

/// What of a name's bytes belongs to it for its life, as [`keep_lasting`] compares them, and the
/// state that tells what does.
///
/// Bytes that are no `str` (any more) become their sum: they are only ever compared.
fn lasting(layout: &Layout, name: [u8; NAME_BYTES]) -> [u8; NAME_BYTES] {
    let mut kept = name;
    if keep_lasting(&layout.unicode, &mut kept) {
        let state = layout.unicode.state.saturating_sub(NAME_START) as usize;
        let state = state..state + 4;
        if let (Some(from), Some(to)) = (name.get(state.clone()), kept.get_mut(state)) {
            to.copy_from_slice(from);
        }
        return kept;
    }
    let (sum, rest) = kept.split_at_mut(4);
    if rest.iter().any(|byte| *byte != 0) {
        // The first word of a `str` here is its length; its state stays 0, which no name's is.
        sum.copy_from_slice(&crc32fast::hash(&name).to_le_bytes());
        rest.fill(0);
    }
    kept
}

/// Frames, and the addresses asked for.
struct Met<F> {
    frames: F,
    addrs: RefCell<Vec<Addr>>,
}

impl<F: Frames> Frames for Met<F> {
    fn head(&self, addr: Addr) -> Result<FrameHead, Fault> {
        self.addrs.borrow_mut().push(addr);
        self.frames.head(addr)
    }
}

/// Blanks late reads of one process.
///
/// They are what a frame is shown by, and nothing is left to blank, but for fingerprints (3.11):
/// these take a name's first bytes at a fixed length, which may reach into another object.
#[derive(Debug)]
pub(super) struct ReadScrubber {
    layout: Layout,
    /// Names whose bytes are to be read next.
    names: HashSet<Addr>,
    out: [u8; NAME_BYTES],
}

impl ReadScrubber {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            layout: layout.clone(),
            names: HashSet::new(),
            out: [0; NAME_BYTES],
        }
    }

    /// The bytes to keep of those read at `addr`.
    pub(super) fn read<'a>(&'a mut self, addr: Addr, bytes: &'a [u8]) -> &'a [u8] {
        if self.layout.code.identity != Identity::Fields {
            return bytes;
        }
        if let Ok(name) = bytes.try_into()
            && self.names.remove(&addr)
        {
            self.out = lasting(&self.layout, name);
            return &self.out;
        }
        let (start, words) = self.layout.code.identity_words();
        if bytes.len() == words as usize * 8 {
            let at = self.layout.code.qualname.saturating_sub(start) as usize;
            let name = bytes.get(at..).and_then(<[u8]>::first_chunk);
            // Those that could not be read pile up. No other read has their address and length.
            if self.names.len() == NAMES_MAX {
                self.names.clear();
            }
            self.names
                .extend(name.map(|name| Addr(u64::from_le_bytes(*name)).add(NAME_START)));
        }
        bytes
    }
}

/// Copies a recording, scrubbed. Of a damaged one, what is whole; then the copy says that it is
/// cut.
///
/// # Errors
/// [`RecordingError`]; also when `out` cannot be written.
pub fn copy_scrubbed(input: impl Read, out: impl Write) -> Result<Option<Damage>, RecordingError> {
    let mut recording = Recording::open(input)?;
    let recorder = Recorder::new(out, recording.start().clone(), Keep::Named);
    let mut processes: HashMap<u32, (Layout, ProcessLog<_>)> = HashMap::new();
    let damage = loop {
        let event = match recording.next_event()? {
            Ok(Some(event)) => event,
            Ok(None) => break None,
            Err(damage) => break Some(damage),
        };
        match event {
            Event::Record(bytes) => {
                recorder.record(bytes, |pid| processes.get(&pid).map(|(layout, _)| layout));
            }
            Event::Read { pid, addr, result } => {
                if let Some((_, log)) = processes.get(&pid) {
                    log.note(addr, result);
                }
            }
            Event::Opened(opened) if opened.layout.validate().is_ok() => {
                let log = recorder.process(opened.pid, &opened.layout);
                processes.insert(opened.pid, (opened.layout.clone(), log));
                recorder.event(&Event::Opened(opened));
            }
            Event::Batch(now) => recorder.batch(now),
            event => recorder.event(&event),
        }
        if recorder.is_broken() {
            break None;
        }
    };
    recorder.finish(None)?.flush()?;
    Ok(damage)
}
