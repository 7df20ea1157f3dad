//! For programs; `dump.schema.json` beside this file describes it.

use std::io::Write;

use serde::Serialize;

use super::source::Sources;
use super::{Dump, command};
use crate::remote::{Incomplete, Thread};

/// Version of this format: a field that is gone or means something else makes another.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    processes: Vec<ProcessJson<'a>>,
}

#[derive(Serialize)]
struct ProcessJson<'a> {
    pid: i32,
    command: String,
    exe: String,
    python: String,
    threads_whole: bool,
    threads: Vec<ThreadJson<'a>>,
}

#[derive(Serialize)]
struct ThreadJson<'a> {
    tid: Option<i32>,
    native_id: u64,
    name: &'a str,
    interpreter: Option<u64>,
    main: bool,
    holds_gil: bool,
    wants_gil: Option<bool>,
    exception: Option<bool>,
    state: Option<char>,
    frames: Vec<FrameJson<'a>>,
    incomplete: Option<&'static str>,
}

#[derive(Serialize)]
struct FrameJson<'a> {
    function: &'a str,
    file: &'a str,
    first_line: u32,
    line: Option<u32>,
    end_line: Option<u32>,
    column: Option<u32>,
    end_column: Option<u32>,
    source: Option<String>,
}

/// Writes all processes.
///
/// # Errors
/// As writing to `out`.
pub(super) fn write(dumps: &[Dump], out: &mut dyn Write) -> std::io::Result<()> {
    let document = Document {
        version: VERSION,
        processes: dumps.iter().map(process).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn process(dump: &Dump) -> ProcessJson<'_> {
    let process = &dump.unwinder.process;
    let mut sources = Sources::of(process.pid);
    ProcessJson {
        pid: process.pid,
        command: command(&dump.unwinder),
        exe: process.exe.to_string_lossy().into_owned(),
        python: dump.unwinder.layout.version.to_string(),
        threads_whole: dump.is_whole,
        threads: {
            let threads = dump.threads.iter();
            threads.map(|thread| json(thread, &mut sources)).collect()
        },
    }
}

fn json<'a>(thread: &'a Thread, sources: &mut Sources) -> ThreadJson<'a> {
    let frames = thread.stack.frames.iter().map(|frame| {
        let (function, location) = (&*frame.function, frame.location);
        let line = location.line;
        FrameJson {
            function: &function.qualname,
            file: &function.filename,
            first_line: function.first_line,
            line,
            end_line: location.end_line,
            column: location.column,
            end_column: location.end_column,
            source: line.and_then(|line| sources.line(&function.filename, line)),
        }
    });
    ThreadJson {
        tid: thread.tid,
        native_id: thread.native_id,
        name: &thread.name,
        interpreter: thread.interpreter,
        main: thread.is_main,
        holds_gil: thread.holds_gil,
        wants_gil: thread.wants_gil,
        exception: thread.has_exception,
        state: thread.state,
        frames: frames.collect(),
        incomplete: thread.stack.incomplete.map(Incomplete::name),
    }
}
