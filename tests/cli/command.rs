//! `unwind run -- CMD`.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use unwind_tests::{Case, Python, unwind, versions};

use crate::support::{Folder, any_python, ended, finish, run, samples_in, sampling, stats, until};

/// `unwind run OPTIONS -o FILE -- PYTHON burn.py HOW`.
fn profiled(python: &Python, how: &str, folder: &Folder, options: &[&str]) -> Command {
    let mut burn = python.program("burn.py");
    burn.arg(how);
    let mut command = run(options);
    command
        .arg("-o")
        .arg(folder.file("x.folded"))
        .arg("--stats")
        .arg(folder.file("x.json"));
    command
        .arg("--")
        .arg(burn.get_program())
        .args(burn.get_args());
    command
}

#[test]
fn a_short_program_is_profiled_from_its_start() {
    for python in versions() {
        let case = Case::new("cli", &python.label, "short-program");
        let folder = Folder::new();
        let ended = ended(&mut profiled(&python, "0.2", &folder, &["--rate", "1000"]));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let burnt = samples_in(&folder.file("x.folded"), "burn_here");
        assert!(
            (140..=260).contains(&burnt),
            "{burnt} samples of 200 ms at 1 kHz: {}",
            ended.err
        );
        let stats = stats(&folder.file("x.json"));
        let count = |name: &str| stats["outcomes"][name].as_u64().expect("a number");
        let early = count("attaching") + count("no_python_state");
        let all = stats["interrupts"].as_u64().expect("a number");
        assert!(
            early * 5 <= all,
            "{early} of {all} interrupts before it was attached"
        );
        assert_eq!(stats["ended"], "target exited");
        case.ok();
    }
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let case = Case::new("cli", "-", "exit-code");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let code = |command: &[&str]| {
        let mut run = run(&["-o"]);
        let ended = ended(run.arg(&file).arg("--").args(command));
        (ended.code, ended.err)
    };
    assert_eq!(code(&["sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(code(&["sh", "-c", "kill -SEGV $$"]).0, Some(139));
    std::fs::remove_file(&file).expect("written each time");
    let (not_found, why) = code(&["/no/such/program"]);
    assert_eq!(not_found, Some(127), "{why}");
    assert!(
        why.contains("/no/such/program") && why.lines().count() == 1,
        "{why}"
    );
    assert_eq!(code(&["/"]).0, Some(126));
    assert!(!file.exists(), "no profile of a command that never ran");
    case.ok();
}

#[test]
fn the_command_has_our_input_output_and_no_more() {
    let case = Case::new("cli", "-", "inherits");
    let folder = Folder::new();
    let mut command = run(&["-o"]);
    command.arg(folder.file("x.svg"));
    let script = "cat; echo; ls -l /proc/self/fd | grep -c -- '->'; echo err >&2";
    command.args(["--", "sh", "-c", script]);
    let mut plain = Command::new("sh");
    plain.args(["-c", script]);
    let [profiled, plain] = [command, plain].map(|mut command| {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"through").expect("written");
        drop(input);
        child.wait_with_output().expect("it ends")
    });
    assert_eq!(
        String::from_utf8_lossy(&profiled.stdout),
        String::from_utf8_lossy(&plain.stdout)
    );
    assert!(plain.stdout.starts_with(b"through\n"));
    assert!(String::from_utf8_lossy(&profiled.stderr).starts_with("err\n"));
    case.ok();
}

#[test]
fn the_command_outlives_the_duration_and_gives_its_code() {
    let case = Case::new("cli", "-", "duration-then-command");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let mut command = run(&["-d", "200ms", "-o"]);
    let script = "read line; echo $line; exit 5";
    command
        .arg(&file)
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped());
    let running = sampling(&mut command);
    until("the file is written while the command runs on", || {
        file.exists()
    });
    let ended = finish(running);
    assert_eq!(ended.code, Some(5));
    assert!(
        ended.err.contains("waiting for the command"),
        "{}",
        ended.err
    );
    case.ok();
}

#[test]
fn sigterm_is_passed_on_and_the_file_written() {
    let case = Case::new("cli", "-", "command-sigterm");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let mut command = run(&["-o"]);
    let script = "trap 'exit 9' TERM; echo ready; while :; do read -t 1 line; done";
    command
        .arg(&file)
        .args(["--", "bash", "-c", script])
        .stdout(Stdio::piped());
    let mut running = sampling(&mut command);
    let mut ready = [0; 6];
    running
        .child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut ready)
        .expect("ready");
    running.signal(Signal::SIGTERM);
    let ended = finish(running);
    assert_eq!(ended.code, Some(9), "{}", ended.err);
    assert!(
        file.exists() && ended.err.contains("SIGTERM after"),
        "{}",
        ended.err
    );
    case.ok();
}

#[test]
fn wrong_usage_is_told_and_ends_with_2() {
    let case = Case::new("cli", "-", "usage");
    let usage = |arguments: &[&str]| {
        let ended = ended(Command::new(unwind()).args(arguments));
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.err);
        ended.err
    };
    assert!(usage(&["run", "-d", "abc", "--pid", "1"]).contains("500ms"));
    assert!(usage(&["run"]).contains("--pid"));
    assert!(usage(&["run", "--"]).contains("--pid"));
    // The word that is missing is in the usage.
    assert!(usage(&["run", "python3", "x.py"]).contains("-- CMD"));
    assert!(usage(&["--", "python3", "x.py"]).contains("unwind run"));
    usage(&["run", "--pid", "0"]);
    usage(&["run", "--pid", "x"]);
    usage(&["run", "--pid", "1", "--rate", "0"]);
    usage(&["run", "--pid", "1", "--format", "png"]);
    usage(&["run", "--pid", "1", "--", "true"]);
    case.ok();
}

#[test]
fn durations_are_of_the_wall_clock_in_every_unit() {
    let case = Case::new("cli", "-", "duration");
    let python = any_python();
    let folder = Folder::new();
    let target = crate::support::Running::burn(&python, "forever");
    for (text, seconds) in [("5", 5.0), ("1.5", 1.5), ("500ms", 0.5), ("0.02m", 1.2)] {
        let json = folder.file("x.json");
        let json_option = json.to_string_lossy();
        let more = ["-d", text, "--rate", "5000", "--stats", &json_option];
        let ended = ended(&mut crate::support::attach(
            &target,
            &folder.file("x.svg"),
            &more,
        ));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let stats = stats(&json);
        let took = stats["seconds"].as_f64().expect("a number");
        assert!(
            took >= seconds && took < seconds * 1.1 + 0.1,
            "{text} took {took} s"
        );
        assert_eq!(stats["ended"], "duration");
    }
    case.ok();
}
