//! For programs; `dump.schema.json` beside this file describes it.

use serde::Serialize;

use super::{Dump, command, sources};
use crate::remote::Thread;

/// Version of this format: a field that is gone or means something else makes another.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document {
    version: u32,
    processes: Vec<ProcessJson>,
}

#[derive(Serialize)]
struct ProcessJson {
    pid: i32,
    command: String,
    exe: String,
    python: String,
    threads: Vec<ThreadJson>,
}

#[derive(Serialize)]
struct ThreadJson {
    tid: Option<i32>,
    native_id: u64,
    name: String,
    interpreter: Option<u64>,
    main: bool,
    holds_gil: bool,
    wants_gil: Option<bool>,
    exception: Option<bool>,
    state: Option<char>,
    frames: Vec<FrameJson>,
    incomplete: Option<&'static str>,
}

#[derive(Serialize)]
struct FrameJson {
    function: String,
    file: String,
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
/// None that occurs: strings and numbers can always be written.
pub(super) fn write(dumps: &[Dump], out: &mut String) -> serde_json::Result<()> {
    let document = Document {
        version: VERSION,
        processes: dumps.iter().map(process).collect(),
    };
    out.push_str(&serde_json::to_string_pretty(&document)?);
    out.push('\n');
    Ok(())
}

fn process(dump: &Dump) -> ProcessJson {
    let process = &dump.unwinder.process;
    ProcessJson {
        pid: process.pid,
        command: command(&dump.unwinder),
        exe: process.exe.to_string_lossy().into_owned(),
        python: dump.unwinder.layout.version.to_string(),
        threads: {
            let mut sources = sources(dump);
            let threads = dump.threads.iter();
            threads.map(|thread| json(thread, &mut sources)).collect()
        },
    }
}

fn json(thread: &Thread, sources: &mut super::Sources) -> ThreadJson {
    let frames = thread.stack.frames.iter().map(|frame| {
        let (code, location) = (&frame.code, frame.location);
        FrameJson {
            function: code.qualname.clone(),
            file: code.filename.clone(),
            first_line: code.first_line,
            line: location.line,
            end_line: location.end_line,
            column: location.column,
            end_column: location.end_column,
            source: location
                .line
                .and_then(|line| sources.line(&code.filename, line)),
        }
    });
    ThreadJson {
        tid: thread.tid,
        native_id: thread.native_id,
        name: thread.name.clone(),
        interpreter: thread.interpreter,
        main: thread.is_main,
        holds_gil: thread.holds_gil,
        wants_gil: thread.wants_gil,
        exception: thread.has_exception,
        state: thread.state,
        frames: frames.collect(),
        incomplete: thread.stack.incomplete.map(super::Incomplete::name),
    }
}
