//! For people.

use std::fmt::Write as _;

use super::{Dump, command, sources, state_word};
use crate::process::printable;
use crate::remote::{Frame, Thread};

/// Writes one process: a head, and a paragraph for each thread.
pub(super) fn write(dump: &Dump, out: &mut String) {
    let process = &dump.unwinder.process;
    line(
        out,
        &format!("Process {}: {}", process.pid, command(&dump.unwinder)),
    );
    let exe = printable(process.exe.as_os_str().as_encoded_bytes());
    line(
        out,
        &format!("Python {} ({exe})", dump.unwinder.layout.version),
    );
    if dump.threads.is_empty() {
        line(out, "\n(no thread to show)");
    }
    let mut sources = sources(dump);
    for thread in &dump.threads {
        line(out, "");
        line(out, &head(thread));
        if thread.stack.frames.is_empty() && thread.stack.incomplete.is_none() {
            line(out, "    (no Python frames: it runs no Python code)");
        }
        for frame in &thread.stack.frames {
            line(out, &format!("    {}", place(frame)));
            let source = frame
                .location
                .line
                .and_then(|line| sources.line(&frame.code.filename, line));
            if let Some(source) = source {
                line(out, &format!("        {source}"));
            }
        }
        if let Some(incomplete) = thread.stack.incomplete {
            line(out, &format!("    ({incomplete})"));
        }
    }
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
    let name = printable(frame.code.qualname.as_bytes());
    let file = printable(frame.code.filename.as_bytes());
    match frame.location.line {
        Some(line) => format!("{name} ({file}:{line})"),
        None => format!("{name} ({file})"),
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
