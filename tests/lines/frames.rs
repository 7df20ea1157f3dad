//! Frames as they are compared.

use std::collections::{BTreeMap, BTreeSet};

use unwind_user::profile::Marker;
use unwind_user::python::string::NAME_CHARS_MAX;

use super::read::Frame;

/// Characters of what a cut name ends in: `…` and its hash.
const CUT_CHARS: usize = 13;
/// What runs while nothing is to be judged.
const UNJUDGED: [&str; 4] = ["begin", "prepare", "tell", "end"];
/// Frames, and characters of each name, in a message.
const SHOWN_FRAMES: usize = 8;
const SHOWN_CHARS: usize = 60;

/// Names that are cut, by how they begin. Compared by that, and by how many begin alike.
#[derive(Debug, Default)]
pub(crate) struct CutNames(BTreeMap<String, BTreeSet<String>>);

impl CutNames {
    /// A name as the program says it: as it begins and `…` if it must be cut.
    pub(crate) fn said(&mut self, name: &str) -> String {
        if name.chars().count() <= NAME_CHARS_MAX {
            return name.to_owned();
        }
        let kept: String = name.chars().take(NAME_CHARS_MAX - CUT_CHARS).collect();
        self.note(&kept, name)
    }

    /// A frame as an output shows it, with cut names as they begin and `…`.
    pub(crate) fn shown(&mut self, frame: &Frame) -> Frame {
        let mut begun = |name: &str| {
            let cut = name.rsplit_once('…').filter(|(kept, hash)| {
                hash.len() + 1 == CUT_CHARS && kept.chars().count() == NAME_CHARS_MAX - CUT_CHARS
            });
            cut.map_or_else(|| name.to_owned(), |(kept, _)| self.note(kept, name))
        };
        let (name, file) = (begun(&frame.name), begun(&frame.file));
        unnamed(Frame {
            name,
            file,
            line: frame.line,
        })
    }

    fn note(&mut self, kept: &str, whole: &str) -> String {
        let begun = format!("{kept}…");
        self.0
            .entry(begun.clone())
            .or_default()
            .insert(whole.to_owned());
        begun
    }

    /// How many names begin each way.
    pub(crate) fn counts(&self) -> Vec<(&str, usize)> {
        self.0
            .iter()
            .map(|(begun, whole)| (begun.as_str(), whole.len()))
            .collect()
    }
}

/// No name, as every output shows it.
pub(crate) fn unnamed(mut frame: Frame) -> Frame {
    if frame.name.is_empty() {
        frame.name.push_str("<unnamed>");
    }
    frame
}

pub(crate) fn any_line(frame: &Frame) -> Frame {
    Frame {
        line: None,
        ..frame.clone()
    }
}

/// Takes the innermost line away.
pub(crate) fn without_last_line(path: &mut [Frame]) -> Option<u32> {
    path.last_mut().and_then(|frame| frame.line.take())
}

pub(crate) fn is_marker(frame: &Frame, marker: Marker) -> bool {
    frame.name == marker.text() && frame.file.is_empty() && frame.line.is_none()
}

/// While the program prepares or says something, and before and after Python code runs at all.
pub(crate) fn is_unjudged(frames: &[Frame]) -> bool {
    let known =
        |frame: &Frame| UNJUDGED.contains(&frame.name.as_str()) && frame.file.ends_with("known.py");
    frames.iter().any(known) || matches!(frames, [only] if is_marker(only, Marker::NoPythonFrames))
}

/// The innermost frames in words.
pub(crate) fn brief(frames: &[Frame]) -> String {
    let innermost = &frames[frames.len().saturating_sub(SHOWN_FRAMES)..];
    let shown = innermost.iter().map(|frame| {
        let name: String = frame.name.chars().take(SHOWN_CHARS).collect();
        let file: String = frame.file.chars().take(SHOWN_CHARS).collect();
        format!("{name:?} {file:?}:{:?}", frame.line)
    });
    format!(
        "{} frames: {}",
        frames.len(),
        shown.collect::<Vec<_>>().join("; ")
    )
}
