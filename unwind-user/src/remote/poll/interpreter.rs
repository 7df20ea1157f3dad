//! The threads of one interpreter, looked at in turn.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use unwind_ebpf::abi::{
    Counters, FOREIGN_STATE, HOLDS_GIL, INCOMPLETE, MISSED, NO_STATE, OK, Outcome, PAGE_FAULT,
    ProcConfig, RING_FULL, TRUNCATED,
};

use super::Pace;
use super::table::{Entry, Place};
use super::thread::{Counts, Kept, Look, Thread};
use crate::memory::{Addr, Memory as _, Process};
use crate::process::namespace;
use crate::profile::Mode;
use crate::python::exception::has_exception;
use crate::python::tstate::{self, ThreadState};
use crate::remote::capture::{Capture, Origin, Sampled, Vouched};
use crate::remote::still::{Reader, Still};
use crate::run::session::monotonic_ns;
use crate::sample::set_time;

/// Between two readings of the list of threads, if nothing tells of a change.
const LIST_EVERY: Duration = Duration::from_millis(50);
/// The list is read no more often than leaves this much of the time to the rest.
const LIST_SHARE: u32 = 8;
/// Bytes of the records that are kept of threads which are asleep.
const KEPT_MAX: usize = 16 << 20;
/// States of one thread that are looked at: one for each interpreter that it entered.
const STATES_MAX: usize = 32;

/// Where records go.
pub(super) trait Outlet {
    /// Passes a record on; `false` if there is no room for it.
    fn submit(&mut self, record: &[u8], is_urgent: bool) -> bool;

    /// Whether nobody waits for more.
    fn is_stopped(&self) -> bool;
}

/// The interpreter of a process, and its threads.
#[derive(Debug)]
pub(super) struct Interpreter {
    pid: i32,
    /// Whether it numbers its threads as we do.
    is_in_our_namespace: bool,
    memory: Process,
    place: Arc<Place>,
    capture: Capture,
    threads: Vec<Thread>,
    /// Newest interpreter and its newest thread when the threads were listed.
    newest: Option<(Addr, Addr)>,
    /// When the threads were listed last, and how long it took.
    listed: Option<(Instant, Duration)>,
    /// Whether they must be listed anew.
    is_stale: bool,
    /// Which CPU time counts of threads that the first list shows.
    counts: Counts,
}

impl Interpreter {
    pub(super) fn new(pid: u32, entry: &Entry, place: &Arc<Place>, vouched: Vouched) -> Self {
        let pid = pid.cast_signed();
        Self {
            pid,
            is_in_our_namespace: namespace::pids(pid).is_ok_and(|pids| pids.len() == 1),
            memory: Process::new(pid),
            place: Arc::clone(place),
            capture: Capture::with_identities(entry.config, vouched),
            threads: Vec::new(),
            newest: None,
            listed: None,
            is_stale: false,
            counts: if entry.is_child {
                Counts::All
            } else {
                Counts::FromNow
            },
        }
    }

    /// Whether it is the one of this place.
    pub(super) fn is_at(&self, place: &Arc<Place>) -> bool {
        Arc::ptr_eq(&self.place, place)
    }

    pub(super) fn set_config(&mut self, config: ProcConfig) {
        self.capture.set_config(config);
    }

    /// Looks at its threads once.
    pub(super) fn poll(
        &mut self,
        reader: &Reader,
        pace: Pace,
        counters: &mut Counters,
        outlet: &mut dyn Outlet,
    ) {
        self.list();
        if pace.mode != Mode::Cpu {
            // The time of threads that left Python does not count.
            self.threads.retain(|thread| !thread.states.is_empty());
        }
        let mut threads = std::mem::take(&mut self.threads);
        let mut nth = 0;
        let kept_max = KEPT_MAX / threads.len().max(1);
        threads.retain_mut(|thread| {
            nth += 1;
            if outlet.is_stopped() {
                return true;
            }
            let tid = thread.tid;
            let mut take = |states: &[ThreadState], still: &Still<'_>, time| {
                self.moment(pace.mode, tid, states, still, time)
            };
            let looked = thread.look(reader, pace, nth <= pace.open_max, &mut take);
            let has_ended = looked.as_ref().is_err_and(has_ended);
            let mut look = looked.unwrap_or_else(|error| {
                tracing::debug!(%error, pid = self.pid, tid, "cannot look at a thread");
                Look::default()
            });
            if has_ended {
                look.missed += thread.leave(pace);
            }
            if look.is_as_before {
                pass_on_again(thread, look, counters, outlet);
            } else {
                self.pass_on(look, counters, outlet);
                if let Some(outcome) = look.outcome.filter(|_| thread.is_asleep()) {
                    thread.kept = self.kept(outcome, kept_max);
                    if thread.kept.is_none() {
                        thread.forget();
                    }
                }
            }
            !has_ended
        });
        self.threads = threads;
    }

    /// Periods of its threads' CPU time that no sample will stand for when it is polled no more.
    pub(super) fn leave(&mut self, pace: Pace) -> u64 {
        let threads = self.threads.iter_mut();
        threads.map(|thread| thread.leave(pace)).sum()
    }

    /// Counts what a look amounts to, and passes the record of a stack on.
    fn pass_on(&self, look: Look, counters: &mut Counters, outlet: &mut dyn Outlet) {
        count(counters, MISSED, look.missed);
        let Some(outcome) = look.outcome else {
            return;
        };
        let record = self.record(outcome);
        let (off_chunk, identities) = self.capture.carried();
        if !submit(record, outcome, identities != 0, counters, outlet) || record.is_empty() {
            return;
        }
        counters.frames_off_chunk += off_chunk;
        counters.identities += identities;
    }

    /// The record that was captured last, if its outcome has one.
    fn record(&self, outcome: Outcome) -> &[u8] {
        match outcome {
            OK | TRUNCATED | PAGE_FAULT => self.capture.bytes(),
            _ => &[],
        }
    }

    /// What stays true of a thread that was captured asleep, if it has few bytes.
    fn kept(&self, outcome: Outcome, bytes_max: usize) -> Option<Kept> {
        let record = self.record(outcome);
        (record.len() <= bytes_max).then(|| Kept {
            outcome,
            record: record.to_vec(),
        })
    }

    /// Reads the list of threads anew when it may have changed.
    ///
    /// Threads that have left it are still looked at while they live: their CPU time counts like
    /// that of any thread without a Python state.
    fn list(&mut self) {
        let newest = self.newest();
        let has_changed = self.is_stale || self.newest != newest;
        let is_fresh =
            |(at, took): (Instant, Duration)| at.elapsed() < fresh_for(took, has_changed);
        if self.listed.is_some_and(is_fresh) {
            return;
        }
        let begun = Instant::now();
        let counts = self
            .listed
            .map_or(self.counts, |(at, _)| Counts::FromStart(at));
        self.is_stale = false;
        self.newest = newest;
        let listed = tstate::threads(&self.memory, &self.place.layout, self.place.runtime);
        let is_ours = self.is_in_our_namespace;
        let tids = (!is_ours).then(|| namespace::tids(self.pid).unwrap_or_default());
        if listed.is_whole {
            // Else what was known still is: each state is checked when it is captured.
            self.threads.iter_mut().for_each(|t| t.states.clear());
        }
        let known = self.threads.iter().enumerate();
        let mut index: HashMap<i32, usize> = known.map(|(nth, t)| (t.tid, nth)).collect();
        for state in listed.states {
            let native = state.native_thread_id;
            let tid = match &tids {
                None => i32::try_from(native).ok(),
                Some(tids) => tids.get(&native).copied(),
            };
            let Some(tid) = tid.filter(|tid| *tid > 0 && state.thread_id != 0) else {
                continue;
            };
            let nth = *index.entry(tid).or_insert_with(|| {
                self.threads.push(Thread::new(self.pid, tid, counts));
                self.threads.len() - 1
            });
            let Some(thread) = self.threads.get_mut(nth) else {
                continue;
            };
            if thread.states.len() < STATES_MAX && !thread.states.contains(&state) {
                thread.states.push(state);
            }
        }
        self.listed = Some((begun, begun.elapsed()));
    }

    /// What changes when a thread is started, or an interpreter.
    fn newest(&self) -> Option<(Addr, Addr)> {
        let layout = &self.place.layout;
        let head = self.place.runtime.add(layout.runtime.interpreters_head);
        let interp = self.memory.addr(head).ok()?;
        let threads = interp.add(layout.interp.threads_head);
        Some((interp, self.memory.addr(threads).ok()?))
    }

    /// Captures a thread that holds still. None if it is no sample in this mode.
    fn moment(
        &mut self,
        mode: Mode,
        tid: i32,
        states: &[ThreadState],
        still: &Still<'_>,
        time: u64,
    ) -> Option<Outcome> {
        // What is passed on again later must tell all of itself.
        self.capture
            .carry_all(mode != Mode::Cpu && still.state != b'R');
        self.capture.set_sampled(Sampled {
            pid: self.pid.cast_unsigned(),
            tid: tid.cast_unsigned(),
            cpu: still.cpu,
            time,
        });
        let is_only = states.len() == 1;
        let mut outcome = if states.is_empty() {
            NO_STATE
        } else {
            FOREIGN_STATE
        };
        for state in states {
            if !is_only && (self.is_anyones(state) || !still.held()) {
                continue;
            }
            let taken = self.capture.take(&self.memory, Origin::State(state.addr));
            // It may have been freed and taken by another thread since it was listed.
            if !tstate::is_still(&self.memory, &self.place.layout, state) {
                self.is_stale = true;
                outcome = FOREIGN_STATE;
            } else if is_only || self.capture.flags() & HOLDS_GIL != 0 {
                let is_sample = match mode {
                    Mode::Cpu | Mode::Wall => Some(true),
                    Mode::Gil => taken.ok().map(|_| self.capture.flags() & HOLDS_GIL != 0),
                    Mode::Exception => has_exception(&self.memory, &self.place.layout, state.addr),
                };
                let outcome = taken.unwrap_or_else(|outcome| outcome);
                return match is_sample {
                    Some(is_sample) => is_sample.then_some(outcome),
                    // It cannot be told.
                    None if matches!(outcome, OK | TRUNCATED | PAGE_FAULT) => Some(INCOMPLETE),
                    None => Some(outcome),
                };
            }
        }
        // Which of its interpreters a thread is in cannot be told while it holds no GIL.
        match mode {
            Mode::Cpu | Mode::Wall => Some(outcome),
            Mode::Gil | Mode::Exception => None,
        }
    }

    /// Whether a state can be run by another thread than it names.
    fn is_anyones(&self, state: &ThreadState) -> bool {
        let layout = &self.place.layout;
        let id = || self.memory.u64(state.interp.add(layout.interp.id));
        layout.sub_states_keep_ids() && id() != Ok(0)
    }
}

/// Passes on again what a thread that did not wake up since was last.
fn pass_on_again(
    thread: &mut Thread,
    look: Look,
    counters: &mut Counters,
    outlet: &mut dyn Outlet,
) {
    count(counters, MISSED, look.missed);
    if let Some(Kept { outcome, record }) = &mut thread.kept {
        set_time(record, monotonic_ns());
        submit(record, *outcome, false, counters, outlet);
    }
}

/// Counts a sample and passes its record on, if it has one. Whether there was room.
fn submit(
    record: &[u8],
    outcome: Outcome,
    is_urgent: bool,
    counters: &mut Counters,
    outlet: &mut dyn Outlet,
) -> bool {
    let has_room = record.is_empty() || outlet.submit(record, is_urgent);
    count(counters, if has_room { outcome } else { RING_FULL }, 1);
    if has_room {
        counters.bytes += record.len() as u64;
    }
    has_room
}

fn count(counters: &mut Counters, outcome: Outcome, times: u64) {
    if let Some(count) = counters.outcomes.get_mut(outcome as usize) {
        *count += times;
    }
}

/// How long a list stays fresh that `took` so long to read.
fn fresh_for(took: Duration, has_changed: bool) -> Duration {
    let pause = if has_changed {
        Duration::ZERO
    } else {
        LIST_EVERY
    };
    pause.max(took * LIST_SHARE)
}

/// Whether an error says that a thread has ended.
fn has_ended(error: &io::Error) -> bool {
    let gone = [Errno::ENOENT, Errno::ESRCH].map(|errno| errno as i32);
    error
        .raw_os_error()
        .is_some_and(|errno| gone.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_read_less_often() {
        let ms = Duration::from_millis;
        assert_eq!(fresh_for(ms(1), false), LIST_EVERY);
        assert_eq!(fresh_for(ms(1), true), ms(8), "whatever changed");
        assert_eq!(fresh_for(ms(20), false), ms(160));
    }
}
