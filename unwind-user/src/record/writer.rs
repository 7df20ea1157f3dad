//! Writes a recording as the session goes.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use unwind_ebpf::abi::{ABI_VERSION, SAMPLE};

use super::event::{End, Event, Start};
use super::scrub::{Keep, ReadScrubber, Scrubber};
use super::{FORMAT_VERSION, MAGIC, frame};
use crate::layout::Layout;
use crate::memory::{Addr, Fault, ReadLog};
use crate::sample::Record;

/// A recording being written. Clones write to the same one.
///
/// The first error of the output stops the writing, and stays until [`Recorder::finish`]
/// hands it out. Nothing is kept in memory but the event at hand.
#[derive(Debug)]
pub struct Recorder<W>(Rc<RefCell<Log<W>>>);

impl<W> Clone for Recorder<W> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Log<W> {
    /// None once finished or failed.
    out: Option<W>,
    error: Option<io::Error>,
    payload: Vec<u8>,
    scrubber: Scrubber,
    keep: Keep,
    /// A sample was written since the last end of a batch.
    has_samples: bool,
}

impl<W: Write> Log<W> {
    fn write(&mut self, event: &Event<'_>) {
        let Some(out) = &mut self.out else { return };
        let kind = event.encode(&mut self.payload);
        if let Err(error) = frame::write(out, kind, &self.payload) {
            self.error = Some(error);
            self.out = None;
        }
    }
}

impl<W: Write> Recorder<W> {
    /// Begins a recording. `out` should be buffered.
    #[must_use]
    pub fn new(mut out: W, start: Start, keep: Keep) -> Self {
        let mut head = Vec::from(MAGIC);
        head.extend(FORMAT_VERSION.to_le_bytes());
        head.extend(ABI_VERSION.to_le_bytes());
        head.extend(crc32fast::hash(&head).to_le_bytes());
        let error = out.write_all(&head).err();
        let mut log = Log {
            out: error.is_none().then_some(out),
            error,
            payload: Vec::new(),
            scrubber: Scrubber::default(),
            keep,
            has_samples: false,
        };
        log.write(&Event::Start(start));
        Self(Rc::new(RefCell::new(log)))
    }

    /// Writes an event as it is; for records of the ring there is [`Recorder::record`].
    pub fn event(&self, event: &Event<'_>) {
        self.0.borrow_mut().write(event);
    }

    /// Writes a record of the ring. A sample that is malformed, or of a process without layout,
    /// cannot be scrubbed and is left out: it is in no profile either.
    pub fn record<'l>(&self, bytes: &[u8], layout: impl FnOnce(u32) -> Option<&'l Layout>) {
        let mut log = self.0.borrow_mut();
        let Ok(record) = Record::parse(bytes) else {
            return;
        };
        if record.header.kind != SAMPLE || log.keep == Keep::All {
            log.has_samples |= record.header.kind == SAMPLE;
            return log.write(&Event::Record(bytes));
        }
        let Some(layout) = layout(record.header.pid) else {
            return;
        };
        let mut scrubber = std::mem::take(&mut log.scrubber);
        if let Some(bytes) = scrubber.record(bytes, layout) {
            log.has_samples = true;
            log.write(&Event::Record(bytes));
        }
        log.scrubber = scrubber;
    }

    /// Writes the end of a batch, if samples were written since the last.
    pub fn batch(&self, now: u64) {
        let mut log = self.0.borrow_mut();
        if std::mem::take(&mut log.has_samples) {
            log.write(&Event::Batch(now));
        }
    }

    /// Where the reads of one process are written to.
    #[must_use]
    pub fn process(&self, pid: u32, layout: &Layout) -> ProcessLog<W> {
        let keep = self.0.borrow().keep;
        let scrubber = (keep == Keep::Named).then(|| RefCell::new(ReadScrubber::new(layout)));
        ProcessLog {
            recorder: self.clone(),
            pid,
            scrubber,
        }
    }

    /// Whether the output failed; [`Recorder::finish`] tells why.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.borrow().error.is_some()
    }

    /// Lends the output, while there is one.
    pub fn with_output<T>(&self, use_it: impl FnOnce(&mut W) -> T) -> Option<T> {
        self.0.borrow_mut().out.as_mut().map(use_it)
    }

    /// Ends the recording and gives the output back. What comes later is not written.
    ///
    /// # Errors
    /// The one that stopped the writing.
    pub fn finish(&self, end: Option<End>) -> io::Result<W> {
        let mut log = self.0.borrow_mut();
        if let Some(end) = end {
            log.write(&Event::End(end));
        }
        match (log.error.take(), log.out.take()) {
            (None, Some(out)) => Ok(out),
            (error, _) => Err(error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// The reads of one process on their way into the recording.
#[derive(Debug)]
pub struct ProcessLog<W> {
    recorder: Recorder<W>,
    pid: u32,
    scrubber: Option<RefCell<ReadScrubber>>,
}

impl<W: Write> ReadLog for ProcessLog<W> {
    fn note(&self, addr: Addr, result: Result<&[u8], Fault>) {
        let pid = self.pid;
        match (&self.scrubber, result) {
            (Some(scrubber), Ok(bytes)) => {
                let mut scrubber = scrubber.borrow_mut();
                let result = Ok(scrubber.read(addr, bytes));
                self.recorder.event(&Event::Read { pid, addr, result });
            }
            (_, result) => self.recorder.event(&Event::Read { pid, addr, result }),
        }
    }
}
