//! Layouts, from our tables or as an interpreter publishes them, against the interpreter's headers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use unwind_tests::{Case, Place, Python, pythons};
use unwind_user::layout::{
    CurrentFrame, Entry, Identity, Instr, Layout, Version, debug_offsets, table,
};

/// Names and numbers, as `programs/layout.c` prints them.
type Facts = BTreeMap<String, u64>;

#[test]
fn layouts_are_what_the_headers_say() {
    let mut failures = Vec::new();
    for python in &pythons() {
        let case = Case::new("layouts", &python.label, "headers");
        match compare(python) {
            Ok(None) => case.ok(),
            Ok(Some(reason)) => case.skipped(&reason),
            Err(error) => {
                case.failed(&format!("{error:#}"));
                failures.push(format!("{}: {error:#}", python.label));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Compares all facts of one interpreter; gives the reason where that cannot be done.
fn compare(python: &Python) -> Result<Option<String>> {
    let (layout, include) = ask(python)?;
    let Some(headers) = headers(python, &include) else {
        return Ok(Some(format!("no headers at {}", include.display())));
    };
    let Some(theirs) = compile(&headers)? else {
        return Ok(Some("no gcc".to_owned()));
    };
    let ours = facts(&layout);
    let mut wrong = Vec::new();
    for name in ours.keys().chain(theirs.keys()) {
        let (ours, theirs) = (ours.get(name), theirs.get(name));
        if ours != theirs {
            wrong.push(format!("{name}: ours {ours:?}, headers {theirs:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(None)
}

/// The interpreter's layout, and the folder of its headers as it names it.
fn ask(python: &Python) -> Result<(Layout, PathBuf)> {
    let mut command = python.command();
    let output = command
        .args(["-I", "-c", include_str!("programs/layout.py")])
        .output()?;
    let output = success(output)?;
    let mut lines = output.lines();
    let mut line = || lines.next().context("a line is missing");
    let version = Version(line()?.parse()?);
    let include = PathBuf::from(line()?);
    let published = bytes(line()?)?;
    let layout = if published.is_empty() {
        table(version)?
    } else {
        debug_offsets::parse(&published)?.0
    };
    layout.validate()?;
    Ok((layout, include))
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|two| Ok(u8::from_str_radix(std::str::from_utf8(two)?, 16)?))
        .collect()
}

/// The headers as this file system shows them, if the internal ones are there.
fn headers(python: &Python, include: &Path) -> Option<PathBuf> {
    let folder = match &python.place {
        Place::Host(_) => include.to_owned(),
        Place::Chroot { root, .. } => root.join(include.strip_prefix("/").ok()?),
    };
    folder
        .join("internal/pycore_frame.h")
        .exists()
        .then_some(folder)
}

/// Compiles and runs `programs/layout.c`; nothing where there is no compiler.
fn compile(headers: &Path) -> Result<Option<Facts>> {
    if Command::new("gcc").arg("--version").output().is_err() {
        return Ok(None);
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/layout.c");
    let program = std::env::temp_dir().join(format!("unwind-layout-{}", std::process::id()));
    let compiled = Command::new("gcc")
        .arg("-w")
        .args(["-I".as_ref(), headers])
        // Where Debian's pyconfig.h includes the architecture's from.
        .args([
            "-I".as_ref(),
            headers.parent().context("a folder around the headers")?,
        ])
        .args(["-I".as_ref(), headers.join("internal").as_path()])
        .arg(source)
        .args(["-o".as_ref(), program.as_path()])
        .output()?;
    success(compiled)?;
    let printed = Command::new(&program).output();
    std::fs::remove_file(&program)?;
    let printed = success(printed?)?;
    let fact = |line: &str| {
        let (name, number) = line.split_once(' ').context("no name and number")?;
        Ok((name.to_owned(), number.parse()?))
    };
    printed
        .lines()
        .map(fact)
        .collect::<Result<Facts>>()
        .map(Some)
}

fn success(output: Output) -> Result<String> {
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A layout as facts.
fn facts(layout: &Layout) -> Facts {
    let Layout {
        version,
        runtime,
        interp,
        thread,
        frame,
        code,
        unicode,
        bytes,
    } = layout;
    let mut facts = vec![
        ("version", version.0.into()),
        ("runtime.interpreters_head", runtime.interpreters_head),
        ("interp.next", interp.next),
        ("interp.id", interp.id),
        ("interp.threads_head", interp.threads_head),
        ("interp.collecting", interp.collecting),
        ("thread.prev", thread.prev),
        ("thread.next", thread.next),
        ("thread.interp", thread.interp),
        ("thread.thread_id", thread.thread_id),
        ("thread.native_thread_id", thread.native_thread_id),
        ("thread.datastack_chunk", thread.datastack_chunk),
        ("thread.datastack_top", thread.datastack_chunk + 8),
        ("thread.datastack_limit", thread.datastack_chunk + 16),
        ("frame.localsplus", frame.localsplus),
        ("frame.code", frame.code),
        ("frame.code_tag", frame.code_tag),
        ("frame.previous", frame.previous),
        ("frame.function", frame.function),
        ("frame.owner", frame.owner),
        ("frame.owner_max", frame.owner_max.into()),
        ("code.filename", code.filename),
        ("code.name", code.name),
        ("code.qualname", code.qualname),
        ("code.linetable", code.linetable),
        ("code.firstlineno", code.firstlineno),
        ("code.flags", code.flags),
        ("code.bytecode", code.bytecode),
        ("code.code_units", code.code_units),
        ("unicode.length", unicode.length),
        ("unicode.state", unicode.state),
        ("unicode.ascii_data", unicode.ascii_data),
        ("unicode.compact_data", unicode.compact_data),
        ("unicode.kind_mask", unicode.kind_mask.into()),
        ("unicode.compact_mask", unicode.compact_mask.into()),
        ("unicode.ascii_mask", unicode.ascii_mask.into()),
        ("bytes.size", bytes.size),
        ("bytes.data", bytes.data),
        // The same wherever there is a GIL; the layout only says where it is.
        ("gil.last_holder", 8),
        ("gil.locked", 16),
        // The same everywhere.
        ("object.type", 8),
        ("type.flags", 168),
        ("function.code", 48),
        ("exception.value", 0),
        ("exception.previous", 8),
    ];
    facts.push(match frame.instr {
        Instr::Previous(at) => ("frame.prev_instr", at),
        Instr::Current(at) => ("frame.instr_ptr", at),
    });
    facts.push(match frame.entry {
        Entry::Flag(at) => ("frame.is_entry", at),
        Entry::Owner(owner) => ("frame.entry_owner", owner.into()),
    });
    facts.extend(thread.gil_requested.map(|at| ("thread.gil_requested", at)));
    if let Some(exceptions) = thread.exceptions {
        facts.push(("thread.current_exception", exceptions.current));
        facts.push(("thread.exc_info", exceptions.info));
    }
    match thread.current {
        CurrentFrame::CFrame {
            cframe,
            current_frame,
            previous,
            root,
        } => facts.extend([
            ("thread.cframe", cframe),
            ("thread.root_cframe", root),
            ("cframe.current_frame", current_frame),
            ("cframe.previous", previous),
        ]),
        CurrentFrame::Direct(at) => facts.push(("thread.current_frame", at)),
        CurrentFrame::Based {
            current_frame,
            base_frame,
        } => facts.extend([
            ("thread.current_frame", current_frame),
            ("thread.base_frame", base_frame),
        ]),
    }
    if let Identity::Version(at) = code.identity {
        facts.push(("code.version", at));
    }
    let optional = [
        ("runtime.gil_holder", runtime.gil_holder),
        ("interp.gil", interp.gil),
        ("interp.gc_frame", interp.gc_frame),
        ("interp.code_generation", interp.code_generation),
        ("thread.holds_gil", thread.holds_gil),
    ];
    facts.extend(
        optional
            .into_iter()
            .filter_map(|(name, at)| Some((name, at?))),
    );
    facts
        .into_iter()
        .map(|(name, at)| (name.to_owned(), at))
        .collect()
}
