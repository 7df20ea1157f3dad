//! `bench`: builds the profiler and the benchmarks of the package in tests/, and runs one.

use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::run::{cargo, target_dir};
use crate::shell;
use crate::test;

/// Which benchmark, and its options.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to measure
    #[arg(value_enum)]
    what: What,
    /// Measure only this version of Python, such as 3.12 (repeatable)
    #[arg(long, value_name = "X.Y", value_parser = test::minor)]
    python: Vec<u8>,
    /// harm: pairs of windows
    #[arg(long, value_name = "N", default_value_t = 300)]
    pairs: u32,
    /// cost, user: length of one measurement
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// Benchmarks.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// CPU, bytes and memory a sample, against depth and threads, beside other samplers
    Cost,
    /// `unwind dump` of a process with 300 threads, beside py-spy's
    Dump,
    /// How much slower the target is, against an interrupt that does nothing
    Harm,
    /// The user half alone: ns and heap allocations a warm sample
    User,
}

/// Builds, finds the interpreters, and runs.
pub(crate) fn bench(options: &Options) -> Result<()> {
    ensure!(
        shell::is_root(),
        "the benchmarks load BPF programs: run them as root"
    );
    let pythons = test::interpreters(&options.python);
    if pythons.is_empty() {
        bail!("no interpreter to measure");
    }
    let build = [
        "build",
        "--release",
        "--quiet",
        "--bin",
        "unwind",
        "--bin",
        "unwind-bench",
    ];
    let packages = ["--package", "unwind-user", "--package", "unwind-tests"];
    shell::run(
        cargo()
            .current_dir(shell::root())
            .args(build)
            .args(packages),
    )?;
    let what = match options.what {
        What::Cost => "cost",
        What::Dump => "dump",
        What::Harm => "harm",
        What::User => "user",
    };
    let mut command = Command::new(target_dir()?.join("release/unwind-bench"));
    command
        .env("UNWIND_BIN", target_dir()?.join("release/unwind"))
        .env("UNWIND_PYTHONS", test::variable(pythons.iter()))
        .arg(what)
        .args(["--pairs", &options.pairs.to_string()])
        .args(["--seconds", &options.seconds.to_string()]);
    if let Some(json) = &options.json {
        command.arg("--json").arg(json);
    }
    shell::run(&mut command)
}
