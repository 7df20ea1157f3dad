//! The SVG is XML whatever the names are.

use super::super::text::is_xml;
use super::*;
use quick_xml::XmlVersion;
use quick_xml::events::Event;

/// Titles of the boxes of an SVG, after checking that it is well-formed.
#[track_caller]
pub(super) fn titles(svg: &str) -> Vec<String> {
    assert_eq!(svg.chars().find(|&c| !is_xml(c)), None);
    let mut reader = quick_xml::Reader::from_str(svg);
    let config = reader.config_mut();
    config.check_end_names = true;
    config.check_comments = true;
    let (mut depth, mut is_title, mut titles) = (0, false, Vec::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) => {
                depth += 1;
                check_attributes(&tag);
                is_title = tag.name().as_ref() == b"title";
                if is_title {
                    titles.push(String::new());
                }
            }
            Event::Empty(tag) => check_attributes(&tag),
            Event::End(_) => {
                depth -= 1;
                is_title = false;
            }
            Event::Text(text) => {
                let text = text.decode().unwrap();
                assert!(!text.contains("]]>"), "{text}");
                if let Some(title) = titles.last_mut().filter(|_| is_title) {
                    title.push_str(&text);
                }
            }
            Event::GeneralRef(entity) => {
                let name = entity.decode().unwrap();
                let text = quick_xml::escape::resolve_xml_entity(&name).unwrap();
                if let Some(title) = titles.last_mut().filter(|_| is_title) {
                    title.push_str(text);
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    titles
}

fn check_attributes(tag: &quick_xml::events::BytesStart<'_>) {
    for attribute in tag.attributes() {
        attribute
            .unwrap()
            .normalized_value(XmlVersion::Explicit1_0)
            .unwrap();
    }
}

/// The labels of the boxes: titles without their " (n samples, p%)".
#[track_caller]
pub(super) fn labels(svg: &str) -> Vec<String> {
    let titles = titles(svg);
    titles
        .iter()
        .map(|title| title.rsplit_once(" (").unwrap().0.to_owned())
        .collect()
}

#[test]
fn markup_in_names_stays_text() {
    let names = [
        "<module>",
        "<lambda>",
        r#"a<b>&"q"'"#,
        "]]>",
        "<!-- --",
        "&nbsp;",
        "&amp;",
    ];
    let mut profile = profile();
    let process = ProcessInfo {
        command: "a <b> & ]]>\x1b".into(),
        python: "3.14.2".into(),
    };
    profile.processes.insert(THREAD.process(), process);
    let file = "</script><script>alert(1)";
    for name in names {
        count(&mut profile, THREAD, &[(name, file, None)], 1);
    }
    let svg = string(Format::Flamegraph, &profile, &Options::default());
    let shown = |name: &str| format!("{} ({file})", name.replace(';', r"\u{3b}"));
    let mut expected: Vec<_> = names.into_iter().map(shown).collect();
    expected.push("all".to_owned());
    expected.sort();
    let mut labels = labels(&svg);
    labels.sort();
    assert_eq!(labels, expected);
    assert_eq!(svg.matches("<script").count(), 1);
    assert!(
        svg.contains(r"a &lt;b&gt; &amp; ]]&gt;\u{1b} (CPython 3.14.2, pid 7)"),
        "{svg}"
    );
    assert!(svg.contains("7 samples at 99 Hz of CPU time in 2.5 s"));
}

#[test]
fn cutting_a_label_never_cuts_an_entity() {
    let name = r#"<a>&"'<b>&&&<<<>>>"#;
    for width in 1..120 {
        let mut profile = profile();
        count(&mut profile, THREAD, &[(name, "<f>", Some(1))], width);
        count(&mut profile, THREAD, &[("z", "f", None)], 1000 - width);
        let labels = labels(&string(Format::Flamegraph, &profile, &Options::default()));
        assert!(
            labels.contains(&format!("{name} (<f>:1)")),
            "{width}: {labels:?}"
        );
    }
}

#[test]
fn colours_and_all_else_are_the_same_in_every_run() {
    let mut profile = profile();
    for name in ["a", "b", "c"] {
        count(
            &mut profile,
            THREAD,
            &[("main", "m", None), (name, "f", None)],
            3,
        );
    }
    let svg = || string(Format::Flamegraph, &profile, &Options::default());
    assert_eq!(svg(), svg());
}

proptest! {
    #[test]
    fn any_names_give_well_formed_xml(profile in any_profile(), options in options()) {
        let titles = titles(&string(Format::Flamegraph, &profile, &options));
        prop_assert!(!titles.is_empty());
    }
}
