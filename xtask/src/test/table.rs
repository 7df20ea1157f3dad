//! The table at the end of a test run.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::cases::{Case, NO_INTERPRETER, Outcome};

/// Numbers of cases by outcome.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    passed: usize,
    pub(super) failed: usize,
    skipped: usize,
}

impl Totals {
    /// Counts cases.
    pub(super) fn of<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Self {
        cases.into_iter().fold(Self::default(), |mut totals, case| {
            *match case.outcome {
                Outcome::Passed => &mut totals.passed,
                Outcome::Failed => &mut totals.failed,
                Outcome::Skipped => &mut totals.skipped,
            } += case.count;
            totals
        })
    }

    /// `N passed, N failed, N skipped`.
    pub(super) fn line(self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }

    /// The outcomes that occurred, for a cell of the table.
    fn cell(self) -> String {
        let parts = [
            (self.passed, "passed"),
            (self.failed, "FAILED"),
            (self.skipped, "skipped"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        parts
            .map(|(count, word)| format!("{count} {word}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The table interpreter x suite, below it the failures and the skips with their reasons. Suites are
/// in the order of their first case.
pub(super) fn render(cases: &[Case]) -> String {
    let mut suites: Vec<&str> = Vec::new();
    let mut rows: BTreeMap<(bool, &str), BTreeMap<&str, Vec<&Case>>> = BTreeMap::new();
    for case in cases {
        if !suites.contains(&case.suite.as_str()) {
            suites.push(&case.suite);
        }
        // What belongs to no interpreter comes last.
        let row = (
            case.interpreter == NO_INTERPRETER,
            case.interpreter.as_str(),
        );
        rows.entry(row)
            .or_default()
            .entry(&case.suite)
            .or_default()
            .push(case);
    }
    let mut lines = vec![vec!["interpreter".to_owned()]];
    lines[0].extend(suites.iter().map(|suite| (*suite).to_owned()));
    for ((_, label), row) in &rows {
        let mut line = vec![(*label).to_owned()];
        for suite in &suites {
            let cell = row
                .get(suite)
                .map(|cases| Totals::of(cases.iter().copied()).cell());
            line.push(cell.unwrap_or_else(|| NO_INTERPRETER.to_owned()));
        }
        lines.push(line);
    }
    let mut text = align(&lines);
    for outcome in [Outcome::Failed, Outcome::Skipped] {
        let of_outcome = cases.iter().filter(|case| case.outcome == outcome);
        for (index, case) in of_outcome.enumerate() {
            if index == 0 {
                let _ = writeln!(text, "\n{outcome}:");
            }
            let Case {
                suite,
                interpreter,
                name,
                reason,
                ..
            } = case;
            let reason = if reason.is_empty() {
                "no reason given"
            } else {
                reason
            };
            let _ = writeln!(text, "  {interpreter} {suite} {name}: {reason}");
        }
    }
    text
}

/// Lines of cells, each column as wide as its widest cell.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(suite: &str, interpreter: &str, outcome: Outcome, reason: &str) -> Case {
        Case::new(suite, interpreter, "case", outcome, reason.to_owned())
    }

    #[test]
    fn table_has_a_row_an_interpreter_and_the_reasons_below() {
        let unit = Case {
            count: 41,
            ..case("unit", "-", Outcome::Passed, "")
        };
        let cases = [
            unit,
            case("truth", "3.12", Outcome::Passed, ""),
            case("truth", "3.12", Outcome::Failed, "torn stack"),
            case("truth", "3.11", Outcome::Skipped, "not root"),
        ];
        let expected = "\
interpreter  unit       truth
3.11         -          1 skipped
3.12         -          1 passed, 1 FAILED
-            41 passed  -

failed:
  3.12 truth case: torn stack

skipped:
  3.11 truth case: not root
";
        assert_eq!(render(&cases), expected);
        assert_eq!(Totals::of(&cases).line(), "42 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn nothing_to_tell_is_no_section() {
        let text = render(&[case("truth", "3.12", Outcome::Passed, "")]);
        assert_eq!(text, "interpreter  truth\n3.12         1 passed\n");
        assert_eq!(Totals::of(&[]).line(), "0 passed, 0 failed, 0 skipped");
    }
}
