//! speedscope files, checked by the rules of its published schema and of its importer.

use super::super::{Lines, Roots};
use super::*;
use serde_json::Value;

/// The file, after checking what the schema demands (`file-format-schema.json` of speedscope
/// 1.25) and what the importer relies on: as many weights as samples, and frames that exist.
#[track_caller]
pub(super) fn parse(profile: &Profile, options: &Options) -> Value {
    let file: Value = serde_json::from_str(&string(Format::Speedscope, profile, options)).unwrap();
    keys(
        &file,
        &["$schema", "profiles", "shared"],
        &["activeProfileIndex", "exporter", "name"],
    );
    assert_eq!(
        file["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    assert!(file["exporter"].is_string() && file["name"].is_string());
    keys(&file["shared"], &["frames"], &[]);
    let frames = file["shared"]["frames"].as_array().unwrap();
    for frame in frames {
        keys(frame, &["name"], &["file", "line", "col"]);
        assert!(frame["name"].as_str().is_some_and(|name| !name.is_empty()));
        assert!(frame.get("file").is_none_or(Value::is_string));
        assert!(
            ["line", "col"]
                .iter()
                .all(|key| frame.get(key).is_none_or(Value::is_u64))
        );
    }
    let profiles = file["profiles"].as_array().unwrap();
    assert!(
        file["activeProfileIndex"]
            .as_u64()
            .is_some_and(|i| (i as usize) < profiles.len())
    );
    let required = [
        "type",
        "name",
        "unit",
        "startValue",
        "endValue",
        "samples",
        "weights",
    ];
    for profile in profiles {
        keys(profile, &required, &[]);
        assert_eq!(
            (&profile["type"], &profile["unit"]),
            (&"sampled".into(), &"nanoseconds".into())
        );
        assert!(profile["name"].is_string());
        let samples = profile["samples"].as_array().unwrap();
        let weights = profile["weights"].as_array().unwrap();
        assert_eq!(samples.len(), weights.len());
        for sample in samples {
            let sample = sample.as_array().unwrap();
            assert!(!sample.is_empty());
            let exists =
                |frame: &Value| frame.as_u64().is_some_and(|i| (i as usize) < frames.len());
            assert!(sample.iter().all(exists));
        }
        let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!(
            (&profile["startValue"], &profile["endValue"]),
            (&0.into(), &sum.into())
        );
    }
    file
}

#[track_caller]
fn keys(object: &Value, required: &[&str], optional: &[&str]) {
    let object = object.as_object().unwrap();
    assert!(
        required.iter().all(|&key| object.contains_key(key)),
        "{object:?}"
    );
    let known = |key: &String| required.contains(&&**key) || optional.contains(&&**key);
    assert!(object.keys().all(known), "{object:?}");
}

#[test]
fn each_thread_has_a_profile_when_they_are_apart() {
    let mut profile = profile();
    let code = [("f", "a.py", Some(70_001)), ("g", "a.py", None)];
    count(&mut profile, THREAD, &code, 1);
    count(&mut profile, ThreadKey { tid: 9, ..THREAD }, &code, 2);
    let options = Options {
        roots: Roots::Threads,
        lines: Lines::Line,
        ..Options::default()
    };
    let file = parse(&profile, &options);
    let names: Vec<_> = file["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| &profile["name"])
        .collect();
    assert_eq!(names, ["thread (8), process 7", "thread (9), process 7"]);
    assert_eq!(file["activeProfileIndex"], 1);
    assert_eq!(
        file["profiles"][1]["weights"],
        serde_json::json!([2 * PERIOD_NS])
    );
    assert_eq!(file["profiles"][1]["samples"], serde_json::json!([[0, 1]]));
    let frames = serde_json::json!([
        { "name": "f", "file": "a.py", "line": 70_001 },
        { "name": "g", "file": "a.py" },
    ]);
    assert_eq!(file["shared"]["frames"], frames);

    let file = parse(
        &profile,
        &Options {
            roots: Roots::Merged,
            lines: Lines::Function,
            ..Options::default()
        },
    );
    assert_eq!(file["profiles"].as_array().unwrap().len(), 1);
    assert_eq!(
        file["profiles"][0]["weights"],
        serde_json::json!([3 * PERIOD_NS])
    );
    assert!(file["shared"]["frames"][0].get("line").is_none());
}

#[test]
fn columns_count_from_one() {
    let mut profile = profile();
    let function = profile.tables.function("f", "a.py", 1);
    let at = Location {
        line: Some(2),
        column: Some(0),
        ..Location::default()
    };
    let frame = profile.tables.frame(function, at);
    let stack = profile.tables.stack([frame]);
    profile.add(THREAD, stack, 1);
    let file = parse(&profile, &Options::default());
    assert_eq!(file["shared"]["frames"][0]["col"], 1);
}

proptest! {
    #[test]
    fn any_profile_follows_the_schema(profile in any_profile(), options in options()) {
        parse(&profile, &options);
    }
}
