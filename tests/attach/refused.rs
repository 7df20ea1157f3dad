//! Processes that are no Python, or none at all.

use std::collections::HashSet;
use std::process::{Command, Stdio};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use unwind_tests::Case;
use unwind_user::python::{AttachError, attach};

type Outcome = Result<(), String>;

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
