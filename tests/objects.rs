//! Code objects and the places of a stack, read from live interpreters, against what these say.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use unwind_tests::{Case, Python, pythons};
use unwind_user::layout::{Layout, Version, debug_offsets, table};
use unwind_user::memory::{Addr, Process};
use unwind_user::python::code::{Code, read_code};
use unwind_user::python::frame::{Chain, End, Parsed, walk};
use unwind_user::python::string::NAME_CHARS_MAX;

#[test]
fn code_objects_and_places_are_what_python_says() {
    let mut failures = Vec::new();
    for python in &pythons() {
        let case = Case::new("objects", &python.label, "live");
        match compare(python) {
            Ok(()) => case.ok(),
            Err(error) => {
                case.failed(&format!("{error:#}"));
                failures.push(format!("{}: {error:#}", python.label));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// An interpreter waiting in `programs/objects.py`; ends with its standard input.
fn start(python: &Python) -> Result<(Child, Value)> {
    let mut child = python
        .command()
        .args(["-I", "-B", "-c", include_str!("programs/objects.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
    Ok((child, serde_json::from_str(&line).context("what it says")?))
}

fn compare(python: &Python) -> Result<()> {
    let (mut child, said) = start(python)?;
    let checked = check(&Process::new(child.id().cast_signed()), &said);
    drop(child.stdin.take());
    ensure!(child.wait()?.success(), "the interpreter failed");
    checked
}

fn check(memory: &Process, said: &Value) -> Result<()> {
    let layout = layout(said)?;
    let codes = said["codes"].as_array().context("codes")?;
    let mut seen = Vec::new();
    for expected in codes {
        let code = read_code(memory, &layout, Addr(number(&expected["addr"])?))?;
        check_code(&code, expected).with_context(|| expected["qualname"].to_string())?;
        ensure!(
            !code.is_hidden() && code.identity.is_proof(),
            "{}",
            code.qualname
        );
        seen.push(code);
    }
    for (i, code) in seen.iter().enumerate() {
        let twin = seen
            .iter()
            .take(i)
            .any(|other| other.qualname == code.qualname || other.identity == code.identity);
        ensure!(!twin, "{} looks like another", code.qualname);
    }
    check_stack(memory, &layout, said)
}

fn layout(said: &Value) -> Result<Layout> {
    let version = Version(u32::try_from(number(&said["version"])?)?);
    if let Ok(layout) = table(version) {
        return Ok(layout);
    }
    let hex = said["table"]
        .as_str()
        .context("table")?
        .as_bytes()
        .chunks(2);
    let bytes: Result<Vec<u8>> = hex
        .map(|two| Ok(u8::from_str_radix(std::str::from_utf8(two)?, 16)?))
        .collect();
    Ok(debug_offsets::parse(&bytes?)?.0)
}

fn check_code(code: &Code, expected: &Value) -> Result<()> {
    let text = |name: &str| expected[name].as_str().context("text");
    check_name(&code.qualname, text("qualname")?)?;
    check_name(&code.filename, text("filename")?)?;
    ensure!(
        u64::from(code.first_line) == number(&expected["first_line"])?,
        "first line"
    );
    ensure!(
        u64::from(code.flags) == number(&expected["flags"])?,
        "flags {:#x}",
        code.flags
    );
    ensure!(
        u64::from(code.code_units) == number(&expected["units"])?,
        "units"
    );
    ensure!(code.whole, "not whole");
    Ok(())
}

/// Equal, or cut at the limit with a hash.
fn check_name(name: &str, expected: &str) -> Result<()> {
    if let Some((kept, hash)) = name.split_once('…') {
        ensure!(
            name.chars().count() == NAME_CHARS_MAX && hash.len() == 12,
            "{name}"
        );
        ensure!(
            expected.starts_with(kept) && expected.chars().count() > NAME_CHARS_MAX,
            "{name}"
        );
    } else {
        ensure!(name == expected, "{name:?} is {expected:?}");
    }
    Ok(())
}

/// Names and places of every frame but the innermost, which has gone on since.
fn check_stack(memory: &Process, layout: &Layout, said: &Value) -> Result<()> {
    let frames = Parsed {
        layout: &layout.frame,
        memory,
    };
    let mut stack = Vec::new();
    let innermost = Addr(number(&said["frame"])?);
    let chain = Chain {
        first: innermost,
        ..Chain::default()
    };
    let (end, _) = walk(layout, &frames, chain, &mut stack);
    ensure!(end == End::Complete, "the walk ended in {end:?}");
    let (mut shown, mut hidden) = (Vec::new(), 0);
    stack.retain(|frame| frame.marker().is_none());
    for frame in stack.iter().skip(1) {
        let code = read_code(memory, layout, frame.code)?;
        if code.is_hidden() {
            hidden += 1;
        } else {
            shown.push((code.location(layout, frame.instr), code));
        }
    }
    let clean_up_frames = usize::from(layout.version.minor() >= (3, 13));
    ensure!(hidden == clean_up_frames, "{hidden} hidden frames");
    let expected = said["stack"].as_array().context("stack")?;
    ensure!(
        shown.len() == expected.len(),
        "{} frames of {}",
        shown.len(),
        expected.len()
    );
    for ((location, code), expected) in shown.iter().zip(expected) {
        check_code(code, expected)?;
        let place = [
            location.line,
            location.end_line,
            location.column,
            location.end_column,
        ];
        let theirs: [Option<u32>; 4] = serde_json::from_value(expected["position"].clone())?;
        ensure!(
            place == theirs,
            "{}: {place:?} is {theirs:?}",
            code.qualname
        );
    }
    Ok(())
}

fn number(value: &Value) -> Result<u64> {
    value
        .as_u64()
        .with_context(|| format!("{value} is no number"))
}
