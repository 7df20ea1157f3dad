//! Attaching: the interpreter and the ways to its thread states are found in real processes.
//!
//! Each target says what is true of it in a line of JSON (`programs/attach.py`), which is also the
//! sign that it is ready.

mod attach {
    pub(crate) mod copies;
    mod refused;
    pub(crate) mod target;
    mod unsteady;
}

use std::process::Command;

use attach::copies::{Build, Copies};
use attach::target::{Target, check};
use unwind_tests::{Case, Place, Python, pythons};
use unwind_user::python::{AttachError, Attached, attach};

/// Runs one case for each interpreter. `Ok(Some(reason))` says why it was skipped.
pub(crate) fn for_each(name: &str, case: impl Fn(&Python) -> Result<Option<String>, String>) {
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
pub(crate) fn attached(command: &mut Command) -> Result<(Target, Attached), String> {
    let target = Target::start(command)?;
    let attached = attach(target.pid).map_err(|error| format!("{error}"))?;
    check(&attached, &target)?;
    Ok((target, attached))
}

const THREAD_LOCAL_SINCE: (u8, u8) = (3, 12);

pub(crate) fn minor(attached: &Attached) -> (u8, u8) {
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
fn running_again(target: &Target) -> Result<(), String> {
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
