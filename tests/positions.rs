//! Every location-table entry of the whole standard library decodes to what `co_positions()` gives.

use std::io::{BufReader, ErrorKind, Read};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use unwind_tests::{Case, Python, versions};
use unwind_user::python::linetable::{LineTable, Location, entries};

/// Fewest functions that a standard library has: less means that it was not found.
const FUNCTIONS_MIN: usize = 5_000;

#[test]
fn the_standard_library_decodes_as_python_does() {
    let versions = versions();
    let mut failures = Vec::new();
    for python in &versions {
        let case = Case::new("positions", &python.label, "stdlib");
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

/// Compares every code unit of every function.
fn compare(python: &Python) -> Result<()> {
    let mut child = python
        .command()
        .args(["-I", "-B", "-c", include_str!("programs/positions.py")])
        .stdout(Stdio::piped())
        .spawn()
        .context("the interpreter starts")?;
    let output = child.stdout.take().context("its output")?;
    let mut output = BufReader::with_capacity(1 << 20, output);
    let (mut functions, mut units) = (0, 0);
    while let Some(first_line) = word(&mut output)? {
        let length = required(&mut output)?;
        let mut table = vec![0; length as usize];
        output.read_exact(&mut table)?;
        let runs = required(&mut output)?;
        let mut expected = Vec::new();
        for _ in 0..runs {
            let length = required(&mut output)?;
            let location = location(&mut output)?;
            expected.extend(std::iter::repeat_n(location, length as usize));
        }
        check(table, first_line, &expected)
            .with_context(|| format!("function {functions}, first line {first_line}"))?;
        functions += 1;
        units += expected.len();
    }
    ensure!(child.wait()?.success(), "the interpreter failed");
    ensure!(
        functions >= FUNCTIONS_MIN,
        "only {functions} functions were compiled"
    );
    println!(
        "{}: {functions} functions, {units} code units",
        python.label
    );
    Ok(())
}

fn check(table: Vec<u8>, first_line: u32, expected: &[Location]) -> Result<()> {
    let lines = LineTable::new(table.clone(), first_line);
    let mut end = 0;
    for entry in entries(&table, first_line) {
        ensure!(
            entry.start as usize == end,
            "entries are not contiguous at {end}"
        );
        end += entry.units as usize;
        let theirs = expected
            .get(entry.start as usize..end)
            .context("more units than code")?;
        for (unit, theirs) in (entry.start..).zip(theirs) {
            ensure!(
                entry.location == *theirs,
                "unit {unit}: {:?} is {theirs:?}",
                entry.location
            );
        }
        let found = lines.locate(entry.start + entry.units - 1);
        ensure!(
            found == entry.location,
            "look-up of unit {} gives {found:?}",
            end - 1
        );
    }
    ensure!(
        end == expected.len(),
        "{end} units decoded of {}",
        expected.len()
    );
    Ok(())
}

fn location(output: &mut impl Read) -> Result<Location> {
    let mut part = || required(output).map(|part| (part != u32::MAX).then_some(part));
    Ok(Location {
        line: part()?,
        end_line: part()?,
        column: part()?,
        end_column: part()?,
    })
}

fn required(output: &mut impl Read) -> Result<u32> {
    word(output)?.context("the output is cut")
}

/// The next word; none at the end.
fn word(output: &mut impl Read) -> Result<Option<u32>> {
    let mut bytes = [0; 4];
    match output.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u32::from_le_bytes(bytes))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}
