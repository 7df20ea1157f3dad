//! What cannot be profiled is refused in words, before anything is done.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use unwind_tests::{Case, Place, Python, pythons, unwind};

use crate::support::{Ended, Folder, Running, any_python, attach, ended, run, until};

/// Our own failure: 125, words, and no file.
fn refused(command: &mut Command, folder: &Folder) -> String {
    let Ended { code, err, out } = ended(command);
    assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
    assert!(err.starts_with("unwind: "), "{err}");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
    err
}

fn refused_pid(pid: u32) -> String {
    let folder = Folder::new();
    let mut command = run(&["-d", "10", "--pid", &pid.to_string(), "-o"]);
    refused(command.arg(folder.file("x.svg")), &folder)
}

#[test]
fn pids_that_are_no_python_process() {
    let case = Case::new("cli", "-", "bad-pids");
    assert!(refused_pid(i32::MAX as u32).contains("there is no process"));
    assert!(refused_pid(2).contains("kernel thread"));
    let sleep = Running::start(&mut Command::new("cat"));
    let text = refused_pid(sleep.pid());
    assert!(text.contains("(cat) runs no Python"), "{text}");
    let zombie = Running::start(&mut Command::new("true"));
    until("it is a zombie", || zombie.state() == 'Z');
    assert!(refused_pid(zombie.pid()).contains("zombie"));
    // A number that is none is not taken for another.
    let none = ended(&mut run(&["--pid", "4294967295"]));
    assert!(
        none.code != Some(0) && none.err.contains("4294967295"),
        "{none:?}"
    );
    case.ok();
}

#[test]
fn a_process_whose_first_thread_has_ended() {
    let case = Case::new("cli", "-", "first-thread-ended");
    let mut command = any_python().program("burn.py");
    command.arg("first-thread-ends");
    let target = Running::start(&mut command);
    until("its first thread has ended", || target.state() == 'Z');
    let text = refused_pid(target.pid());
    assert!(
        text.contains("first thread") && !text.contains("zombie"),
        "{text}"
    );
    case.ok();
}

#[test]
fn a_shell_says_which_child_is_python() {
    let case = Case::new("cli", "-", "shell-of-python");
    let python = any_python();
    let mut burn = python.program("burn.py");
    burn.arg("forever");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#""$@" & echo $!; wait"#, "sh"])
        .arg(burn.get_program());
    shell.args(burn.get_args()).stdout(Stdio::piped());
    // The input of what a shell starts in the background is empty; ours ends it with the shell.
    let mut shell = Running::start(&mut shell);
    let mut line = String::new();
    let output = shell.child.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a pid");
    let child: u32 = line.trim().parse().expect("a pid");
    let text = refused_pid(shell.pid());
    // It may have ended already, at the end of its empty input.
    let is_there = PathBuf::from(format!("/proc/{child}")).exists();
    assert!(
        !is_there || text.contains(&format!("--pid {child}")),
        "{text}"
    );
    case.ok();
}

#[test]
fn a_target_that_ends_meanwhile() {
    let case = Case::new("cli", "-", "ends-during-attach");
    let python = any_python();
    for delay in 0..10 {
        let folder = Folder::new();
        let target = Running::burn(&python, "forever");
        let mut command = attach(&target, &folder.file("x.svg"), &[]);
        let profiler = Running::start(command.stderr(Stdio::piped()));
        // Any moment will do: this is where the target goes, not a wait for something.
        std::thread::sleep(std::time::Duration::from_millis(delay * 15));
        target.signal(Signal::SIGKILL);
        let ended = crate::support::finish(profiler);
        assert!(matches!(ended.code, Some(0 | 125)), "{ended:?}");
        assert_eq!(
            ended.code == Some(0),
            folder.names() == ["x.svg"],
            "{ended:?}"
        );
        assert!(
            ended.err.lines().count() <= 2 && !ended.err.is_empty(),
            "{}",
            ended.err
        );
    }
    case.ok();
}

#[test]
fn a_rate_beyond_the_limit_of_the_kernel() {
    let case = Case::new("cli", "-", "rate-limit");
    let folder = Folder::new();
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
    let limit: u64 = limit.expect("the limit").trim().parse().expect("a number");
    if limit >= 1_000_000 {
        return case.skipped("the limit of this kernel is beyond the largest rate");
    }
    let mut command = run(&["--rate", &(limit + 1).to_string(), "-o"]);
    command
        .arg(folder.file("x.svg"))
        .args(["--", "echo", "ran"]);
    let text = refused(&mut command, &folder);
    assert!(text.contains("kernel.perf_event_max_sample_rate"), "{text}");
    case.ok();
}

#[test]
fn without_privileges_one_message_names_all_that_is_missing() {
    let case = Case::new("cli", "-", "unprivileged");
    if !nix::unistd::geteuid().is_root() {
        return case.skipped("needs root to become nobody");
    }
    let folder = Folder::new();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder.0, open).expect("permissions");
    let program = Folder::new();
    let copy = program.file("unwind");
    std::fs::copy(unwind(), &copy).expect("a copy that nobody can reach");
    let names = [
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_SYS_PTRACE",
        "CAP_CHECKPOINT_RESTORE",
    ];
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    for lower in [&nobody[..], &["unshare", "--user", "--map-root-user"]] {
        let mut command = Command::new(lower[0]);
        command
            .args(&lower[1..])
            .arg(&copy)
            .args(["run", "-o"])
            .arg(folder.file("it's.svg"));
        let text = refused(command.args(["--", "echo", "ran"]), &folder);
        for name in names {
            assert!(
                text.contains(name),
                "{lower:?}: {name} is missing in {text}"
            );
        }
        let again = format!(
            "sudo {} run -o '{}/it'\\''s.svg' -- echo ran",
            copy.display(),
            folder.0.display()
        );
        assert!(
            text.contains(&again),
            "{lower:?}: {again} is missing in {text}"
        );
    }
    case.ok();
}

/// Not "no Python": nobody may look into the file.
#[test]
fn an_interpreter_that_we_may_not_read_is_named() {
    let case = Case::new("cli", "-", "closed-interpreter");
    if !nix::unistd::geteuid().is_root() {
        return case.skipped("needs root to become nobody");
    }
    let (folder, program) = (Folder::new(), Folder::new());
    let mode = |path: &std::path::Path, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("permissions");
    };
    mode(&folder.0, 0o777);
    let copies = [program.file("unwind"), program.file("python")];
    let python = any_python();
    let Place::Host(executable) = &python.place else {
        return case.skipped("the only interpreters are in another root");
    };
    std::fs::copy(unwind(), &copies[0]).expect("a copy");
    std::fs::copy(executable, &copies[1]).expect("a copy");
    mode(&copies[1], 0o700);
    let target = Running::start(
        Command::new(&copies[1])
            .args(["-c", "import sys; print(flush=True); sys.stdin.read()"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null()),
    );
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", target.pid()));
    until("it is another program", || {
        maps().is_ok_and(|maps| maps.contains("python"))
    });
    let rights = "+cap_38,+cap_39,+cap_40,+sys_ptrace";
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["--inh-caps", rights, "--ambient-caps", rights])
        .arg(&copies[0])
        .args(["run", "-d", "10", "--pid", &target.pid().to_string(), "-o"])
        .arg(folder.file("x.svg"));
    let text = refused(&mut command, &folder);
    let file = copies[1].display().to_string();
    assert!(
        text.contains("not permitted to open") && text.contains(&file),
        "{text}"
    );
    case.ok();
}

#[test]
fn an_ending_that_names_no_format_is_refused() {
    let case = Case::new("cli", "-", "unknown-ending");
    let folder = Folder::new();
    let mut command = run(&["-o"]);
    command
        .arg(folder.file("x.html"))
        .args(["--", "echo", "ran"]);
    assert!(refused(&mut command, &folder).contains("--format"));
    case.ok();
}

#[test]
fn in_a_pid_namespace_of_our_own() {
    let case = Case::new("cli", "-", "pid-namespace");
    if !nix::unistd::geteuid().is_root() {
        return case.skipped("needs root to make a PID namespace");
    }
    let folder = Folder::new();
    for proc in [&["--mount-proc"][..], &[]] {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork"]).args(proc).arg(unwind());
        command
            .args(["run", "--pid", "1", "-o"])
            .arg(folder.file("x.svg"));
        let text = refused(&mut command, &folder);
        assert!(text.contains("PID namespace"), "{proc:?}: {text}");
    }
    case.ok();
}

#[test]
fn a_target_in_another_pid_namespace_is_fine() {
    let case = Case::new("cli", "-", "target-in-pid-namespace");
    if !nix::unistd::geteuid().is_root() {
        return case.skipped("needs root to make a PID namespace");
    }
    let folder = Folder::new();
    let burn = any_python().program("burn.py");
    let mut command = run(&["--subprocesses", "--rate", "1000", "-o"]);
    command
        .arg(folder.file("x.folded"))
        .args(["--", "unshare", "--pid", "--fork"]);
    let ended = ended(
        command
            .arg(burn.get_program())
            .args(burn.get_args())
            .arg("0.3"),
    );
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let samples = crate::support::samples_in(&folder.file("x.folded"), "burn_here");
    assert!(samples > 200, "{samples}: {}", ended.err);
    case.ok();
}

/// A copy of the interpreter whose published offsets are changed (those after cookie, version and
/// the flag of free-threaded builds): it runs as well as before.
fn damaged(python: &Python, change: impl Fn(&mut [u8])) -> Option<PathBuf> {
    let original = std::fs::canonicalize(python.executable()).ok()?;
    let mut bytes = std::fs::read(&original).ok()?;
    // The last one: code that looks for the cookie holds it, too, before the data.
    let cookie = bytes.windows(8).rposition(|eight| eight == b"xdebugpy")?;
    change(bytes.get_mut(cookie + 24..cookie + 200)?);
    let name = format!("tmp/unwind-damaged-{}-{}", python.label, std::process::id());
    let root = match &python.place {
        Place::Host(_) => PathBuf::from("/"),
        Place::Chroot { root, .. } => root.clone(),
    };
    let path = root.join(&name);
    std::fs::write(&path, bytes).ok()?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).ok()?;
    Some(path)
}

#[test]
fn damaged_offsets_are_refused() {
    for python in pythons() {
        let case = Case::new("cli", &python.label, "damaged-offsets");
        // The cookie of a build without a static interpreter lies in its library.
        let Some(path) = damaged(&python, |offsets| offsets.fill(0xee)) else {
            case.skipped("its executable publishes no offsets");
            continue;
        };
        let mut command = match &python.place {
            Place::Host(_) => Command::new(&path),
            Place::Chroot { root, .. } => {
                let mut command = Command::new("chroot");
                let inside = path.strip_prefix(root).expect("below the root");
                command.arg(root).arg(PathBuf::from("/").join(inside));
                command
            }
        };
        let prefix = python.executable();
        let prefix = prefix
            .parent()
            .and_then(std::path::Path::parent)
            .expect("a prefix");
        let prefix = match &python.place {
            Place::Host(_) => prefix.to_owned(),
            Place::Chroot { root, .. } => {
                PathBuf::from("/").join(prefix.strip_prefix(root).expect("below the root"))
            }
        };
        let program = python.program("burn.py");
        command
            .env("PYTHONHOME", prefix)
            .arg(program.get_args().last().expect("the program"));
        let mut target = Running::start(command.arg("forever").stdout(Stdio::piped()));
        let output = target.child.stdout.take().expect("a pipe");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("text");
        assert_eq!(line, "ready\n", "{python:?} runs as before");
        let text = refused_pid(target.pid());
        std::fs::remove_file(&path).expect("our copy");
        assert!(
            text.contains("offsets") && text.contains("damaged"),
            "{text}"
        );
        case.ok();
    }
}
