//! `--mode`: which time samples stand for.

use std::path::Path;
use std::process::Stdio;

use unwind_tests::{Case, Python, versions};

use crate::children::sums_agree;
use crate::support::{Folder, Running, any_python, attach, ended, samples_in, stats};

/// Samples of each thread in a run: at 200 Hz, for 1 s.
const OPTIONS: [&str; 6] = ["--backend", "remote", "--rate", "200", "--duration", "1"];
/// Functions of `modes.py`, each of one thread.
const WORK: [&str; 4] = ["waits_here", "runs_here", "releases_here", "handles_here"];

/// What a run in this mode says in its statistics, and samples of each of [`WORK`].
fn profiled(python: &Python, mode: &str) -> (serde_json::Value, [u64; 4]) {
    let mut command = python.program("modes.py");
    let mut target = Running::start(command.stdout(Stdio::piped()));
    assert_eq!(target.line(), "ready");
    let folder = Folder::new();
    let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
    let mut command = attach(&target, &file, &OPTIONS);
    let ended = ended(command.args(["--mode", mode, "--stats"]).arg(&json));
    assert_eq!(ended.code, Some(0), "{mode}: {}", ended.err);
    let stats = stats(&json);
    assert_eq!(stats["mode"], mode);
    sums_agree(&stats);
    (stats, WORK.map(|name| samples_in(&file, name)))
}

#[test]
fn wall_shows_every_thread_all_the_time() {
    for python in versions() {
        let case = Case::new("cli", &python.label, "mode-wall");
        let (stats, samples) = profiled(&python, "wall");
        let seconds = stats["seconds"].as_f64().expect("a number");
        let periods = stats["interrupts"].as_f64().expect("a number");
        // Four, and the one that waits for input.
        let due = 5.0 * 200.0 * seconds;
        assert!(
            periods > 0.9 * due && periods < 1.02 * due,
            "{periods} of {due}"
        );
        // The rest is missed, of all alike, where we get no CPU in time.
        for (name, samples) in WORK.iter().zip(samples) {
            assert!(
                samples as f64 > 0.6 * periods / 5.0,
                "{name}: {samples} of {periods}, {stats}"
            );
        }
        case.ok();
    }
}

#[test]
fn gil_shows_who_holds_it() {
    for python in versions() {
        let case = Case::new("cli", &python.label, "mode-gil");
        let (stats, [waits, runs, releases, handles]) = profiled(&python, "gil");
        let periods = stats["interrupts"].as_u64().expect("a number");
        assert!(waits == 0 && 2 * runs > periods, "{waits} {runs}: {stats}");
        assert!(
            10 * (releases + handles) < runs,
            "{releases} {handles} {runs}"
        );
        case.ok();
    }
}

#[test]
fn exception_shows_who_has_one() {
    for python in versions() {
        let case = Case::new("cli", &python.label, "mode-exception");
        let (stats, [waits, runs, releases, handles]) = profiled(&python, "exception");
        assert_eq!((waits, runs, releases), (0, 0, 0), "{stats}");
        let periods = stats["interrupts"].as_u64().expect("a number");
        assert!(periods > 0 && 2 * handles > periods, "{handles}: {stats}");
        case.ok();
    }
}

#[test]
fn modes_of_threads_that_wait_are_not_for_bpf() {
    let case = Case::new("cli", "-", "mode-backends");
    let python = any_python();
    let target = Running::burn(&python, "forever");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let run = |backend, file: &Path| {
        let options = ["--mode", "wall", "--backend", backend, "-d", "0.2"];
        ended(&mut attach(&target, file, &options))
    };
    let refused = run("ebpf", &file);
    assert_eq!(refused.code, Some(125), "{}", refused.err);
    assert!(
        refused.err.contains("--mode wall needs --backend remote"),
        "{}",
        refused.err
    );
    assert!(folder.names().is_empty());
    let auto = run("auto", &file);
    assert_eq!(auto.code, Some(0), "{}", auto.err);
    assert!(auto.err.contains("threads that wait"), "{}", auto.err);
    assert!(samples_in(&file, "burn_here") > 5, "{}", auto.err);
    case.ok();
}
