//! `unwind dump`: what every thread of a process is doing now.

mod json;
mod source;
mod text;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::process;
use crate::profile::Marker;
use crate::python::AttachError;
use crate::remote::{Frame, Thread, Threads, Unwinder};
use crate::run::FAILED;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The process, a number of our own PID namespace.
    pub pid: u32,
    /// Its children, too.
    pub subprocesses: bool,
    /// JSON instead of text.
    pub json: bool,
    /// Which threads.
    pub mode: Mode,
    /// Show where C code called Python.
    pub natives: bool,
}

/// Which threads are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All.
    All,
    /// Those that run, or would if there were a CPU for them.
    Cpu,
    /// Those that hold a GIL.
    Gil,
    /// Those that raise or handle an exception.
    Exception,
}

impl Mode {
    fn shows(self, thread: &Thread) -> bool {
        match self {
            Self::All => true,
            Self::Cpu => thread.state == Some('R'),
            Self::Gil => thread.holds_gil,
            Self::Exception => thread.has_exception == Some(true),
        }
    }
}

/// One process and its threads.
struct Dump {
    unwinder: Unwinder,
    threads: Vec<Thread>,
    /// Whether none may be missing.
    is_whole: bool,
}

/// Prints the stacks of all threads to standard output.
///
/// # Errors
/// When the process cannot be read, or standard output cannot be written.
pub fn dump(options: &Options) -> anyhow::Result<ExitCode> {
    let mut dumps = Vec::new();
    let mut code = ExitCode::SUCCESS;
    let read = |pid| read(pid, options);
    let first = read(options.pid);
    if options.subprocesses {
        let parent = i32::try_from(options.pid).unwrap_or(i32::MAX);
        let mut not_python = None;
        match first {
            Ok(dump) => dumps.push(dump),
            // A shell whose children are Python.
            Err(error @ AttachError::NotPython { .. }) => not_python = Some(error),
            Err(error) => return Err(error.into()),
        }
        let children = process::descendants(parent);
        if children.len() >= process::DESCENDANTS_MAX {
            // Nothing is left to do if standard error is closed.
            let _ = writeln!(
                io::stderr(),
                "unwind: only the first {} child processes are looked at",
                process::DESCENDANTS_MAX
            );
        }
        for child in children {
            match read(child.cast_unsigned()) {
                Ok(dump) => dumps.push(dump),
                Err(error) if is_no_matter(&error) => {}
                Err(error) => {
                    // Nothing is left to do if standard error is closed.
                    let _ = writeln!(io::stderr(), "unwind: {error}");
                    code = ExitCode::from(FAILED);
                }
            }
        }
        if let Some(error) = not_python.filter(|_| dumps.is_empty()) {
            return Err(error.into());
        }
    } else {
        dumps.push(first?);
    }
    match write(
        &dumps,
        options.json,
        &mut BufWriter::new(io::stdout().lock()),
    ) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(code),
        result => result
            .context("cannot write to standard output")
            .map(|()| code),
    }
}

fn write(dumps: &[Dump], is_json: bool, out: &mut dyn Write) -> io::Result<()> {
    if is_json {
        json::write(dumps, out)?;
    } else {
        for (nth, dump) in dumps.iter().enumerate() {
            if nth > 0 {
                writeln!(out)?;
            }
            text::write(dump, out)?;
        }
    }
    out.flush()
}

fn read(pid: u32, options: &Options) -> Result<Dump, AttachError> {
    let mut unwinder = Unwinder::attach(pid)?;
    let Threads { mut list, is_whole } = unwinder.threads()?;
    list.retain(|thread| options.mode.shows(thread));
    if !options.natives {
        for thread in &mut list {
            let frames = &mut thread.stack.frames;
            frames.retain(|frame| !matches!(frame, Frame::Marker(Marker::Native)));
        }
    }
    Ok(Dump {
        unwinder,
        threads: list,
        is_whole,
    })
}

/// Whether a child is none that anyone would look for here.
const fn is_no_matter(error: &AttachError) -> bool {
    matches!(
        error,
        AttachError::NotPython { .. }
            | AttachError::Gone { .. }
            | AttachError::Zombie { .. }
            | AttachError::KernelThread { .. }
            | AttachError::Thread { .. }
    )
}

/// The kernel's state letter in a word.
fn state_word(state: char) -> &'static str {
    match state {
        'R' => "running",
        'S' | 'I' => "sleeping",
        'D' => "in an uninterruptible wait",
        'T' => "stopped",
        't' => "stopped by a debugger",
        'Z' | 'X' | 'x' => "ended",
        _ => "in an unknown state",
    }
}

/// The command line, safe to print on one line.
fn command(unwinder: &Unwinder) -> String {
    let words: Vec<String> = unwinder
        .process
        .command
        .iter()
        .map(|word| process::printable(word.as_encoded_bytes()))
        .collect();
    if words.is_empty() {
        return unwinder.process.comm.clone();
    }
    words.join(" ")
}
