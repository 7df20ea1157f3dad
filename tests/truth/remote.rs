//! `--backend remote`: every stack is legal, shares are right, what is lost is counted.

use unwind_tests::{Profile, Python, profile};

use super::account::adds_up;
use super::judge::{Rules, Verdict};
use super::program::Program;
use super::shapes::shares;
use crate::{brief, duration, for_each};

/// Samples over CPU time times rate, at least.
const KEPT: f64 = 0.95;

/// Runs that a starved machine may spoil: whoever looks from outside needs a CPU in time.
const ATTEMPTS: usize = 3;

fn judged(
    python: &Python,
    shape: &str,
    duration: &str,
) -> Result<(Program, Profile, Verdict), String> {
    let program = Program::start(python, "shapes.py", &[shape])?;
    let rules = Rules::read(&program.said)?;
    let rate = ["--rate", "1000", "--duration", duration];
    let options = [&["-F", "--backend", "remote"], &rate[..]].concat();
    let mut told = Vec::new();
    for _ in 0..ATTEMPTS {
        let profile = profile(program.pid, &options)?;
        adds_up(&profile)?;
        let verdict = rules.judge(&profile);
        verdict.all_good()?;
        if profile.number("kept") >= KEPT {
            return Ok((program, profile, verdict));
        }
        told.push(format!(
            "{:.3} {:?}",
            profile.number("kept"),
            profile.outcomes()
        ));
    }
    Err(format!("kept {} of the samples due", told.join(", ")))
}

fn measured(profile: &Profile) -> String {
    let own = profile.number("agent_cpu_seconds") * 1e6 / profile.samples() as f64;
    format!(
        "{} samples, kept {:.2} %, {own:.0} us of CPU each, {:?}",
        profile.samples(),
        100.0 * profile.number("kept"),
        profile.outcomes()
    )
}

#[test]
fn remote_oracle() {
    for_each("remote-oracle", |python| {
        let (mut program, profile, verdict) = judged(python, "chain", duration())?;
        let shares = shares(&mut program, &verdict)?;
        Ok(format!("{}; {shares}", measured(&profile)))
    });
}

#[test]
fn remote_shapes() {
    for shape in ["flutter", "generators", "coroutines", "callbacks", "deep"] {
        for_each(&format!("remote-{shape}"), |python| {
            let (_program, profile, _) = judged(python, shape, brief())?;
            Ok(measured(&profile))
        });
    }
}

/// Threads that wait for the GIL sleep most of the time.
#[test]
fn remote_threads() {
    for_each("remote-threads", |python| {
        let (_program, profile, _) = judged(python, "threads", brief())?;
        Ok(measured(&profile))
    });
}
