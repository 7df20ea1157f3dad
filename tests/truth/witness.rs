//! CPython's own word on where a program is.
//!
//! `faulthandler` prints the Python stack from within a signal handler: between two instructions
//! of the thread itself, by the interpreter's own code. At random moments that tells how the
//! thread's time is divided, by nothing that the profiler is made of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::judge::kind;
use super::program::Program;

/// Hears so many answers to signals sent at random moments; counts by the kind of the innermost
/// function.
pub(crate) fn leaves(program: &mut Program, times: usize) -> Result<BTreeMap<String, u64>, String> {
    let pid = Pid::from_raw(program.pid.cast_signed());
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| ask(pid, &enough));
        let leaves = hear(program, times);
        enough.store(true, Ordering::Relaxed);
        leaves
    })
}

fn ask(pid: Pid, enough: &AtomicBool) {
    let mut random = 88_172_645_463_325_252_u64;
    // A program that has ended shows where its answers are read.
    while !enough.load(Ordering::Relaxed) && kill(pid, Signal::SIGUSR1).is_ok() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Not a wait for something: this is the sampling interval.
        std::thread::sleep(Duration::from_micros(300 + random % 1_000));
    }
}

/// Reads answers: `Stack (most recent call first):`, then `  File "lane.py", line 4 in work_3` and
/// so on outwards.
fn hear(program: &mut Program, times: usize) -> Result<BTreeMap<String, u64>, String> {
    let mut leaves = BTreeMap::new();
    let mut heard = 0;
    let mut is_first = false;
    while heard < times {
        let line = program.line()?;
        let leaf = line
            .split_once(", line ")
            .and_then(|(_, at)| at.split_once(" in "));
        if let Some((_, leaf)) = leaf.filter(|_| is_first) {
            *leaves.entry(kind(leaf).to_owned()).or_default() += 1;
            heard += 1;
        }
        is_first = line.starts_with("Stack ");
    }
    Ok(leaves)
}
