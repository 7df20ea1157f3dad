//! The test programs of the workspace, and one run of each.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::cases::{self, Case, Outcome};
use crate::{run, shell};

/// Name of the suite of all unit tests.
pub(super) const UNIT: &str = "unit";

/// Package whose `[[test]]` targets are the other suites.
const TESTS: &str = "unwind-tests";

/// Names of all suites, `unit` first.
pub(super) fn all() -> Result<Vec<String>> {
    let metadata = run::metadata(&["--no-deps"])?;
    Ok(std::iter::once(UNIT.to_owned())
        .chain(integration(&metadata))
        .collect())
}

/// Names of the integration tests in what `cargo metadata` printed, in the manifest's order.
fn integration(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|package| package["name"] == TESTS)
        .flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| {
        target["kind"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"))
    });
    tests
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect()
}

/// Environment variables of the integration tests.
pub(super) type Environment = Vec<(&'static str, OsString)>;

/// Runs one suite. Each reported case is shown when it ends; of
/// the rest of the output nothing, unless the suite fails: then all of it.
pub(super) fn run(suite: &str, environment: &Environment) -> Result<Vec<Case>> {
    println!("\n== {suite}");
    let started = Instant::now();
    // Compile first, with cargo's own progress on the terminal.
    let compiled = shell::run(command(suite).arg("--no-run"));
    if let Err(error) = compiled {
        println!("== {suite}: {error:#}");
        return Ok(cases::collect(suite, "", false));
    }
    let (output, success) = captured(command(suite).envs(environment.iter().cloned()), suite)?;
    if !success {
        println!("---- output of {suite}\n{output}---- end of the output of {suite}");
    }
    let ended = if success { "done" } else { "FAILED" };
    println!(
        "== {suite}: {ended} in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    Ok(cases::collect(suite, &output, success))
}

/// `cargo test` for one suite.
fn command(suite: &str) -> Command {
    let mut command = run::cargo();
    // The same profile as the profiler under test: one build of all dependencies.
    command
        .current_dir(shell::root())
        .args(["test", "--release"]);
    match suite {
        UNIT => command.args(["--workspace", "--lib", "--bins", "--no-fail-fast"]),
        test => command.args(["--package", TESTS, "--test", test]),
    };
    command
}

/// Runs `command` with stdout and stderr in one text, in the order they were written, and whether
/// it ended with exit code 0.
fn captured(command: &mut Command, suite: &str) -> Result<(String, bool)> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    if suite != UNIT {
        // One at a time: they measure, and their reports must not mix within a line.
        command.args(["--", "--nocapture", "--test-threads=1"]);
    }
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot start cargo test")?;
    // The command holds the pipe's writing ends; with them open the reading would never end.
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());

    let mut output = String::new();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        output.push_str(&text);
        if let Some(Case {
            interpreter,
            name,
            outcome,
            reason,
            ..
        }) = Case::parse(&text)
        {
            let colon = if reason.is_empty() || outcome == Outcome::Passed {
                ""
            } else {
                ": "
            };
            let reason = if colon.is_empty() { "" } else { &reason };
            println!("   {interpreter:<12} {name} {outcome}{colon}{reason}");
        }
        line.clear();
    }
    Ok((output, child.wait()?.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_the_test_targets_of_the_tests_package() {
        let metadata = serde_json::json!({"packages": [
            {"name": "unwind-user", "targets": [{"name": "other", "kind": ["test"]}]},
            {"name": "unwind-tests", "targets": [
                {"name": "unwind_tests", "kind": ["lib"]},
                {"name": "truth", "kind": ["test"]},
                {"name": "names", "kind": ["test"]},
            ]},
        ]});
        assert_eq!(integration(&metadata), ["truth", "names"]);
        assert!(integration(&serde_json::json!({})).is_empty());
    }

    #[test]
    fn both_streams_are_captured_in_order() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let (output, success) = captured(&mut shell, UNIT).unwrap();
        assert_eq!((output.as_str(), success), ("one\ntwo\nthree\n", false));
    }
}
