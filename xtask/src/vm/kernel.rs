//! Debian's cloud kernels, fetched once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::apt::Apt;
use crate::shell;

/// A kernel and the Debian suite that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// Its first two numbers.
    pub(super) name: &'static str,
    /// Debian's suite.
    pub(super) suite: &'static str,
    /// Whether it can run the BPF program at all: `bpf_loop` came with 5.17.
    pub(super) supported: bool,
}

/// What is booted when nothing is named.
pub(super) const RELEASES: &[Release] = &[
    Release {
        name: "5.10",
        suite: "bullseye",
        supported: false,
    },
    Release {
        name: "6.1",
        suite: "bookworm",
        supported: true,
    },
    Release {
        name: "6.12",
        suite: "trixie",
        supported: true,
    },
    Release {
        name: "7.2",
        suite: "sid",
        supported: true,
    },
];

/// The release called `name`.
pub(super) fn release(name: &str) -> Result<Release> {
    let found = RELEASES.iter().find(|release| release.name == name);
    found.copied().context("not one of 5.10, 6.1, 6.12, 7.2")
}

/// The kernel image, from the cache or from Debian. Remove `~/.cache/unwind/vm` to renew it.
pub(super) fn provide(release: &Release) -> Result<PathBuf> {
    let cache = shell::cache()?.join("vm");
    let image = cache.join(format!("vmlinuz-{}", release.name));
    if image.exists() {
        return Ok(image);
    }
    println!(
        "kernel {}: fetching it from Debian {}",
        release.name, release.suite
    );
    let folder = cache.join(format!("fetch-{}.{}", release.name, std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let fetched = fetch(release, &folder).and_then(|found| {
        fs::rename(&found, &image).with_context(|| format!("cannot move {}", found.display()))
    });
    // What is left is of no use, whether or not it worked.
    let _ = fs::remove_dir_all(&folder);
    fetched.with_context(|| format!("kernel {} cannot be had", release.name))?;
    Ok(image)
}

/// Downloads and unpacks the package that the suite's cloud kernel stands for.
fn fetch(release: &Release, folder: &Path) -> Result<PathBuf> {
    let apt = Apt::of_suite(release.suite, folder)?;
    let image = apt
        .depends("linux-image-cloud-amd64")?
        .into_iter()
        .find(|name| name.starts_with("linux-image-"))
        .context("linux-image-cloud-amd64 depends on no kernel")?;
    ensure!(
        image.starts_with(&format!("linux-image-{}.", release.name)),
        "Debian {} has {image} now",
        release.suite
    );
    // Newer packages have the image apart.
    let binary = apt
        .depends(&image)?
        .into_iter()
        .find(|name| name.starts_with("linux-binary-"));
    let package = apt.download(&binary.unwrap_or(image))?;
    let unpacked = folder.join("unpacked");
    shell::run(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(package)
            .arg(&unpacked),
    )?;
    match vmlinuz(&unpacked) {
        Some(found) => Ok(found),
        None => bail!("the package holds no vmlinuz"),
    }
}

/// The kernel image somewhere below `folder`.
fn vmlinuz(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let kind = entry.file_type().ok()?;
            let is_image = entry.file_name().to_string_lossy().starts_with("vmlinuz");
            if kind.is_file() && is_image {
                return Some(entry.path());
            }
            if kind.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    None
}
