//! One profiling session: the kernel half, the processes, and the pipeline between them.
//!
//! Synchronous; the event loop in [`super`] says when to drain and when to end.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use nix::time::{ClockId, clock_gettime};
use unwind_ebpf::abi::{
    self, Counters, EXEC, EXIT, FORK, OUTCOME_NAMES, OUTCOMES, PROCESSES_MAX, ProcConfig, SAMPLE,
};

use super::oncpu::OnCpu;
use super::procs;
use crate::bpf::{Kernel, LoadError, Marks};
use crate::memory::{Memory, Process};
use crate::pipeline::{Pipeline, Target};
use crate::profile::{ProcessInfo, ProcessKey, Profile, ThreadInfo};
use crate::python::{self, AttachError};
use crate::sample::Record;

/// Records handled between two looks at signals and timers.
const RECORDS_A_DRAIN: usize = 1 << 16;

/// Where a process stands.
#[derive(Debug)]
pub enum State {
    /// Its interpreter is looked for, since this time.
    Attaching(Instant),
    /// It is sampled.
    Attached,
    /// It cannot be sampled.
    Refused(AttachError),
    /// It ended.
    Exited,
}

/// A process of this session.
#[derive(Debug)]
pub struct Member {
    /// Where it stands.
    pub state: State,
    /// Programs it was before (exec).
    pub image: u32,
    /// Row of the kernel half's counters.
    pub slot: u32,
    /// CPU time it used.
    pub on_cpu: OnCpu,
    /// Whether it was asked for, or came as a child.
    pub is_child: bool,
    /// CPython version once attached.
    pub version: Option<String>,
    /// Command line.
    pub command: String,
}

/// Whether children are profiled too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Only the processes asked for.
    No,
    /// Their children, too.
    Children,
}

/// The session.
pub struct Session {
    kernel: Kernel,
    ring: RingBuf<MapData>,
    marks: Marks,
    pipeline: Pipeline,
    members: BTreeMap<u32, Member>,
    layouts: HashMap<u32, (crate::layout::Layout, u32)>,
    follow: Follow,
    next_slot: u32,
    seed: u64,
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
        f.debug_struct("Session").field("members", &self.members).finish_non_exhaustive()
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
            members: BTreeMap::new(),
            layouts: HashMap::new(),
            follow,
            next_slot: 0,
            seed: monotonic_ns() ^ u64::from(std::process::id()) << 32,
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

    /// Enters a process; its interrupts count from now on, as `attaching`.
    ///
    /// # Errors
    /// When the kernel half's table is full.
    pub fn add(&mut self, pid: u32) -> Result<(), LoadError> {
        let slot = self.slot();
        self.members.insert(pid, Member::new(pid, slot, false));
        self.kernel.set_process(pid, self.blank(slot))
    }

    /// Tries to attach to a process that is not attached yet. An error that may pass leaves it
    /// attaching; any other refuses the process and is returned.
    ///
    /// # Errors
    /// Why the process cannot be sampled.
    pub fn attach(&mut self, pid: u32) -> Result<(), AttachError> {
        let Some(member) = self.members.get_mut(&pid) else { return Ok(()) };
        if !matches!(member.state, State::Attaching(_)) {
            return Ok(());
        }
        let attached = match python::attach(pid) {
            Ok(attached) => attached,
            Err(error) if error.may_pass() => return Ok(()),
            Err(error) => {
                self.kernel.remove_process(pid);
                self.marks.remove(pid);
                member.state = State::Refused(error.clone());
                return Err(error);
            }
        };
        let (image, slot) = (member.image, member.slot);
        member.state = State::Attached;
        member.version = Some(attached.layout.version.to_string());
        member.command = procs::command_line(pid);
        let mut config = attached.layout.kernel_config(attached.runtime);
        for (to, from) in config.paths.iter_mut().zip(&attached.paths) {
            *to = *from;
        }
        let blank = self.blank(slot);
        config.slot = slot;
        config.follow = blank.follow;
        config.ready = 1;
        config.salt = self.salt(pid);
        self.marks.set_salt(pid, config.salt);
        let memory: Box<dyn Memory> = Box::new(attached.memory);
        self.layouts.insert(pid, (attached.layout.clone(), image));
        self.pipeline.open(pid, Target::new(image, attached.layout, memory));
        self.describe(pid);
        if let Err(error) = self.kernel.set_process(pid, config) {
            tracing::error!(pid, %error, "cannot enter the process into the kernel half's table");
        }
        Ok(())
    }

    /// Whether a process is still looked at for an interpreter.
    #[must_use]
    pub fn is_attaching(&self) -> bool {
        self.members.values().any(|member| matches!(member.state, State::Attaching(_)))
    }

    /// Whether a process that was asked for, or a child, may still give samples.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let live = |m: &Member| matches!(m.state, State::Attaching(_) | State::Attached);
        self.members.values().any(live)
    }

    /// Retries those that are attaching.
    pub fn attach_pending(&mut self) {
        let pending = |(pid, m): (&u32, &Member)| {
            matches!(m.state, State::Attaching(_)).then_some(*pid)
        };
        for pid in self.members.iter().filter_map(pending).collect::<Vec<_>>() {
            let is_child = self.members.get(&pid).is_some_and(|member| member.is_child);
            if let Err(error) = self.attach(pid) {
                if is_child {
                    tracing::info!(pid, %error, "child is not profiled");
                } else {
                    tracing::warn!(pid, %error, "not profiled");
                }
            }
        }
    }

    /// Reads all records that wait in the ring, and counts their samples.
    pub fn drain(&mut self) {
        let mut bytes = 0;
        for _ in 0..RECORDS_A_DRAIN {
            // The item borrows the ring: what it asks for is done after it was given back.
            let Some(item) = self.ring.next() else { break };
            bytes += item.len() as u64;
            let event = match Record::parse(&item) {
                Ok(record) if record.header.kind == SAMPLE => {
                    if self.first_sample.is_none() {
                        self.first_sample = Some(Instant::now());
                    }
                    if let Err(error) = self.pipeline.sample(&record) {
                        tracing::debug!(%error, "malformed record");
                    }
                    None
                }
                Ok(record) => Some(record.header),
                Err(error) => {
                    self.malformed += 1;
                    tracing::debug!(%error, "malformed record");
                    None
                }
            };
            drop(item);
            if let Some(header) = event {
                self.finish_batch();
                self.on_event(header.kind, header.pid, header.tid);
            }
        }
        self.ring_peak_bytes = self.ring_peak_bytes.max(bytes);
        self.finish_batch();
    }

    /// Begins to count CPU time; call right after the interrupts were started.
    pub fn begin_clocks(&mut self) {
        for (pid, member) in &mut self.members {
            member.on_cpu = OnCpu::begin(*pid);
        }
    }

    /// Brings the CPU time up to date: a read of `/proc` for each thread, so about once a second.
    pub fn update_clocks(&mut self) {
        for (pid, member) in &mut self.members {
            if matches!(member.state, State::Attached | State::Attaching(_)) {
                member.on_cpu.update(*pid);
            }
        }
    }

    fn finish_batch(&mut self) {
        self.pipeline.finish_batch(monotonic_ns(), &mut self.marks);
        for pid in self.marks.take_stale() {
            if let Some(mut config) = self.kernel.process(pid) {
                config.salt = self.salt(pid);
                self.marks.set_salt(pid, config.salt);
                if let Err(error) = self.kernel.set_process(pid, config) {
                    tracing::error!(pid, %error, "cannot change the process table");
                }
            }
        }
    }

    fn on_event(&mut self, kind: u16, pid: u32, tid: u32) {
        match kind {
            FORK => self.on_fork(pid, tid),
            EXEC => {
                self.pipeline.close(pid);
                if let Some(member) = self.members.get_mut(&pid) {
                    member.image += 1;
                    member.state = State::Attaching(Instant::now());
                }
                self.attach_pending();
            }
            EXIT => self.on_exit(pid),
            _ => self.malformed += 1,
        }
    }

    /// The kernel half has copied the parent's entry for the child; give it a row of its own.
    fn on_fork(&mut self, parent: u32, child: u32) {
        let slot = self.slot();
        let mut member = Member::new(child, slot, true);
        if let Some(mut config) = self.kernel.process(child) {
            config.slot = slot;
            self.marks.set_salt(child, config.salt);
            if self.kernel.set_process(child, config).is_err() {
                return;
            }
        }
        let attached = self.members.get(&parent).is_some_and(|m| matches!(m.state, State::Attached));
        if let Some((layout, image)) = self.layouts.get(&parent).filter(|_| attached).cloned() {
            let memory = Box::new(Process::new(i32::try_from(child).unwrap_or(i32::MAX)));
            member.state = State::Attached;
            member.image = image;
            member.version = Some(layout.version.to_string());
            self.pipeline.open(child, Target::new(image, layout.clone(), memory));
            self.layouts.insert(child, (layout, image));
        }
        self.members.insert(child, member);
        self.describe(child);
    }

    fn on_exit(&mut self, pid: u32) {
        // The main thread can end before others do.
        if procs::has_live_thread(pid) {
            return;
        }
        self.kernel.remove_process(pid);
        self.marks.remove(pid);
        self.layouts.remove(&pid);
        if let Some(member) = self.members.get_mut(&pid) {
            member.state = State::Exited;
        }
    }

    /// Marks as ended what ended without telling, such as before it was entered.
    pub fn reap(&mut self) {
        let gone = |(pid, m): (&u32, &Member)| {
            let live = matches!(m.state, State::Attached | State::Attaching(_));
            (live && !procs::has_live_thread(*pid)).then_some(*pid)
        };
        for pid in self.members.iter().filter_map(gone).collect::<Vec<_>>() {
            self.on_exit(pid);
        }
    }

    /// Interrupts by outcome and the rest of the kernel half's counts, over all processes.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn counters(&self) -> Result<Counters, LoadError> {
        let mut sum = Counters::default();
        for slot in 0..self.next_slot.min(PROCESSES_MAX) {
            let counters = self.kernel.counters(slot)?;
            for (total, count) in sum.outcomes.iter_mut().zip(counters.outcomes) {
                *total += count;
            }
            sum.run_ns += counters.run_ns;
            sum.bytes += counters.bytes;
            sum.frames_off_chunk += counters.frames_off_chunk;
            sum.identities += counters.identities;
        }
        Ok(sum)
    }

    /// What the kernel half counted for one slot.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn counters_of(&self, slot: u32) -> Result<Counters, LoadError> {
        self.kernel.counters(slot)
    }

    /// CPU time of all processes since they were entered, ns.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        self.members.values().map(|member| member.on_cpu.total_ns()).sum()
    }

    /// Gives the profile the outcomes, and names to processes and threads.
    pub fn describe_all(&mut self, counters: &Counters) {
        for pid in self.members.keys().copied().collect::<Vec<_>>() {
            self.describe(pid);
        }
        let named = |i: usize| Some(((*OUTCOME_NAMES.get(i)?).to_owned(), *counters.outcomes.get(i)?));
        self.pipeline.profile_mut().outcomes = (0..OUTCOMES).filter_map(named).collect();
    }

    fn describe(&mut self, pid: u32) {
        let Some(member) = self.members.get(&pid) else { return };
        let key = ProcessKey { pid, image: member.image };
        let info = ProcessInfo {
            command: member.command.clone(),
            python: member.version.clone().unwrap_or_default(),
        };
        let names = procs::thread_names(pid);
        let profile = self.pipeline.profile_mut();
        if member.version.is_some() {
            profile.processes.insert(key, info);
        }
        for (tid, name) in names {
            let thread = crate::profile::ThreadKey { pid, image: key.image, tid };
            profile.threads.insert(thread, ThreadInfo { name: Some(name), native_tid: None });
        }
    }

    fn blank(&self, slot: u32) -> ProcConfig {
        let follow = u32::from(self.follow == Follow::Children);
        ProcConfig { slot, follow, ..ProcConfig::default() }
    }

    fn slot(&mut self) -> u32 {
        let slot = self.next_slot;
        self.next_slot = (self.next_slot + 1).min(PROCESSES_MAX);
        slot.min(PROCESSES_MAX - 1)
    }

    /// Keeps the marks of processes apart. Not a secret: a target that could forge a mark would
    /// only spoil its own profile.
    fn salt(&mut self, pid: u32) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ u64::from(pid);
        let mixed = (self.seed ^ self.seed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed | 1
    }
}

impl Member {
    fn new(pid: u32, slot: u32, is_child: bool) -> Self {
        Self {
            state: State::Attaching(Instant::now()),
            image: 0,
            slot,
            on_cpu: OnCpu::begin(pid),
            is_child,
            version: None,
            command: procs::command_line(pid),
        }
    }
}

/// `CLOCK_MONOTONIC`, the clock of the records, in ns.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

const _: () = assert!(abi::OUTCOMES == OUTCOME_NAMES.len());
