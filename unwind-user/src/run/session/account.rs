//! What a session has counted: by process, of processes that are gone, in all.

use unwind_ebpf::abi::{Counters, OUTCOME_NAMES, OUTCOMES};

use super::Session;
use super::member::{Member, Row};
use crate::bpf::LoadError;
use crate::profile::{ProcessInfo, ProcessKey, ThreadInfo, ThreadKey};
use crate::run::procs;
use crate::run::totals::TargetTotals;
use crate::sampler::add_counters;

/// Ended processes that are still told apart; of older ones only sums are kept.
const ENDED_MAX: usize = 1024;

/// Sums over what is gone.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Of programs that ended or were replaced.
    pub targets: TargetTotals,
    /// Processes that are not told apart any more.
    pub processes: u64,
    /// Their counters.
    pub counters: Counters,
    /// Their samples.
    pub samples: u64,
    /// Their CPU time, ns.
    pub on_cpu_ns: u64,
}

impl Session {
    /// Sums over what is gone.
    #[must_use]
    pub const fn past(&self) -> &Past {
        &self.past
    }

    /// Interrupts by outcome and the rest of the kernel half's counts, over all processes.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn counters(&self) -> Result<Counters, LoadError> {
        let mut sum = self.past.counters;
        for member in self.members.values() {
            add_counters(&mut sum, &self.counters_of(member)?);
        }
        Ok(sum)
    }

    /// What the kernel half counted for one process.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn counters_of(&self, member: &Member) -> Result<Counters, LoadError> {
        match member.counters {
            Row::Live(row) => self.sampler.counters(row),
            Row::Final(counters) => Ok(counters),
        }
    }

    /// CPU time of all Python processes since they were entered, ns.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        let python = self.members.values().filter(|member| member.was_python);
        let now: u64 = python.map(|member| member.on_cpu.total_ns()).sum();
        now + self.past.on_cpu_ns
    }

    /// Samples of one process, those of its earlier programs included.
    #[must_use]
    pub fn samples_of(&self, pid: u32, member: &Member) -> u64 {
        let target = self.pipeline.target(pid);
        member.past_samples + target.map_or(0, |target| target.stats.samples)
    }

    /// Begins to count CPU time; call right after the interrupts were started.
    pub fn begin_clocks(&mut self) {
        for (pid, member) in &mut self.members {
            member.on_cpu = crate::run::oncpu::OnCpu::begin(*pid);
        }
    }

    /// Brings the CPU time up to date: two system calls a process.
    pub fn update_clocks(&mut self) {
        for (pid, member) in &mut self.members {
            if member.state.is_live() {
                member.on_cpu.update(*pid);
            }
        }
    }

    /// Gives the profile the outcomes, and names to processes and threads.
    pub fn describe_all(&mut self, counters: &Counters) {
        let live = self
            .members
            .iter()
            .filter(|(_, member)| member.state.is_live());
        for pid in live.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.describe(pid);
        }
        let names = OUTCOME_NAMES.iter().zip(counters.outcomes);
        self.pipeline.profile_mut().outcomes = names
            .map(|(name, count)| ((*name).to_owned(), count))
            .collect();
    }

    /// Gives the profile the names of a process and its threads, which end with them.
    pub(super) fn describe(&mut self, pid: u32) {
        let Some(member) = self.members.get(&pid) else {
            return;
        };
        let Some(python) = member.version.clone() else {
            return;
        };
        let (image, command) = (member.image, member.command.clone());
        let profile = self.pipeline.profile_mut();
        profile
            .processes
            .insert(ProcessKey { pid, image }, ProcessInfo { command, python });
        for (tid, name) in procs::thread_names(pid) {
            let info = ThreadInfo {
                name: Some(name),
                native_tid: None,
            };
            profile.threads.insert(ThreadKey { pid, image, tid }, info);
        }
    }

    /// Names the thread of a sample the first time: it may end long before the session does.
    pub(super) fn name_thread(&mut self, pid: u32, tid: u32) {
        let Some(image) = self.pipeline.target(pid).map(|target| target.image) else {
            return;
        };
        let threads = &mut self.pipeline.profile_mut().threads;
        let entry = threads.entry(ThreadKey { pid, image, tid });
        entry.or_insert_with(|| ThreadInfo {
            name: procs::name_of_thread(pid, tid),
            native_tid: None,
        });
    }

    /// Names threads that came since the last time.
    pub fn describe_new_threads(&mut self) {
        for (&pid, member) in &self.members {
            if !member.state.is_attached() {
                continue;
            }
            let image = member.image;
            let threads = &mut self.pipeline.profile_mut().threads;
            let is_new = |tid: u32| !threads.contains_key(&ThreadKey { pid, image, tid });
            for (tid, name) in procs::names_of_threads(pid, is_new) {
                let info = ThreadInfo {
                    name: Some(name),
                    native_tid: None,
                };
                threads.insert(ThreadKey { pid, image, tid }, info);
            }
        }
    }

    /// Stops to take samples of a process's program and keeps what it amounted to.
    pub(super) fn close(&mut self, pid: u32) {
        if let Some(target) = self.pipeline.close(pid) {
            self.record_close(pid);
            self.past.targets.add(&target);
            // They are gone with it.
            self.past.targets.stacks.entries = 0;
            self.past.targets.codes.entries = 0;
            if let Some(member) = self.members.get_mut(&pid) {
                member.past_samples += target.stats.samples;
            }
        }
    }

    /// Takes the counters of an ended process out of the kernel half, and gives its row back.
    pub(super) fn keep_counters(&mut self, pid: u32) {
        let Some(member) = self.members.get_mut(&pid) else {
            return;
        };
        let Row::Live(row) = member.counters else {
            return;
        };
        let taken = self.sampler.counters(row).and_then(|counters| {
            self.sampler.clear_counters(row)?;
            Ok(counters)
        });
        match taken {
            Ok(counters) => {
                member.counters = Row::Final(counters);
                self.rows.give_back(row);
            }
            // The row stays this process's.
            Err(error) => tracing::error!(pid, %error, "cannot read the counters"),
        }
        self.forget_oldest();
    }

    /// Bounds the ended processes that are told apart.
    fn forget_oldest(&mut self) {
        let is_ended =
            |member: &Member| !member.state.is_live() && matches!(member.counters, Row::Final(_));
        if self
            .members
            .values()
            .filter(|member| is_ended(member))
            .count()
            <= ENDED_MAX
        {
            return;
        }
        // Which of them matters little: all are children that ended.
        let oldest = self
            .members
            .iter()
            .find(|(_, member)| is_ended(member) && member.is_child);
        if let Some(pid) = oldest.map(|(pid, _)| *pid) {
            self.forget(pid);
        }
    }

    /// Drops an ended process and keeps its sums.
    pub(super) fn forget(&mut self, pid: u32) {
        let Some(member) = self.members.remove(&pid) else {
            return;
        };
        self.past.processes += 1;
        self.past.samples += member.past_samples;
        if member.was_python {
            self.past.on_cpu_ns += member.on_cpu.total_ns();
        }
        if let Row::Final(counters) = member.counters {
            add_counters(&mut self.past.counters, &counters);
        }
    }
}

const _: () = assert!(OUTCOMES == OUTCOME_NAMES.len());
