//! Names that broke other profilers' files: they come back from every format.

use super::super::folded::parse_line;
use super::super::{Label, text};
use super::*;
use crate::profile::NAME_BYTES_MAX;

/// Name, file and line; the names differ.
const ODD: [Code<'_>; 20] = [
    ("<module>", "", None),
    ("_load", "<frozen importlib._bootstrap>", Some(1)),
    ("semicolon;name", "a;b.py", Some(2)),
    ("new\nline\r", "a\nb.py", Some(3)),
    (r#"quote"'"#, r#""'.py"#, Some(4)),
    ("ends with 7", "file 8", None),
    ("7", "8", None),
    ("back\\slash\\n", "c:\\x.py", Some(5)),
    ("esc\x1b[31m", "\x1b", None),
    ("nul\0", "\0", None),
    ("ack\x06", "\u{85}\u{9f}", None),
    ("", "unnamed.py", Some(6)),
    (" blank ", " ", Some(7)),
    ("a (b:1)", "c (d:2)", Some(8)),
    (r#"a<b>&"q""#, "</script><script>alert(1)", None),
    ("кириллица", "zażółć.py", Some(9)),
    ("café 𠀀 𝔘", "\u{fffd}ur.py", Some(10)),
    ("\u{2028}\u{202e}", "\u{feff}\u{ffff}", None),
    ("far", "lines.py", Some(70_001)),
    ("farther", "lines.py", Some(1_200_000)),
];

fn odd() -> Profile {
    let mut profile = profile();
    for (code, n) in ODD.iter().zip(1..) {
        // As the outermost, in between, and as the innermost.
        count(&mut profile, THREAD, &[*code, *code, *code], n);
    }
    profile
}

fn label(&(name, file, line): &Code<'_>) -> Label {
    Label::Function {
        name: name.to_owned(),
        file: file.to_owned(),
        line,
    }
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "<unnamed>" } else { name }
}

#[test]
fn folded() {
    let folded = string(Format::Folded, &odd(), &Options::default());
    assert_eq!(folded.split('\n').count(), ODD.len() + 1);
    for line in folded.lines() {
        let line = parse_line(line).unwrap();
        let code = &ODD[line.count as usize - 1];
        assert_eq!(line.frames, [label(code), label(code), label(code)]);
    }
}

#[test]
fn flame_graph() {
    let svg = string(Format::Flamegraph, &odd(), &Options::default());
    let labels = svg::labels(&svg);
    assert_eq!(labels.len(), 3 * ODD.len() + 1);
    for code in &ODD {
        let same = labels
            .iter()
            .filter(|seen| Label::parse(seen) == Ok(label(code)));
        assert_eq!(same.count(), 3, "{code:?}");
    }
    assert!(svg.contains(r"esc\u{1b}[31m"));
}

#[test]
fn pprof() {
    let resolved = pprof::resolve(&pprof::decode(&odd(), &Options::default()));
    assert_eq!(resolved.len(), ODD.len());
    for sample in resolved {
        let (name, file, line) = ODD[sample.value[0] as usize - 1];
        let line = i64::from(line.unwrap_or(0));
        let frame = (shown(name).to_owned(), file.to_owned(), line, 0, 1);
        assert_eq!(sample.frames, vec![frame; 3]);
    }
}

#[test]
fn speedscope() {
    let file = speedscope::parse(&odd(), &Options::default());
    let frames = file["shared"]["frames"].as_array().unwrap();
    assert_eq!(frames.len(), ODD.len());
    for (frame, (name, file, line)) in frames.iter().zip(ODD) {
        assert_eq!(frame["name"], shown(name));
        assert_eq!(
            frame.get("file").map_or("", |file| file.as_str().unwrap()),
            file
        );
        assert_eq!(
            frame.get("line").and_then(serde_json::Value::as_u64),
            line.map(u64::from)
        );
    }
}

#[test]
fn a_very_long_name_is_cut_and_its_frame_kept() {
    let (long, other) = ("x".repeat(9000), "x".repeat(9001));
    let mut profile = profile();
    count(&mut profile, THREAD, &[(&long, "a.py", Some(1))], 1);
    count(&mut profile, THREAD, &[(&other, "a.py", Some(1))], 2);
    let folded = string(Format::Folded, &profile, &Options::default());
    let lines: Vec<_> = folded
        .lines()
        .map(|line| parse_line(line).unwrap())
        .collect();
    assert_eq!(lines.iter().map(|line| line.count).sum::<u64>(), 3);
    assert_eq!(lines.len(), 2);
    for line in lines {
        let Label::Function { name, .. } = &line.frames[0] else {
            panic!("{line:?}")
        };
        assert!(name.len() <= NAME_BYTES_MAX && name.starts_with("xxx") && name.contains("…#"));
    }
}

#[test]
fn nothing_written_for_people_has_a_raw_escape() {
    for format in [Format::Folded, Format::Flamegraph] {
        let text = string(format, &odd(), &Options::default());
        assert!(!text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
    }
    assert_eq!(text::visible("\x1b"), r"\u{1b}");
}
