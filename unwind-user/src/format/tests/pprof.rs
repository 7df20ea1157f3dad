//! pprof files, decoded.

use super::super::pprof::message;
use super::super::{Lines, Roots};
use super::*;
use prost::Message as _;
use std::collections::BTreeMap;
use std::io::Read;

pub(super) fn decode(profile: &Profile, options: &Options) -> message::Profile {
    let file = bytes(Format::Pprof, profile, options);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&file[..])
        .read_to_end(&mut plain)
        .unwrap();
    message::Profile::decode(&plain[..]).unwrap()
}

/// What one sample says, resolved: frames (name, file, line, column, first line), innermost first.
#[derive(Debug, PartialEq)]
pub(super) struct Resolved {
    pub(super) frames: Vec<(String, String, i64, i64, i64)>,
    pub(super) value: Vec<i64>,
    pub(super) labels: BTreeMap<String, String>,
}

pub(super) fn resolve(message: &message::Profile) -> Vec<Resolved> {
    let text = |at: i64| message.string_table[at as usize].clone();
    let frame = |id: &u64| {
        let location = message
            .location
            .iter()
            .find(|location| location.id == *id)
            .unwrap();
        assert_eq!(location.mapping_id, message.mapping[0].id);
        let line = location.line[0];
        let function = message
            .function
            .iter()
            .find(|f| f.id == line.function_id)
            .unwrap();
        assert_eq!(text(function.system_name), "");
        let (name, file) = (text(function.name), text(function.filename));
        (name, file, line.line, line.column, function.start_line)
    };
    let label = |label: &message::Label| {
        let number = (label.str == 0).then(|| label.num.to_string());
        (text(label.key), number.unwrap_or_else(|| text(label.str)))
    };
    message
        .sample
        .iter()
        .map(|sample| Resolved {
            frames: sample.location_id.iter().map(frame).collect(),
            value: sample.value.clone(),
            labels: sample.label.iter().map(label).collect(),
        })
        .collect()
}

fn one_sample() -> Profile {
    let mut profile = Profile {
        start_ns: 5,
        ..profile()
    };
    profile.outcomes = vec![("ok".into(), 3), ("page_fault".into(), 1)];
    let tables = &mut profile.tables;
    let (main, f) = (
        tables.function("main", "m.py", 1),
        tables.function("A.f", "é.py", 70_000),
    );
    let at = Location {
        line: Some(1_200_000),
        column: Some(4),
        ..Location::default()
    };
    let frames = [
        tables.frame(main, Location::at_line(2)),
        tables.frame(f, at),
    ];
    let gc = tables.marker(Marker::Gc);
    let stack = tables.stack(frames.into_iter().chain([gc]));
    profile.add(THREAD, stack, 3);
    let name = Some("worker".to_owned());
    profile.threads.insert(
        THREAD,
        ThreadInfo {
            name,
            native_tid: None,
        },
    );
    let process = ProcessInfo {
        command: "python3 m.py".into(),
        python: "3.14.2".into(),
    };
    profile.processes.insert(THREAD.process(), process);
    profile
}

#[test]
fn a_sample_comes_back_whole() {
    let message = decode(&one_sample(), &Options::default());
    let frame = |name: &str, file: &str, line, column, first| {
        (name.to_owned(), file.to_owned(), line, column, first)
    };
    let labels = [
        ("pid", "7"),
        ("thread_id", "8"),
        ("thread", "worker"),
        ("process", "python3 m.py"),
        ("python", "3.14.2"),
    ];
    let expected = Resolved {
        frames: vec![
            frame("<GC>", "", 0, 0, 0),
            frame("A.f", "é.py", 1_200_000, 5, 70_000),
            frame("main", "m.py", 2, 0, 1),
        ],
        value: vec![3, 3 * PERIOD_NS as i64],
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    };
    assert_eq!(resolve(&message), [expected]);
}

#[test]
fn the_head_says_what_the_numbers_are() {
    let message = decode(&one_sample(), &Options::default());
    let text = |at: i64| &*message.string_table[at as usize];
    assert_eq!(text(0), "");
    let types: Vec<_> = message
        .sample_type
        .iter()
        .map(|ty| (text(ty.r#type), text(ty.unit)))
        .collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    assert_eq!(text(message.default_sample_type), "cpu");
    let period = message.period_type.unwrap();
    assert_eq!(
        (text(period.r#type), text(period.unit)),
        ("cpu", "nanoseconds")
    );
    assert_eq!(message.period, PERIOD_NS as i64);
    assert_eq!(
        (message.time_nanos, message.duration_nanos),
        (5, 2_500_000_000)
    );
    let mapping = message.mapping[0];
    assert!(mapping.has_functions && mapping.has_filenames && mapping.has_line_numbers);
    let comments: Vec<_> = message.comment.iter().map(|&at| text(at)).collect();
    assert!(
        comments.contains(&"interrupts that ended page_fault: 1"),
        "{comments:?}"
    );
}

#[test]
fn by_function_there_are_no_lines() {
    let options = Options {
        lines: Lines::Function,
        roots: Roots::Merged,
        ..Options::default()
    };
    let message = decode(&one_sample(), &options);
    let lines: Vec<_> = resolve(&message)[0]
        .frames
        .iter()
        .map(|f| (f.2, f.3, f.4))
        .collect();
    assert_eq!(lines, [(0, 0, 0), (0, 0, 70_000), (0, 0, 1)]);
}

proptest! {
    #[test]
    fn any_names_come_back(stack in stack(), n in 1..100_u64) {
        let mut profile = profile();
        let codes: Vec<_> = stack.iter().map(|(n, f, l)| (n.as_str(), f.as_str(), *l)).collect();
        count(&mut profile, THREAD, &codes, n);
        let resolved = resolve(&decode(&profile, &Options::default()));
        prop_assert_eq!(resolved.len(), 1);
        let mut expected: Vec<_> = codes.iter().rev().map(|&(name, file, line)| {
            let name = if name.is_empty() { "<unnamed>" } else { name };
            (name.to_owned(), file.to_owned(), i64::from(line.unwrap_or(0)), 0, 1)
        }).collect();
        if expected.is_empty() {
            expected.push(("[no Python frames]".to_owned(), String::new(), 0, 0, 0));
        }
        prop_assert_eq!(&resolved[0].frames, &expected);
    }
}
