//! One thread that is looked at, and the time that samples of it stand for.

use std::io;
use std::time::{Duration, Instant};

use unwind_ebpf::abi::{MOVING, Outcome};

use super::Pace;
use super::bank::{Bank, Due};
use crate::process::Stat;
use crate::profile::Mode;
use crate::python::tstate::ThreadState;
use crate::remote::still::{Reader, Still, Usage, Watched};
use crate::run::session::monotonic_ns;

/// Tries to capture a thread that is moved to another CPU meanwhile. Which tries fail, the scheduler
/// decides, not what the thread does.
const TRIES: usize = 3;
/// The start of a thread is told in ticks of 10 ms.
const START_TICK: Duration = Duration::from_millis(10);
/// Periods of CPU time that may wait for a look that meets the thread running: a thread that runs in
/// short bursts is met by chance, sometimes late.
const BURSTS_MAX: u64 = 64;
/// Periods of all time that may wait: turns come a little early and a little late.
const LATE_MAX: u64 = 2;

/// A thread, and its states, one for each interpreter that it entered: none while it runs no Python.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) states: Vec<ThreadState>,
    counts: Counts,
    watched: Option<Watched>,
    /// None until the first look.
    bank: Option<Bank>,
    /// What it had had of the CPUs when it was found asleep; none when it was not.
    asleep: Option<Usage>,
    /// Whether it was a sample when it was captured last.
    was_sample: bool,
    /// What a sample of it was then, if it was one.
    pub(super) kept: Option<Kept>,
}

/// A sample that stays true while its thread is asleep.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) outcome: Outcome,
    /// With all identities; empty where the outcome has none.
    pub(super) record: Vec<u8>,
}

/// Which of a thread's CPU time is accounted for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counts {
    /// What it uses from the first look on.
    FromNow,
    /// All of it, if it has begun since then; else as above.
    FromStart(Instant),
    /// All of it.
    All,
}

/// What a look at a thread amounts to; by default, that it is no sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Samples that there was no look for.
    pub(super) missed: u64,
    /// Its outcome, if it is a sample.
    pub(super) outcome: Option<Outcome>,
    /// It is what the last one was: the thread did not wake up.
    pub(super) is_as_before: bool,
}

/// Takes what may be a sample, from a thread's states, and says what became of it, if it is one.
pub(super) type Take<'a> = dyn FnMut(&[ThreadState], &Still<'_>, u64) -> Option<Outcome> + 'a;

impl Thread {
    pub(super) const fn new(pid: i32, tid: i32, counts: Counts) -> Self {
        Self {
            pid,
            tid,
            states: Vec::new(),
            counts,
            watched: None,
            bank: None,
            asleep: None,
            was_sample: false,
            kept: None,
        }
    }

    /// Whether it was asleep when it was looked at last.
    pub(super) const fn is_asleep(&self) -> bool {
        self.asleep.is_some()
    }

    /// Whether what is missed of it was most likely a sample.
    const fn is_counted(&self, mode: Mode) -> bool {
        match mode {
            Mode::Cpu | Mode::Wall => true,
            Mode::Gil | Mode::Exception => self.was_sample,
        }
    }

    /// Has it captured at the next look, even if it does not wake up until then.
    pub(super) fn forget(&mut self) {
        self.asleep = None;
    }

    /// Looks at it; `take` takes what may be a sample.
    ///
    /// # Errors
    /// As [`Watched::open`] and [`Watched::usage`]: it has ended, or cannot be seen.
    pub(super) fn look(
        &mut self,
        reader: &Reader,
        pace: Pace,
        is_kept_open: bool,
        take: &mut Take<'_>,
    ) -> io::Result<Look> {
        let watched = match self.watched.take() {
            Some(watched) => watched,
            None => Watched::open(self.pid, self.tid)?,
        };
        let period = pace.nanoseconds();
        let look = match pace.mode {
            Mode::Cpu => self.look_while_it_runs(&watched, reader, period, take)?,
            mode => self.look_anyway(&watched, reader, (mode, period), take)?,
        };
        if is_kept_open {
            self.watched = Some(watched);
        }
        Ok(look)
    }

    /// Periods of its time that no sample will stand for when it is looked at no more.
    pub(super) fn leave(&mut self, pace: Pace) -> u64 {
        let is_counted = self.is_counted(pace.mode);
        let bank = self.bank.as_mut().filter(|_| is_counted);
        bank.map_or(0, |bank| bank.miss(pace.nanoseconds()))
    }

    fn look_while_it_runs(
        &mut self,
        watched: &Watched,
        reader: &Reader,
        period: u64,
        take: &mut Take<'_>,
    ) -> io::Result<Look> {
        let usage = watched.usage()?;
        if self.asleep == Some(usage) {
            return Ok(Look::default());
        }
        let seen = watched.stat()?;
        let mut look = Look::default();
        let bank = self.bank.get_or_insert_with(|| {
            let mut bank = self.counts.bank(usage.run, &seen);
            bank.note(usage.run);
            // Nobody looked before.
            look.missed = bank.miss(period);
            bank
        });
        bank.note(usage.run);
        let is_running = seen.state == b'R';
        self.asleep = (!is_running).then_some(usage);
        if !is_running {
            return Ok(look);
        }
        let mut is_due = None;
        for _ in 0..TRIES {
            let time = monotonic_ns();
            let still = match reader.hold(watched, &seen) {
                Ok(Some(still)) => still,
                Ok(None) => continue,
                // It has ended since.
                Err(_) => break,
            };
            // The moment that counts is this one.
            if still.state != b'R' {
                return Ok(look);
            }
            // Further tries are of the same look.
            if !*is_due.get_or_insert_with(|| look.add(bank.look(still.usage.run, period))) {
                return Ok(look);
            }
            let outcome = take(&self.states, &still, time);
            if still.held() {
                look.outcome = outcome;
                return Ok(look);
            }
        }
        if is_due.is_none() {
            look.add(bank.look(usage.run, period));
        }
        Ok(look)
    }

    fn look_anyway(
        &mut self,
        watched: &Watched,
        reader: &Reader,
        (mode, period): (Mode, u64),
        take: &mut Take<'_>,
    ) -> io::Result<Look> {
        let now = monotonic_ns();
        let mut look = Look::default();
        let is_counted = self.is_counted(mode);
        let bank = self.bank.get_or_insert_with(|| Bank::new(now, LATE_MAX));
        if !look.add(bank.look(now, period)) {
            return Ok(look);
        }
        if !is_counted {
            look = Look::default();
        }
        let usage = watched.usage()?;
        let seen = watched.stat()?;
        // A thread that was woken before it left its CPU goes on without being given one.
        if self.asleep == Some(usage) && seen.state != b'R' {
            look.is_as_before = true;
            return Ok(look);
        }
        (self.asleep, self.kept) = (None, None);
        for _ in 0..TRIES {
            let time = monotonic_ns();
            let still = match reader.hold(watched, &seen) {
                Ok(Some(still)) => still,
                Ok(None) => continue,
                // It has ended since.
                Err(_) => break,
            };
            let outcome = take(&self.states, &still, time);
            if still.held() {
                self.asleep = (still.state != b'R').then_some(still.usage);
                self.was_sample = outcome.is_some();
                look.outcome = outcome;
                break;
            }
        }
        Ok(look)
    }
}

impl Counts {
    /// For a thread that has used `used` ns.
    fn bank(self, used: u64, stat: &Stat) -> Bank {
        let counts_all = match self {
            Self::FromNow => false,
            Self::FromStart(since) => stat.age() <= since.elapsed() + START_TICK,
            Self::All => true,
        };
        Bank::new(if counts_all { 0 } else { used }, BURSTS_MAX)
    }
}

impl Look {
    /// Takes over what is due, which is moving until it is captured. Tells whether it is a sample.
    fn add(&mut self, due: Due) -> bool {
        self.missed += due.missed;
        self.outcome = due.is_sample.then_some(MOVING);
        due.is_sample
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use nix::sched::CpuSet;
    use unwind_ebpf::abi::OK;

    use super::*;

    const PACE: Pace = Pace {
        mode: Mode::Cpu,
        period: Duration::from_millis(1),
        open_max: 1,
    };

    /// A process of one thread that uses CPU time until it is dropped.
    struct Busy(Child);

    impl Busy {
        fn new() -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            Self(command.stdin(Stdio::null()).spawn().expect("sh"))
        }

        fn thread(&self, counts: Counts) -> Thread {
            let pid = self.0.id().cast_signed();
            Thread::new(pid, pid, counts)
        }

        fn used(&self) -> u64 {
            let pid = self.0.id().cast_signed();
            let usage = Watched::open(pid, pid).and_then(|watched| watched.usage());
            usage.map_or(0, |usage| usage.run)
        }

        /// Until it has used some CPU time.
        fn wait_for(&self, used: Duration) {
            while u128::from(self.used()) < used.as_nanos() {
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            self.0.kill().expect("our child");
            self.0.wait().expect("our child");
        }
    }

    fn look(thread: &mut Thread) -> io::Result<Look> {
        let reader = Reader::new().expect("our own affinity");
        thread.look(&reader, PACE, true, &mut |_, _, _| Some(OK))
    }

    #[test]
    fn what_a_thread_used_before_counts_if_it_is_new() {
        let before = Instant::now();
        let busy = Busy::new();
        busy.wait_for(Duration::from_millis(30));
        let missed = |counts| look(&mut busy.thread(counts)).expect("it runs").missed;
        assert_eq!(missed(Counts::FromNow), 0);
        assert!(missed(Counts::All) >= 30);
        assert!(missed(Counts::FromStart(before)) >= 30);
        // It gets older by no less than it uses.
        busy.wait_for(Duration::from_nanos(busy.used()) + 3 * START_TICK);
        assert_eq!(missed(Counts::FromStart(Instant::now())), 0, "it is older");
    }

    #[test]
    fn every_period_of_cpu_time_is_a_sample_or_missed() {
        let busy = Busy::new();
        let mut thread = busy.thread(Counts::All);
        let (mut samples, mut missed) = (0, 0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            let look = look(&mut thread).expect("it runs");
            samples += u64::from(look.outcome.is_some());
            missed += look.missed;
        }
        missed += thread.leave(PACE);
        assert_eq!(thread.leave(PACE), 0, "told once");
        let used = thread.bank.expect("it was looked at").used() / PACE.nanoseconds();
        assert_eq!(samples + missed, used);
        assert!(samples > 20, "{samples} samples, {missed} missed");
    }

    /// Where it cannot be held, what is due is told as moving: on a CPU that is none of ours, and of a
    /// real-time thread.
    #[test]
    fn what_cannot_be_held_is_accounted_for() {
        for (cpu, policy) in [(CpuSet::count() - 1, 0), (0, 1)] {
            let mut thread = Thread::new(1, 1, Counts::FromNow);
            let mut look_at = |used: u64| {
                let zeros = "0 ".repeat(35);
                let stat = format!("1 (x) R {zeros}{cpu} 0 {policy}");
                thread.watched = Some(Watched::of_lines(&stat, &format!("{used} 0 1")));
                look(&mut thread).expect("readable")
            };
            assert_eq!(look_at(5_000_000), Look::default());
            let moving = |missed| Look {
                missed,
                outcome: Some(MOVING),
                ..Look::default()
            };
            assert_eq!(look_at(6_000_000), moving(0));
            assert_eq!(look_at(6_500_000), Look::default());
            assert_eq!(look_at(106_500_000), moving(36));
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_an_error_and_keeps_no_files() {
        let mut thread = {
            let busy = Busy::new();
            let mut thread = busy.thread(Counts::FromNow);
            look(&mut thread).expect("it runs");
            // A look that took long saw some itself.
            thread.leave(PACE);
            busy.wait_for(Duration::from_nanos(busy.used()) + 5 * PACE.period);
            assert_eq!(thread.leave(PACE), 0, "nobody has seen what it used");
            let watched = thread.watched.as_ref().expect("kept open");
            assert!(watched.usage().expect("it runs").run > 0);
            thread
        };
        assert!(look(&mut thread).is_err());
        assert!(thread.watched.is_none(), "its files are closed");
    }
}
