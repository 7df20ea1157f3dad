//! Processes that come, change their program, and go.

use std::time::{Duration, Instant};

use unwind_ebpf::abi::{self, EXEC, EXIT, FORK, PROCESSES_MAX, ProcConfig};

use super::Session;
use super::member::{Follow, Member, Row, State};
use crate::bpf::LoadError;
use crate::layout::Layout;
use crate::layout::debug_offsets::Trust;
use crate::memory::Process;
use crate::pipeline::Target;
use crate::profile::ProcessKey;
use crate::python::{self, AttachError};
use crate::run::procs;

/// Why a process cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// All rows are taken.
    #[error("{PROCESSES_MAX} processes are profiled already, which is the limit")]
    Full,
    /// The kernel half's table refuses it.
    #[error(transparent)]
    Table(#[from] LoadError),
}

impl Session {
    /// Enters a process that was asked for; its interrupts count from now on, as `attaching`.
    ///
    /// # Errors
    /// When too many are profiled already.
    pub fn add(&mut self, pid: u32, state: State) -> Result<(), AddError> {
        let row = self.rows.take().ok_or(AddError::Full)?;
        self.sampler.set_process(pid, self.blank(row))?;
        self.members.insert(pid, Member::new(pid, row, state));
        Ok(())
    }

    /// Enters the processes that run below those asked for already. Call once the kernel half
    /// tells of new ones.
    pub fn add_descendants(&mut self) {
        let below = |pid: &u32| crate::process::descendants(i32::try_from(*pid).unwrap_or(0));
        let below: Vec<i32> = self.members.keys().flat_map(below).collect();
        for pid in below.into_iter().filter_map(|pid| u32::try_from(pid).ok()) {
            self.adopt(pid);
        }
    }

    /// Enters a child that nobody told us of.
    fn adopt(&mut self, pid: u32) {
        if self.is_live(pid) {
            return;
        }
        // The number may have been an ended process's.
        self.forget(pid);
        match self.add(pid, State::attaching()) {
            Ok(()) => {
                if let Some(member) = self.members.get_mut(&pid) {
                    member.is_child = true;
                }
                self.try_attach(pid);
            }
            Err(error) => tracing::warn!(pid, %error, "child is not profiled"),
        }
    }

    /// Looks for the interpreter of a process that is not attached yet. Where there is none now,
    /// the process stays entered: it may become one by exec, or have children.
    ///
    /// # Errors
    /// Why the process cannot be sampled; none while it may only be a beginning.
    pub fn attach(&mut self, pid: u32) -> Result<(), AttachError> {
        let Some(member) = self.members.get_mut(&pid) else {
            return Ok(());
        };
        if member.state.look().is_none() {
            return Ok(());
        }
        let attached = match python::attach(pid) {
            Ok(attached) => attached,
            Err(error) => {
                member.state = member.state.after(error.clone());
                let row = member.counters;
                return match (&member.state, row) {
                    (State::Attaching(..), _) => Ok(()),
                    (State::Exited, _) => {
                        self.end(pid);
                        Err(error)
                    }
                    (_, Row::Live(row)) => {
                        // Without a way to a thread state, interrupts count as `no_python_state`.
                        let config = ProcConfig {
                            ready: 1,
                            ..self.blank(row)
                        };
                        self.enter(pid, config);
                        Err(error)
                    }
                    (_, Row::Final(_)) => Err(error),
                };
            }
        };
        let (image, row) = (member.image, member.counters);
        member.state = State::Attached;
        member.was_python = true;
        let version = attached.layout.version;
        if attached.trust == Trust::Untested {
            tracing::warn!(
                pid,
                %version,
                "this Python is newer than those tested; its layout passes all checks"
            );
        }
        member.version = Some(version.to_string());
        member.command = procs::command_line(pid);
        if let Row::Live(row) = row {
            self.sampler
                .set_interpreter(pid, &attached.layout, attached.runtime);
            let mut config = attached.layout.kernel_config(attached.runtime);
            for (to, from) in config.paths.iter_mut().zip(&attached.paths) {
                *to = *from;
            }
            let blank = self.blank(row);
            config.slot = blank.slot;
            config.follow = blank.follow;
            config.ready = 1;
            config.salt = self.salt(pid);
            self.open(pid, image, attached.layout, attached.memory);
            self.enter(pid, config);
        }
        Ok(())
    }

    /// Begins to take samples of a program.
    fn open(&mut self, pid: u32, image: u32, layout: Layout, memory: Process) {
        let memory = self.observed(pid, image, &layout, memory);
        self.pipeline.open(pid, Target::new(image, layout, memory));
        self.describe(pid);
        self.record_names(ProcessKey { pid, image });
    }

    /// [`Self::attach`], whose error is told where a person would look for it.
    fn try_attach(&mut self, pid: u32) {
        let Some(member) = self.members.get(&pid) else {
            return;
        };
        let was_not_python = matches!(member.state, State::NotPython(..));
        let is_child = member.is_child;
        match self.attach(pid) {
            Err(AttachError::NotPython { .. }) if was_not_python => {}
            Err(error) if is_child => tracing::info!("child is not profiled: {error}"),
            Err(AttachError::Gone { .. } | AttachError::Zombie { .. }) => {}
            // Told at the next status, if it stays so.
            Err(AttachError::NotPython { .. }) | Ok(()) => {}
            Err(error) => tracing::warn!("not profiled: {error}"),
        }
    }

    /// Whether a process may still give samples.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.members.values().any(|member| member.state.is_live())
    }

    /// Whether the command ever became the command.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.members.values().any(|member| member.image > 0)
    }

    /// When to call [`Self::attach_pending`] next.
    #[must_use]
    pub fn next_look(&self) -> Option<Instant> {
        let looks = self
            .members
            .values()
            .filter_map(|member| member.state.look());
        looks.map(|look| look.next).min()
    }

    /// How long the youngest program that is sampled has run; zero if there is none.
    #[must_use]
    pub fn youngest(&self) -> Duration {
        let sampled = self.members.values().filter(|m| m.state.is_attached());
        let ages = sampled.map(|member| member.since.elapsed());
        ages.min().unwrap_or_default()
    }

    /// Looks for the interpreters that are due.
    pub fn attach_pending(&mut self) {
        let now = Instant::now();
        let is_due = |member: &Member| member.state.look().is_some_and(|look| look.next <= now);
        let due = self.members.iter().filter(|(_, member)| is_due(member));
        for pid in due.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.try_attach(pid);
        }
    }

    pub(super) fn on_event(&mut self, kind: u16, pid: u32, tid: u32) {
        match kind {
            FORK => self.on_fork(pid, tid),
            EXEC => self.on_exec(pid),
            EXIT => self.on_exit(pid),
            _ => self.malformed += 1,
        }
    }

    /// The program is another one now.
    fn on_exec(&mut self, pid: u32) {
        self.close(pid);
        let Some(member) = self.members.get_mut(&pid) else {
            return;
        };
        member.image += 1;
        member.since = Instant::now();
        member.version = None;
        member.is_noted = false;
        member.command = procs::command_line(pid);
        member.state = State::attaching();
        if !member.was_python {
            member.on_cpu = crate::run::oncpu::OnCpu::begin(pid);
        }
        if let Row::Live(row) = member.counters {
            let config = self.blank(row);
            self.enter(pid, config);
        }
        self.try_attach(pid);
    }

    /// The kernel half has copied the parent's entry for the child; give it a row of its own.
    fn on_fork(&mut self, parent: u32, child: u32) {
        if self.is_live(child) {
            return;
        }
        // The number may have been an ended process's.
        self.forget(child);
        let Some(row) = self.rows.take() else {
            self.sampler.remove_process(child);
            tracing::warn!(child, "not profiled: {}", AddError::Full);
            return;
        };
        // A copy that runs another program already is none any more.
        let mut is_copy = false;
        if let Some(mut config) = self.sampler.process(child) {
            is_copy = config.ready != 0;
            config.slot = row;
            self.enter(child, config);
        }
        let parent_state = self.members.get(&parent).filter(|_| is_copy);
        let state = parent_state.map_or_else(State::attaching, |member| member.state.clone());
        let target = self.pipeline.target(parent).filter(|_| state.is_attached());
        let target = target.map(|target| (target.image, target.layout().clone()));
        let mut member = Member::child(child, row, state);
        if let Some((image, layout)) = target {
            member.image = image;
            member.was_python = true;
            member.version = Some(layout.version.to_string());
            self.members.insert(child, member);
            let memory = Process::new(i32::try_from(child).unwrap_or(i32::MAX));
            self.open(child, image, layout, memory);
        } else {
            if !member.state.is_live() || member.state.is_attached() {
                member.state = State::attaching();
            }
            self.members.insert(child, member);
        }
    }

    fn on_exit(&mut self, pid: u32) {
        let Some(member) = self.members.get_mut(&pid) else {
            return;
        };
        // Else the number is another process's by now.
        let is_it = procs::start_time(pid) == member.start_time;
        if is_it {
            member.on_cpu.update(pid);
        }
        if !is_it || !procs::is_live(pid) {
            self.end(pid);
        }
    }

    fn end(&mut self, pid: u32) {
        self.sampler.remove_process(pid);
        self.close(pid);
        if let Some(member) = self.members.get_mut(&pid) {
            member.state = State::Exited;
        }
        self.keep_counters(pid);
    }

    /// Makes good what no record told: processes that ended before they were entered, and records
    /// that were lost in a full ring.
    pub fn reconcile(&mut self) {
        self.drain_all();
        let live = self
            .members
            .iter()
            .filter(|(_, member)| member.state.is_live());
        for pid in live.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.on_exit(pid);
        }
        let counters = self.counters();
        let full = |counters: abi::Counters| {
            counters
                .outcomes
                .get(abi::RING_FULL as usize)
                .copied()
                .unwrap_or(0)
        };
        let lost = counters.map_or(0, full);
        if std::mem::replace(&mut self.lost_seen, lost) == lost {
            return;
        }
        for pid in self.sampler.process_ids() {
            let config = self.sampler.process(pid);
            let is_attached = self
                .members
                .get(&pid)
                .is_some_and(|m| m.state.is_attached());
            if !self.is_live(pid) && self.follow == Follow::Children {
                self.adopt(pid);
            } else if is_attached && config.is_some_and(|config| config.ready == 0) {
                self.on_exec(pid);
            }
        }
    }

    /// Marks a process as noted and returns why it gives no samples, if it has given none for
    /// so long that a person wonders.
    pub fn note_silent(&mut self, after: std::time::Duration) -> Vec<(u32, State)> {
        let mut silent = Vec::new();
        for (&pid, member) in &mut self.members {
            let waits = member
                .state
                .look()
                .is_some_and(|look| look.since.elapsed() >= after);
            if waits && !member.is_child && !std::mem::replace(&mut member.is_noted, true) {
                silent.push((pid, member.state.clone()));
            }
        }
        silent
    }

    fn is_live(&self, pid: u32) -> bool {
        self.members
            .get(&pid)
            .is_some_and(|member| member.state.is_live())
    }

    fn blank(&self, row: u32) -> ProcConfig {
        let follow = u32::from(self.follow == Follow::Children);
        ProcConfig {
            slot: row,
            follow,
            ..ProcConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Mode, Profile};
    use crate::remote::poll::Poller;

    #[test]
    fn a_number_that_is_another_process_s_ends_the_member() {
        let sampler = Box::new(Poller::new(1 << 16, Mode::Cpu).expect("an eventfd"));
        let mut session = Session::new(sampler, Follow::No, Profile::default());
        let pid = std::process::id();
        session.add(pid, State::attaching()).expect("room");
        session.on_exit(pid);
        assert!(session.is_live(pid), "we are still there");
        let member = session.members.get_mut(&pid).expect("entered");
        member.start_time = member.start_time.map(|time| time - 1);
        session.on_exit(pid);
        assert!(!session.is_live(pid), "that was somebody else");
        assert_eq!(session.sampler.process(pid).map(|_| ()), None);
    }
}
