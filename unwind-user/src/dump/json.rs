//! For programs; `dump.schema.json` beside this file describes it.

use std::io::{self, Write};

use serde::Serialize;

use super::source::Sources;
use super::{Dump, command};
use crate::format::text::is_unfit;
use crate::profile::Marker;
use crate::remote::{Frame, Incomplete, Thread};

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
    marker: Option<&'static str>,
    function: &'a str,
    file: &'a str,
    first_line: u32,
    line: Option<u32>,
    end_line: Option<u32>,
    column: Option<u32>,
    end_column: Option<u32>,
    source: Option<String>,
}

impl FrameJson<'_> {
    /// What stands in a stack without being a Python function.
    fn marker(marker: Marker) -> Self {
        Self {
            marker: Some(marker.text().trim_matches(['<', '>'])),
            function: marker.text(),
            file: "",
            first_line: 0,
            line: None,
            end_line: None,
            column: None,
            end_column: None,
            source: None,
        }
    }
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
    serde_json::to_writer_pretty(Escaping(&mut *out), &document)?;
    writeln!(out)
}

/// Escapes what a terminal or a reader could trip over and JSON lets pass: outside its strings, JSON
/// has none of it.
struct Escaping<'a>(&'a mut dyn Write);

impl Write for Escaping<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // serde_json writes whole characters.
        let text = str::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut rest = text;
        let must = |c: char| c != '\n' && is_unfit(c);
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| must(*c)) {
            let (plain, after) = rest.split_at(at);
            self.0.write_all(plain.as_bytes())?;
            write!(self.0, "\\u{:04x}", u32::from(c))?;
            rest = after.strip_prefix(c).unwrap_or_default();
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
        let (function, location) = match frame {
            Frame::Python { function, location } => (&**function, location),
            Frame::Marker(marker) => return FrameJson::marker(*marker),
        };
        let line = location.line;
        FrameJson {
            marker: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_and_steer_nothing() {
        let names = [
            "plain é 𠀀",
            "\u{9b}2J\u{7f}\u{202e}\u{2069}\n\t\\\"",
            "\u{1b}[2J",
        ];
        let mut bytes = Vec::new();
        serde_json::to_writer_pretty(Escaping(&mut bytes), &names).expect("a Vec takes all");
        let text = String::from_utf8(bytes).expect("UTF-8");
        assert!(!text.chars().any(|c| c != '\n' && is_unfit(c)), "{text:?}");
        assert!(text.contains(names[0]));
        let back: Vec<String> = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back, names);
    }
}
