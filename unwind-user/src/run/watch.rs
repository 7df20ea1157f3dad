//! The event loop: what happens while a session samples.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Context;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::session::Session;
use super::session::member::{Follow, State};
use super::signals::{Heard, Signals};
use super::status::Status;
use super::totals::Totals;
use super::{Ended, Options, command, setup};
use crate::metrics;
use crate::python::AttachError;
use crate::sys::readiness_of;

/// Part of a program's life after which the ring is drained when nothing is urgent. What it did
/// after the last drain before its end keeps no names: nobody can tell any more that its code
/// objects were those known. So that is half of this part, where the bounds below allow it.
const DRAINS_A_LIFE: u32 = 100;
/// The shortest and the longest such time. A drain costs some 0.1 ms of CPU, by far most of it for
/// waking up.
const DRAIN_WITHIN: RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_millis(100);
/// Between two updates of clocks and status.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// After this time without an interpreter, a person wants to know why.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// A session that samples, and what its loop listens to.
pub(super) struct Watch<'a> {
    pub(super) options: &'a Options,
    pub(super) session: &'a mut Session,
    pub(super) child: Option<&'a mut Child>,
    pub(super) signals: &'a mut Signals,
    pub(super) status: &'a mut Status,
    pub(super) metrics: Metrics,
    pub(super) started: std::time::Instant,
}

impl Watch<'_> {
    /// Samples until something ends the session.
    pub(super) async fn run(mut self) -> anyhow::Result<Ended> {
        let ring = readiness_of(self.session.sampler().readiness())?;
        let mut log = self.session.sampler().logger()?;
        let log_lines = log.as_ref().map(readiness_of).transpose()?;
        let mut is_logging = self.options.bpf_log;
        let deadline = self
            .options
            .duration
            .map(|duration| Instant::from(self.started) + duration);
        let mut next_drain = Instant::now();
        let mut slow = interval(STATUS_EVERY);
        slow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let is_eager = self.options.delay_reader.is_none();
        if let Some(address) = self.metrics.address {
            self.status
                .note(&format!("metrics at http://{address}/metrics"));
        }
        loop {
            let look = self.session.next_look().map(Instant::from);
            tokio::select! {
                biased;
                () = at(deadline) => return Ok(Ended::Duration),
                heard = self.signals.heard() => match heard {
                    Heard::End(signal) => return Ok(Ended::Signal(signal)),
                    Heard::Snapshot => self.snapshot()?,
                    Heard::ToggleLog => {
                        is_logging = !is_logging;
                        self.session.sampler().set_logging(is_logging)?;
                        let now = if is_logging { "on" } else { "off" };
                        self.status.note(&format!("log of the BPF program: {now}"));
                    }
                },
                ready = ring.readable(), if is_eager => {
                    let mut ready = ready?;
                    let wait = self.drain();
                    ready.clear_ready();
                    next_drain = Instant::now() + wait;
                }
                () = at(look) => self.session.attach_pending(),
                () = sleep_until(next_drain) => next_drain = Instant::now() + self.drain(),
                _ = slow.tick() => self.every_second(),
                ready = readable(log_lines.as_ref()) => {
                    let mut ready = ready?;
                    if let Some(log) = &mut log {
                        log.flush();
                    }
                    ready.clear_ready();
                }
                reply = self.metrics.asked() => self.answer(reply)?,
                exited = command::exit_of(&mut self.child) => {
                    exited?;
                    self.session.reconcile();
                    return Ok(Ended::TargetExited);
                }
            }
            if self.session.is_recording_broken() {
                return Ok(Ended::Unwritable);
            }
            if !self.session.is_alive() {
                return Ok(Ended::TargetExited);
            }
        }
    }

    /// Reads a batch of records. How long others may wait in the ring.
    fn drain(&mut self) -> Duration {
        if self.session.drain() {
            return Duration::ZERO;
        }
        let part = self.session.youngest() / DRAINS_A_LIFE;
        let wait = part.clamp(*DRAIN_WITHIN.start(), *DRAIN_WITHIN.end());
        self.options.delay_reader.unwrap_or(wait)
    }

    /// Writes what there is and goes on; a disk that is full now may have room at the end.
    fn snapshot(&mut self) -> anyhow::Result<()> {
        self.session.drain_all();
        setup::describe(self.session)?;
        let elapsed = u64::try_from(self.started.elapsed().as_nanos());
        self.session.pipeline_mut().profile_mut().duration_ns = elapsed.unwrap_or(u64::MAX);
        let output = self.options.output.display();
        let shown = self.session.show_recording();
        match shown.and_then(|()| super::write(self.options, self.session)) {
            Ok(()) => self.status.note(&format!("snapshot written to {output}")),
            Err(error) => {
                let error = anyhow::Error::from(error);
                self.status.note(&format!("no snapshot: {error:#}"));
            }
        }
        Ok(())
    }

    fn every_second(&mut self) {
        self.session.update_clocks();
        self.session.describe_new_threads();
        self.session.reconcile();
        for (pid, state) in self.session.note_silent(SILENT_AFTER) {
            self.status.note(&silence(pid, &state, self.options.follow));
        }
        self.status.show(self.session);
    }

    fn answer(&mut self, reply: metrics::Asked) -> anyhow::Result<()> {
        self.session.update_clocks();
        self.session.drain_all();
        let totals = Totals::of(self.session, self.options.rate, self.started.elapsed())?;
        // Whoever asked may have gone away.
        let _ = reply.send(metrics::render(&totals)?);
        Ok(())
    }
}

/// Why a process gives no samples yet, and what to do.
fn silence(pid: u32, state: &State, follow: Follow) -> String {
    match (state, state.reason()) {
        (State::NotPython(..), Some(AttachError::NotPython { children, .. }))
            if follow == Follow::No && !children.is_empty() =>
        {
            format!(
                "no samples yet: process {pid} runs no Python, but its children do: use \
                 --subprocesses to profile them"
            )
        }
        (_, Some(reason)) => format!("no samples yet: {reason}"),
        (_, None) => format!("no samples yet: process {pid} has not begun"),
    }
}

/// Ends at a time; never, if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Becomes ready with a descriptor; never, if there is none.
async fn readable(fd: Option<&AsyncFd<OwnedFd>>) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
    match fd {
        Some(fd) => fd.readable().await,
        None => std::future::pending().await,
    }
}

/// Questions for the metrics; none ever, if they are not served.
pub(super) struct Metrics {
    address: Option<SocketAddr>,
    asked: Option<mpsc::Receiver<metrics::Asked>>,
}

impl Metrics {
    /// Listens at the address, if there is one.
    pub(super) async fn serve(address: Option<SocketAddr>) -> anyhow::Result<Self> {
        let Some(address) = address else {
            return Ok(Self {
                address: None,
                asked: None,
            });
        };
        let served = metrics::serve(address).await;
        let (address, asked) =
            served.with_context(|| format!("cannot serve metrics at {address}"))?;
        Ok(Self {
            address: Some(address),
            asked: Some(asked),
        })
    }

    async fn asked(&mut self) -> metrics::Asked {
        if let Some(asked) = &mut self.asked
            && let Some(reply) = asked.recv().await
        {
            return reply;
        }
        std::future::pending().await
    }
}
