//! Truth: what the built profiler writes about programs whose stacks and shares are known.
//!
//! `UNWIND_TRUTH=full` runs the full lengths; without it each run is short, and what is a share is
//! compared with a tolerance for the smaller number of samples.

mod truth {
    pub(crate) mod account;
    pub(crate) mod beside;
    pub(crate) mod churn;
    pub(crate) mod judge;
    pub(crate) mod program;
    pub(crate) mod remote;
    pub(crate) mod shapes;
    pub(crate) mod shares;
    pub(crate) mod witness;
}

use unwind_tests::{Python, profile};

use truth::account::adds_up;
use truth::churn::{Churned, Mode};
use truth::program::Program;

/// Runs one case of this suite for each interpreter; `Ok` says what was measured.
pub(crate) fn for_each(name: &str, case: impl Fn(&Python) -> Result<String, String>) {
    unwind_tests::for_each("truth", name, case);
}

/// How long runs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Short,
    Full,
}

pub(crate) fn length() -> Length {
    match std::env::var("UNWIND_TRUTH").as_deref() {
        Ok("full") => Length::Full,
        Ok("short") | Err(_) => Length::Short,
        Ok(other) => panic!("UNWIND_TRUTH is `full` or `short`, not {other:?}"),
    }
}

/// `--duration` of a run.
pub(crate) fn duration() -> &'static str {
    match length() {
        Length::Short => "2s",
        Length::Full => "10s",
    }
}

/// `--duration` of a run that shows its point soon.
pub(crate) fn brief() -> &'static str {
    match length() {
        Length::Short => "1s",
        Length::Full => "10s",
    }
}

/// How far a share may be from the truth: 2 points, and in the short form four standard errors of
/// a share `p` of each of the numbers of samples compared.
pub(crate) fn tolerance(p: f64, samples: &[u64]) -> f64 {
    let variance: f64 = samples
        .iter()
        .map(|&n| p * (1.0 - p) / n.max(1) as f64)
        .sum();
    match length() {
        Length::Short => 0.02 + 4.0 * variance.sqrt(),
        Length::Full => 0.02,
    }
}

/// Records that wait for 100 ms before they are read: far longer than most of the code lives.
const LATE: &[&str] = &["--delay-reader", "100ms"];

/// Records that are read as they come.
const AT_ONCE: &[&str] = &[];

fn churn(python: &Python, mode: Mode, reader: &[&str]) -> Result<String, String> {
    let program = Program::start(python, "churn.py", &[mode.name()])?;
    let options = [&["--rate", "10000", "--duration", duration()], reader].concat();
    let profile = profile(program.pid, &options)?;
    adds_up(&profile)?;
    let churned = Churned::judge(mode, &profile);
    churned.none_wrong()?;
    if mode == Mode::Many && churned.named < churned.freed / 100 {
        return Err(format!("hardly a name was proved: {churned:?}"));
    }
    Ok(format!(
        "{} samples of short-lived code, {:.1} % of its frames freed, {:?}",
        churned.samples,
        100.0 * churned.freed_share(),
        profile.outcomes(),
    ))
}

#[test]
fn code_that_is_never_the_same() {
    for_each("churn-many", |python| churn(python, Mode::Many, LATE));
}

#[test]
fn two_sources_in_turn_at_one_address() {
    for_each("churn-swap", |python| churn(python, Mode::Swap, LATE));
    for_each("churn-swap-at-once", |python| {
        churn(python, Mode::Swap, AT_ONCE)
    });
}

#[test]
fn two_alike_but_for_file_and_lines() {
    for_each("churn-twins", |python| churn(python, Mode::Twins, LATE));
}
