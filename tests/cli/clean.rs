//! The target is left as it was, and nothing is left in the kernel, however the profiler ends.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use unwind_tests::Case;

use crate::support::{Folder, Running, any_python, attach, ended, samples_in, until};

/// Names of our programs in the kernel.
const PROGRAMS: [&str; 4] = ["on_sample", "on_fork", "on_exec", "on_exit"];

/// Numbers of our BPF programs that no process holds; none where `bpftool` is not installed.
fn orphans() -> Option<Vec<u64>> {
    let output = Command::new("bpftool")
        .args(["prog", "show", "-j"])
        .output()
        .ok()?;
    let programs: Value = serde_json::from_slice(&output.stdout).ok()?;
    let is_ours = |program: &&Value| PROGRAMS.iter().any(|name| program["name"] == *name);
    let is_held = |program: &&Value| {
        program["pids"]
            .as_array()
            .is_some_and(|pids| !pids.is_empty())
    };
    let programs = programs.as_array()?.iter();
    let orphans = programs.filter(is_ours).filter(|program| !is_held(program));
    Some(
        orphans
            .filter_map(|program| program["id"].as_u64())
            .collect(),
    )
}

#[test]
fn killed_at_any_moment_it_leaves_nothing_behind() {
    let case = Case::new("cli", "-", "kill-9");
    // All 200 take minutes: `UNWIND_KILLS=200`.
    let kills = std::env::var("UNWIND_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let folder = Folder::new();
    let target = Running::burn(&any_python(), "forever");
    let mut moment: u64 = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
    for _ in 0..kills {
        let mut command = attach(&target, &folder.file("x.svg"), &["--rate", "1000"]);
        let mut profiler = Running::start(command.stderr(Stdio::null()));
        moment = moment.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        // The moment of the kill, from before it loads anything until it samples.
        std::thread::sleep(Duration::from_millis((moment >> 33) % 400));
        profiler.child.kill().expect("our child");
        profiler.child.wait().expect("our child");
        assert!(
            !matches!(target.state(), 'T' | 't'),
            "the target is stopped"
        );
        target.burns(Duration::from_millis(5));
    }
    let Some(_) = orphans() else {
        return case.skipped("bpftool is not installed; the target was never stopped");
    };
    until("no program is left without a process", || {
        orphans().is_some_and(|left| left.is_empty())
    });
    case.ok();
}

/// A tracer of the target, once it traces.
fn traced_by(mut tracer: Command, target: &Running) -> Option<Running> {
    let program = tracer.get_program().to_owned();
    Command::new(program).arg("--version").output().ok()?;
    let tracer = Running::start(tracer.stdout(Stdio::null()).stderr(Stdio::null()));
    let status = format!("/proc/{}/status", target.pid());
    until("the target is traced", || {
        let status = std::fs::read_to_string(&status).expect("it runs");
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    });
    Some(tracer)
}

#[test]
fn a_target_under_a_debugger_is_profiled() {
    let python = any_python();
    for name in ["strace", "gdb"] {
        let case = Case::new("cli", "-", &format!("under-{name}"));
        let target = Running::burn(&python, "forever");
        let mut tracer = Command::new(name);
        let pid = target.pid().to_string();
        match name {
            "strace" => tracer.args(["-f", "-o", "/dev/null", "-p", &pid]),
            _ => tracer.args(["-q", "-nx", "-p", &pid, "-ex", "continue"]),
        };
        let Some(tracer) = traced_by(tracer, &target) else {
            case.skipped("it is not installed");
            continue;
        };
        // It runs on under the tracer.
        target.burns(Duration::from_millis(50));
        let folder = Folder::new();
        let file = folder.file("x.folded");
        let ended = ended(&mut attach(&target, &file, &["-d", "2", "--rate", "500"]));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(samples_in(&file, "burn_here") > 0, "{}", ended.err);
        drop(target);
        drop(tracer);
        case.ok();
    }
}
