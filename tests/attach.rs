//! Attaching: the interpreter and the ways to its thread states are found in real processes.
//!
//! Each target says what is true of it in a line of JSON (`programs/attach.py`), which is also the
//! sign that it is ready.

mod attach {
    pub(crate) mod copies;
    pub(crate) mod target;
}

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};

use attach::copies::{Build, Copies};
use attach::target::{Target, check};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use unwind_tests::{Case, Place, Python, pythons};
use unwind_user::layout::{LayoutError, Version};
use unwind_user::python::{AttachError, Attached, attach};

type Outcome = Result<(), String>;

/// Runs one case for each interpreter. `Ok(Some(reason))` says why it was skipped.
fn for_each(name: &str, case: impl Fn(&Python) -> Result<Option<String>, String>) {
    let mut failed = Vec::new();
    for python in pythons() {
        let report = Case::new("attach", &python.label, name);
        match case(&python) {
            Ok(None) => report.ok(),
            Ok(Some(why)) => report.skipped(&why),
            Err(why) => {
                report.failed(&why);
                failed.push(format!("{}: {why}", python.label));
            }
        }
    }
    assert!(failed.is_empty(), "{name}: {failed:#?}");
}

/// Starts `command`, attaches and checks what was found against what the target says.
fn attached(command: &mut Command) -> Result<(Target, Attached), String> {
    let target = Target::start(command)?;
    let attached = attach(target.pid).map_err(|error| format!("{error}"))?;
    check(&attached, &target)?;
    Ok((target, attached))
}

const THREAD_LOCAL_SINCE: (u8, u8) = (3, 12);

fn minor(attached: &Attached) -> (u8, u8) {
    attached.layout.version.minor()
}

#[test]
fn blocked_without_gil() {
    for_each("blocked", |python| {
        attached(python.program("attach.py").arg("blocked")).map(|_| None)
    });
}

#[test]
fn running_with_gil() {
    for_each("running", |python| {
        let (target, attached) = attached(python.program("attach.py").arg("spin"))?;
        if minor(&attached) >= THREAD_LOCAL_SINCE {
            running_again(&target)?;
        } else if is_variable(&attached) {
            return Err(format!("3.11 has no such variable: {:?}", attached.paths));
        }
        Ok(None)
    });
}

/// Whether the best way is a thread-local variable.
fn is_variable(attached: &Attached) -> bool {
    let best = attached.paths[0];
    best.steps == 3 || best.offsets[0] < 0
}

/// Attaches until the thread is seen with the GIL: it says that it is ready without.
fn running_again(target: &Target) -> Outcome {
    for _ in 0..10_000 {
        let attached = attach(target.pid).map_err(|error| error.to_string())?;
        check(&attached, target)?;
        if is_variable(&attached) {
            return Ok(());
        }
    }
    Err("the current thread state was not found".into())
}

#[test]
fn some_threads_with_and_some_without_gil() {
    for_each("threads", |python| {
        let (target, _) = attached(python.program("attach.py").arg("threads"))?;
        let process = target.pid as i32;
        let tid = target.tid;
        match attach(tid as u32) {
            Err(AttachError::Thread { process: of, .. }) if of == process => Ok(None),
            other => Err(format!("thread {tid}: {:?}", other.map(|a| a.process))),
        }
    });
}

#[test]
fn a_page_mapped_again_is_not_the_runtime() {
    for_each("remapped_page", |python| {
        attached(python.program("attach.py").arg("remap")).map(|_| None)
    });
}

#[test]
fn the_image_is_the_one_that_runs() {
    for_each("image", |python| {
        let (_target, attached) = attached(python.program("attach.py").arg("blocked"))?;
        let build = Build::of(python)?;
        let file = build.runtime_file();
        let expected = attach::copies::build_id(&file)?;
        if attached.image.build_id != expected || expected.is_empty() {
            return Err(format!("{:?} is not {}", attached.image, file.display()));
        }
        Ok(match python.place {
            Place::Chroot { .. } => None,
            Place::Host(_) if attached.image.is_exe != build.is_shared() => None,
            Place::Host(_) => return Err("library and program are confused".into()),
        })
    });
}

#[test]
fn deleted_and_replaced_files() {
    for_each("deleted", |python| {
        let copies = Copies::of(python)?;
        let mut target = copies.start("blocked")?;
        copies.delete()?;
        let attached_to = attach(target.pid).map_err(|error| format!("deleted: {error}"))?;
        check(&attached_to, &target)?;
        copies.replace_by_rubbish()?;
        let attached_to = attach(target.pid).map_err(|error| format!("replaced: {error}"))?;
        check(&attached_to, &target)?;
        target.end();
        Ok(None)
    });
}

#[test]
fn without_section_headers() {
    for_each("sectionless", |python| {
        let copies = Copies::of(python)?;
        copies.remove_section_headers()?;
        let target = copies.start("blocked")?;
        let attached = attach(target.pid).map_err(|error| error.to_string())?;
        check(&attached, &target).map(|()| None)
    });
}

#[test]
fn by_the_cookie_alone() {
    for_each("cookie", |python| {
        let build = Build::of(python)?;
        if build.is_shared() {
            return Ok(Some(
                "a library whose symbol is renamed does not load".into(),
            ));
        }
        if build.minor < 13 {
            return Ok(Some("there is a cookie from 3.13 on".into()));
        }
        let copies = Copies::of(python)?;
        copies.remove_section_headers()?;
        copies.rename_symbol(b"_PyRuntime", b"_PyRuntimX")?;
        let target = copies.start("bare")?;
        let attached = attach(target.pid).map_err(|error| error.to_string())?;
        check(&attached, &target).map(|()| None)
    });
}

#[test]
fn embedded() {
    for_each("embedded", |python| {
        let build = Build::of(python)?;
        if !build.is_shared() {
            return Ok(Some("there is no shared library of this build".into()));
        }
        let copies = Copies::of(python)?;
        let target = Target::start(&mut copies.embedding("blocked")?)?;
        let attached = attach(target.pid).map_err(|error| error.to_string())?;
        check(&attached, &target).map(|()| None)
    });
}

#[test]
fn opened_late_under_another_name() {
    for_each("dlopen", |python| {
        let build = Build::of(python)?;
        if !build.is_shared() {
            return Ok(Some("there is no shared library of this build".into()));
        }
        let copies = Copies::of(python)?;
        for mode in ["blocked", "threads", "spin"] {
            let target = Target::start(&mut copies.opening_late(mode)?)?;
            let attached = attach(target.pid).map_err(|error| format!("{mode}: {error}"))?;
            check(&attached, &target).map_err(|why| format!("{mode}: {why}"))?;
            if mode == "spin" && minor(&attached) >= THREAD_LOCAL_SINCE {
                running_again(&target)?;
            }
        }
        Ok(None)
    });
}

#[test]
fn a_second_idle_copy_of_the_library() {
    for_each("second_copy", |python| {
        let build = Build::of(python)?;
        if !build.is_shared() {
            return Ok(Some("there is no shared library of this build".into()));
        }
        let copies = Copies::of(python)?;
        let mut command = python.program("attach.py");
        command
            .arg("copy")
            .arg(copies.library_under_another_name()?);
        let (_target, attached) = attached(&mut command)?;
        if attached.image.path != build.runtime_file() {
            return Err(format!("found {:?}", attached.image));
        }
        Ok(None)
    });
}

#[test]
fn a_shell_above_python() {
    for_each("shell", |python| {
        let direct = python.program("attach.py");
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$@\"; exit 0", "sh"]);
        shell
            .arg(direct.get_program())
            .args(direct.get_args())
            .arg("blocked");
        let (target, shell) = Target::below(&mut shell)?;
        match attach(shell) {
            Err(AttachError::NotPython { children, .. })
                if children.iter().any(|child| child.pid == target.pid as i32) =>
            {
                Ok(None)
            }
            other => Err(format!("{:?}", other.map(|attached| attached.process))),
        }
    });
}

#[test]
fn damaged_offsets() {
    for_each("damaged_offsets", |python| {
        let (target, attached) = attached(python.program("attach.py").arg("blocked"))?;
        if minor(&attached) < (3, 13) {
            return Ok(Some("no offsets are published before 3.13".into()));
        }
        let memory = OpenOptions::new()
            .write(true)
            .open(format!("/proc/{}/mem", target.pid));
        let memory = memory.map_err(|error| error.to_string())?;
        let write = |offset, word: u64| {
            let at = attached.runtime.add(offset).0;
            memory
                .write_all_at(&word.to_le_bytes(), at)
                .map_err(|error| error.to_string())
        };
        // The words after cookie, version and the free-threaded flag: sizes and offsets.
        for word in 3..60 {
            write(8 * word, 0x7fff_ffff_0001)?;
        }
        match attach(target.pid) {
            Err(AttachError::OffsetsInvalid { reason, .. }) if reason != LayoutError::NoCookie => {}
            other => return Err(format!("damaged: {:?}", other.map(|a| a.layout))),
        }
        write(8, 0x0363_00f0)?;
        match attach(target.pid) {
            Err(error) if !error.may_pass() => {}
            other => return Err(format!("3.99: {:?}", other.map(|a| a.layout))),
        }
        write(8, 0x030d_00a1)?;
        match attach(target.pid) {
            Err(AttachError::PreRelease {
                version: Version(0x030d_00a1),
                ..
            }) => Ok(None),
            other => Err(format!("3.13.0a1: {:?}", other.map(|a| a.layout))),
        }
    });
}

#[test]
fn from_the_first_instruction_to_the_last() {
    for_each("short_life", |python| {
        let mut attached = 0;
        for _ in 0..10 {
            let mut command = python.command();
            command.args(["-S", "-c", "sum(range(3000000))"]);
            let mut child = command.spawn().map_err(|error| error.to_string())?;
            let end = loop {
                match attach(child.id()) {
                    Ok(_) => attached += 1,
                    Err(error) if error.may_pass() => {}
                    // `chroot` itself is no Python, until it executes it.
                    Err(AttachError::NotPython { comm, .. }) if comm == "chroot" => {}
                    Err(error) => break error,
                }
            };
            child.wait().map_err(|error| error.to_string())?;
            match end {
                AttachError::Zombie { .. } | AttachError::Gone { .. } => {}
                other => return Err(format!("ended as {other:?}")),
            }
        }
        if attached == 0 {
            return Err("never attached while it ran".into());
        }
        Ok(None)
    });
}

fn single(name: &str, case: impl FnOnce() -> Outcome) {
    let report = Case::new("attach", "-", name);
    match case() {
        Ok(()) => report.ok(),
        Err(why) => {
            report.failed(&why);
            panic!("{name}: {why}");
        }
    }
}

fn refusal(pid: u32) -> Result<AttachError, String> {
    match attach(pid) {
        Ok(attached) => Err(format!("attached to {:?}", attached.process)),
        Err(error) => Ok(error),
    }
}

#[test]
fn nobody() {
    single("nonexistent", || {
        for pid in [0, i32::MAX as u32, u32::MAX] {
            match refusal(pid)? {
                AttachError::Gone { .. } => {}
                other => return Err(format!("{pid}: {other:?}")),
            }
        }
        Ok(())
    });
}

#[test]
fn a_kernel_thread() {
    // In a PID namespace of its own, process 2 is something else.
    if unwind_user::process::Stat::of(2).is_ok_and(|stat| stat.is_kernel_thread()) {
        single("kernel_thread", || match refusal(2)? {
            AttachError::KernelThread { pid: 2, comm } if comm == "kthreadd" => Ok(()),
            other => Err(format!("{other:?}")),
        });
    } else {
        Case::new("attach", "-", "kernel_thread").skipped("process 2 is no kernel thread here");
    }
}

#[test]
fn a_zombie() {
    single("zombie", || {
        let mut child = Command::new("true")
            .spawn()
            .map_err(|error| error.to_string())?;
        let id = Id::Pid(Pid::from_raw(child.id() as i32));
        waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).map_err(|e| e.to_string())?;
        let refusal = refusal(child.id());
        child.wait().map_err(|error| error.to_string())?;
        match refusal? {
            AttachError::Zombie { .. } => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn no_python_at_all() {
    single("not_python", || {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut seen = HashSet::new();
        let end = loop {
            // The dynamic linker may still be at work.
            match refusal(child.id())? {
                error if error.may_pass() => seen.insert(error.to_string()),
                error => break error,
            };
        };
        drop(child.stdin.take());
        child.wait().map_err(|error| error.to_string())?;
        match end {
            AttachError::NotPython { children, comm, .. }
                if children.is_empty() && comm == "cat" =>
            {
                Ok(())
            }
            other => Err(format!("{other:?} after {seen:?}")),
        }
    });
}
