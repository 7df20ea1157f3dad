//! `--backend remote` and `auto`.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use nix::sys::signal::Signal;
use unwind_tests::{Case, Place, Python, pythons, unwind, versions};

use crate::children::{profile, sums_agree};
use crate::support::{
    Folder, Running, any_python, attach, ended, finish, run, samples_in, stats, until,
};

/// Samples of 0.4 s of CPU time at 1 kHz that surely are there, though a child is found up to
/// 100 ms after its fork.
const MOST: u64 = 200;

const REMOTE: [&str; 2] = ["--backend", "remote"];

#[test]
fn remote_follows_children() {
    let options = [&REMOTE[..], &["--subprocesses"]].concat();
    for python in versions() {
        for how in [
            "fork",
            "fork-late",
            "multiprocessing-spawn",
            "grandchild",
            "shell",
        ] {
            let case = Case::new("cli", &python.label, &format!("remote-children-{how}"));
            let folder = Folder::new();
            let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
            let ended = profile(&python, how, &file, &json, &options);
            let [parent, child] = ["in_parent", "in_child"].map(|name| samples_in(&file, name));
            let err = &ended.err;
            assert!(
                parent >= MOST && child >= MOST,
                "{how} {parent} {child}: {err}"
            );
            sums_agree(&stats(&json));
            case.ok();
        }
    }
}

#[test]
fn remote_follows_exec() {
    for python in versions() {
        for how in ["exec", "exec-shell"] {
            let case = Case::new("cli", &python.label, &format!("remote-{how}"));
            let folder = Folder::new();
            let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
            let ended = profile(&python, how, &file, &json, &REMOTE);
            let [parent, child] = ["in_parent", "in_child"].map(|name| samples_in(&file, name));
            let err = &ended.err;
            assert!(parent >= MOST && child >= MOST, "{parent} {child}: {err}");
            case.ok();
        }
    }
}

#[test]
fn remote_ends_by_a_signal_and_with_the_target() {
    let case = Case::new("cli", "-", "remote-ends");
    let folder = Folder::new();
    let file = folder.file("x.folded");
    let mut target = Running::burn(&any_python(), "forever");
    for ends_with_target in [false, true] {
        let mut command = attach(&target, &file, &REMOTE);
        let profiler = Running::start(command.stderr(std::process::Stdio::piped()));
        until("it polls", || {
            let tids = std::fs::read_dir(format!("/proc/{}/task", profiler.pid()));
            tids.is_ok_and(|tids| tids.count() > 1)
        });
        target.burns(std::time::Duration::from_millis(300));
        if ends_with_target {
            target.child.kill().expect("our child");
            target.child.wait().expect("our child");
        } else {
            profiler.signal(Signal::SIGINT);
        }
        let ended = finish(profiler);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(samples_in(&file, "burn_here") > 10, "{}", ended.err);
        assert!(
            ended.err.contains("us a sample from outside"),
            "{}",
            ended.err
        );
        let why = ["SIGINT after", "target exited after"][usize::from(ends_with_target)];
        assert!(ended.err.contains(why), "{}", ended.err);
    }
    case.ok();
}

/// A folder that everybody may write to, and a copy of the profiler that everybody may run.
fn for_everybody() -> (Folder, Folder) {
    let (folder, program) = (Folder::new(), Folder::new());
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder.0, open).expect("permissions");
    std::fs::copy(unwind(), program.file("unwind")).expect("a copy");
    (folder, program)
}

/// An interpreter that everybody may run.
fn python_for_everybody() -> Option<Python> {
    let system = |python: &Python| match &python.place {
        Place::Host(path) => path.starts_with("/usr"),
        Place::Chroot { .. } => false,
    };
    pythons().into_iter().find(system)
}

#[test]
fn nobody_may_sample_their_own_command_from_outside() {
    let case = Case::new("cli", "-", "remote-unprivileged");
    if !nix::unistd::geteuid().is_root() {
        return case.skipped("needs root to become nobody");
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if scope.is_ok_and(|scope| scope.trim() > "1") {
        return case.skipped("kernel.yama.ptrace_scope allows root alone");
    }
    let Some(python) = python_for_everybody() else {
        return case.skipped("there is no interpreter below /usr");
    };
    let (folder, program) = for_everybody();
    let file = folder.file("x.folded");
    // The programs of the tests may lie where nobody may look.
    let code = "import time\ndef burn_here():\n while time.process_time() < 1: pass\nburn_here()";
    for (backend, says) in [("remote", None), ("auto", Some("CAP_BPF"))] {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program.file("unwind"))
            .args(["run", "--backend", backend, "--rate", "1000", "-o"])
            .arg(&file)
            .arg("--")
            .arg(python.program("burn.py").get_program())
            .args(["-c", code]);
        let ended = ended(&mut command);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(samples_in(&file, "burn_here") > 500, "{}", ended.err);
        let lines: Vec<&str> = ended.err.lines().collect();
        assert_eq!(
            lines.len(),
            1 + usize::from(says.is_some()),
            "{}",
            ended.err
        );
        if let Some(says) = says {
            assert!(lines[0].contains(says), "{}", ended.err);
        }
    }
    case.ok();
}

#[test]
fn auto_uses_bpf_where_it_may() {
    let case = Case::new("cli", "-", "auto-ebpf");
    let folder = Folder::new();
    let (file, json) = (folder.file("x.folded"), folder.file("x.json"));
    let target = Running::burn(&any_python(), "forever");
    let mut command = attach(
        &target,
        &file,
        &["--backend", "auto", "-d", "0.5", "--stats"],
    );
    let ended = ended(command.arg(&json));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(stats(&json)["backend"], "ebpf");
    case.ok();
}

#[test]
fn remote_has_no_log_of_a_bpf_program() {
    let case = Case::new("cli", "-", "remote-bpf-log");
    let mut command = run(&REMOTE);
    let ended = ended(command.args(["--bpf-log", "--", "echo", "ran"]));
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    assert!(ended.err.contains("--bpf-log"), "{}", ended.err);
    assert!(ended.out.is_empty(), "{}", ended.out);
    case.ok();
}
