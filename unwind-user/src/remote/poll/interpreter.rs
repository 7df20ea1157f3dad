//! The threads of one interpreter, looked at in turn.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use unwind_ebpf::abi::{
    Counters, FOREIGN_STATE, HOLDS_GIL, MISSED, MOVING, OK, Outcome, PAGE_FAULT, ProcConfig,
    RING_FULL, TRUNCATED,
};

use super::bank::Bank;
use crate::layout::Layout;
use crate::memory::{Addr, Memory as _, Process};
use crate::process::namespace;
use crate::python::tstate::{self, ThreadState};
use crate::remote::capture::{Capture, Origin, Sampled};
use crate::remote::still::{Reader, Still, Watched};
use crate::run::session::monotonic_ns;

/// Tries to capture a thread that is moved to another CPU meanwhile. Which tries fail, the scheduler
/// decides, not what the thread does.
const TRIES: usize = 3;
/// Between two readings of the list of threads, if nothing tells of a change.
const LIST_EVERY: Duration = Duration::from_millis(50);

/// How often threads are looked at, and at what expense.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// CPU time for which a sample stands.
    pub(super) period: Duration,
    /// Threads of a process whose files in `/proc` are kept open.
    pub(super) open_max: usize,
}

/// Where records go.
pub(super) trait Outlet {
    /// Passes a record on; `false` if there is no room for it.
    fn submit(&mut self, record: &[u8], is_urgent: bool) -> bool;
}

/// The interpreter of a process, and its threads.
#[derive(Debug)]
pub(super) struct Interpreter {
    pid: u32,
    /// Whether it numbers its threads as we do.
    is_in_our_namespace: bool,
    memory: Process,
    layout: Layout,
    runtime: Addr,
    capture: Capture,
    threads: Vec<Thread>,
    /// Newest interpreter and its newest thread when the threads were listed first or last.
    newest: Option<(Addr, Addr)>,
    /// When the threads were listed; none when they must be listed anew.
    listed_at: Option<Instant>,
    /// Whether they were ever listed.
    was_listed: bool,
}

/// A thread, and its states, one for each interpreter that it entered.
#[derive(Debug)]
struct Thread {
    tid: i32,
    states: Vec<ThreadState>,
    watched: Option<Watched>,
    /// None until the first look.
    bank: Option<Bank>,
    /// Times that it had been given a CPU when it was found asleep; none when it was not.
    asleep: Option<u64>,
}

/// What a look at a thread that runs amounts to.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Samples that there was no look for.
    missed: u64,
    /// Its outcome, if it is a sample.
    outcome: Option<Outcome>,
}

impl Interpreter {
    pub(super) fn new(pid: u32, layout: Layout, runtime: Addr, capture: Capture) -> Self {
        let os_pid = pid.cast_signed();
        Self {
            pid,
            is_in_our_namespace: namespace::pids(os_pid).is_ok_and(|pids| pids.len() == 1),
            memory: Process::new(os_pid),
            layout,
            runtime,
            capture,
            threads: Vec::new(),
            newest: None,
            listed_at: None,
            was_listed: false,
        }
    }

    /// Its layout and runtime.
    pub(super) fn place(&self) -> (Layout, Addr) {
        (self.layout.clone(), self.runtime)
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
        let mut threads = std::mem::take(&mut self.threads);
        for (nth, thread) in threads.iter_mut().enumerate() {
            let is_kept_open = nth < pace.open_max;
            let Some(look) = self.look(thread, reader, pace.period, is_kept_open) else {
                continue;
            };
            if let Some(missed) = counters.outcomes.get_mut(MISSED as usize) {
                *missed += look.missed;
            }
            let Some(mut outcome) = look.outcome else {
                continue;
            };
            if matches!(outcome, OK | TRUNCATED | PAGE_FAULT) {
                let record = self.capture.bytes();
                let (off_chunk, identities) = self.capture.carried();
                if outlet.submit(record, identities != 0) {
                    counters.bytes += record.len() as u64;
                    counters.frames_off_chunk += off_chunk;
                    counters.identities += identities;
                } else {
                    outcome = RING_FULL;
                }
            }
            if let Some(count) = counters.outcomes.get_mut(outcome as usize) {
                *count += 1;
            }
        }
        self.threads = threads;
    }

    /// Reads the list of threads anew when it may have changed.
    fn list(&mut self) {
        let newest = self.newest();
        let is_fresh = self.listed_at.is_some_and(|at| at.elapsed() < LIST_EVERY);
        if is_fresh && self.newest == newest {
            return;
        }
        let is_first = !std::mem::replace(&mut self.was_listed, true);
        self.newest = newest;
        self.listed_at = Some(Instant::now());
        let listed = tstate::threads(&self.memory, &self.layout, self.runtime);
        let tids = if self.is_in_our_namespace {
            None
        } else {
            namespace::tids(self.pid.cast_signed()).ok()
        };
        let before = std::mem::take(&mut self.threads).into_iter();
        let mut before: HashMap<i32, Thread> = before.map(|thread| (thread.tid, thread)).collect();
        for state in listed.states {
            let native = state.native_thread_id;
            let tid = match &tids {
                None => i32::try_from(native).ok(),
                Some(tids) => tids.get(&native).copied(),
            };
            let Some(tid) = tid.filter(|tid| *tid > 0 && state.thread_id != 0) else {
                continue;
            };
            if let Some(thread) = self.threads.iter_mut().find(|thread| thread.tid == tid) {
                thread.states.push(state);
                continue;
            }
            let states = vec![state];
            self.threads.push(match before.remove(&tid) {
                Some(thread) => Thread { states, ..thread },
                None => Thread {
                    tid,
                    states,
                    watched: None,
                    // All that a new thread does counts.
                    bank: (!is_first).then(|| Bank::new(0)),
                    asleep: None,
                },
            });
        }
    }

    /// What changes when a thread is started, or an interpreter.
    fn newest(&self) -> Option<(Addr, Addr)> {
        let head = self.runtime.add(self.layout.runtime.interpreters_head);
        let interp = self.memory.addr(head).ok()?;
        let threads = interp.add(self.layout.interp.threads_head);
        Some((interp, self.memory.addr(threads).ok()?))
    }

    /// Looks at a thread. Nothing, if it does not run.
    fn look(
        &mut self,
        thread: &mut Thread,
        reader: &Reader,
        period: Duration,
        is_kept_open: bool,
    ) -> Option<Look> {
        let watched = match thread.watched.take() {
            Some(watched) => Ok(watched),
            None => Watched::open(self.pid.cast_signed(), thread.tid),
        };
        let looked = watched.and_then(|watched| {
            let looked = self.look_at(thread, &watched, reader, period);
            if is_kept_open {
                thread.watched = Some(watched);
            }
            looked
        });
        looked.unwrap_or_else(|error| {
            // It has ended, or no file can be opened: both end with another list.
            tracing::debug!(%error, pid = self.pid, tid = thread.tid, "cannot look at a thread");
            self.listed_at = None;
            None
        })
    }

    fn look_at(
        &mut self,
        thread: &mut Thread,
        watched: &Watched,
        reader: &Reader,
        period: Duration,
    ) -> io::Result<Option<Look>> {
        let usage = watched.usage()?;
        let bank = thread.bank.get_or_insert_with(|| Bank::new(usage.run));
        if thread.asleep == Some(usage.turns) {
            return Ok(None);
        }
        let seen = watched.stat()?;
        let is_running = seen.state == b'R';
        thread.asleep = (!is_running).then_some(usage.turns);
        if !is_running {
            return Ok(None);
        }
        let mut look = None;
        for _ in 0..TRIES {
            let time = monotonic_ns();
            let Some(still) = reader.hold(watched, seen.cpu)? else {
                continue;
            };
            // The moment that counts is this one.
            if still.state != b'R' {
                return Ok(look);
            }
            // Further tries are of the same look.
            if look.is_none() {
                let due = bank.look(still.usage.run, nanoseconds(period));
                look = Some(Look {
                    missed: due.missed,
                    outcome: due.is_sample.then_some(MOVING),
                });
            }
            let Some(Look {
                outcome: Some(outcome),
                ..
            }) = &mut look
            else {
                return Ok(look);
            };
            let met = self.moment((thread.tid, &thread.states), &still, time);
            if still.held() {
                *outcome = met;
                return Ok(look);
            }
        }
        Ok(look)
    }

    /// Captures a thread that holds still.
    fn moment(
        &mut self,
        (tid, states): (i32, &[ThreadState]),
        still: &Still<'_>,
        time: u64,
    ) -> Outcome {
        self.capture.set_sampled(Sampled {
            pid: self.pid,
            tid: tid.cast_unsigned(),
            cpu: still.cpu,
            time,
        });
        let mut outcome = FOREIGN_STATE;
        let is_only = states.len() == 1;
        for state in states {
            outcome = match self.capture.take(&self.memory, Origin::State(state.addr)) {
                Ok(outcome) | Err(outcome) => outcome,
            };
            // It may have been freed and taken by another thread since it was listed.
            if !tstate::is_still(&self.memory, &self.layout, state) {
                self.listed_at = None;
                outcome = FOREIGN_STATE;
            } else if is_only || self.holds_gil() {
                return outcome;
            }
        }
        // Which of its interpreters a thread is in cannot be told while it holds no GIL.
        if is_only { outcome } else { FOREIGN_STATE }
    }

    fn holds_gil(&self) -> bool {
        let record = self.capture.record();
        record.is_ok_and(|record| record.header.flags & HOLDS_GIL != 0)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
