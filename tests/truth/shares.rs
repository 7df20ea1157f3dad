//! Shares of CPU time, against what a program measures of itself.

use unwind_tests::Python;
use unwind_user::format::Label;

use super::account::kept;
use super::program::Program;
use crate::{duration, for_each, tolerance};

fn shares(python: &Python) -> Result<String, String> {
    let program = Program::start(python, "shares.py", &[])?;
    let profile = kept(
        program.pid,
        &["-F", "--rate", "1000", "--duration", duration()],
    )?;
    let said = program.finish()?;
    let truth = said["shares"]
        .as_object()
        .ok_or_else(|| format!("no shares: {said}"))?;
    let total = profile.samples();
    let mut told = Vec::new();
    for (name, expected) in truth {
        let expected = expected.as_f64().ok_or("no number")?;
        let is_on = |frame: &Label| matches!(frame, Label::Function { name: n, .. } if n == name);
        let with = profile
            .lines
            .iter()
            .filter(|line| line.frames.iter().any(is_on));
        let share = with.map(|line| line.count).sum::<u64>() as f64 / total as f64;
        let text = format!("{name} {:.1}/{:.1}", 100.0 * share, 100.0 * expected);
        if (share - expected).abs() > tolerance(expected, &[total]) {
            return Err(format!("share and truth differ: {text} %"));
        }
        told.push(text);
    }
    Ok(format!(
        "{total} samples, share/truth in %: {}",
        told.join(", ")
    ))
}

#[test]
fn shares_of_cpu_time() {
    for_each("cpu-shares", shares);
}
