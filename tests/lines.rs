//! Names and lines of every frame, and nothing else: what the built profiler writes about programs
//! that say where they are before they spin there (`programs/lines.py`, `programs/names.py`).

mod lines {
    pub(crate) mod frames;
    pub(crate) mod judge;
    pub(crate) mod profilers;
    pub(crate) mod program;
    pub(crate) mod read;
}

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use unwind_tests::{Case, Python, versions};
use unwind_user::format::Label;

use lines::judge::{Judge, Lines, Shortage};
use lines::profilers::{Output, Profilers, Scratch};
use lines::program::{Program, Said};
use lines::read::{self, Stack};

/// Samples a second where shares are judged, and elsewhere.
const RATE: u32 = 1000;
const LOW_RATE: u32 = 500;

/// All outputs of one run of a program.
const OUTPUTS: [Output; 5] = [
    Output {
        name: "threads.folded",
        rate: RATE,
        options: &["--threads"],
    },
    Output {
        name: "function.folded",
        rate: LOW_RATE,
        options: &["--function"],
    },
    Output {
        name: "x.pb.gz",
        rate: LOW_RATE,
        options: &[],
    },
    Output {
        name: "x.speedscope.json",
        rate: LOW_RATE,
        options: &[],
    },
    Output {
        name: "x.svg",
        rate: LOW_RATE,
        options: &[],
    },
];

type Cases = Vec<(&'static str, Result<()>)>;

/// Runs that a starved machine may spoil.
const ATTEMPTS: usize = 3;

/// Runs a program of `programs/` below all profilers at once and judges what they wrote. Again
/// if it was only too little or too much: a stack that never was fails at once.
fn profiled(python: &Python, name: &str, modules: &[&str]) -> Result<(Said, Scratch, Cases)> {
    let mut attempt = 1;
    loop {
        let scratch = Scratch::new(&format!("{name}-{}", python.label))?;
        let mut program = Program::start(python, name, modules)?;
        let profilers = Profilers::start(program.pid(), &OUTPUTS, &scratch)?;
        let said = program.run()?;
        profilers.finish()?;
        program.finish()?;
        let cases = outputs(&said, &scratch);
        let mut errors = cases
            .iter()
            .filter_map(|(_, result)| result.as_ref().err())
            .peekable();
        let is_short = errors.peek().is_some() && errors.all(|error| error.is::<Shortage>());
        if !is_short || attempt == ATTEMPTS {
            return Ok((said, scratch, cases));
        }
        attempt += 1;
    }
}

/// The cases that every program has.
fn outputs(said: &Said, scratch: &Scratch) -> Cases {
    let [threads, function, pprof, speedscope, svg] =
        OUTPUTS.map(|output| scratch.path(output.name));
    let judge =
        |stacks: Result<Vec<Stack>>, lines, rate| Judge::new(said, lines).judge(&stacks?, rate);
    vec![
        ("folded", judge(read::folded(&threads), Lines::Line, RATE)),
        (
            "threads",
            read::folded(&threads).and_then(|stacks| threads_are_right(said, &stacks)),
        ),
        (
            "function",
            judge(read::folded(&function), Lines::Function, LOW_RATE),
        ),
        ("pprof", judge(read::pprof(&pprof), Lines::Line, LOW_RATE)),
        (
            "speedscope",
            judge(read::speedscope(&speedscope), Lines::Line, LOW_RATE),
        ),
        ("svg", svg_is_well_formed(&svg)),
    ]
}

/// Reports the cases of each version; fails if one did.
fn for_each(program: &str, cases: impl Fn(&Python) -> Result<Cases>) {
    let mut failed = Vec::new();
    for python in versions() {
        let cases = cases(&python).unwrap_or_else(|error| vec![("run", Err(error))]);
        for (name, result) in cases {
            let case = Case::new("lines", &python.label, &format!("{program}-{name}"));
            match result {
                Ok(()) => case.ok(),
                Err(error) => {
                    case.failed(&format!("{error:#}"));
                    failed.push(format!("{} {program}-{name}: {error:#}", python.label));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Every stack is below the thread that said it, by id and name.
fn threads_are_right(said: &Said, stacks: &[Stack]) -> Result<()> {
    let said = said.spins.iter().map(|spin| Label::Thread {
        name: spin.comm.clone(),
        tid: spin.tid,
    });
    let said: BTreeSet<_> = said.collect();
    let seen: BTreeSet<_> = stacks
        .iter()
        .filter_map(|stack| stack.root.clone())
        .collect();
    ensure!(seen == said, "{seen:?} are not {said:?}");
    ensure!(
        stacks.iter().all(|stack| stack.root.is_some()),
        "a stack without a thread"
    );
    Ok(())
}

/// A parser that stops at the first error reads it.
fn svg_is_well_formed(svg: &Path) -> Result<()> {
    const TITLES: &str = "
import sys, xml.etree.ElementTree as xml
print(len(xml.parse(sys.argv[1]).findall('.//{http://www.w3.org/2000/svg}title')))
";
    let output = Command::new("python3")
        .args(["-c", TITLES])
        .arg(svg)
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    let titles: usize = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    ensure!(titles > 50, "only {titles} boxes");
    Ok(())
}

/// Lists and sets in brackets have frames of their own in 3.11 only; lambdas and generators always.
fn comprehensions(said: &Said, stacks: &[Stack]) -> Result<()> {
    let shows = |end: &str| {
        stacks
            .iter()
            .flat_map(|stack| &stack.frames)
            .any(|frame| frame.name.ends_with(end))
    };
    for end in ["<listcomp>", "<setcomp>", "<dictcomp>"] {
        ensure!(
            shows(end) == (said.minor == 11),
            "{end} in 3.{}",
            said.minor
        );
    }
    ensure!(
        shows("comprehensions.<locals>.<genexpr>"),
        "no generator expression"
    );
    ensure!(
        shows("comprehensions.<locals>.<lambda>.<locals>.<lambda>"),
        "no inner lambda"
    );
    ensure!(
        shows("A.run") && shows("B.run"),
        "methods of one name are not told apart"
    );
    Ok(())
}

/// Frames that CPython makes for its own use do not show.
fn no_internal_frame(stacks: &[Stack]) -> Result<()> {
    const INTERNAL: [&str; 3] = ["<shim>", "<interpreter trampoline>", "__init__"];
    for frame in stacks.iter().flat_map(|stack| &stack.frames) {
        let is_nothing = frame.name.is_empty() && frame.file.is_empty();
        let is_internal = is_nothing || INTERNAL.contains(&frame.name.as_str());
        ensure!(!is_internal, "{frame:?}");
    }
    Ok(())
}

/// Says so where stacks are not shown that cannot be proved.
fn report_unproved(python: &Python, said: &Said, stacks: &[Stack]) {
    let unproved = |stack: &Stack| {
        let ends = (stack.frames.first(), stack.frames.last());
        let (Some(outermost), Some(innermost)) = ends else {
            return false;
        };
        let mut names = stack.frames.iter().map(|frame| &frame.name);
        outermost.name == "[truncated]"
            && innermost.name == "spin"
            && !names.any(|name| name.ends_with(".crossed"))
    };
    if said.minor < 13 && !stacks.iter().any(unproved) {
        let case = Case::new("lines", &python.label, "lines-deep-without-c");
        case.skipped("2,048 frames without an entry from C are counted as `entering`, not shown");
    }
}

#[test]
fn lines_are_what_python_says() {
    for_each("lines", |python| {
        let modules = ["known.py", "suspended.py"];
        let (said, scratch, mut cases) = profiled(python, "lines.py", &modules)?;
        let stacks = read::folded(&scratch.path(OUTPUTS[0].name))?;
        cases.push(("comprehensions", comprehensions(&said, &stacks)));
        cases.push(("internal", no_internal_frame(&stacks)));
        report_unproved(python, &said, &stacks);
        Ok(cases)
    });
}

#[test]
fn names_are_what_python_says() {
    for_each("names", |python| {
        let (_, _, cases) = profiled(python, "names.py", &["known.py"])?;
        Ok(cases)
    });
}
