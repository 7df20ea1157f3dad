//! `--subprocesses`, and programs that become another program.

use std::path::Path;

use unwind_tests::{Case, Python, pythons, versions};

use crate::support::{Ended, Folder, ended, run, samples_in, stats};

/// Samples of 0.4 s of CPU time at the rate of these tests that surely are there.
const MOST: u64 = 280;
const RATE: &str = "1000";

pub(crate) fn profile(
    python: &Python,
    how: &str,
    file: &Path,
    json: &Path,
    options: &[&str],
) -> Ended {
    let mut burn = python.program("burn.py");
    burn.arg(how);
    let mut command = run(&["--rate", RATE]);
    command
        .args(options)
        .arg("-o")
        .arg(file)
        .arg("--stats")
        .arg(json);
    let ended = ended(
        command
            .arg("--")
            .arg(burn.get_program())
            .args(burn.get_args()),
    );
    assert_eq!(ended.code, Some(0), "{how}: {}", ended.err);
    ended
}

#[test]
fn children_are_profiled_when_asked_for() {
    let kinds = [
        "fork",
        "multiprocessing-fork",
        "multiprocessing-spawn",
        "subprocess",
        "grandchild",
        "shell",
    ];
    for python in versions() {
        for how in kinds {
            let case = Case::new("cli", &python.label, &format!("children-{how}"));
            let folder = Folder::new();
            let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
            let ended = profile(&python, how, &file, &json, &["--subprocesses"]);
            let [parent, child] = ["in_parent", "in_child"].map(|name| samples_in(&file, name));
            assert!(
                parent >= MOST && child >= MOST,
                "{how}: {parent} {child}: {}",
                ended.err
            );
            let stats = stats(&json);
            if how.ends_with("fork") {
                // The parent's layout fits: there is nothing to attach to.
                let processes = stats["processes"].as_array().expect("processes");
                let forked = processes.iter().filter(|p| p["outcomes"]["attaching"] == 0);
                assert!(forked.count() >= 1, "{stats:#}");
            }
            sums_agree(&stats);
            case.ok();
        }
    }
}

/// The outcomes of all processes add up to those of the session.
pub(crate) fn sums_agree(stats: &serde_json::Value) {
    let sum = |outcomes: &serde_json::Value| -> u64 {
        let outcomes = outcomes.as_object().expect("outcomes");
        outcomes
            .values()
            .map(|count| count.as_u64().expect("a number"))
            .sum()
    };
    let processes = stats["processes"].as_array().expect("processes");
    let of_processes: u64 = processes
        .iter()
        .map(|process| sum(&process["outcomes"]))
        .sum();
    assert_eq!(stats["interrupts"].as_u64(), Some(of_processes));
    assert_eq!(stats["interrupts"].as_u64(), Some(sum(&stats["outcomes"])));
}

#[test]
fn children_are_left_alone_when_not_asked_for() {
    for python in versions() {
        let case = Case::new("cli", &python.label, "children-not-asked");
        for how in ["fork", "subprocess"] {
            let folder = Folder::new();
            let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
            profile(&python, how, &file, &json, &[]);
            assert_eq!(samples_in(&file, "in_child"), 0, "{how}");
            assert!(samples_in(&file, "in_parent") >= MOST, "{how}");
        }
        case.ok();
    }
}

#[test]
fn a_program_that_becomes_another_is_followed() {
    for python in versions() {
        for how in ["exec", "exec-shell"] {
            let case = Case::new("cli", &python.label, how);
            let folder = Folder::new();
            let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
            let ended = profile(&python, how, &file, &json, &[]);
            let [parent, child] = ["in_parent", "in_child"].map(|name| samples_in(&file, name));
            assert!(
                parent >= MOST && child >= MOST,
                "{how}: {parent} {child}: {}",
                ended.err
            );
            case.ok();
        }
    }
}

#[test]
fn another_version_after_exec_is_told_apart() {
    let pythons = pythons();
    let here = |python: &&Python| matches!(python.place, unwind_tests::Place::Host(_));
    let mut here = pythons.iter().filter(here);
    let case = Case::new("cli", "-", "exec-other-version");
    let (Some(first), Some(second)) = (here.next(), here.next()) else {
        return case.skipped("there are no two interpreters in one file system");
    };
    let folder = Folder::new();
    let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
    let program = second.program("burn.py");
    let program = program
        .get_args()
        .next()
        .expect("a program")
        .to_string_lossy()
        .into_owned();
    let script = format!(
        "import os, time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\n\
         os.execv({:?}, ['python', {program:?}, 'child'])",
        second.executable()
    );
    let mut command = run(&["--rate", RATE, "--threads", "-o"]);
    command
        .arg(&file)
        .arg("--stats")
        .arg(&json)
        .arg("--")
        .arg(first.executable());
    let ended = ended(command.args(["-c", &script]));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(samples_in(&file, "<module>") >= 2 * MOST, "{}", ended.err);
    assert!(samples_in(&file, "in_child") >= MOST, "{}", ended.err);
    let stats = stats(&json);
    let count = |name: &str| stats[name].as_u64().expect("a number");
    assert!(count("freed_frames") * 20 <= count("frames"), "{stats:#}");
    case.ok();
}

#[test]
fn a_child_that_is_no_python_is_mentioned_to_who_asks() {
    let case = Case::new("cli", "-", "child-not-python");
    let folder = Folder::new();
    let mut command = run(&["--subprocesses", "-o"]);
    command
        .arg(folder.file("x.folded"))
        .env("UNWIND_LOG", "info");
    let ended = ended(command.args(["--", "sh", "-c", "/bin/cat /dev/null; /bin/true; exit 3"]));
    assert_eq!(ended.code, Some(3));
    let is_told = ended.err.contains("child is not profiled") || ended.err.contains("empty");
    assert!(is_told, "{}", ended.err);
    case.ok();
}
