//! Threads that wait, that have released the GIL, and that are not CPython's (`programs/beside.py`).

use std::collections::BTreeMap;

use unwind_tests::{Profile, Python, profile};
use unwind_user::format::Label;

use super::account::{adds_up, kept};
use super::program::Program;
use crate::{brief, for_each};

/// Samples by stack, as names joined by `;`.
fn stacks(profile: &Profile) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for line in &profile.lines {
        let names: Vec<String> = line.frames.iter().map(name).collect();
        *stacks.entry(names.join(";")).or_default() += line.count;
    }
    stacks
}

fn name(frame: &Label) -> String {
    match frame {
        Label::Function { name, .. } => name.clone(),
        other => other.to_string(),
    }
}

fn at_1_khz(python: &Python, mode: &str) -> Result<Profile, String> {
    let program = Program::start(python, "beside.py", &[mode])?;
    kept(
        program.pid,
        &["-F", "--rate", "1000", "--duration", brief()],
    )
}

#[test]
fn waiting_threads_do_not_show() {
    for_each("waiting", |python| {
        let profile = at_1_khz(python, "waiters")?;
        let stacks = stacks(&profile);
        let spinning: u64 = stacks
            .iter()
            .filter(|(s, _)| s.ends_with(";spin"))
            .map(|(_, n)| n)
            .sum();
        if (spinning as f64) < 0.99 * profile.samples() as f64 {
            return Err(format!(
                "only {spinning} of {} spin: {stacks:?}",
                profile.samples()
            ));
        }
        Ok(format!("{spinning} of {} samples spin", profile.samples()))
    });
}

#[test]
fn threads_without_the_gil_keep_their_stack() {
    for_each("unlocked", |python| {
        let profile = at_1_khz(python, "unlocked")?;
        let stacks = stacks(&profile);
        let of = |name: &str| stacks.get(name).copied().unwrap_or(0) as f64;
        let total = profile.samples() as f64;
        let (squeeze, digest) = (of("squeeze"), of("digest"));
        if squeeze + digest < 0.99 * total || squeeze < 0.2 * total || digest < 0.2 * total {
            return Err(format!("{stacks:?}"));
        }
        Ok(format!(
            "{squeeze} in zlib and {digest} in hashlib of {total}"
        ))
    });
}

#[test]
fn native_threads_are_counted_as_such() {
    for_each("natives", |python| {
        let program = Program::start(python, "beside.py", &["natives"])?;
        let profile = profile(
            program.pid,
            &["-F", "--rate", "1000", "--duration", brief()],
        )?;
        adds_up(&profile)?;
        let stacks = stacks(&profile);
        let interrupts = profile.number("interrupts") as u64;
        let (ok, native) = (profile.outcome("ok"), profile.outcome("no_python_state"));
        let told = format!("{:?}, {stacks:?}", profile.outcomes());
        if ok + native != interrupts || ok < 20 || native < interrupts / 10 {
            return Err(told);
        }
        if stacks
            .keys()
            .any(|stack| stack != "<module>;main;spin" && stack != "<module>;natives;main;spin")
        {
            return Err(told);
        }
        Ok(told)
    });
}
