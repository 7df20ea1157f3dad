//! Strings, functions and locations of a pprof file.

use super::super::Lines;
use super::super::label::UNNAMED;
use super::message::{Function, Line, Location, Mapping, Profile as Message};
use crate::profile::{Frame, FrameId, FunctionId, Interner, Location as Where, Marker, Profile};
use std::sync::Arc;

/// The string table: the empty string first, as the format wants it.
pub(super) struct Strings(Interner<Arc<str>>);

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Self(Interner::default());
        strings.id("");
        strings
    }
}

impl Strings {
    pub(super) fn id(&mut self, text: &str) -> i64 {
        let known = self.0.find(text);
        i64::from(
            known
                .or_else(|| self.0.intern(Arc::from(text), u32::MAX))
                .unwrap_or(0),
        )
    }

    pub(super) fn into_table(self) -> Vec<String> {
        self.0
            .values()
            .iter()
            .map(|text| text.to_string())
            .collect()
    }
}

/// What a location of the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Code {
        function: FunctionId,
        line: u32,
        column: u32,
    },
    Marker(Marker),
}

impl Place {
    pub(super) fn of_frame(profile: &Profile, frame: FrameId, lines: Lines) -> Self {
        match profile.tables.frame_at(frame) {
            Frame::Marker(marker) => Self::Marker(marker),
            Frame::Python { function, location } => {
                let (line, column) = match lines {
                    Lines::Line => place(location),
                    Lines::Function => (0, 0),
                };
                Self::Code {
                    function,
                    line,
                    column,
                }
            }
        }
    }
}

/// Line and column from 1, 0 for unknown.
fn place(location: Where) -> (u32, u32) {
    let column = location.column.map_or(0, |column| column.saturating_add(1));
    (location.line.unwrap_or(0), column)
}

/// The id of the location of an entry: 0 is no id.
pub(super) fn location_id(entry: u32) -> u64 {
    u64::from(entry) + 1
}

/// One location for each of `places`, and their functions.
pub(super) fn message(profile: &Profile, places: &[Place], strings: &mut Strings) -> Message {
    // Says that everything is symbolised: readers then do not look for a binary. They never look
    // for one whose name begins with a bracket.
    let mapping = Mapping {
        id: 1,
        filename: strings.id("[python]"),
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    };
    let mut message = Message {
        mapping: vec![mapping],
        ..Message::default()
    };
    let mut functions: Interner<Result<FunctionId, Marker>> = Interner::default();
    for (entry, &place) in (0..).zip(places) {
        let (key, line, column) = match place {
            Place::Code {
                function,
                line,
                column,
            } => (Ok(function), line, column),
            Place::Marker(marker) => (Err(marker), 0, 0),
        };
        let function_id = u64::from(functions.intern(key, u32::MAX).unwrap_or(0)) + 1;
        let line = Line {
            function_id,
            line: i64::from(line),
            column: i64::from(column),
        };
        message.location.push(Location {
            id: location_id(entry),
            mapping_id: mapping.id,
            line: vec![line],
        });
    }
    for (id, key) in (1..).zip(functions.values()) {
        let (name, file, first_line) = match key {
            Err(marker) => (marker.text(), "", 0),
            Ok(function) => {
                let function = profile.tables.function_of(*function);
                (function.name, function.file, function.first_line)
            }
        };
        message.function.push(Function {
            id,
            name: strings.id(if name.is_empty() { UNNAMED } else { name }),
            // Go's pprof takes a name that equals its system name for C++ and cuts what is in
            // brackets: nothing would be left of `<module>`.
            system_name: 0,
            filename: strings.id(file),
            start_line: i64::from(first_line),
        });
    }
    message
}
