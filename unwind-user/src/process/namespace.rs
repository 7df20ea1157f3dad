//! PID namespaces: whose numbers our pids are.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Inode of the initial PID namespace (`PROC_PID_INIT_INO`), a constant of the kernel.
const INITIAL_PID_NAMESPACE: u64 = 0xeffffffc;

/// Whether our own pids are those of the initial PID namespace, which the kernel half speaks.
///
/// # Errors
/// As `stat(2)`, where `/proc` is not mounted.
pub fn ours_is_initial() -> io::Result<bool> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino() == INITIAL_PID_NAMESPACE)
}

/// The process ids of `pid`, from the namespace of the mounted `/proc` down to its own.
///
/// One number where it shares our namespace; the last is the one that the process calls itself.
///
/// # Errors
/// As `read(2)`; not found where there is no such process.
pub fn pids(pid: i32) -> io::Result<Vec<i32>> {
    let status = std::fs::read(format!("/proc/{pid}/status"))?;
    numbers(&status, b"NSpid:").ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The threads of a process, by the number that it calls each itself: their ids as we know them.
///
/// # Errors
/// As `opendir(3)`: not found where there is no such process.
pub fn tids(pid: i32) -> io::Result<HashMap<u64, i32>> {
    let is_ours = pids(pid)?.len() == 1;
    let native = |tid: i32| {
        let own = if is_ours {
            tid
        } else {
            pids(tid).ok()?.last().copied()?
        };
        Some((u64::try_from(own).ok()?, tid))
    };
    let tids = super::threads(pid)?;
    Ok(tids.into_iter().filter_map(native).collect())
}

/// The process that the thread `tid` belongs to: `tid` itself for a main thread.
///
/// # Errors
/// As [`pids`].
pub fn process_of(tid: i32) -> io::Result<i32> {
    let status = std::fs::read(format!("/proc/{tid}/status"))?;
    let process = numbers(&status, b"Tgid:").and_then(|numbers| numbers.first().copied());
    process.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The numbers of one line of `/proc/PID/status`. (The name in it is escaped: no false line.)
fn numbers(status: &[u8], key: &[u8]) -> Option<Vec<i32>> {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .map(|n| n.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_line_asked_for() {
        let status = b"Name:\ta\\nNSpid:\t9\nTgid:\t41\nNSpid:\t41\t7\t1\nNStgid:\t1\n";
        assert_eq!(numbers(status, b"NSpid:"), Some(vec![41, 7, 1]));
        assert_eq!(numbers(status, b"Tgid:"), Some(vec![41]));
        assert_eq!(numbers(status, b"None:"), None);
        assert_eq!(numbers(b"NSpid:\tx\n", b"NSpid:"), None);
    }

    #[test]
    fn we_are_ourselves() {
        let pid = std::process::id() as i32;
        assert_eq!(pids(pid).expect("status").first(), Some(&pid));
        assert_eq!(
            process_of(nix::unistd::gettid().as_raw()).expect("status"),
            pid
        );
    }
}
