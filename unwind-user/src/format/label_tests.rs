use super::*;
use proptest::prelude::*;

fn named(name: &str, file: &str, line: Option<u32>) -> Label {
    Label::Function {
        name: name.to_owned(),
        file: file.to_owned(),
        line,
    }
}

#[track_caller]
fn check(label: &Label, expected: &str) {
    assert_eq!(label.to_string(), expected);
    assert_eq!(Label::parse(expected).as_ref(), Ok(label));
}

#[test]
fn ordinary_frames_read_as_expected() {
    check(
        &named("A.run", "/a/b.py", Some(70_001)),
        "A.run (/a/b.py:70001)",
    );
    check(&named("<module>", "<string>", None), "<module> (<string>)");
    check(&named("_find", "<frozen importlib._bootstrap>", Some(9)), {
        "_find (<frozen importlib._bootstrap>:9)"
    });
    check(&Label::Marker(Marker::Truncated), "[truncated]");
    check(
        &Label::Process {
            pid: 7,
            command: "python3 a.py".into(),
        },
        "process 7 python3 a.py",
    );
    check(
        &Label::Thread {
            name: "worker 1".into(),
            tid: 8,
        },
        "thread worker 1 (8)",
    );
}

#[test]
fn odd_frames_are_escaped_where_they_must_be() {
    check(&named("", "", None), "<unnamed> ()");
    check(&named("<unnamed>", "f", None), r"\u{3c}unnamed> (f)");
    check(&named("f", "a;b\n.py", Some(1)), r"f (a\u{3b}b\n.py:1)");
    check(&named("f", "a:12", None), r"f (a\u{3a}12)");
    check(&named("f", "a:12", Some(3)), "f (a:12:3)");
    check(&named("f 1", "a 2", None), "f 1 (a 2)");
    check(&named("f (g", "(h", None), r"f \u{28}g ((h)");
    check(&named("thread 1", "2", None), r"\u{74}hread 1 (2)");
    check(&named("# f", "g", None), r"\u{23} f (g)");
    check(&named("[truncated]", "g", None), "[truncated] (g)");
    check(
        &Label::Process {
            pid: 7,
            command: String::new(),
        },
        "process 7",
    );
    check(
        &Label::Thread {
            name: String::new(),
            tid: 8,
        },
        "thread (8)",
    );
    check(
        &Label::Thread {
            name: "(9)".into(),
            tid: 8,
        },
        "thread (9) (8)",
    );
    check(
        &Label::Process {
            pid: 7,
            command: " a\x1b ".into(),
        },
        r"process 7 \u{20}a\u{1b}\u{20}",
    );
}

#[test]
fn what_is_no_label_is_refused() {
    for text in [
        "",
        "f",
        "f (",
        "process x",
        "process ",
        "thread x",
        "thread x(1)",
        "f (\\q)",
    ] {
        assert_eq!(Label::parse(text), Err(LabelError(text.to_owned())));
    }
    assert!(Label::parse("f (a:99999999999)").is_err());
}

/// Text rich in what the format is made of.
pub(in crate::format) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        r"[ ;:()\\#0-9.a<>\n\x00-\x20u{}-]{0,12}".prop_map(String::from)
    ]
}

pub(in crate::format) fn label() -> impl Strategy<Value = Label> {
    let marker = proptest::sample::select(Marker::ALL.to_vec());
    prop_oneof![
        4 => (text(), text(), any::<Option<u32>>())
            .prop_map(|(name, file, line)| Label::Function { name, file, line }),
        1 => (any::<u32>(), text()).prop_map(|(pid, command)| Label::Process { pid, command }),
        1 => (text(), any::<u32>()).prop_map(|(name, tid)| Label::Thread { name, tid }),
        1 => marker.prop_map(Label::Marker),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_label_comes_back(label in label()) {
        let seen = label.to_string();
        prop_assert!(!seen.contains([';', '\n', '\r', '\0', '\x1b']), "{seen:?}");
        prop_assert_eq!(seen.trim(), &seen);
        prop_assert_eq!(Label::parse(&seen), Ok(label));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in text()) {
        let _ = Label::parse(&text);
    }
}
