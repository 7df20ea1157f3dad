//! A profile without samples is a valid file that says why.

use super::*;

fn empty() -> Profile {
    let reason = Some("the <target> was idle\x1b".to_owned());
    Profile {
        empty_reason: reason,
        ..profile()
    }
}

#[test]
fn folded_is_an_empty_file() {
    assert_eq!(string(Format::Folded, &empty(), &Options::default()), "");
}

#[test]
fn the_flame_graph_says_why() {
    let svg = string(Format::Flamegraph, &empty(), &Options::default());
    assert_eq!(svg::titles(&svg), ["No process"]);
    assert!(
        svg.contains(r">no samples: the &lt;target&gt; was idle\u{1b}<"),
        "{svg}"
    );
}

#[test]
fn pprof_has_a_comment() {
    let message = pprof::decode(&empty(), &Options::default());
    assert!(message.sample.is_empty());
    let comments: Vec<_> = message
        .comment
        .iter()
        .map(|&at| &*message.string_table[at as usize])
        .collect();
    assert!(
        comments.contains(&r"no samples: the <target> was idle\u{1b}"),
        "{comments:?}"
    );
}

#[test]
fn speedscope_has_one_profile_without_samples() {
    let file = speedscope::parse(&empty(), &Options::default());
    let profile = &file["profiles"][0];
    assert_eq!(profile["name"], r"no samples: the <target> was idle\u{1b}");
    assert_eq!(profile["samples"], serde_json::json!([]));
    assert_eq!(profile["weights"], serde_json::json!([]));
    assert_eq!(file["profiles"].as_array().unwrap().len(), 1);
}
