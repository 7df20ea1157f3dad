//! One profiling session: the kernel half, the processes, and the pipeline between them.
//!
//! Synchronous; the event loop in [`super`] says when to drain and when to end.

mod account;
mod lifecycle;
pub mod member;
mod recording;
mod rows;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use nix::time::{ClockId, clock_gettime};
use unwind_ebpf::abi::{ProcConfig, SAMPLE};

use crate::bpf::{Kernel, LoadError, Marks};
use crate::pipeline::Pipeline;
use crate::profile::Profile;
use crate::sample::Record;
use account::Past;
use member::{Follow, Member};
use recording::Recording;
use rows::Rows;

/// Bytes of records after which a batch ends though more wait: only then is anything vouched for,
/// which makes the records small again, and only between batches are clocks and signals looked at.
const BATCH_BYTES: u64 = 2 << 20;

/// The session.
pub struct Session {
    kernel: Kernel,
    ring: RingBuf<MapData>,
    marks: Marks,
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
    /// Loads the kernel half; nothing is sampled yet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(ring_bytes: u32, follow: Follow, profile: Profile) -> Result<Self, LoadError> {
        let mut kernel = Kernel::load(ring_bytes)?;
        let ring = kernel.ring()?;
        let marks = kernel.marks()?;
        Ok(Self {
            kernel,
            ring,
            marks,
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
            ring_bytes: u64::from(ring_bytes),
            ring_peak_bytes: 0,
        })
    }

    /// The kernel half.
    pub const fn kernel(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    /// The ring, whose descriptor becomes readable when the kernel half wants to be read.
    #[must_use]
    pub const fn ring(&self) -> &RingBuf<MapData> {
        &self.ring
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
            // The item borrows the ring: what it asks for is done after it was given back.
            let Some(item) = self.ring.next() else { break };
            bytes += item.len() as u64;
            let mut thread = None;
            let event = match Record::parse(&item) {
                Ok(record) if record.header.kind == SAMPLE => {
                    if self.first_sample.is_none() {
                        self.first_sample = Some(Instant::now());
                    }
                    if let Err(error) = self.pipeline.sample(&record) {
                        tracing::debug!(%error, "malformed record");
                    }
                    thread = Some((record.header.pid, record.header.tid));
                    None
                }
                Ok(record) => Some(record.header),
                Err(error) => {
                    self.malformed += 1;
                    tracing::debug!(%error, "malformed record");
                    None
                }
            };
            if let Some(recording) = &self.recording {
                recording.keep(&item, &self.pipeline);
            }
            drop(item);
            if let Some((pid, tid)) = thread {
                self.name_thread(pid, tid);
            }
            if let Some(header) = event {
                self.finish_batch();
                self.on_event(header.kind, header.pid, header.tid);
            }
        }
        self.ring_peak_bytes = self.ring_peak_bytes.max(bytes);
        self.finish_batch();
        bytes >= BATCH_BYTES
    }

    fn finish_batch(&mut self) {
        let now = monotonic_ns();
        self.pipeline.finish_batch(now, &mut self.marks);
        if let Some(recording) = &self.recording {
            recording.end_batch(now);
        }
        for pid in self.marks.take_stale() {
            if let Some(mut config) = self.kernel.process(pid) {
                config.salt = self.salt(pid);
                self.marks.set_salt(pid, config.salt);
                self.enter(pid, config);
            }
        }
    }

    /// Puts a process's entry into the kernel half's table. It cannot be full where the process
    /// has a row.
    fn enter(&mut self, pid: u32, config: ProcConfig) {
        if let Err(error) = self.kernel.set_process(pid, config) {
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
