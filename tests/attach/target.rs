//! A Python process that tells what is true of it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use unwind_ebpf::abi::TstatePath;
use unwind_user::memory::{Addr, Memory};
use unwind_user::python::Attached;

/// A started `programs/attach.py`; ended when dropped.
#[derive(Debug)]
pub(crate) struct Target {
    child: Child,
    /// Its process id.
    pub(crate) pid: u32,
    /// A thread of it, where it has several.
    pub(crate) tid: i32,
    /// Thread pointer and thread state (0: not told) of each of its threads.
    pub(crate) threads: Vec<(u64, u64)>,
}

impl Target {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let (target, started) = Self::below(command)?;
        if target.pid != started {
            return Err(format!("started {started}, but {} answers", target.pid));
        }
        Ok(target)
    }

    /// The same, where `command` may start it as a child; gives the pid started, too.
    pub(crate) fn below(command: &mut Command) -> Result<(Self, u32), String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no pipe")?;
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        let started = child.id();
        let mut target = Self {
            child,
            pid: started,
            tid: 0,
            threads: Vec::new(),
        };
        let facts: serde_json::Value =
            serde_json::from_str(&line).map_err(|error| format!("{error}: {line:?}"))?;
        let number = |value: &serde_json::Value| value.as_u64().ok_or("not a number");
        target.pid = number(&facts["pid"])? as u32;
        target.tid = number(&facts["tid"])? as i32;
        for pair in facts["threads"].as_array().ok_or("no threads")? {
            target.threads.push((number(&pair[0])?, number(&pair[1])?));
        }
        Ok((target, started))
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        // A child under a shell ends when its input does; one that spins must be killed.
        drop(self.child.stdin.take());
        if self.pid == self.child.id() {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether the runtime found is the real one, and the ways are right for each thread: every
/// answer is the thread's own state, and one way answers always, with the GIL or without.
pub(crate) fn check(attached: &Attached, target: &Target) -> Result<(), String> {
    if target.threads.is_empty() || attached.process.pid != target.pid as i32 {
        return Err(format!("{:?} is not {target:?}", attached.process));
    }
    let (memory, paths) = (&attached.memory, &attached.paths);
    let listed =
        unwind_user::python::tstate::threads(memory, &attached.layout, attached.runtime).states;
    let mut threads = Vec::new();
    for &(pointer, state) in &target.threads {
        let fits = |addr| state == 0 || state == addr;
        let own = listed
            .iter()
            .find(|t| t.thread_id == pointer && fits(t.addr.0));
        let Some(own) = own else {
            return Err(format!(
                "{state:#x} of {pointer:#x} is not among {listed:?}"
            ));
        };
        threads.push((pointer, own.addr.0));
    }
    for &(pointer, state) in &threads {
        let answers: Vec<_> = paths
            .iter()
            .map(|path| follow(memory, pointer, path))
            .collect();
        if answers.iter().any(|&answer| answer != 0 && answer != state) {
            return Err(format!(
                "{paths:?} of {pointer:#x} give {answers:x?}, not {state:#x}"
            ));
        }
    }
    let stays = |path: &&TstatePath| {
        threads
            .iter()
            .all(|(pointer, state)| follow(memory, *pointer, path) == *state)
    };
    if paths.iter().find(stays).is_none() {
        return Err(format!(
            "none of {paths:?} answers for each of {threads:x?}"
        ));
    }
    Ok(())
}

fn follow(memory: &impl Memory, pointer: u64, path: &TstatePath) -> u64 {
    let mut at = pointer;
    for &offset in &path.offsets[..path.steps as usize] {
        at = memory
            .u64(Addr(at.wrapping_add_signed(offset)))
            .unwrap_or(0);
        if at == 0 || at == u64::MAX {
            return 0;
        }
    }
    at
}
