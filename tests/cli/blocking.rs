//! `--blocking`: threads are stopped, and always go on.

use std::process::{Command, Stdio};
use std::time::Duration;

use unwind_tests::{Case, pythons, unwind};

use crate::support::{Folder, Running, any_python, attach, ended, run, samples_in, stats};

const BLOCKING: [&str; 5] = ["--backend", "remote", "--blocking", "--rate", "1000"];

#[test]
fn a_blocking_dump_lets_all_go_on() {
    for python in pythons() {
        let case = Case::new("cli", &python.label, "blocking-dump");
        let mut command = python.program("modes.py");
        let mut target = Running::start(command.stdout(Stdio::piped()));
        assert_eq!(target.line(), "ready");
        let mut command = Command::new(unwind());
        let pid = target.pid().to_string();
        let ended = ended(command.args(["dump", "--blocking", "--json", "--pid", &pid]));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let dump: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        let threads = dump["processes"][0]["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 5, "{dump}");
        for thread in threads {
            // As it was before.
            assert_ne!(thread["state"], "t", "{thread}");
            let incomplete = &thread["incomplete"];
            let is_whole = incomplete.is_null() || incomplete == "entering";
            assert!(is_whole, "{thread}");
        }
        assert!(!matches!(target.state(), 'T' | 't'));
        target.burns(Duration::from_millis(20));
        case.ok();
    }
}

#[test]
fn a_blocking_run_misses_little_and_lets_all_go_on() {
    for python in pythons() {
        let case = Case::new("cli", &python.label, "blocking-run");
        let target = Running::burn(&python, "forever");
        let folder = Folder::new();
        let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
        let mut command = attach(&target, &file, &BLOCKING);
        let ended = ended(command.args(["-d", "1", "--stats"]).arg(&json));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let stats = stats(&json);
        assert_eq!(stats["outcomes"]["moving"], 0, "{stats}");
        assert!(samples_in(&file, "burn_here") > 400, "{}", ended.err);
        assert!(!matches!(target.state(), 'T' | 't'));
        target.burns(Duration::from_millis(20));
        case.ok();
    }
}

#[test]
fn killed_at_any_moment_it_leaves_none_stopped() {
    let case = Case::new("cli", "-", "blocking-kill-9");
    let folder = Folder::new();
    let target = Running::burn(&any_python(), "forever");
    for wait in 0..10 {
        let mut command = attach(&target, &folder.file("x.svg"), &BLOCKING);
        let mut profiler = Running::start(command.stderr(Stdio::null()));
        // The moment of the kill: while it samples, mostly.
        target.burns(Duration::from_millis(100 + 7 * wait));
        profiler.child.kill().expect("our child");
        profiler.child.wait().expect("our child");
        assert!(
            !matches!(target.state(), 'T' | 't'),
            "the target is stopped"
        );
        target.burns(Duration::from_millis(5));
    }
    case.ok();
}

#[test]
fn what_cannot_be_stopped_is_refused() {
    let case = Case::new("cli", "-", "blocking-refused");
    let target = Running::burn(&any_python(), "forever");
    let folder = Folder::new();
    let refused = |command: &mut Command, says: &str| {
        let ended = ended(command);
        assert_eq!(ended.code, Some(125), "{}", ended.err);
        assert!(ended.err.contains(says), "{}", ended.err);
    };
    let ebpf = &["--blocking", "-d", "0.1"];
    refused(
        &mut attach(&target, &folder.file("x.svg"), ebpf),
        "--backend remote",
    );
    refused(run(&BLOCKING).args(["--", "echo", "ran"]), "--pid");
    // Traced already, by this thread.
    let pid = nix::unistd::Pid::from_raw(target.pid().cast_signed());
    nix::sys::ptrace::seize(pid, nix::sys::ptrace::Options::empty()).expect("our child");
    let mut dump = Command::new(unwind());
    let dump = dump.args(["dump", "--blocking", "--pid", &pid.to_string()]);
    refused(dump, "somebody traces it already");
    case.ok();
}
