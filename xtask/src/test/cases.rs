//! Results of test programs, read from what they print.

use std::fmt;

/// Word that begins the report of one case in a test's output.
const MARK: &str = "UNWIND-CASE ";

/// Label of results that belong to no interpreter.
pub(super) const NO_INTERPRETER: &str = "-";

/// How a case ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// One case, or `count` cases of which only the number is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) suite: String,
    /// Label of the interpreter, or [`NO_INTERPRETER`].
    pub(super) interpreter: String,
    pub(super) name: String,
    pub(super) outcome: Outcome,
    /// Why it failed or was skipped; may be empty.
    pub(super) reason: String,
    pub(super) count: usize,
}

impl Case {
    /// A single case.
    pub(super) fn new(
        suite: &str,
        interpreter: &str,
        name: &str,
        outcome: Outcome,
        reason: String,
    ) -> Self {
        let [suite, interpreter, name] = [suite, interpreter, name].map(str::to_owned);
        Self {
            suite,
            interpreter,
            name,
            outcome,
            reason,
            count: 1,
        }
    }

    /// Reads `UNWIND-CASE suite interpreter case ok|failed|skipped reason…`. The mark may follow
    /// other text: the test harness prints the test's name without ending the line.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (_, report) = line.split_once(MARK)?;
        let mut words = report.split_whitespace();
        let (suite, interpreter, name) = (words.next()?, words.next()?, words.next()?);
        let outcome = match words.next()? {
            "ok" => Outcome::Passed,
            "failed" => Outcome::Failed,
            "skipped" => Outcome::Skipped,
            _ => return None,
        };
        let reason = words.collect::<Vec<_>>().join(" ");
        Some(Self::new(suite, interpreter, name, outcome, reason))
    }
}

/// The totals of a harness's line `test result: ok. 7 passed; 0 failed; 1 ignored; …`, as passed,
/// failed, ignored.
fn totals(line: &str) -> Option<[usize; 3]> {
    let (_, counts) = line.split_once("test result: ")?;
    let (_, counts) = counts.split_once(". ")?;
    let number = |word: &str| {
        let part = counts
            .split("; ")
            .find_map(|part| part.strip_suffix(word))?;
        part.trim().parse().ok()
    };
    Some([number("passed")?, number("failed")?, number("ignored")?])
}

/// The cases in a suite's whole output. Where it reports none, the harness's own totals count. A
/// suite that failed has at least one failed case.
pub(super) fn collect(suite: &str, output: &str, success: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = output.lines().filter_map(Case::parse).collect();
    if cases.is_empty() {
        let sums = output.lines().filter_map(totals).fold([0; 3], |sum, each| {
            [sum[0] + each[0], sum[1] + each[1], sum[2] + each[2]]
        });
        let outcomes = [Outcome::Passed, Outcome::Failed, Outcome::Skipped];
        for (count, outcome) in sums
            .into_iter()
            .zip(outcomes)
            .filter(|(count, _)| *count > 0)
        {
            let reason = match outcome {
                Outcome::Passed => "",
                Outcome::Failed => "see the output above",
                Outcome::Skipped => "marked #[ignore]",
            };
            let name = format!("{count}-tests");
            let case = Case::new(suite, NO_INTERPRETER, &name, outcome, reason.to_owned());
            cases.push(Case { count, ..case });
        }
    }
    let failed = cases.iter().any(|case| case.outcome == Outcome::Failed);
    if !success && !failed {
        let reason = "the suite failed outside its cases, see the output above".to_owned();
        cases.push(Case::new(
            suite,
            NO_INTERPRETER,
            "suite",
            Outcome::Failed,
            reason,
        ));
    }
    if cases.is_empty() {
        let reason = "the suite ran no test".to_owned();
        cases.push(Case::new(
            suite,
            NO_INTERPRETER,
            "suite",
            Outcome::Skipped,
            reason,
        ));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_lines_are_read_also_behind_the_harness() {
        let case = Case::parse("test oracle ... UNWIND-CASE truth 3.12 oracle-1khz ok").unwrap();
        assert_eq!(
            case,
            Case::new(
                "truth",
                "3.12",
                "oracle-1khz",
                Outcome::Passed,
                String::new()
            )
        );
        let case = Case::parse("UNWIND-CASE names 3.15 lines skipped no  /proc\n").unwrap();
        assert_eq!(
            (case.outcome, case.reason.as_str()),
            (Outcome::Skipped, "no /proc")
        );
        let case = Case::parse("UNWIND-CASE names 3.15 lines failed 3 of 4 differ").unwrap();
        assert_eq!(
            (case.outcome, case.reason.as_str()),
            (Outcome::Failed, "3 of 4 differ")
        );
    }

    #[test]
    fn other_lines_are_no_cases() {
        for line in [
            "",
            "UNWIND-CASE",
            "UNWIND-CASE a b c",
            "UNWIND-CASE a b c maybe",
            "ok",
        ] {
            assert_eq!(Case::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn totals_are_read_from_the_harness() {
        let line = "test result: FAILED. 7 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out";
        assert_eq!(totals(line), Some([7, 2, 1]));
        assert_eq!(totals("test result: unknown"), None);
    }

    #[test]
    fn a_suite_without_cases_counts_by_its_totals() {
        let output = "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured\n\
                      test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured\n";
        let counts: Vec<_> = collect("unit", output, true)
            .iter()
            .map(|case| (case.outcome, case.count))
            .collect();
        assert_eq!(counts, [(Outcome::Passed, 12), (Outcome::Skipped, 2)]);
    }

    #[test]
    fn a_failed_suite_never_counts_as_passed() {
        let output = "UNWIND-CASE truth 3.12 a ok\n thread panicked\n";
        let cases = collect("truth", output, false);
        assert_eq!(cases.last().unwrap().outcome, Outcome::Failed);
        assert_eq!(collect("truth", output, true).len(), 1);
        assert_eq!(collect("truth", "error: could not compile", false).len(), 1);
        assert_eq!(collect("truth", "", true)[0].outcome, Outcome::Skipped);
    }
}
