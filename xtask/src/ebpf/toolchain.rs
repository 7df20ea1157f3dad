//! Compilers and linkers on this machine that can build for the BPF target.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// The nightly that `setup-ebpf` installs. A dated one: bpf-linker cannot read what a compiler with
/// a newer LLVM than its own emits, and an undated nightly soon has one.
pub(crate) const NIGHTLY: &str = "nightly-2026-05-25";

/// A compiler with its own standard library's sources, and a bpf-linker.
pub(crate) struct Toolchain {
    /// Sysroot, with `bin/cargo`, `bin/rustc` and `lib/rustlib/src/rust`.
    pub(crate) sysroot: PathBuf,
    /// The bpf-linker executable.
    pub(crate) linker: PathBuf,
    /// What `rustc --version` prints.
    pub(crate) rustc_version: String,
    /// What `bpf-linker --version` prints, and its LLVM's version where that is a shared library.
    pub(crate) linker_version: String,
}

impl Toolchain {
    /// Where the sources of `core` lie.
    pub(crate) fn rust_src(&self) -> PathBuf {
        rust_src(&self.sysroot)
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.rustc_version, self.linker_version)
    }
}

/// All usable toolchains, the best first: [`NIGHTLY`], rustup's others, the system's.
/// Empty when there is no bpf-linker or no compiler with sources.
pub(crate) fn installed() -> Result<Vec<Toolchain>> {
    let Some(linker) = linker()? else {
        return Ok(Vec::new());
    };
    let linker_version = linker_version(&linker)?;
    let mut toolchains = Vec::new();
    for sysroot in sysroots()? {
        let version = shell::output(Command::new(sysroot.join("bin/rustc")).arg("--version"))?;
        toolchains.push(Toolchain {
            sysroot,
            linker: linker.clone(),
            rustc_version: version.trim().to_owned(),
            linker_version: linker_version.clone(),
        });
    }
    Ok(toolchains)
}

/// Sysroots that hold a compiler, cargo and the sources of `core`, in the order of [`installed`].
pub(crate) fn sysroots() -> Result<Vec<PathBuf>> {
    let rustup = match std::env::var_os("RUSTUP_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => shell::home()?.join(".rustup"),
    };
    let mut sysroots: Vec<PathBuf> = match fs::read_dir(rustup.join("toolchains")) {
        Ok(entries) => entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect(),
        Err(_) => Vec::new(),
    };
    sysroots.sort_by_key(|path| {
        let is = |name: &str| path.to_string_lossy().contains(name);
        (!is(NIGHTLY), !is("nightly"), path.clone())
    });
    sysroots.push(PathBuf::from("/usr"));
    sysroots.retain(|sysroot| {
        let complete = ["bin/cargo", "bin/rustc"]
            .iter()
            .all(|file| sysroot.join(file).exists());
        complete && rust_src(sysroot).join("library/core/Cargo.toml").exists()
    });
    Ok(sysroots)
}

/// The bpf-linker that `setup-ebpf` installed, else the one on `PATH`.
pub(crate) fn linker() -> Result<Option<PathBuf>> {
    let ours = shell::cache()?.join("bpf-linker/bin/bpf-linker");
    Ok(if ours.exists() {
        Some(ours)
    } else {
        shell::on_path("bpf-linker")
    })
}

fn rust_src(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust")
}

/// Version of the linker and of the LLVM it is linked to: the same bpf-linker with another LLVM
/// emits other code.
fn linker_version(linker: &Path) -> Result<String> {
    let version = shell::output(Command::new(linker).arg("--version"))?;
    let version = version.trim();
    let libraries = shell::output(Command::new("ldd").arg(linker)).unwrap_or_default();
    let Some(library) = shared_llvm(&libraries) else {
        return Ok(version.to_owned());
    };
    let config = library
        .parent()
        .context("LLVM lies nowhere")?
        .join("../bin/llvm-config");
    match shell::output(Command::new(config).arg("--version")) {
        Ok(llvm) => Ok(format!("{version} (LLVM {})", llvm.trim())),
        Err(_) => Ok(version.to_owned()),
    }
}

/// Path of libLLVM in what `ldd` printed, `None` for a static linker.
fn shared_llvm(libraries: &str) -> Option<PathBuf> {
    let line = libraries
        .lines()
        .find(|line| line.trim_start().starts_with("libLLVM"))?;
    let (_, path) = line.split_once("=> ")?;
    path.split_whitespace().next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_llvm_is_read_from_ldd() {
        let libraries = "\tlinux-vdso.so.1 (0x00007f25651c2000)\n\
                         \tlibLLVM.so.22.1 => /usr/lib/llvm-22/lib/libLLVM.so.22.1 (0x00007f255be)\n";
        let expected = Path::new("/usr/lib/llvm-22/lib/libLLVM.so.22.1");
        assert_eq!(shared_llvm(libraries).as_deref(), Some(expected));
        assert_eq!(shared_llvm("\tnot a dynamic executable\n"), None);
    }
}
