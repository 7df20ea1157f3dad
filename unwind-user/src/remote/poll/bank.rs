//! When a thread's next sample is due: a sample stands for a period of the thread's time, which is CPU
//! time, as in the interrupt, or all time.
//!
//! Looks come at a steady pace of the wall clock. Where CPU time counts, they meet a thread that waits
//! for a CPU like one that runs. So what they meet becomes a sample only while the thread has used CPU
//! time that no sample stands for yet. Which moments those are does not depend on what it does there.

/// Time of a thread that no sample stands for yet.
#[derive(Debug)]
pub(super) struct Bank {
    /// Time, ns, that samples stand for, that was missed, or that came before.
    accounted: u64,
    /// Time, ns, that it has used.
    used: u64,
    /// Periods that may wait for a look.
    periods_max: u64,
}

/// What a look at a thread amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// It is a sample.
    pub(super) is_sample: bool,
    /// Samples that there was no look for.
    pub(super) missed: u64,
}

impl Bank {
    /// Nothing waits of a thread that has used `used` ns, and `periods_max` periods may.
    pub(super) const fn new(used: u64, periods_max: u64) -> Self {
        Self {
            accounted: used,
            used,
            periods_max,
        }
    }

    /// Takes note of what a thread has used.
    pub(super) fn note(&mut self, used: u64) {
        self.used = used;
    }

    /// A look meets the thread when it has used `used` ns.
    pub(super) fn look(&mut self, used: u64, period: u64) -> Due {
        self.note(used);
        let waiting = self.waiting(period);
        let missed = waiting.saturating_sub(self.periods_max);
        let is_sample = waiting > 0;
        self.accounted += (missed + u64::from(is_sample)) * period.max(1);
        Due { is_sample, missed }
    }

    /// Periods that wait for a look. What its thread used while nobody looked is missed.
    pub(super) fn miss(&mut self, period: u64) -> u64 {
        let waiting = self.waiting(period);
        self.accounted += waiting * period.max(1);
        waiting
    }

    /// Time, ns, that its thread has used.
    #[cfg(test)]
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    fn waiting(&self, period: u64) -> u64 {
        self.used.saturating_sub(self.accounted) / period.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIODS_MAX: u64 = 64;

    /// Looks once a period of 1,000 at a thread that gets `share` of a CPU, in percent.
    fn looks(share: u64, turns: u64) -> (u64, u64) {
        let mut bank = Bank::new(0, PERIODS_MAX);
        let (mut samples, mut missed) = (0, 0);
        for turn in 1..=turns {
            let due = bank.look(turn * share * 10, 1000);
            samples += u64::from(due.is_sample);
            missed += due.missed;
        }
        (samples, missed)
    }

    #[test]
    fn samples_are_as_many_as_periods_of_cpu_time() {
        assert_eq!(looks(100, 500), (500, 0));
        assert_eq!(looks(66, 500), (330, 0));
        assert_eq!(looks(0, 500), (0, 0));
    }

    #[test]
    fn what_is_met_too_seldom_is_missed() {
        // Looks at every third period.
        let (samples, missed) = looks(300, 500);
        assert_eq!(samples, 500);
        assert!((1000 - PERIODS_MAX..=1000).contains(&missed), "{missed}");
    }

    #[test]
    fn time_before_the_first_look_does_not_count() {
        let mut bank = Bank::new(5000, PERIODS_MAX);
        let none = Due {
            is_sample: false,
            missed: 0,
        };
        assert_eq!(bank.look(5999, 1000), none);
        assert!(bank.look(6000, 1000).is_sample);
        // A clock that goes back, as that of a thread id that is used again.
        assert_eq!(bank.look(10, 1000), none);
    }

    #[test]
    fn what_waits_when_a_thread_leaves_is_missed() {
        let mut bank = Bank::new(500, PERIODS_MAX);
        assert!(bank.look(5500, 1000).is_sample);
        bank.note(5900);
        assert_eq!(bank.miss(1000), 4);
        assert_eq!(bank.miss(1000), 0, "told once");
        // What is left of the last period counts on.
        assert!(bank.look(6500, 1000).is_sample);
    }
}
