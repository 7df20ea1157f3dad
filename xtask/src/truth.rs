//! `truth`: the tests that have a full length, at that.

use anyhow::Result;

use crate::test;

/// Suites that have a full length.
const SUITES: &[&str] = &["step", "truth"];

/// What to test with.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Test only this version of Python, such as 3.12 (repeatable)
    #[arg(long, value_name = "X.Y", value_parser = test::minor)]
    python: Vec<u8>,
    /// Count a missing interpreter as a failure; the default where the environment has CI=true
    #[arg(long)]
    ci: bool,
}

/// Runs the suites: truth runs of 10 s, and 200,000 single steps a version.
pub(crate) fn truth(options: &Options) -> Result<()> {
    test::test(&test::Options::full(SUITES, &options.python, options.ci))
}
