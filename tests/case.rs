//! Reports of single cases, which `cargo xtask test` gathers into its table.

use crate::pythons::{Python, pythons};

/// A case under way: ends in one of [`Self::ok`], [`Self::failed`] and [`Self::skipped`].
#[derive(Debug)]
#[must_use = "a case must report how it ended"]
pub struct Case {
    name: String,
}

impl Case {
    /// Begins the case `case` of `suite` with the interpreter `label`; names without spaces, `-`
    /// as label of a case without interpreter.
    pub fn new(suite: &str, label: &str, case: &str) -> Self {
        Self {
            name: format!("{suite} {label} {case}"),
        }
    }

    /// It passed.
    pub fn ok(self) {
        println!("UNWIND-CASE {} ok", self.name);
    }

    /// It failed, and why. The test itself must fail too.
    pub fn failed(self, why: &str) {
        println!("UNWIND-CASE {} failed {}", self.name, one_line(why));
    }

    /// It could not be tried here, and why.
    pub fn skipped(self, why: &str) {
        println!("UNWIND-CASE {} skipped {}", self.name, one_line(why));
    }
}

/// Runs one case for each interpreter; `Ok` says what was measured.
///
/// # Panics
/// When it fails for one of them, at the end.
pub fn for_each(suite: &str, name: &str, case: impl Fn(&Python) -> Result<String, String>) {
    let mut failed = Vec::new();
    for python in pythons() {
        let report = Case::new(suite, &python.label, name);
        match case(&python) {
            Ok(measured) => {
                println!("{} {name}: {measured}", python.label);
                report.ok();
            }
            Err(why) => {
                report.failed(&why);
                failed.push(format!("{}: {why}", python.label));
            }
        }
    }
    assert!(failed.is_empty(), "{name}: {failed:#?}");
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
