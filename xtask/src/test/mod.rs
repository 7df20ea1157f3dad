//! `test`: all tests on all interpreters, and a table of what they showed.

mod cases;
mod interpreters;
mod prometheus;
mod rootfs;
mod suites;
mod table;

use std::collections::BTreeMap;
use std::env;

use anyhow::{Result, bail, ensure};

use self::cases::{Case, Outcome};
pub(crate) use self::interpreters::{Interpreter, Place, SUPPORTED, variable};
use self::rootfs::Rootfs;
use self::table::Totals;
use crate::run;

/// The suite that scrapes with a real Prometheus server.
const METRICS: &str = "metrics";

/// What to test.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only this suite: `unit`, or a test target of the package in tests/ (repeatable)
    #[arg(long, value_name = "SUITE")]
    only: Vec<String>,
    /// Test only this version of Python, such as 3.12 (repeatable)
    #[arg(long, value_name = "X.Y", value_parser = minor)]
    python: Vec<u8>,
    /// Count a missing interpreter as a failure; the default where the environment has CI=true
    #[arg(long)]
    ci: bool,
    /// Whether the tests that have a full length run it.
    #[arg(skip)]
    full: bool,
}

impl Options {
    /// What has a full length, at that.
    pub(crate) fn full(suites: &[&str], python: &[u8], ci: bool) -> Self {
        let only = suites.iter().map(|suite| (*suite).to_owned()).collect();
        let python = python.to_vec();
        Self {
            only,
            python,
            ci,
            full: true,
        }
    }
}

/// The minor version in `3.12`, if it is supported.
pub(crate) fn minor(version: &str) -> Result<u8> {
    let minor = version
        .strip_prefix("3.")
        .and_then(|minor| minor.parse().ok());
    match minor {
        Some(minor) if SUPPORTED.contains(&minor) => Ok(minor),
        _ => bail!("not a supported version of Python, which are 3.11 to 3.15"),
    }
}

/// Runs the suites and prints the table; an error if a case failed. The last line on stdout is
/// `N passed, N failed, N skipped`.
pub(crate) fn test(options: &Options) -> Result<()> {
    let strict = options.ci || env::var_os("CI").is_some_and(|value| value == "true");
    let suites = chosen(suites::all()?, &options.only)?;
    let minors = if options.python.is_empty() {
        SUPPORTED
    } else {
        &options.python
    };

    let mut cases = Vec::new();
    let mut pythons = String::new();
    if suites.iter().any(|suite| suite != suites::UNIT) {
        let (rootfs, reason) = rootfs_for(minors);
        let found = interpreters::find(minors, rootfs.as_ref());
        cases.extend(missing(&found, &reason, strict));
        let found: Vec<&Interpreter> = found.values().flatten().collect();
        for Interpreter { label, place } in &found {
            println!("python {label}: {place}");
        }
        pythons = interpreters::variable(found.into_iter());
    }
    let mut environment = suites::Environment::new();
    if !pythons.is_empty() {
        environment.push(("UNWIND_PYTHONS", pythons.clone().into()));
        environment.push(("UNWIND_BIN", run::built()?.into()));
    }
    if suites.iter().any(|suite| suite == METRICS) {
        match prometheus::provide() {
            Ok(path) => environment.push(("UNWIND_PROMETHEUS", path.into())),
            Err(error) => println!("no Prometheus server: {error:#}"),
        }
    }
    if options.full {
        environment.push(("UNWIND_TRUTH", "full".into()));
        environment.push(("UNWIND_STEPS", "200000".into()));
        environment.push(("UNWIND_KILLS", "200".into()));
    }
    for suite in &suites {
        if suite != suites::UNIT && pythons.is_empty() {
            let reason = "no interpreter to test with".to_owned();
            cases.push(Case::new(
                suite,
                cases::NO_INTERPRETER,
                "suite",
                Outcome::Skipped,
                reason,
            ));
            continue;
        }
        cases.extend(suites::run(suite, &environment)?);
    }

    let totals = Totals::of(&cases);
    println!("\n{}\n{}", table::render(&cases), totals.line());
    if totals.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// The interpreters of these minor versions, of all supported ones if none is named.
pub(crate) fn interpreters(minors: &[u8]) -> Vec<Interpreter> {
    let minors = if minors.is_empty() { SUPPORTED } else { minors };
    let (rootfs, reason) = rootfs_for(minors);
    if !reason.is_empty() {
        println!("no Debian rootfs: {reason}");
    }
    let found = interpreters::find(minors, rootfs.as_ref());
    found.into_values().flatten().collect()
}

/// The suites to run: all, or those named, in the order of `all`.
fn chosen(all: Vec<String>, only: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = only.iter().find(|name| !all.contains(name)) {
        bail!(
            "there is no suite {unknown:?}; there are {}",
            all.join(", ")
        );
    }
    let wanted = |name: &String| only.is_empty() || only.contains(name);
    let chosen: Vec<String> = all.into_iter().filter(wanted).collect();
    ensure!(!chosen.is_empty(), "there is no suite to run");
    Ok(chosen)
}

/// Debian's rootfs if one of `minors` may come from it, else why it cannot be had.
fn rootfs_for(minors: &[u8]) -> (Option<Rootfs>, String) {
    if !minors.iter().any(|minor| rootfs::VERSIONS.contains(minor)) {
        return (None, String::new());
    }
    match Rootfs::provide() {
        Ok(rootfs) => (Some(rootfs), String::new()),
        Err(error) => (None, format!("{error:#}")),
    }
}

/// One case for each version of which no interpreter was found.
fn missing(found: &BTreeMap<u8, Vec<Interpreter>>, no_rootfs: &str, strict: bool) -> Vec<Case> {
    let outcome = if strict {
        Outcome::Failed
    } else {
        Outcome::Skipped
    };
    let missing = found.iter().filter(|(_, pythons)| pythons.is_empty());
    missing
        .map(|(minor, _)| {
            let mut reason = format!("no python3.{minor} in pyenv or on PATH");
            if rootfs::VERSIONS.contains(minor) && !no_rootfs.is_empty() {
                reason = format!("{reason}, and no Debian rootfs: {no_rootfs}");
            }
            Case::new(
                "interpreter",
                &format!("3.{minor}"),
                "present",
                outcome,
                reason,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_keeps_the_order_and_refuses_unknown_suites() {
        let all = names(&["unit", "truth", "names"]);
        assert_eq!(chosen(all.clone(), &[]).unwrap(), all);
        let some = chosen(all.clone(), &names(&["names", "unit"])).unwrap();
        assert_eq!(some, names(&["unit", "names"]));
        let error = chosen(all, &names(&["turth"])).unwrap_err().to_string();
        assert!(
            error.contains("\"turth\"; there are unit, truth, names"),
            "{error}"
        );
    }

    #[test]
    fn versions_outside_the_supported_are_refused() {
        assert_eq!(minor("3.12").unwrap(), 12);
        for bad in ["3.10", "3.16", "12", "3.x", ""] {
            assert!(minor(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_missing_version_fails_in_ci_and_is_skipped_elsewhere() {
        let found = BTreeMap::from([(12, Vec::new()), (15, Vec::new())]);
        let lenient = missing(&found, "not root", false);
        assert_eq!(lenient[0].outcome, Outcome::Skipped);
        assert!(
            !lenient[0].reason.contains("not root"),
            "3.12 is not Debian's"
        );
        assert!(lenient[1].reason.ends_with("no Debian rootfs: not root"));
        let strict = missing(&found, "not root", true);
        assert!(strict.iter().all(|case| case.outcome == Outcome::Failed));
    }
}
