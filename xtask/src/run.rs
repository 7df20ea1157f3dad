//! `run`, `dump`: build the profiler in release mode and become it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// Builds `unwind` and executes `unwind COMMAND ARGS…` in place of this process, so that signals and
/// the exit code are the profiler's. Returns only on failure.
pub(crate) fn run(command: &str, args: &[OsString]) -> Result<()> {
    let unwind = built()?;
    let error = Command::new(&unwind).arg(command).args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", unwind.display()))
}

/// Path of the profiler, built in release mode. Cargo shows its progress where it will take long.
pub(crate) fn built() -> Result<PathBuf> {
    let unwind = target_dir()?.join("release/unwind");
    let mut build = cargo();
    build
        .current_dir(shell::root())
        .args(["build", "--release", "--package", "unwind-user"]);
    if unwind.exists() {
        build.arg("--quiet");
    } else {
        eprintln!("building the profiler: the first time this takes some minutes");
    }
    shell::run(&mut build)?;
    Ok(unwind)
}

/// The cargo that started us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Where cargo builds: `target`, unless the environment or a configuration file says otherwise.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = metadata(&["--no-deps"])?;
    let folder = metadata["target_directory"].as_str();
    Ok(PathBuf::from(
        folder.context("`cargo metadata` names no target directory")?,
    ))
}

/// What `cargo metadata` prints.
pub(crate) fn metadata(args: &[&str]) -> Result<serde_json::Value> {
    let mut command = cargo();
    command
        .current_dir(shell::root())
        .args(["metadata", "--format-version=1"])
        .args(args);
    Ok(serde_json::from_str(&shell::output(&mut command)?)?)
}
