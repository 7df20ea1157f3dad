//! Targets with memory that nobody provides: whoever reads it waits for ever.

use std::process::{Command, Stdio};

use unwind_tests::{Case, Python, unwind, versions};

use crate::children::sums_agree;
use crate::support::{Ended, Folder, Running, attach, ended, samples_in, stats};

/// Starts `silent.py HOW`.
///
/// # Errors
/// Why there can be no such memory.
fn silent(python: &Python, how: &str) -> Result<Running, String> {
    let mut command = python.program("silent.py");
    let mut running = Running::start(command.arg(how).stdout(Stdio::piped()));
    match running.line() {
        line if line == "ready" => Ok(running),
        why if why.starts_with("userfaultfd:") => Err(why),
        why => panic!("silent.py {how}: {why}"),
    }
}

/// Looks at targets whose memory is silent in each way; `look` is to end, and knows what it shows.
fn for_each_way(name: &str, look: impl Fn(&Running, &str)) {
    for python in versions() {
        let case = Case::new("cli", &python.label, name);
        let mut reason = None;
        for how in ["previous", "code", "lines", "marked", "command"] {
            match silent(&python, how) {
                Ok(target) => look(&target, how),
                Err(why) => reason = Some(why),
            }
        }
        match reason {
            Some(why) => case.skipped(&why),
            None => case.ok(),
        }
    }
}

fn profiled(target: &Running, how: &str, backend: &str) {
    let folder = Folder::new();
    let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
    let options = ["--backend", backend, "--duration", "1", "--rate", "1000"];
    let Ended { code, err, .. } = ended(attach(target, &file, &options).arg("--stats").arg(&json));
    assert_eq!(code, Some(0), "{how}: {err}");
    let stats = stats(&json);
    sums_agree(&stats);
    let due = stats["interrupts"].as_u64().expect("a number");
    assert!(due > 0, "{how}: {stats}");
    // What is not named in the silent page is shown.
    let shown = match how {
        "code" | "command" => "burn_here",
        "lines" | "marked" => "below_here",
        // Without the frame below nothing can be proved on 3.11 and 3.12.
        _ => {
            let [entering, fault] = ["entering", "page_fault"].map(|name| &stats["outcomes"][name]);
            let met = entering.as_u64().max(fault.as_u64());
            assert!(2 * met.expect("a number") > due, "{how}: {stats}");
            return;
        }
    };
    let samples = samples_in(&file, shown);
    assert!(2 * samples > due, "{how}: {samples} samples, {err}");
}

#[test]
fn silent_memory_delays_no_interrupt() {
    for_each_way("silent-ebpf", |target, how| profiled(target, how, "ebpf"));
}

#[test]
fn silent_memory_delays_no_poller() {
    for_each_way("silent-remote", |target, how| {
        profiled(target, how, "remote")
    });
}

#[test]
fn silent_memory_delays_no_dump() {
    for_each_way("silent-dump", |target, how| {
        let mut command = Command::new(unwind());
        let ended = ended(command.args(["dump", "--pid", &target.pid().to_string()]));
        assert_eq!(ended.code, Some(0), "{how}: {}", ended.err);
        let shown = match how {
            "lines" | "marked" => "below_here",
            _ => "burn_here",
        };
        let is_shown = ended.out.contains(shown);
        // As above, and it says so.
        let is_refused = how == "previous" && ended.out.contains("no stack is linked");
        assert!(is_shown || is_refused, "{how}: {}", ended.out);
    });
}
