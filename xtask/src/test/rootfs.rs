//! Debian sid in a folder outside the tree, for the interpreters that no release has yet.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::interpreters::Place;
use crate::shell;

/// The minor versions of Python 3 that are installed in the rootfs.
pub(super) const VERSIONS: &[u8] = &[13, 14, 15];

/// How often a line of debootstrap's is shown.
const PROGRESS: Duration = Duration::from_secs(5);

/// A whole Debian sid with its `/proc` mounted.
pub(super) struct Rootfs(PathBuf);

impl Rootfs {
    /// The rootfs in the cache, made there first if need be. Remove that folder to renew it.
    /// An error says why it cannot be had here.
    pub(super) fn provide() -> Result<Self> {
        ensure!(shell::is_root(), "Debian's interpreters need root (chroot)");
        let cache = shell::cache()?;
        let rootfs = Self(cache.join("sid"));
        let missing = |&minor: &u8| !rootfs.0.join(format!("usr/bin/python3.{minor}")).exists();
        if !rootfs.0.exists() {
            fs::create_dir_all(&cache)
                .with_context(|| format!("cannot make {}", cache.display()))?;
            make(&cache, &rootfs.0)?;
        }
        if let Some(minor) = VERSIONS.iter().find(|minor| missing(minor)) {
            bail!(
                "{} has no python3.{minor}: remove it to have it made anew",
                rootfs.0.display()
            );
        }
        let proc = rootfs.0.join("proc");
        if !proc.join("self").exists() {
            shell::run(Command::new("mount").args(["-t", "proc", "proc"]).arg(proc))?;
        }
        Ok(rootfs)
    }

    /// Where Python 3.`minor` would lie.
    pub(super) fn python(&self, minor: u8) -> Place {
        Place::Chroot {
            root: self.0.clone(),
            path: format!("/usr/bin/python3.{minor}").into(),
        }
    }
}

/// Makes the rootfs under another name and renames it when it is whole.
fn make(cache: &Path, rootfs: &Path) -> Result<()> {
    if shell::on_path("debootstrap").is_none() {
        ensure!(
            shell::on_path("apt-get").is_some(),
            "no debootstrap here, and no apt-get"
        );
        println!("rootfs: installing debootstrap");
        shell::run(Command::new("apt-get").args(["update", "-qq"]))?;
        let install = ["install", "--yes", "-qq", "debootstrap"];
        shell::run(
            Command::new("apt-get")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(install),
        )?;
    }
    let unfinished = cache.join(format!("sid.{}.unfinished", process::id()));
    let made = debootstrap(&unfinished);
    if made.is_err() {
        // debootstrap leaves its mounts behind when it fails; never delete through one.
        let proc = Command::new("umount")
            .arg(unfinished.join("proc"))
            .stderr(Stdio::null())
            .status();
        let remove = Command::new("rm")
            .args(["-rf", "--one-file-system"])
            .arg(&unfinished)
            .status();
        drop((proc, remove));
    }
    made?;
    if rootfs.exists() {
        bail!(
            "{} appeared while it was being made: run again",
            rootfs.display()
        );
    }
    fs::rename(&unfinished, rootfs).context("cannot put the rootfs in place")
}

/// Runs debootstrap into `folder`, showing a line of its progress every few seconds.
fn debootstrap(folder: &Path) -> Result<()> {
    println!("rootfs: making Debian sid in the cache (370 MB, about half a minute)");
    let packages: Vec<String> = VERSIONS
        .iter()
        .map(|minor| format!("python3.{minor}"))
        .collect();
    let mut child = Command::new("debootstrap")
        .args([
            "--variant=minbase",
            &format!("--include={}", packages.join(",")),
            "sid",
        ])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start debootstrap")?;
    let mut shown = Instant::now();
    let mut last = String::new();
    for line in child
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufRead::lines)
    {
        last = line?;
        if shown.elapsed() >= PROGRESS {
            println!("rootfs: {last}");
            shown = Instant::now();
        }
    }
    let status = child.wait()?;
    ensure!(
        status.success(),
        "debootstrap failed: {status}, after: {last}"
    );
    Ok(())
}
