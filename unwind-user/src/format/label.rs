//! A frame as one piece of text that can be read back.

use super::{Lines, text};
use crate::profile::{Frame, FrameId, Marker, ProcessKey, Profile, ThreadKey};
use std::fmt::{self, Display, Formatter};

/// Shown for a function without a name.
pub(super) const UNNAMED: &str = "<unnamed>";
const PROCESS: &str = "process ";
const THREAD: &str = "thread ";

/// A frame of a folded stack. Its [`Display`] is `qualname (path:line)`, `qualname (path)`, a
/// marker's text, `process PID COMMAND` or `thread NAME (TID)`, in characters that no reader of
/// folded stacks trips over; [`Label::parse`] reads it back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// A process: a root.
    Process {
        /// Its id.
        pid: u32,
        /// Its command line, maybe empty.
        command: String,
    },
    /// A thread: a root.
    Thread {
        /// Its name, maybe empty.
        name: String,
        /// Its id.
        tid: u32,
    },
    /// Python code.
    Function {
        /// Qualified name.
        name: String,
        /// File.
        file: String,
        /// Line, if it is known and asked for.
        line: Option<u32>,
    },
    /// Something else.
    Marker(Marker),
}

/// A text that is no [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no frame label: {0:?}")]
pub struct LabelError(
    /// The text.
    pub String,
);

impl Label {
    pub(super) fn of_process(profile: &Profile, key: ProcessKey) -> Self {
        let command = profile.processes.get(&key).map(|info| info.command.clone());
        Self::Process {
            pid: key.pid,
            command: command.unwrap_or_default(),
        }
    }

    pub(super) fn of_thread(profile: &Profile, key: ThreadKey) -> Self {
        let name = profile.threads.get(&key).and_then(|info| info.name.clone());
        Self::Thread {
            name: name.unwrap_or_default(),
            tid: key.tid,
        }
    }

    pub(super) fn of_frame(profile: &Profile, frame: FrameId, lines: Lines) -> Self {
        match profile.tables.frame_at(frame) {
            Frame::Marker(marker) => Self::Marker(marker),
            Frame::Python { function, location } => {
                let function = profile.tables.function_of(function);
                Self::Function {
                    name: function.name.to_owned(),
                    file: function.file.to_owned(),
                    line: location.line.filter(|_| lines == Lines::Line),
                }
            }
        }
    }

    /// Reads back what [`Display`] wrote.
    ///
    /// # Errors
    /// When `label` is not of that form.
    pub fn parse(label: &str) -> Result<Self, LabelError> {
        parse(label).ok_or_else(|| LabelError(label.to_owned()))
    }
}

impl Display for Label {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marker(marker) => f.write_str(marker.text()),
            Self::Process { pid, command } if command.is_empty() => write!(f, "{PROCESS}{pid}"),
            Self::Process { pid, command } => write!(f, "{PROCESS}{pid} {}", plain(command)),
            Self::Thread { name, tid } if name.is_empty() => write!(f, "{THREAD}({tid})"),
            Self::Thread { name, tid } => write!(f, "{THREAD}{} ({tid})", plain(name)),
            Self::Function { name, file, line } => f.write_str(&function(name, file, *line)),
        }
    }
}

fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (i, c) in text.chars().enumerate() {
        // Readers trim lines and frames.
        let at_edge = (i == 0 || i == last) && c.is_whitespace();
        text::push(&mut out, c, c == ';' || at_edge || text::is_escaped(c));
    }
    out
}

fn function(name: &str, file: &str, line: Option<u32>) -> String {
    let mut out = String::with_capacity(name.len() + file.len() + 16);
    if name.is_empty() {
        out.push_str(UNNAMED);
    }
    // Names that would read as something else, as a comment, or lose their first blank.
    let is_other = name == UNNAMED
        || name.starts_with(PROCESS)
        || name.starts_with(THREAD)
        || name.starts_with('#')
        || name.starts_with(char::is_whitespace);
    let mut before = None;
    for c in name.chars() {
        // The first " (" ends the name.
        let at_file = c == '(' && before == Some(' ');
        let must = (is_other && before.is_none()) || at_file || c == ';' || text::is_escaped(c);
        text::push(&mut out, c, must);
        before = Some(c);
    }
    out.push_str(" (");
    let line_like = file
        .rfind(':')
        .filter(|&at| line.is_none() && is_number(&file[at + 1..]));
    for (at, c) in file.char_indices() {
        text::push(
            &mut out,
            c,
            line_like == Some(at) || c == ';' || text::is_escaped(c),
        );
    }
    if let Some(line) = line {
        out.push(':');
        out.push_str(&line.to_string());
    }
    // Nor can a last word of digits pass for a second count, as differential profiles have.
    out.push(')');
    out
}

fn parse(label: &str) -> Option<Label> {
    if let Some(marker) = Marker::ALL
        .into_iter()
        .find(|marker| marker.text() == label)
    {
        return Some(Label::Marker(marker));
    }
    if let Some(process) = label.strip_prefix(PROCESS) {
        let (pid, command) = process.split_once(' ').unwrap_or((process, ""));
        return Some(Label::Process {
            pid: number(pid)?,
            command: text::restore(command)?,
        });
    }
    let inner = label.strip_suffix(')')?;
    if let Some(thread) = inner.strip_prefix(THREAD) {
        let (name, tid) = thread.rsplit_once('(')?;
        let name = if name.is_empty() {
            ""
        } else {
            name.strip_suffix(' ')?
        };
        return Some(Label::Thread {
            name: text::restore(name)?,
            tid: number(tid)?,
        });
    }
    let (name, place) = inner.split_once(" (")?;
    let name = if name == UNNAMED {
        String::new()
    } else {
        text::restore(name)?
    };
    let (file, line) = match place.rsplit_once(':').filter(|(_, line)| is_number(line)) {
        Some((file, line)) => (file, Some(number(line)?)),
        None => (place, None),
    };
    Some(Label::Function {
        name,
        file: text::restore(file)?,
        line,
    })
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| is_number(text))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
#[path = "label_tests.rs"]
pub(super) mod tests;
