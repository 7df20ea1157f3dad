//! What profiling costs: `cargo xtask bench`.

mod args;
mod cost;
mod dump;
mod harm;
mod peers;
mod statistics;
mod target;
mod user;

use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let args = args::Args::parse(words)?;
    match what.as_str() {
        "cost" => cost::run(&args),
        "dump" => dump::run(&args),
        "harm" => harm::run(&args),
        "user" => user::run(&args),
        _ => bail!(
            "usage: unwind-bench cost|dump|harm|user [--python LABEL] [--pairs N] [--seconds S] [--json FILE]"
        ),
    }
}
