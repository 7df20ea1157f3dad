//! Signals to the profiler, and ends of the target.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use unwind_tests::Case;

use crate::support::{
    Folder, Running, any_python, attach, finish, run, samples_in, sampling, until,
};

/// CPU time after which samples are there at 99 Hz.
const A_WHILE: Duration = Duration::from_millis(300);

#[test]
fn a_signal_ends_the_run_and_the_file_is_written() {
    let python = any_python();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let case = Case::new("cli", "-", &format!("ends-by-{signal}"));
        let folder = Folder::new();
        let file = folder.file("x.folded");
        let target = Running::burn(&python, "forever");
        // The tests may themselves run under nohup.
        let default = ["--default-signal=HUP"];
        let plain = attach(&target, &file, &[]);
        let profiler = sampling(&mut under("env", &default, &plain));
        target.burns(A_WHILE);
        profiler.signal(signal);
        let ended = finish(profiler);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(samples_in(&file, "burn_here") > 0, "{}", ended.err);
        assert!(
            ended.err.contains(&format!("{signal} after ")),
            "{}",
            ended.err
        );
        assert!(
            ended.err.lines().count() == 1,
            "quiet where there is no terminal: {}",
            ended.err
        );
        assert_eq!(folder.names(), ["x.folded"]);
        case.ok();
    }
}

/// A command that another one starts.
fn under(starter: &str, options: &[&str], plain: &Command) -> Command {
    let mut command = Command::new(starter);
    command
        .args(options)
        .arg(plain.get_program())
        .args(plain.get_args());
    command
}

#[test]
fn sighup_is_ignored_under_nohup() {
    let case = Case::new("cli", "-", "nohup");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let target = Running::burn(&any_python(), "forever");
    let plain = attach(&target, &file, &[]);
    let profiler = sampling(under("nohup", &[], &plain).stdout(Stdio::null()));
    profiler.signal(Signal::SIGHUP);
    target.burns(A_WHILE);
    assert!(!file.exists(), "it goes on");
    profiler.signal(Signal::SIGTERM);
    let ended = finish(profiler);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("SIGTERM after "), "{}", ended.err);
    case.ok();
}

#[test]
fn a_second_interrupt_quits_at_once() {
    let case = Case::new("cli", "-", "second-interrupt");
    let folder = Folder::new();
    // A command that does not mind: the first interrupt ends sampling only.
    let mut command = run(&["-o"]);
    command
        .arg(folder.file("x.folded"))
        .args(["--", "sh", "-c", "trap '' INT; read line"]);
    let profiler = sampling(&mut command);
    profiler.signal(Signal::SIGINT);
    until("the file is written", || folder.names() == ["x.folded"]);
    profiler.signal(Signal::SIGINT);
    let ended = finish(profiler);
    assert_eq!(ended.code, Some(130), "{}", ended.err);
    case.ok();
}

#[test]
fn a_second_interrupt_does_not_wait_for_a_slow_reader() {
    let case = Case::new("cli", "-", "second-interrupt-writing");
    let folder = Folder::new();
    let pipe = folder.file("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let target = Running::burn(&any_python(), "forever");
    // Nobody opens the other end: the write blocks.
    let profiler = sampling(&mut attach(&target, &pipe, &["--format", "folded"]));
    profiler.signal(Signal::SIGINT);
    let pid = profiler.pid();
    until("it waits for a reader", || {
        let wait = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        let stack = std::fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
        wait.contains("fifo") || stack.contains("fifo_open")
    });
    // Again and again: two that come before a busy machine looks count as one.
    let mut profiler = profiler;
    until("it quits", || {
        profiler.signal(Signal::SIGINT);
        profiler.child.try_wait().expect("our child").is_some()
    });
    assert_eq!(finish(profiler).code, Some(130));
    case.ok();
}

#[test]
fn sigusr1_writes_a_snapshot_and_goes_on() {
    let case = Case::new("cli", "-", "snapshot");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let target = Running::burn(&any_python(), "forever");
    let profiler = sampling(&mut attach(&target, &file, &[]));
    target.burns(A_WHILE);
    profiler.signal(Signal::SIGUSR1);
    until("the snapshot is there", || file.exists());
    let first = samples_in(&file, "burn_here");
    assert!(first > 0);
    target.burns(A_WHILE);
    profiler.signal(Signal::SIGINT);
    let ended = finish(profiler);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(samples_in(&file, "burn_here") > first, "{}", ended.err);
    assert!(ended.err.contains("snapshot written"), "{}", ended.err);
    case.ok();
}

#[test]
fn sigusr2_switches_the_log_of_the_kernel_half() {
    let case = Case::new("cli", "-", "bpf-log");
    let folder = Folder::new();
    let target = Running::burn(&any_python(), "forever");
    for (options, switch) in [(&["--bpf-log"][..], false), (&[], true), (&[], false)] {
        let profiler = sampling(&mut attach(&target, &folder.file("x.svg"), options));
        if switch {
            profiler.signal(Signal::SIGUSR2);
        }
        target.burns(A_WHILE);
        profiler.signal(Signal::SIGINT);
        let ended = finish(profiler);
        let lines = ended
            .err
            .matches(&format!("pid {} outcome", target.pid()))
            .count();
        assert_eq!(
            lines > 0,
            switch || !options.is_empty(),
            "{options:?}: {}",
            ended.err
        );
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    case.ok();
}

#[test]
fn a_killed_target_ends_the_run() {
    let case = Case::new("cli", "-", "target-killed");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let target = Running::burn(&any_python(), "forever");
    let profiler = sampling(&mut attach(&target, &file, &["-d", "1h"]));
    target.burns(A_WHILE);
    target.signal(Signal::SIGKILL);
    let ended = finish(profiler);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("target exited after "), "{}", ended.err);
    assert!(samples_in(&file, "burn_here") > 0, "{}", ended.err);
    case.ok();
}

#[test]
fn of_several_targets_one_may_end() {
    let case = Case::new("cli", "-", "one-of-several-killed");
    let folder = Folder::new();
    let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
    let python = any_python();
    let targets = [
        Running::burn(&python, "forever"),
        Running::burn(&python, "forever"),
    ];
    let [gone, stays] = &targets;
    let more = [
        "--pid",
        &stays.pid().to_string(),
        "--stats",
        &json.to_string_lossy(),
    ];
    let profiler = sampling(&mut attach(gone, &file, &more));
    gone.burns(A_WHILE);
    gone.signal(Signal::SIGKILL);
    until("it is a zombie", || gone.state() == 'Z');
    stays.burns(A_WHILE);
    profiler.signal(Signal::SIGINT);
    let ended = finish(profiler);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        ended.err.contains("SIGINT after "),
        "it went on: {}",
        ended.err
    );
    let stats = crate::support::stats(&json);
    let of = |pid: u32| {
        let processes = stats["processes"].as_array().expect("processes");
        let process = processes
            .iter()
            .find(|process| process["pid"] == pid)
            .expect("the process");
        (
            process["samples"].as_u64().expect("a number"),
            process["state"].clone(),
        )
    };
    assert!(of(gone.pid()).0 > 0 && of(stays.pid()).0 > 0, "{stats:#}");
    assert_eq!(of(gone.pid()).1, "exited", "{stats:#}");
    case.ok();
}
