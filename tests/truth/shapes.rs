//! `programs/shapes.py`: every stack is legal, nothing is lost, shares are right.

use unwind_tests::{Profile, Python, profile};

use super::account::{KEPT, adds_up, kept, kept_at_least};
use super::judge::{Rules, Verdict};
use super::program::Program;
use super::witness;
use crate::{Length, brief, duration, for_each, length, tolerance};

/// Threads that wait for the GIL wake every 5 ms on an idle CPU, for some 10 us; no software clock
/// interrupts them there. `perf record -e cpu-clock,sched:sched_switch` says so, too: of 2,168 slices
/// below 20 us, which were 1.2 % of the CPU time, none had a sample, where 235 were due. On one CPU
/// all is kept. Interrupts that do come are kept here as everywhere.
const CONTENDED_KEPT: f64 = 0.96;

/// Profiles one shape with nothing lost, and judges it.
fn judged(
    python: &Python,
    shape: &str,
    rate: &str,
    duration: &str,
) -> Result<(Program, Rules, Profile, Verdict), String> {
    let program = Program::start(python, "shapes.py", &[shape])?;
    let least = if shape == "threads" {
        CONTENDED_KEPT
    } else {
        KEPT
    };
    let options = ["-F", "--rate", rate, "--duration", duration];
    let profile = kept_at_least(least, program.pid, &options)?;
    let rules = Rules::read(&program.said)?;
    let verdict = rules.judge(&profile);
    verdict.all_good()?;
    Ok((program, rules, profile, verdict))
}

fn measured(profile: &Profile) -> String {
    format!(
        "{} samples, kept {:.2} %, {:.2} us in the kernel each, {:?}",
        profile.samples(),
        100.0 * profile.number("kept"),
        profile.number("kernel_ns_per_sample") / 1e3,
        profile.outcomes()
    )
}

/// A shape at 10 kHz in which every function must have been seen.
fn complete(python: &Python, shape: &str) -> Result<String, String> {
    let (_program, rules, profile, verdict) = judged(python, shape, "10000", brief())?;
    let unseen = rules.unseen(&verdict);
    if !unseen.is_empty() {
        return Err(format!("never seen: {unseen:?}; {}", measured(&profile)));
    }
    Ok(measured(&profile))
}

/// Leaf shares of the oracle, against what CPython's own stack dumps say.
fn oracle(python: &Python, rate: &str) -> Result<String, String> {
    let (mut program, _, profile, verdict) = judged(python, "chain", rate, duration())?;
    let shares = shares(&mut program, &verdict)?;
    Ok(format!("{}; {shares}", measured(&profile)))
}

/// Compares the shares of leaves with what CPython's own stack dumps say.
pub(crate) fn shares(program: &mut Program, verdict: &Verdict) -> Result<String, String> {
    // As many that 2 points are five standard errors; in the short form the tolerance knows.
    let times = if length() == Length::Full {
        16_000
    } else {
        1_500
    };
    let truth = witness::leaves(program, times)?;
    let asked: u64 = truth.values().sum();
    let mut told = Vec::new();
    for kind in ["work", "three", "two", "one", "turn", "main"] {
        let expected = truth.get(kind).copied().unwrap_or(0) as f64 / asked as f64;
        let share = verdict.share(kind);
        let text = format!("{kind} {:.1}/{:.1}", 100.0 * share, 100.0 * expected);
        if (share - expected).abs() > tolerance(expected, &[verdict.good, asked]) {
            return Err(format!("share and truth differ: {text} %"));
        }
        told.push(text);
    }
    Ok(format!("share/truth in %: {}", told.join(", ")))
}

#[test]
fn oracle_at_1_khz() {
    for_each("oracle-1khz", |python| oracle(python, "1000"));
}

#[test]
fn oracle_at_10_khz() {
    for_each("oracle-10khz", |python| oracle(python, "10000"));
}

#[test]
fn two_chains_in_turn_never_mix() {
    for_each("flutter", |python| {
        let (_program, _, profile, verdict) = judged(python, "flutter", "10000", brief())?;
        let on = |name: &str| verdict.on_stack.get(name).copied().unwrap_or(0) as f64;
        let (a, b) = (on("hot_a"), on("hot_b"));
        let share = a / (a + b);
        // The two need not be equally fast: mixed stacks are what would be wrong.
        if !(0.44..=0.56).contains(&share) {
            return Err(format!(
                "{:.1} % of the time in one of two equal chains",
                100.0 * share
            ));
        }
        Ok(format!(
            "{}; one chain {:.1} %",
            measured(&profile),
            100.0 * share
        ))
    });
}

#[test]
fn recursion_never_starts_in_the_middle() {
    for_each("recursion-60", |python| {
        let (_program, _, profile, verdict) = judged(python, "dive", "10000", brief())?;
        if verdict.deepest < 60 {
            return Err(format!("deepest {} of 63", verdict.deepest));
        }
        Ok(measured(&profile))
    });
}

#[test]
fn a_thousand_frames() {
    for_each("recursion-1000", |python| {
        let (program, rules, profile, verdict) = judged(python, "deep", "1000", brief())?;
        if verdict.deepest < 900 {
            return Err(format!("deepest {} of 1002", verdict.deepest));
        }
        // At 10 kHz there is no promise but that nothing is wrong: the cost is reported.
        let fast = profile_of(&program, "10000")?;
        let verdict = rules.judge(&fast);
        verdict.all_good()?;
        Ok(format!(
            "{}; at 10 kHz {}",
            measured(&profile),
            measured(&fast)
        ))
    });
}

/// Around the most frames that a sample follows, nothing is lost but what the outcomes say.
#[test]
fn deeper_than_a_sample_follows() {
    for_each("deeper", |python| {
        let program = Program::start(python, "shapes.py", &["deeper"])?;
        let profile = profile_of(&program, "2000")?;
        let verdict = Rules::read(&program.said)?.judge(&profile);
        verdict.none_bad(100)?;
        if verdict.deepest < 2040 || verdict.cut == 0 {
            return Err(format!("deepest {}, {} cut", verdict.deepest, verdict.cut));
        }
        Ok(format!("{}, {} cut", measured(&profile), verdict.cut))
    });
}

fn profile_of(program: &Program, rate: &str) -> Result<Profile, String> {
    let profile = profile(program.pid, &["-F", "--rate", rate, "--duration", brief()])?;
    adds_up(&profile)?;
    Ok(profile)
}

#[test]
fn generators() {
    for_each("generators", |python| complete(python, "generators"));
}

#[test]
fn coroutines() {
    for_each("coroutines", |python| complete(python, "coroutines"));
}

#[test]
fn calls_across_c() {
    for_each("across-c", |python| complete(python, "callbacks"));
}

#[test]
fn eight_threads() {
    for_each("threads", |python| complete(python, "threads"));
}

#[test]
fn fifty_generators_in_turn() {
    for_each("generators-in-turn", |python| complete(python, "turns"));
}

/// A process under a debugger can be profiled: nothing here needs ptrace.
#[test]
fn traced_by_another() {
    for_each("traced", |python| {
        let program = Program::start(python, "shapes.py", &["flutter"])?;
        let pid = nix::unistd::Pid::from_raw(program.pid.cast_signed());
        let none = nix::sys::ptrace::Options::empty();
        nix::sys::ptrace::seize(pid, none).map_err(|error| format!("seize: {error}"))?;
        let profile = kept(program.pid, &["-F", "--rate", "1000", "--duration", "1s"])?;
        Rules::read(&program.said)?.judge(&profile).all_good()?;
        Ok(measured(&profile))
    });
}
