//! Truth at every instruction: single-steps a live interpreter with ptrace and, after each
//! instruction, runs the kernel half's capture and the user half's walk on its memory.
//!
//! Each stack must be one that the program can have (its call graph), and differ from the one
//! before by one frame pushed or popped, or two where C enters or leaves Python in one go. What is
//! not shown must be a counted outcome. `UNWIND_STEPS` sets the number of steps (200,000 for the
//! full run).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use unwind_ebpf::abi::{OK, OUTCOME_NAMES, WHOLE};
use unwind_tests::{Case, Python, pythons};
use unwind_user::memory::{Addr, Process};
use unwind_user::python::attach;
use unwind_user::python::code::{read_code, read_identity};
use unwind_user::python::frame::{Chain, End, Parsed, RawFrame, walk};
use unwind_user::remote::capture::{Capture, Origin};
use unwind_user::sample::Snapshot;

/// Steps of the short form.
const STEPS: usize = 40_000;

/// What the program says of itself before it starts.
fn read_graph(child: &mut Child) -> HashSet<(String, String)> {
    let mut edges = HashSet::new();
    let out = BufReader::new(child.stdout.as_mut().expect("stdout is piped"));
    for line in out.lines() {
        let line = line.expect("a line of the program");
        if line == "ready" {
            return edges;
        }
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        edges.extend(
            words
                .chunks_exact(2)
                .map(|p| (p[0].to_owned(), p[1].to_owned())),
        );
    }
    panic!("the program ended before it was ready");
}

#[derive(Default)]
struct Tally {
    leaves: BTreeMap<String, u64>,
    outcomes: BTreeMap<&'static str, u64>,
    shown: u64,
    deepest: usize,
    illegal: BTreeMap<String, u64>,
    jumps: BTreeMap<String, u64>,
}

fn step(python: &Python, steps: usize) -> Result<String, String> {
    let mut command = python.program("step.py");
    command.stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start: {error}"))?;
    let edges = read_graph(&mut child);
    let result = step_child(&child, &edges, steps);
    child.kill().expect("our child");
    child.wait().expect("our child");
    result
}

fn step_child(
    child: &Child,
    edges: &HashSet<(String, String)>,
    steps: usize,
) -> Result<String, String> {
    let pid = Pid::from_raw(child.id() as i32);
    let attached = attach(child.id()).map_err(|error| format!("attach: {error}"))?;
    let (layout, memory) = (&attached.layout, &attached.memory);
    let mut config = layout.kernel_config(attached.runtime);
    for (to, from) in config.paths.iter_mut().zip(&attached.paths) {
        *to = *from;
    }
    let mut capture = Capture::new(config);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_EXITKILL).map_err(|e| e.to_string())?;
    ptrace::interrupt(pid).map_err(|e| e.to_string())?;
    waitpid(pid, None).map_err(|e| e.to_string())?;

    let mut names: HashMap<Addr, (Vec<u8>, String)> = HashMap::new();
    let mut snapshot = Snapshot::default();
    let mut raw = Vec::new();
    let mut before: Option<Vec<Addr>> = None;
    let mut tally = Tally::default();
    for _ in 0..steps {
        let registers = ptrace::getregs(pid).map_err(|e| e.to_string())?;
        let origin = Origin::ThreadPointer(registers.fs_base);
        let outcome = match capture.take(memory, origin) {
            Ok(outcome) | Err(outcome) => outcome,
        };
        *tally
            .outcomes
            .entry(OUTCOME_NAMES[outcome as usize])
            .or_default() += 1;
        if outcome == OK {
            let record = capture.record().map_err(|e| e.to_string())?;
            snapshot.index(&record).map_err(|e| e.to_string())?;
            raw.clear();
            let chain = Chain::of(&record.header);
            let (end, met) = if record.header.flags & WHOLE != 0 {
                let frames = Parsed {
                    layout: &layout.frame,
                    memory: snapshot.memory(&record),
                };
                walk(layout, &frames, chain, &mut raw)
            } else {
                walk(layout, &snapshot.heads(), chain, &mut raw)
            };
            if end != End::Complete || met != record.header.frames {
                return Err(format!("the two halves disagree: {end:?}, {met} frames"));
            }
            raw.retain(|frame| frame.marker().is_none());
            judge(
                &raw,
                layout,
                memory,
                edges,
                &mut names,
                &mut before,
                &mut tally,
            );
        }
        ptrace::step(pid, None).map_err(|e| e.to_string())?;
        match waitpid(pid, None).map_err(|e| e.to_string())? {
            WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..) => {}
            other => return Err(format!("the target ended: {other:?}")),
        }
    }
    ptrace::detach(pid, None).map_err(|e| e.to_string())?;
    verdict(&tally, steps)
}

fn judge(
    raw: &[RawFrame],
    layout: &unwind_user::layout::Layout,
    memory: &Process,
    edges: &HashSet<(String, String)>,
    names: &mut HashMap<Addr, (Vec<u8>, String)>,
    before: &mut Option<Vec<Addr>>,
    tally: &mut Tally,
) {
    tally.shown += 1;
    let mut stack: Vec<(Addr, String)> = Vec::with_capacity(raw.len());
    for frame in raw.iter().rev() {
        let identity = read_identity(memory, layout, frame.code).expect("identity is readable");
        let identity = format!("{identity:?}").into_bytes();
        let known = names.get(&frame.code).filter(|(is, _)| *is == identity);
        let name = match known {
            Some((_, name)) => name.clone(),
            None => {
                let code = read_code(memory, layout, frame.code).expect("code is readable");
                let name = if code.is_hidden() {
                    String::new()
                } else {
                    let name = code.qualname.rsplit("<locals>.").next().unwrap_or_default();
                    name.to_owned()
                };
                names.insert(frame.code, (identity, name.clone()));
                name
            }
        };
        if !name.is_empty() {
            stack.push((frame.code, name));
        }
    }
    tally.deepest = tally.deepest.max(stack.len());
    let leaf = stack
        .last()
        .map(|(_, name)| name.clone())
        .unwrap_or_default();
    *tally.leaves.entry(leaf).or_default() += 1;
    let text = |stack: &[(Addr, String)]| {
        let names: Vec<&str> = stack.iter().map(|(_, name)| name.as_str()).collect();
        let from = names.len().saturating_sub(8);
        format!("({}) {}", names.len(), names[from..].join(";"))
    };
    let starts = stack.first().is_some_and(|(_, name)| name == "<module>");
    let follows = |pair: &[(Addr, String)]| edges.contains(&(pair[0].1.clone(), pair[1].1.clone()));
    if !starts || !stack.windows(2).all(follows) {
        *tally.illegal.entry(text(&stack)).or_default() += 1;
    }
    let now: Vec<Addr> = stack.iter().map(|(code, _)| *code).collect();
    if let Some(before) = before {
        let common = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
        let (popped, pushed) = (before.len() - common, now.len() - common);
        if popped > 2 || pushed > 2 || (popped > 0 && pushed > 0) {
            let jump = format!("-{popped} +{pushed} to {}", text(&stack));
            *tally.jumps.entry(jump).or_default() += 1;
        }
    }
    *before = Some(now);
}

fn verdict(tally: &Tally, steps: usize) -> Result<String, String> {
    let summary = format!(
        "{steps} steps, {} stacks shown, deepest {}, outcomes {:?}",
        tally.shown, tally.deepest, tally.outcomes
    );
    if !tally.illegal.is_empty() || !tally.jumps.is_empty() {
        let worst = |map: &BTreeMap<String, u64>| {
            let mut all: Vec<_> = map.iter().collect();
            all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            all.truncate(5);
            format!("{} kinds, {all:?}", map.len())
        };
        return Err(format!(
            "{summary}; illegal: {}; jumps: {}",
            worst(&tally.illegal),
            worst(&tally.jumps)
        ));
    }
    let sum: u64 = tally.outcomes.values().sum();
    if sum != steps as u64 || (tally.shown as f64) < 0.98 * steps as f64 || tally.deepest < 5 {
        return Err(format!(
            "too little was shown: {summary}, leaves {:?}",
            tally.leaves
        ));
    }
    Ok(summary)
}

#[test]
fn every_instruction() {
    let steps = std::env::var("UNWIND_STEPS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(STEPS);
    let mut failed = 0;
    for python in pythons() {
        let case = Case::new("step", &python.label, "every_instruction");
        match step(&python, steps) {
            Ok(summary) => {
                println!("{}: {summary}", python.label);
                case.ok();
            }
            Err(why) => {
                failed += 1;
                case.failed(&why);
            }
        }
    }
    assert_eq!(failed, 0, "see the cases above");
}
