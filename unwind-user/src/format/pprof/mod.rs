//! pprof: gzipped `profile.proto`, for `go tool pprof` and the many readers of that format.
//!
//! Samples carry their count and nanoseconds, and their thread and process as labels. Written
//! as many small messages one after the other, which is the same as one large one, so that it
//! never lies in memory whole.

pub mod message;
mod symbols;

use super::rows::{Part, Rows};
use super::{Options, title};
use crate::profile::{Profile, ThreadKey};
use flate2::Compression;
use flate2::write::GzEncoder;
use message::{Label, Profile as Message, Sample, ValueType};
use prost::Message as _;
use std::io::{self, Write};
use symbols::{Place, Strings};

pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    let mut strings = Strings::default();
    let rows = Rows::collect(
        profile,
        options,
        Part::Thread,
        |_| Vec::new(),
        |frame| Place::of_frame(profile, frame, options.lines),
    );
    put(&mut out, &head(profile, &mut strings))?;
    let period = i64::try_from(profile.period_ns).unwrap_or(i64::MAX);
    let mut labels = (None, Vec::new());
    for (part, node, count) in rows.iter() {
        if labels.0 != Some(part) {
            labels = (Some(part), labels_of(profile, part, &mut strings));
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let sample = Sample {
            location_id: rows
                .innermost_first(node)
                .map(symbols::location_id)
                .collect(),
            value: vec![count, count.saturating_mul(period)],
            label: labels.1.clone(),
        };
        put(
            &mut out,
            &Message {
                sample: vec![sample],
                ..Message::default()
            },
        )?;
    }
    put(
        &mut out,
        &symbols::message(profile, rows.entries(), &mut strings),
    )?;
    put(
        &mut out,
        &Message {
            string_table: strings.into_table(),
            ..Message::default()
        },
    )?;
    out.finish()?;
    Ok(())
}

fn put(out: &mut dyn Write, message: &Message) -> io::Result<()> {
    out.write_all(&message.encode_to_vec())
}

/// All but samples and symbols.
fn head(profile: &Profile, strings: &mut Strings) -> Message {
    let samples = ValueType {
        r#type: strings.id("samples"),
        unit: strings.id("count"),
    };
    let time = ValueType {
        r#type: strings.id(profile.mode.name()),
        unit: strings.id("nanoseconds"),
    };
    let mut comments = vec![title::title(profile), title::subtitle(profile)];
    if profile.total() == 0 {
        comments.push(title::empty_reason(profile));
    }
    let outcomes = profile.outcomes.iter();
    comments.extend(outcomes.map(|(name, count)| format!("interrupts that ended {name}: {count}")));
    Message {
        sample_type: vec![samples, time],
        time_nanos: i64::try_from(profile.start_ns).unwrap_or(i64::MAX),
        duration_nanos: i64::try_from(profile.duration_ns).unwrap_or(i64::MAX),
        period_type: Some(time),
        period: i64::try_from(profile.period_ns).unwrap_or(i64::MAX),
        comment: comments.iter().map(|comment| strings.id(comment)).collect(),
        default_sample_type: time.r#type,
        ..Message::default()
    }
}

fn labels_of(profile: &Profile, part: Part, strings: &mut Strings) -> Vec<Label> {
    let Part::Thread(thread) = part else {
        return Vec::new();
    };
    let ThreadKey { pid, tid, .. } = thread;
    let numbers = [("pid", pid), ("thread_id", tid)];
    let process = profile.processes.get(&thread.process());
    let texts = [
        (
            "thread",
            profile
                .threads
                .get(&thread)
                .and_then(|info| info.name.as_deref()),
        ),
        ("process", process.map(|info| info.command.as_str())),
        ("python", process.map(|info| info.python.as_str())),
    ];
    let mut labels = Vec::with_capacity(numbers.len() + texts.len());
    for (key, number) in numbers {
        labels.push(Label {
            key: strings.id(key),
            num: i64::from(number),
            str: 0,
        });
    }
    for (key, text) in texts {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            labels.push(Label {
                key: strings.id(key),
                str: strings.id(text),
                num: 0,
            });
        }
    }
    labels
}
