//! What the kernel tells about a process: who it is, what it runs, what it has mapped.

pub mod elf;
pub mod image;
pub mod maps;
pub mod namespace;
mod stat;

pub use stat::Stat;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::format::text::is_unfit;
use crate::patience::patiently;

/// Children looked at in a search below a process.
pub const DESCENDANTS_MAX: usize = 256;

/// Names one process for good, and says what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Process id in our own PID namespace.
    pub pid: i32,
    /// Start, in clock ticks since boot: a pid that is used again has another.
    pub start_time: u64,
    /// Name of the program, at most 15 bytes, as it would be printed.
    pub comm: String,
    /// Path of the program as the kernel shows it; empty where we may not see it.
    pub exe: PathBuf,
    /// The command line; the process itself can overwrite it. Empty where it does not answer.
    pub command: Vec<OsString>,
    /// The pid in each namespace from ours down to the process's own ([`namespace::pids`]).
    pub namespace_pids: Vec<i32>,
}

impl Identity {
    /// Who the process `pid` is now.
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`: not found where there is no such process (any more).
    pub fn of(pid: i32) -> io::Result<Self> {
        let stat = Stat::of(pid)?;
        // The kernel reads it in the process's memory, where it may have to wait for a page.
        let command = patiently(pid, move || std::fs::read(format!("/proc/{pid}/cmdline")));
        let command = command.unwrap_or_else(|_| Ok(Vec::new()))?;
        Ok(Self {
            pid,
            start_time: stat.start_time,
            comm: printable(&stat.comm),
            exe: std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default(),
            command: split_arguments(&command),
            namespace_pids: namespace::pids(pid)?,
        })
    }

    /// Whether the process is still there and has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_ok_and(|stat| stat.start_time == self.start_time && !stat.has_ended())
    }
}

/// Reads what a process has mapped.
///
/// # Errors
/// As `open(2)` and `read(2)`: `EACCES` without ptrace rights over it.
pub fn mappings(pid: i32) -> io::Result<Vec<maps::Mapping>> {
    Ok(maps::parse(&std::fs::read(format!("/proc/{pid}/maps"))?))
}

/// The threads of a process: ids in our PID namespace.
///
/// # Errors
/// As `opendir(3)`: not found where there is no such process.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(ids.collect())
}

/// Name of a thread, at most 15 bytes, as it would be printed; none when it has ended.
#[must_use]
pub fn thread_name(pid: i32, tid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(printable(name.strip_suffix(b"\n").unwrap_or(&name)))
}

/// Whether a thread of the process has not ended: its first thread can end before others do.
#[must_use]
pub fn is_live(pid: i32) -> bool {
    let Ok(stat) = Stat::of(pid) else {
        return false;
    };
    !stat.has_ended() || threads(pid).is_ok_and(|tids| tids.len() > 1)
}

/// The children of a process.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for tid in threads(pid).unwrap_or_default() {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let list = list.unwrap_or_default();
        let pids = list.split_ascii_whitespace();
        found.extend(pids.filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// The children of a process, theirs, and so on, nearest first; a bounded number of them.
#[must_use]
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut parent = pid;
    let mut next = 0;
    while found.len() < DESCENDANTS_MAX {
        found.extend(children(parent));
        let Some(&child) = found.get(next) else { break };
        parent = child;
        next += 1;
    }
    found.truncate(DESCENDANTS_MAX);
    found
}

/// A name that a process chose for itself, safe to print on a line of its own: without what steers
/// a terminal, ends a line or turns the reading direction.
pub(crate) fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    text.chars()
        .map(|c| {
            if is_unfit(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

fn split_arguments(bytes: &[u8]) -> Vec<OsString> {
    let Some(bytes) = bytes
        .strip_suffix(b"\0")
        .or(Some(bytes))
        .filter(|b| !b.is_empty())
    else {
        return Vec::new();
    };
    bytes
        .split(|&byte| byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;

    use super::*;

    #[test]
    fn knows_ourselves() {
        let pid = std::process::id() as i32;
        let identity = Identity::of(pid).expect("we are alive");
        assert_eq!(identity.exe, std::env::current_exe().expect("our path"));
        assert_eq!(identity.command, std::env::args_os().collect::<Vec<_>>());
        assert!(identity.is_alive());
        let earlier = Identity {
            start_time: identity.start_time - 1,
            ..identity
        };
        assert!(
            !earlier.is_alive(),
            "the same pid at another time is another process"
        );
    }

    #[test]
    fn lists_threads_by_name() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("fifteen-bytes-x".into());
        let (ready, started) = std::sync::mpsc::channel();
        let thread = thread
            .spawn(move || {
                ready
                    .send(nix::unistd::gettid().as_raw())
                    .expect("the test listens");
                receive.recv().ok()
            })
            .expect("a thread");
        let tid = started.recv().expect("the thread's id");
        let pid = std::process::id() as i32;
        assert!(threads(pid).expect("ours").contains(&tid));
        assert_eq!(thread_name(pid, tid).as_deref(), Some("fifteen-bytes-x"));
        drop(send);
        thread.join().expect("no panic");
    }

    #[test]
    fn descends_to_grandchildren() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 & echo $!; wait"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("a pipe");
        std::io::BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the grandchild's pid");
        let below = descendants(std::process::id() as i32);
        drop(shell.stdin.take());
        shell.wait().expect("the shell ends");
        assert!(below.contains(&(shell.id() as i32)), "{below:?}");
        assert!(
            below.contains(&line.trim().parse().expect("a pid")),
            "{below:?}"
        );
    }

    #[test]
    fn splits_arguments_and_prints_names() {
        assert_eq!(split_arguments(b"a\0\0b\0"), ["a", "", "b"]);
        assert_eq!(split_arguments(b"overwritten title"), ["overwritten title"]);
        assert!(split_arguments(b"").is_empty());
        assert_eq!(printable(b"a\nb\xff\\"), "a\u{fffd}b\u{fffd}\\");
        let turned = "a\u{202e}\u{2066}\u{200f}\u{61c}\u{9b}\u{7f}é";
        assert_eq!(
            printable(turned.as_bytes()),
            format!("a{}é", "\u{fffd}".repeat(6))
        );
    }
}
