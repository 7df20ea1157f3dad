//! Targets that are damaged, or begin and end while they are looked at.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use unwind_user::layout::{LayoutError, Version};
use unwind_user::python::{AttachError, attach};

use crate::{attached, for_each, minor};

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
