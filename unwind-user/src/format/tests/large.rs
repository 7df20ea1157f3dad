//! Profiles larger than what a picture can show.

use super::*;

const SVG_BYTES_MAX: usize = 20_000_000;
const DEPTH: u32 = 5_000;

/// One stack of 5,000 frames with half of the samples, and `n` others with one each.
fn large(n: u32) -> Profile {
    let mut profile = profile();
    let tables = &mut profile.tables;
    let function = tables.function("recurse", "/srv/app/module.py", 1);
    let deep: Vec<_> = (1..=DEPTH)
        .map(|line| tables.frame(function, Location::at_line(line)))
        .collect();
    let deep = tables.stack(deep);
    profile.add(THREAD, deep, u64::from(n));
    for i in 0..n {
        let leaf = format!("handler_{i}");
        let middle = format!("dispatch_{}", i % 1000);
        let stack = [
            ("main", "/srv/app/main.py", Some(1)),
            (&middle, "/srv/app/d.py", Some(2)),
        ];
        let stack = [&stack[..], &[(&*leaf, "/srv/app/handlers.py", Some(i))]].concat();
        count(&mut profile, THREAD, &stack, 1);
    }
    profile
}

#[test]
fn the_flame_graph_is_pruned_and_says_so() {
    let profile = large(200_000);
    let svg = string(Format::Flamegraph, &profile, &Options::default());
    assert!(svg.len() < SVG_BYTES_MAX, "{} bytes", svg.len());
    assert!(svg.contains("400000 samples at 99 Hz of CPU time in 2.5 s (pruned 50.0 %)"));
    let labels = svg::labels(&svg);
    let deep = labels.iter().filter(|label| label.starts_with("recurse ("));
    assert_eq!(deep.count(), DEPTH as usize);
    assert!(!labels.iter().any(|label| label.starts_with("handler_")));
    let middle = labels.iter().filter(|label| label.starts_with("dispatch_"));
    assert_eq!(middle.count(), 1000);
}

#[test]
fn the_other_formats_have_everything() {
    const STACKS: u32 = 20_000;
    let profile = large(STACKS);
    let folded = string(Format::Folded, &profile, &Options::default());
    assert_eq!(folded.lines().count(), STACKS as usize + 1);
    let file: serde_json::Value =
        serde_json::from_slice(&bytes(Format::Speedscope, &profile, &Options::default())).unwrap();
    let samples = file["profiles"][0]["samples"].as_array().unwrap();
    assert_eq!(samples.len(), STACKS as usize + 1);
    assert!(
        samples
            .iter()
            .any(|sample| sample.as_array().unwrap().len() == DEPTH as usize)
    );
    let message = pprof::decode(&profile, &Options::default());
    assert_eq!(message.sample.len(), STACKS as usize + 1);
}

#[test]
fn long_names_in_many_wide_frames_fit_too() {
    let mut profile = profile();
    for i in 0..5_000 {
        let name = format!("{i}{}", "<&>".repeat(1300));
        count(&mut profile, THREAD, &[(&name, "a.py", None)], 1);
    }
    let svg = string(Format::Flamegraph, &profile, &Options::default());
    assert!(svg.len() < SVG_BYTES_MAX, "{} bytes", svg.len());
    assert!(svg.contains("(pruned "));
    svg::titles(&svg);
}

#[test]
fn folded_recursion_keeps_every_sample_and_what_is_called() {
    let folds = |lines| Options {
        lines,
        recursion: Recursion::Folded,
        ..Options::default()
    };
    let mut profile = large(2);
    let even = [("even", "m.py", Some(1)), ("odd", "m.py", Some(2))];
    let mutual = [&even[..], &even[..], &[("leaf", "m.py", Some(3))]].concat();
    count(&mut profile, THREAD, &mutual, 4);
    let recursion = [("f", "m.py", Some(1)), ("f", "m.py", Some(2))];
    let called = [&recursion[..], &[("leaf", "m.py", Some(3))], &recursion[..]].concat();
    count(&mut profile, THREAD, &called, 8);
    let folded = string(Format::Folded, &profile, &folds(Lines::Function));
    let lines: Vec<_> = folded.lines().collect();
    for line in [
        "recurse (/srv/app/module.py) 2",
        "even (m.py);odd (m.py);even (m.py);odd (m.py);leaf (m.py) 4",
        "f (m.py);leaf (m.py);f (m.py) 8",
    ] {
        assert!(lines.contains(&line), "{line} in {folded}");
    }
    // Another line is another frame.
    let by_line = string(Format::Folded, &profile, &folds(Lines::Line));
    assert!(by_line.contains("f (m.py:1);f (m.py:2);leaf (m.py:3);f (m.py:1);f (m.py:2) 8"));
    let message = pprof::decode(&profile, &folds(Lines::Function));
    let deepest = message.sample.iter().map(|s| s.location_id.len()).max();
    assert_eq!(deepest, Some(5));
}
