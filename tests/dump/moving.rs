//! Targets that do not keep still.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unwind_tests::Profile;
use unwind_user::format::Label;
use unwind_user::format::folded::Line;
use unwind_user::remote::{Frame, Incomplete, Unwinder};

use super::judge::Rules;
use super::program::Program;
use super::{PATIENCE, for_each};

/// Reads a program's moving stack as often as can be, in `seconds`.
fn watch(program: &Program, seconds: u64) -> Result<(Profile, u64, u64), String> {
    let mut unwinder = Unwinder::attach(program.pid).map_err(|error| error.to_string())?;
    let (mut lines, mut reads, mut moving) = (Vec::new(), 0, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        let threads = unwinder.threads().map_err(|error| error.to_string())?;
        for thread in threads.list {
            reads += 1;
            match thread.stack.incomplete {
                None => {}
                Some(Incomplete::Moving | Incomplete::Entering) => {
                    moving += 1;
                    continue;
                }
                Some(other) => return Err(format!("a stack is incomplete: {other}")),
            }
            let frames = thread
                .stack
                .frames
                .iter()
                .rev()
                .filter_map(|frame| match frame {
                    Frame::Python { function, location } => Some(Label::Function {
                        name: function.qualname.clone(),
                        file: function.filename.clone(),
                        line: location.line,
                    }),
                    Frame::Marker(_) => None,
                });
            let frames = frames.collect();
            lines.push(Line { frames, count: 1 });
        }
    }
    let stats = Value::Null;
    Ok((Profile { lines, stats }, reads, moving))
}

#[test]
fn no_moving_stack_is_torn() {
    for shape in ["chain", "generators", "callbacks"] {
        for_each(shape, |python| {
            let program = Program::start(python, "shapes.py", &[shape])?;
            let rules = Rules::read(&program.said)?;
            let (profile, reads, moving) = watch(&program, 2)?;
            let verdict = rules.judge(&profile);
            verdict.all_good()?;
            if moving * 20 > reads || verdict.good < 100 {
                return Err(format!(
                    "{moving} of {reads} reads gave nothing: {verdict:?}"
                ));
            }
            Ok(format!("{} good, {moving} of {reads} moving", verdict.good))
        });
    }
}

/// An interpreter that one thread makes and another runs: what it runs is shown under the name of
/// the one that runs it, or not at all.
#[test]
fn a_sub_interpreter_is_shown_under_no_other_thread() {
    for_each("sub-interpreter", |python| {
        let program = Program::start(python, "held.py", &["interpreter"])?;
        let runner = program.said["runner"].as_u64().ok_or("no id")?;
        let mut unwinder = Unwinder::attach(program.pid).map_err(|error| error.to_string())?;
        let (mut shown, mut withheld) = (0, 0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) || shown + withheld < 20 {
            for thread in unwinder.threads().map_err(|error| error.to_string())?.list {
                let names = thread.stack.frames.iter().rev();
                let names: Vec<_> = names
                    .filter_map(|frame| match frame {
                        Frame::Python { function, .. } => Some(function.qualname.as_str()),
                        Frame::Marker(_) => None,
                    })
                    .collect();
                let first = names.iter().position(|name| *name == "go");
                match first.map(|first| &names[first..]) {
                    Some(
                        ["go"]
                        | ["go", "a1"]
                        | ["go", "a1", "b1"]
                        | ["go", "a2"]
                        | ["go", "a2", "b2"],
                    ) if thread.native_id == runner => shown += 1,
                    Some(_) => return Err(format!("{names:?} in thread {}", thread.native_id)),
                    None if thread.stack.incomplete == Some(Incomplete::Shared) => withheld += 1,
                    None => {}
                }
            }
            if begun.elapsed() > PATIENCE {
                return Err("the interpreter was never seen".to_owned());
            }
        }
        Ok(format!("{shown} shown, {withheld} withheld"))
    });
}

/// Threads that come and go all the time tear the lists; those that stay are there, or it is said
/// that some may be missing.
#[test]
fn threads_that_stay_are_not_lost_in_a_storm() {
    for_each("storm", |python| {
        let program = Program::start(python, "held.py", &["storm"])?;
        let stay = program.said.as_array().ok_or("no ids")?;
        let mut unwinder = Unwinder::attach(program.pid).map_err(|error| error.to_string())?;
        let (mut reads, mut torn, mut others) = (0, 0, 0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let threads = unwinder.threads().map_err(|error| error.to_string())?;
            let ids: Vec<_> = threads.list.iter().map(|t| json!(t.native_id)).collect();
            let missing = stay.iter().find(|id| !ids.contains(id));
            match missing {
                Some(id) if threads.is_whole => return Err(format!("{id} is not in {ids:?}")),
                Some(_) => torn += 1,
                None => {}
            }
            others += ids.len() - stay.len().min(ids.len());
            reads += 1;
        }
        match others {
            0 => Err("there was no storm".to_owned()),
            _ if torn * 20 > reads => Err(format!("{torn} of {reads} lists torn")),
            _ => Ok(format!(
                "{torn} of {reads} lists torn, {others} other threads"
            )),
        }
    });
}
