//! Keeps of target memory only what the layout names, and what that changes nothing in a replay.
//!
//! The ranges of a sample hold whole data-stack chunks: local variables and evaluation stacks of
//! every frame. They are addresses, not values; but a recording is meant to be shared.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};

use unwind_ebpf::abi::{HEADER_WORDS, WHOLE};

use super::event::Event;
use super::reader::{Damage, Recording, RecordingError};
use super::writer::{ProcessLog, Recorder};
use crate::layout::{Entry, FrameLayout, IdentityObject, Instr, Layout};
use crate::memory::{Addr, Fault, Memory, ReadLog};
use crate::python::frame::{Chain, FrameHead, Frames, Parsed, RawFrame, walk};
use crate::python::identity::{OBJECT_BYTES, OBJECT_START};
use crate::sample::{Captured, Record, Snapshot};

/// How much of captured memory a recording keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only the bytes that the layout names.
    Named,
    /// All.
    All,
}

/// Objects that may wait for their bytes to be read; more than are read at once.
const OBJECTS_MAX: usize = 4096;

/// Blanks samples. Reused from sample to sample.
#[derive(Debug, Default)]
pub(super) struct Scrubber {
    snapshot: Snapshot,
    raw: Vec<RawFrame>,
    /// What is kept: address and length.
    kept: Vec<(Addr, usize)>,
    /// Starts of objects that belong to an identity.
    objects: Vec<(Addr, IdentityObject)>,
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
        let chain = Chain::of(&record.header);
        if record.header.flags & WHOLE != 0 {
            let parsed = Parsed {
                layout: &layout.frame,
                memory: &captured,
            };
            let met = Met {
                frames: parsed,
                addrs: RefCell::default(),
            };
            walk(layout, &met, chain, &mut self.raw);
            for addr in met.addrs.into_inner() {
                self.kept
                    .extend(fields(&layout.frame).map(|(at, len)| (addr.add(at), len)));
            }
        } else {
            walk(layout, &self.snapshot.heads(), chain, &mut self.raw);
        }
        self.raw.retain(|frame| frame.marker().is_none());
        keep_identities(
            layout,
            &captured,
            &self.raw,
            &mut self.kept,
            &mut self.objects,
        );
        self.kept.sort_unstable();
        self.objects.sort_unstable_by_key(|(addr, _)| *addr);

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
            for &(addr, object) in from_on(&self.objects, |(addr, _)| addr < start) {
                let Some(range) = within(addr, OBJECT_BYTES).filter(|r| r.start < before.len())
                else {
                    break;
                };
                let start = before.get(range.clone()).and_then(<[u8]>::first_chunk);
                if let (Some(start), Some(to)) = (start, after.get_mut(range)) {
                    to.copy_from_slice(&lasting(layout, object, *start));
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
        (layout.function, 8),
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
    objects: &mut Vec<(Addr, IdentityObject)>,
) {
    objects.clear();
    let (start, words) = layout.code.identity_words();
    for frame in raw {
        let identity = frame.code.add(start);
        kept.push((identity, words as usize * 8));
        for object in layout.code.identity_objects().into_iter().flatten() {
            if let Ok(at) = captured.addr(frame.code.add(object.pointer())) {
                objects.push((at.add(OBJECT_START), object));
            }
        }
    }
}

/// What of the start of an object belongs to it for its life, and, of a `str`, the state that
/// tells what does.
///
/// Bytes that are no such object (any more) become their sum: they are only ever compared.
fn lasting(
    layout: &Layout,
    object: IdentityObject,
    start: [u8; OBJECT_BYTES],
) -> [u8; OBJECT_BYTES] {
    let mut kept = start;
    if object.keep_lasting(layout, &mut kept) {
        if let IdentityObject::Str(_) = object {
            let state = layout.unicode.state.saturating_sub(OBJECT_START) as usize;
            let state = state..state + 4;
            if let (Some(from), Some(to)) = (start.get(state.clone()), kept.get_mut(state)) {
                to.copy_from_slice(from);
            }
        }
        return kept;
    }
    let (sum, rest) = kept.split_at_mut(4);
    if rest.iter().any(|byte| *byte != 0) {
        // The first word of a `str` here is its length; its state stays 0, which no name's is.
        sum.copy_from_slice(&crc32fast::hash(&start).to_le_bytes());
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
/// these take an object's first bytes at a fixed length, which may reach into another object.
#[derive(Debug)]
pub(super) struct ReadScrubber {
    layout: Layout,
    /// Objects whose bytes are to be read next.
    objects: HashMap<Addr, IdentityObject>,
    out: [u8; OBJECT_BYTES],
}

impl ReadScrubber {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            layout: layout.clone(),
            objects: HashMap::new(),
            out: [0; OBJECT_BYTES],
        }
    }

    /// The bytes to keep of those read at `addr`.
    pub(super) fn read<'a>(&'a mut self, addr: Addr, bytes: &'a [u8]) -> &'a [u8] {
        let Some(objects) = self.layout.code.identity_objects() else {
            return bytes;
        };
        if let Ok(start) = bytes.try_into()
            && let Some(object) = self.objects.get(&addr)
        {
            self.out = lasting(&self.layout, *object, start);
            return &self.out;
        }
        let (_, words) = self.layout.code.identity_words();
        if bytes.len() == words as usize * 8 {
            // No other read has their address and length.
            if self.objects.len() >= OBJECTS_MAX {
                self.objects.clear();
            }
            for object in objects {
                self.objects
                    .insert(object.start(&self.layout, bytes), object);
            }
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
