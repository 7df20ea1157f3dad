//! Where things are, and running other programs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Root of the workspace that this command was started in.
pub(crate) fn root() -> PathBuf {
    // `cargo run` sets the variable; the compiled-in path serves a binary that is started by hand.
    let manifest =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = PathBuf::from(manifest);
    manifest
        .parent()
        .map_or(manifest.clone(), Path::to_path_buf)
}

/// The user's home directory.
pub(crate) fn home() -> Result<PathBuf> {
    env::home_dir().context("no home directory: set HOME")
}

/// Folder outside the tree for what is expensive to make: `$XDG_CACHE_HOME/unwind`, else
/// `~/.cache/unwind`.
pub(crate) fn cache() -> Result<PathBuf> {
    match env::var_os("XDG_CACHE_HOME") {
        Some(dir) if Path::new(&dir).is_absolute() => Ok(PathBuf::from(dir).join("unwind")),
        _ => Ok(home()?.join(".cache/unwind")),
    }
}

/// First file called `name` in the folders of `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}

/// Runs `command` with our own stdout and stderr; an error unless it exits with 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    ensure!(status.success(), "{} failed: {status}", shown(command));
    Ok(())
}

/// Runs `command` and returns its stdout; an error, with its stderr, unless it exits with 0.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} failed: {}\n{}",
            shown(command),
            output.status,
            stderr.trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command line as one would type it, for messages.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
