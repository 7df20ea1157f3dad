//! A Prometheus server for the tests of the metrics: the program of Debian's package, unpacked into
//! the cache, so that no service is installed or started.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// Path of the server: installed, in the cache, or fetched there now. An error says why not.
pub(super) fn provide() -> Result<PathBuf> {
    if let Some(path) = shell::on_path("prometheus") {
        return Ok(path);
    }
    let cache = shell::cache()?;
    let folder = cache.join("prometheus");
    let program = folder.join("usr/bin/prometheus");
    if program.exists() {
        return Ok(program);
    }
    ensure!(
        shell::is_root() && shell::on_path("apt-get").is_some(),
        "Prometheus is not installed, and fetching Debian's package needs root and apt-get"
    );
    println!("prometheus: fetching Debian's package");
    let unfinished = cache.join(format!("prometheus.{}.tmp", std::process::id()));
    fs::create_dir_all(&unfinished)
        .with_context(|| format!("cannot make {}", unfinished.display()))?;
    let made = unpack(&unfinished)
        .and_then(|()| fs::rename(&unfinished, &folder).context("cannot rename the folder"));
    if made.is_err() {
        // The reason is in `made`.
        fs::remove_dir_all(&unfinished).ok();
    }
    made.map(|()| program)
}

fn unpack(folder: &std::path::Path) -> Result<()> {
    let mut download = Command::new("apt-get");
    download
        .args(["download", "-qq", "prometheus"])
        .current_dir(folder);
    if shell::output(&mut download).is_err() {
        // Without lists, or with old ones, apt finds nothing to download.
        shell::run(Command::new("apt-get").args(["update", "-qq"]))?;
        shell::output(&mut download)?;
    }
    let package = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .context("apt-get downloaded no package")?;
    shell::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))
}
