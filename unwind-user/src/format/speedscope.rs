//! speedscope's JSON: a sampled profile for each process, or each thread.
//!
//! A profile without samples has one whose name says why, with none: the schema asks for an array
//! and not for its being non-empty. A sample is never the empty stack.

use super::label::{Label, UNNAMED};
use super::rows::{Part, Rows, part_by};
use super::{Lines, Options, title};
use crate::profile::{Frame, FrameId, Profile};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
const EXPORTER: &str = concat!("unwind ", env!("CARGO_PKG_VERSION"));

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Sampled<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: &'a [Shown<'a>],
}

/// A frame. Lines and columns are from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize)]
struct Shown<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    col: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Samples<'a>,
    weights: Weights<'a>,
}

type Counted = (u32, u64);

/// Written stack by stack: together they may be larger than the profile by far.
struct Samples<'a>(&'a Rows<Shown<'a>>, Vec<Counted>);

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.1.iter().map(|&(node, _)| {
            let mut stack: Vec<u32> = self.0.innermost_first(node).collect();
            stack.reverse();
            stack
        }))
    }
}

struct Weights<'a>(&'a Profile, Vec<u64>);

impl Serialize for Weights<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.1
                .iter()
                .map(|count| count.saturating_mul(self.0.period_ns)),
        )
    }
}

pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let rows = Rows::collect(
        profile,
        options,
        part_by(options),
        |_| Vec::new(),
        |frame| shown(profile, frame, options.lines),
    );
    let mut parts: Vec<(Part, Vec<Counted>)> = Vec::new();
    for (part, node, count) in rows.iter() {
        match parts.last_mut().filter(|(last, _)| *last == part) {
            Some((_, samples)) => samples.push((node, count)),
            None => parts.push((part, vec![(node, count)])),
        }
    }
    let mut profiles: Vec<_> = parts
        .into_iter()
        .map(|(part, samples)| sampled(profile, &rows, name(profile, part), samples))
        .collect();
    if profiles.is_empty() {
        profiles.push(sampled(
            profile,
            &rows,
            title::empty_reason(profile),
            Vec::new(),
        ));
    }
    let busiest = (0..profiles.len())
        .rev()
        .max_by_key(|&i| profiles[i].end_value);
    let file = File {
        schema: SCHEMA,
        exporter: EXPORTER,
        name: title::title(profile),
        active_profile_index: busiest.unwrap_or(0),
        shared: Shared {
            frames: rows.entries(),
        },
        profiles,
    };
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}

fn sampled<'a>(
    profile: &'a Profile,
    rows: &'a Rows<Shown<'a>>,
    name: String,
    samples: Vec<Counted>,
) -> Sampled<'a> {
    let counts: Vec<_> = samples.iter().map(|&(_, count)| count).collect();
    let weights = counts
        .iter()
        .map(|count| count.saturating_mul(profile.period_ns));
    Sampled {
        r#type: "sampled",
        name,
        unit: "nanoseconds",
        start_value: 0,
        end_value: weights.fold(0, u64::saturating_add),
        samples: Samples(rows, samples),
        weights: Weights(profile, counts),
    }
}

fn shown(profile: &Profile, frame: FrameId, lines: Lines) -> Shown<'_> {
    match profile.tables.frame_at(frame) {
        Frame::Marker(marker) => Shown {
            name: marker.text(),
            file: None,
            line: None,
            col: None,
        },
        Frame::Python { function, location } => {
            let function = profile.tables.function_of(function);
            let name = if function.name.is_empty() {
                UNNAMED
            } else {
                function.name
            };
            let file = Some(function.file).filter(|file| !file.is_empty());
            let (line, col) = match lines {
                Lines::Line => (
                    location.line,
                    location.column.map(|col| col.saturating_add(1)),
                ),
                Lines::Function => (None, None),
            };
            Shown {
                name,
                file,
                line,
                col,
            }
        }
    }
}

fn name(profile: &Profile, part: Part) -> String {
    match part {
        Part::Whole => title::title(profile),
        Part::Process(process) => Label::of_process(profile, process).to_string(),
        Part::Thread(thread) => {
            let process = Label::of_process(profile, thread.process());
            format!("{}, {process}", Label::of_thread(profile, thread))
        }
    }
}
