//! `<native>` and `<GC>`, which stand between Python frames.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use unwind_tests::{Case, Python, unwind, versions};
use unwind_user::format::Label;
use unwind_user::format::folded::parse_line;

use crate::support::{Folder, Running, attach, ended, until};

/// The innermost frames of all stacks, `inner` of them, by name.
fn innermost(file: &Path, inner: usize) -> BTreeSet<Vec<String>> {
    let text = std::fs::read_to_string(file).expect("a profile");
    let names = |line: &str| {
        let frames = parse_line(line).expect("a folded stack").frames;
        let names = frames.iter().map(|frame| match frame {
            Label::Function { name, .. } => name.clone(),
            other => other.to_string(),
        });
        let names: Vec<String> = names.filter(|name| name != "work").collect();
        names[names.len().saturating_sub(inner)..].to_vec()
    };
    text.lines().map(names).collect()
}

fn has(stacks: &BTreeSet<Vec<String>>, names: &[&str]) -> bool {
    let is_it = |stack: &Vec<String>| stack.iter().zip(names).all(|(a, b)| a == b);
    stacks
        .iter()
        .any(|stack| stack.len() >= names.len() && is_it(stack))
}

fn start(python: &Python) -> Running {
    let mut command = python.program("markers.py");
    let mut target = Running::start(command.stdout(Stdio::piped()));
    assert_eq!(target.line(), "ready");
    target
}

/// Whether this version tells which frame a collection runs in.
fn tells_collections(python: &Python) -> bool {
    python.version() == "3.15"
}

fn are_right(python: &Python, file: &Path, natives: bool) {
    let (three, two) = (innermost(file, 3), innermost(file, 2));
    let native = has(&three, &["sorts_here", "<native>", "key_here"]);
    assert_eq!(
        (native, has(&two, &["sorts_here", "key_here"])),
        (natives, !natives),
        "{three:?}"
    );
    let tells = tells_collections(python);
    assert_eq!(has(&two, &["collects_here", "<GC>"]), tells, "{two:?}");
    // Between its first and its last instruction it does little else.
    assert!(
        tells || has(&two, &["<module>", "collects_here"]),
        "{two:?}"
    );
    // `__del__` is called by the collector, and by no other C code.
    let collector = has(
        &innermost(file, 4),
        &["collects_here", "<GC>", "Knot.__del__"],
    );
    assert_eq!(collector, tells, "{three:?}");
}

#[test]
fn markers_stand_where_c_code_ran() {
    for python in versions() {
        for backend in ["ebpf", "remote"] {
            let case = Case::new("cli", &python.label, &format!("markers-{backend}"));
            let target = start(&python);
            let folder = Folder::new();
            let raw = folder.file("x.unwind");
            let options = ["-r", "1000", "-d", "0.8", "--backend", backend];
            let recorded = ended(&mut attach(&target, &raw, &options));
            assert_eq!(recorded.code, Some(0), "{}", recorded.err);
            for (natives, options) in [(false, &[][..]), (true, &["--native"])] {
                let file = folder.file("x.folded");
                let mut report = Command::new(unwind());
                report.arg("report").arg(&raw).args(["-F", "-o"]).arg(&file);
                let reported = ended(report.args(options));
                assert_eq!(reported.code, Some(0), "{}", reported.err);
                are_right(&python, &file, natives);
            }
            case.ok();
        }
    }
}

#[test]
fn markers_stand_in_a_dump() {
    for python in versions() {
        let case = Case::new("cli", &python.label, "markers-dump");
        let target = start(&python);
        let dump = |options: &[&str]| {
            let mut command = Command::new(unwind());
            let pid = target.pid().to_string();
            let ended = ended(
                command
                    .args(["dump", "--json", "--pid", &pid])
                    .args(options),
            );
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            let dump: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
            let frames = dump["processes"][0]["threads"][0]["frames"]
                .as_array()
                .cloned();
            frames.unwrap_or_default()
        };
        let is_there = |options: &[&str], inner: &str, marker: Option<&str>| {
            let frames = dump(options);
            let inner = frames.iter().position(|frame| frame["function"] == inner);
            let outer = inner.and_then(|inner| frames.get(inner + 1));
            outer.map(|outer| outer["marker"].as_str() == marker)
        };
        for (options, marker) in [(&[][..], None), (&["--native"], Some("native"))] {
            until("a dump meets the key function", || {
                let met = is_there(options, "key_here", marker);
                assert_ne!(met, Some(false), "{marker:?}");
                met == Some(true)
            });
        }
        let collector = tells_collections(&python).then_some("GC");
        until("a dump meets the finalizer", || {
            let met = is_there(&[], "Knot.__del__", collector);
            assert_ne!(met, Some(false), "{collector:?}");
            met == Some(true)
        });
        case.ok();
    }
}
