//! Feeds a recording to the pipeline that would have seen it live.

use std::collections::HashMap;
use std::io::Read;

use foldhash::fast::RandomState;
use unwind_ebpf::abi::SAMPLE;

use super::event::{Described, End, Event, Opened, Start};
use super::reader::{Damage, Recording, RecordingError};
use crate::memory::{Addr, Recorded};
use crate::pipeline::{Pipeline, PipelineStats, Target, Vouch};
use crate::profile::{ProcessInfo, ProcessKey, Profile, ThreadInfo, ThreadKey};
use crate::sample::Record;

/// Most frames in the samples of one batch. What is before the end of a batch is held in memory.
pub const BATCH_FRAMES_MAX: u64 = 1 << 22;
/// Most bytes, with 64 more for each read, that one sample or end of batch may have read.
pub const READ_BYTES_MAX: usize = 256 << 20;

/// What a recording gave.
#[derive(Debug)]
pub struct Replayed {
    /// The profile, as it was live.
    pub profile: Profile,
    /// What the pipeline met.
    pub stats: PipelineStats,
    /// Where the recording was made.
    pub start: Start,
    /// Why the rest of it could not be read.
    pub damage: Option<Damage>,
}

/// Replays a recording. `input` should be buffered.
///
/// # Errors
/// [`RecordingError`]; a recording that is cut or damaged further on is none.
pub fn replay(input: impl Read) -> Result<Replayed, RecordingError> {
    let mut recording = Recording::open(input)?;
    let start = recording.start().clone();
    let mut replay = Replay::new(&start);
    let damage = loop {
        let event = match recording.next_event()? {
            Ok(Some(event)) => event,
            Ok(None) => break None,
            Err(damage) => break Some(damage),
        };
        if !replay.apply(event) {
            break Some(Damage::Malformed(recording.position()));
        }
    };
    let (profile, stats) = replay.finish();
    Ok(Replayed {
        profile,
        stats,
        start,
        damage,
    })
}

/// Records carry identities, or leave them out, as the marks stood when they were taken.
struct NoMarks;

impl Vouch for NoMarks {
    fn vouch(&mut self, _: u32, _: Addr) {}
    fn revoke(&mut self, _: u32, _: Addr) {}
    fn revoke_all(&mut self, _: u32) {}
}

struct Replay {
    pipeline: Pipeline,
    /// What the reads of each process gave.
    reads: HashMap<u32, Recorded, RandomState>,
    /// Processes whose reads wait for the sample or batch that asked for them.
    noted: Vec<u32>,
    /// Bytes of these reads.
    noted_bytes: usize,
    /// Frames in the samples of this batch.
    frames: u64,
    /// Time of the first sample and of the last end of a batch.
    first: Option<u64>,
    last: u64,
    end: Option<End>,
}

impl Replay {
    fn new(start: &Start) -> Self {
        let profile = Profile {
            mode: start.mode,
            period_ns: start.period_ns,
            start_ns: start.start_ns,
            ..Profile::default()
        };
        Self {
            pipeline: Pipeline::new(profile),
            reads: HashMap::default(),
            noted: Vec::new(),
            noted_bytes: 0,
            frames: 0,
            first: None,
            last: 0,
            end: None,
        }
    }

    /// `false` when the event asks for more than any session gives.
    fn apply(&mut self, event: Event<'_>) -> bool {
        match event {
            Event::Start(_) => return false,
            Event::Opened(opened) => return self.open(*opened),
            Event::Described(described) => self.describe(described),
            Event::Closed(pid) => {
                self.pipeline.close(pid);
                self.reads.remove(&pid);
            }
            Event::Record(bytes) => return self.record(bytes),
            Event::Read { pid, addr, result } => {
                let Some(reads) = self.reads.get(&pid) else {
                    return false;
                };
                if self.noted.last() != Some(&pid) {
                    self.noted.push(pid);
                }
                self.noted_bytes += 64 + result.map_or(0, <[u8]>::len);
                reads.push(addr, result);
                return self.noted_bytes <= READ_BYTES_MAX;
            }
            Event::Batch(now) => {
                self.pipeline.finish_batch(now, &mut NoMarks);
                self.frames = 0;
                self.last = now;
                self.forget_reads();
            }
            Event::End(end) => self.end = Some(end),
        }
        true
    }

    fn open(&mut self, opened: Opened) -> bool {
        // Whoever applies a layout relies on it.
        if opened.layout.validate().is_err() {
            return false;
        }
        let memory = Recorded::default();
        self.reads.insert(opened.pid, memory.clone());
        let target = Target::new(opened.image, opened.layout, Box::new(memory));
        self.pipeline.open(opened.pid, target);
        true
    }

    fn describe(&mut self, described: Described) {
        let Described {
            pid,
            image,
            command,
            python,
            threads,
        } = described;
        let profile = self.pipeline.profile_mut();
        if let Some(python) = python {
            let info = ProcessInfo { command, python };
            profile.processes.insert(ProcessKey { pid, image }, info);
        }
        for (tid, name) in threads {
            let info = ThreadInfo {
                name: Some(name),
                native_tid: None,
            };
            profile.threads.insert(ThreadKey { pid, image, tid }, info);
        }
    }

    fn record(&mut self, bytes: &[u8]) -> bool {
        // One that is malformed was counted live, and is in no profile either way.
        if let Ok(record) = Record::parse(bytes)
            && record.header.kind == SAMPLE
        {
            self.frames += u64::from(record.header.frames);
            if self.frames > BATCH_FRAMES_MAX {
                return false;
            }
            self.first.get_or_insert(record.header.time);
            // Malformed segments are counted by the pipeline.
            let _ = self.pipeline.sample(&record);
            self.forget_reads();
        }
        true
    }

    fn forget_reads(&mut self) {
        self.noted_bytes = 0;
        for pid in self.noted.drain(..) {
            if let Some(reads) = self.reads.get(&pid) {
                reads.clear();
            }
        }
    }

    fn finish(mut self) -> (Profile, PipelineStats) {
        self.pipeline.finish();
        let stats = self.pipeline.stats;
        let profile = self.pipeline.profile_mut();
        match self.end {
            Some(end) => {
                profile.duration_ns = end.duration_ns;
                profile.outcomes = end.outcomes;
                profile.empty_reason = end.empty_reason;
            }
            None => {
                profile.duration_ns = self.last.saturating_sub(self.first.unwrap_or(self.last));
                if profile.total() == 0 {
                    let reason = "the recording holds no whole batch of samples";
                    profile.empty_reason = Some(reason.to_owned());
                }
            }
        }
        (std::mem::take(profile), stats)
    }
}
