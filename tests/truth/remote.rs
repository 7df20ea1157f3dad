//! `--backend remote`: every stack is legal, shares are right, what is lost is counted.

use unwind_tests::{Profile, Python, profile};
use unwind_user::format::Label;

use super::account::adds_up;
use super::judge::{Rules, Verdict};
use super::program::Program;
use super::shapes::shares;
use crate::{brief, duration, for_each};

/// Samples over CPU time times rate, at least.
const KEPT: f64 = 0.95;

/// Runs that a starved machine may spoil: whoever looks from outside needs a CPU in time.
const ATTEMPTS: usize = 10;

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

/// Threads that wait for the GIL sleep most of the time. Some periods of each wait for a look when the
/// run ends, however long it was.
#[test]
fn remote_threads() {
    for_each("remote-threads", |python| {
        let (_program, profile, _) = judged(python, "threads", duration())?;
        Ok(measured(&profile))
    });
}

/// An interpreter that one thread makes and another runs, beside the first, which runs, too: what it
/// runs is shown under the name of the one that runs it, or not at all.
#[test]
fn remote_sub_interpreter() {
    for_each("remote-sub-interpreter", |python| {
        let program = Program::start(python, "held.py", &["interpreter-beside"])?;
        let runner = program.said["runner"].as_u64().ok_or("no id")?;
        let rate = ["--rate", "1000", "--duration", brief()];
        let options = [&["-F", "--threads", "--backend", "remote"], &rate[..]].concat();
        let profile = profile(program.pid, &options)?;
        adds_up(&profile)?;
        // Where nothing tells that the runner is inside (3.11, 3.12), its time there is its caller's.
        let (mut inside, mut runners, mut others) = (0, 0, 0);
        for line in &profile.lines {
            let [Label::Thread { tid, .. }, frames @ ..] = &line.frames[..] else {
                return Err(format!("no thread: {line:?}"));
            };
            let names: Vec<String> = frames.iter().map(ToString::to_string).collect();
            let is_inside = names.iter().any(|name| name.starts_with("go "));
            match (is_inside, u64::from(*tid) == runner) {
                (true, false) => return Err(format!("{names:?} in thread {tid}")),
                (true, true) => inside += line.count,
                (false, true) => runners += line.count,
                (false, false) => others += line.count,
            }
        }
        let withheld = profile.outcome("foreign_state");
        let told = format!(
            "{inside} samples inside, {runners} outside, {others} of the other thread, {withheld} \
             withheld"
        );
        // Which of them holds the GIL at a look, the scheduler decides: without it, both are withheld.
        if inside + runners + withheld < 20 || others + withheld < 20 {
            return Err(told);
        }
        Ok(told)
    });
}
