//! One profiling session: what samples, the processes, and the pipeline between them.
//!
//! Synchronous; the event loop in [`super`] says when to drain and when to end.

mod account;
mod lifecycle;
pub mod member;
mod recording;
mod rows;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use unwind_ebpf::abi::{ProcConfig, SAMPLE};

use crate::pipeline::Pipeline;
use crate::profile::Profile;
use crate::sample::Record;
use crate::sampler::Sampler;
use account::Past;
use member::{Follow, Member};
use recording::Recording;
use rows::Rows;

/// Bytes of records after which a batch ends though more wait: only then is anything vouched for,
/// which makes the records small again, and only between batches are clocks and signals looked at.
const BATCH_BYTES: u64 = 2 << 20;

/// The session.
pub struct Session {
    sampler: Box<dyn Sampler>,
    pipeline: Pipeline,
    recording: Option<Recording>,
    members: BTreeMap<u32, Member>,
    rows: Rows,
    past: Past,
    follow: Follow,
    seed: u64,
    /// Records lost in a full ring when the process table was last compared.
    lost_seen: u64,
    /// Records of a layout that is not ours, or cut.
    pub malformed: u64,
    /// When the first sample was read.
    pub first_sample: Option<Instant>,
    /// Size of the ring.
    pub ring_bytes: u64,
    /// Most bytes found in it at once.
    pub ring_peak_bytes: u64,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session in which nothing is sampled yet.
    #[must_use]
    pub fn new(sampler: Box<dyn Sampler>, follow: Follow, profile: Profile) -> Self {
        Self {
            ring_bytes: sampler.ring_bytes(),
            sampler,
            pipeline: Pipeline::new(profile),
            recording: None,
            members: BTreeMap::new(),
            rows: Rows::default(),
            past: Past::default(),
            follow,
            seed: monotonic_ns() ^ u64::from(std::process::id()) << 32,
            lost_seen: 0,
            malformed: 0,
            first_sample: None,
            ring_peak_bytes: 0,
        }
    }

    /// What takes the samples.
    pub fn sampler(&mut self) -> &mut dyn Sampler {
        &mut *self.sampler
    }

    /// The name of the backend that takes the samples.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.sampler.name()
    }

    /// The pipeline.
    #[must_use]
    pub const fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The pipeline, to give its profile what it does not know itself.
    pub const fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// The processes of this session.
    #[must_use]
    pub const fn members(&self) -> &BTreeMap<u32, Member> {
        &self.members
    }

    /// Reads all records that wait in the ring now.
    pub fn drain_all(&mut self) {
        for _ in 0..=self.ring_bytes / BATCH_BYTES {
            if !self.drain() {
                break;
            }
        }
    }

    /// Reads the records that wait in the ring, a batch at most, and counts their samples. Whether
    /// more may wait.
    pub fn drain(&mut self) -> bool {
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            // The sampler lends the record: what it asks for is done after it was given back.
            let mut header = None;
            let (pipeline, recording) = (&mut self.pipeline, &self.recording);
            let was_taken = self.sampler.take(&mut |item| {
                bytes += item.len() as u64;
                match Record::parse(item) {
                    Ok(record) => {
                        header = Some(record.header);
                        if record.header.kind == SAMPLE
                            && let Err(error) = pipeline.sample(&record)
                        {
                            tracing::debug!(%error, "malformed record");
                        }
                    }
                    Err(error) => tracing::debug!(%error, "malformed record"),
                }
                if let Some(recording) = recording {
                    recording.keep(item, pipeline);
                }
            });
            if !was_taken {
                break;
            }
            match header {
                Some(header) if header.kind == SAMPLE => {
                    self.first_sample.get_or_insert_with(Instant::now);
                    self.name_thread(header.pid, header.tid);
                }
                Some(header) => {
                    self.finish_batch();
                    self.on_event(header.kind, header.pid, header.tid);
                }
                None => self.malformed += 1,
            }
        }
        self.ring_peak_bytes = self.ring_peak_bytes.max(bytes);
        self.finish_batch();
        bytes >= BATCH_BYTES
    }

    fn finish_batch(&mut self) {
        let now = monotonic_ns();
        self.pipeline.finish_batch(now, &mut *self.sampler);
        if let Some(recording) = &self.recording {
            recording.end_batch(now);
        }
        for pid in self.sampler.take_stale() {
            if let Some(mut config) = self.sampler.process(pid) {
                config.salt = self.salt(pid);
                self.enter(pid, config);
            }
        }
    }

    /// Puts a process's entry into the kernel half's table. It cannot be full where the process
    /// has a row.
    fn enter(&mut self, pid: u32, config: ProcConfig) {
        if let Err(error) = self.sampler.set_process(pid, config) {
            tracing::error!(pid, %error, "cannot change the process table");
        }
    }

    /// Keeps the marks of processes apart. Not a secret: a target that could forge a mark would
    /// only spoil its own profile.
    fn salt(&mut self, pid: u32) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ u64::from(pid);
        let mixed = (self.seed ^ self.seed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed | 1
    }
}

/// `CLOCK_MONOTONIC`, the clock of the records, in ns.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let now = now.map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
