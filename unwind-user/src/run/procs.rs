//! What `/proc` says of the processes of a session. Records carry process ids as `u32`, system
//! calls take `i32`; both count in the initial PID namespace.

use std::time::{Duration, Instant};

use crate::process::{Identity, Stat, thread_name, threads};

/// The number as system calls take it; one that cannot exist names no process.
const fn os(pid: u32) -> i32 {
    if pid > i32::MAX as u32 {
        i32::MAX
    } else {
        pid as i32
    }
}

/// Whether a thread of the process has not ended.
pub(super) fn is_live(pid: u32) -> bool {
    crate::process::is_live(os(pid))
}

/// Its start in clock ticks since boot, which tells it from another process of the number; none when
/// it is gone.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    Stat::of(os(pid)).ok().map(|stat| stat.start_time)
}

/// When the process began; now, if it is gone.
pub(super) fn began(pid: u32) -> Instant {
    let age = Stat::of(os(pid)).map_or(Duration::ZERO, |stat| stat.age());
    let now = Instant::now();
    now.checked_sub(age).unwrap_or(now)
}

/// The command line, or the program's name where it has none; empty when the process is gone.
pub(super) fn command_line(pid: u32) -> String {
    let Ok(identity) = Identity::of(os(pid)) else {
        return String::new();
    };
    let words = identity.command.iter().map(|word| word.to_string_lossy());
    let line = words.collect::<Vec<_>>().join(" ");
    if line.is_empty() { identity.comm } else { line }
}

/// The name of a thread; none when it is gone.
pub(super) fn name_of_thread(pid: u32, tid: u32) -> Option<String> {
    thread_name(os(pid), os(tid))
}

/// The threads and their names.
pub(super) fn thread_names(pid: u32) -> Vec<(u32, String)> {
    names_of_threads(pid, |_| true)
}

/// The threads that are `wanted`, and their names.
pub(super) fn names_of_threads(pid: u32, wanted: impl Fn(u32) -> bool) -> Vec<(u32, String)> {
    let tids = threads(os(pid)).unwrap_or_default().into_iter();
    let named = |tid: i32| {
        let id = u32::try_from(tid).ok().filter(|id| wanted(*id))?;
        Some((id, thread_name(os(pid), tid)?))
    };
    tids.filter_map(named).collect()
}
