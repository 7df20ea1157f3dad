//! For people.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::source::Sources;
use super::{Dump, command, state_word};
use crate::process::printable;
use crate::remote::{Frame, Thread};

/// Writes one process: a head, and a paragraph for each thread.
pub(super) fn write(dump: &Dump, out: &mut dyn Write) -> io::Result<()> {
    let process = &dump.unwinder.process;
    writeln!(out, "Process {}: {}", process.pid, command(&dump.unwinder))?;
    let exe = printable(process.exe.as_os_str().as_encoded_bytes());
    writeln!(out, "Python {} ({exe})", dump.unwinder.layout.version)?;
    if dump.threads.is_empty() {
        writeln!(out, "\n(no thread to show)")?;
    }
    let mut sources = Sources::of(process.pid);
    for thread in &dump.threads {
        writeln!(out)?;
        writeln!(out, "{}", head(thread))?;
        if thread.stack.frames.is_empty() && thread.stack.incomplete.is_none() {
            writeln!(out, "    (no Python frames: it runs no Python code)")?;
        }
        for frame in &thread.stack.frames {
            writeln!(out, "    {}", place(frame))?;
            let Frame::Python { function, location } = frame else {
                continue;
            };
            let line = location.line;
            let source = line.and_then(|line| sources.line(&function.filename, line));
            if let Some(source) = source {
                writeln!(out, "        {source}")?;
            }
        }
        if let Some(incomplete) = thread.stack.incomplete {
            writeln!(out, "    ({incomplete})")?;
        }
    }
    if sources.full {
        writeln!(
            out,
            "\n(more source files than are read: some lines are missing)"
        )?;
    }
    if !dump.is_whole {
        writeln!(
            out,
            "\n(the list of threads changed whenever it was read: some may be missing)"
        )?;
    }
    Ok(())
}

/// `Thread 71 "worker": main, running, holds the GIL`.
fn head(thread: &Thread) -> String {
    let mut head = format!(
        "Thread {}",
        thread
            .tid
            .map_or(thread.native_id, |tid| tid.cast_unsigned().into())
    );
    if !thread.name.is_empty() {
        // A String takes whatever is written.
        let _ = write!(head, " {:?}", thread.name);
    }
    let mut words = Vec::new();
    if thread.is_main {
        words.push("main".to_owned());
    }
    words.extend(thread.state.map(|state| state_word(state).to_owned()));
    if thread.holds_gil {
        words.push("holds the GIL".to_owned());
    }
    if thread.wants_gil == Some(true) {
        words.push("waits for the GIL".to_owned());
    }
    if thread.has_exception == Some(true) {
        words.push("in an exception".to_owned());
    }
    if let Some(id) = thread.interpreter.filter(|&id| id != 0) {
        words.push(format!("in interpreter {id}"));
    }
    if !words.is_empty() {
        head.push_str(": ");
        head.push_str(&words.join(", "));
    }
    head
}

/// `qualname (file:line)`.
fn place(frame: &Frame) -> String {
    let (function, location) = match frame {
        Frame::Python { function, location } => (function, location),
        Frame::Marker(marker) => return marker.text().to_owned(),
    };
    let name = printable(function.qualname.as_bytes());
    let file = printable(function.filename.as_bytes());
    match location.line {
        Some(line) => format!("{name} ({file}:{line})"),
        None => format!("{name} ({file})"),
    }
}
