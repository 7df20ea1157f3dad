//! `setup-ebpf`: what is needed to rebuild the BPF object.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::ebpf::toolchain::{self, NIGHTLY};
use crate::shell;

/// Release of bpf-linker that builds the committed object.
const LINKER: &str = "0.13.0";

/// Debian's compiler with the sources of its standard library.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "cargo-web", "rust-web-src"];

/// Installs a compiler with sources and a bpf-linker, each unless it is there already.
pub(crate) fn setup() -> Result<()> {
    let sysroot = compiler()?;
    linker(&sysroot)?;
    for toolchain in toolchain::installed()? {
        println!("can build the BPF object: {toolchain}");
    }
    Ok(())
}

/// Sysroot of a compiler with sources: rustup's pinned nightly, else one that is there, else
/// Debian's.
fn compiler() -> Result<PathBuf> {
    let best = toolchain::sysroots()?.into_iter().next();
    if let Some(sysroot) = best.filter(|path| path.to_string_lossy().contains(NIGHTLY)) {
        println!("compiler: already there, in {}", sysroot.display());
        return Ok(sysroot);
    }
    if shell::on_path("rustup").is_some() {
        println!("compiler: installing rustup's {NIGHTLY} with rust-src");
        let mut rustup = Command::new("rustup");
        rustup.args(["toolchain", "install", NIGHTLY, "--profile", "minimal"]);
        match shell::run(rustup.args(["--component", "rust-src"])) {
            Ok(()) => {}
            Err(error) => println!("compiler: {error:#}; looking for another"),
        }
    }
    if toolchain::sysroots()?.is_empty() {
        apt_install(COMPILER_PACKAGES)?;
    }
    let sysroot = toolchain::sysroots()?.into_iter().next();
    if let Some(sysroot) = &sysroot {
        println!("compiler: in {}", sysroot.display());
    }
    sysroot.context("the compiler that was installed has no sources of core")
}

/// A bpf-linker for the LLVM of the compiler in `sysroot`: one that is there, else the released
/// binary for rustup's compilers, else built from source against Debian's LLVM.
fn linker(sysroot: &Path) -> Result<()> {
    if let Some(linker) = toolchain::linker()? {
        println!("bpf-linker: already there, {}", linker.display());
        return Ok(());
    }
    let folder = shell::cache()?.join("bpf-linker");
    if sysroot != Path::new("/usr") {
        println!("bpf-linker: fetching the released {LINKER}");
        match released_linker(&folder) {
            Ok(()) => return Ok(()),
            Err(error) => println!("bpf-linker: {error:#}; building it instead"),
        }
    }
    let version = shell::output(Command::new(sysroot.join("bin/rustc")).arg("-vV"))?;
    let llvm = llvm_major(&version).context("`rustc -vV` names no LLVM version")?;
    let config = format!("llvm-config-{llvm}");
    if shell::on_path(&config).is_none() {
        let packages = [format!("llvm-{llvm}-dev"), format!("libpolly-{llvm}-dev")];
        let fixed = ["zlib1g-dev", "libzstd-dev"];
        apt_install(
            &packages
                .iter()
                .map(String::as_str)
                .chain(fixed)
                .collect::<Vec<_>>(),
        )?;
    }
    let prefix = shell::output(Command::new(&config).arg("--prefix"))?;
    println!("bpf-linker: building {LINKER} against LLVM {llvm} (about a minute)");
    shell::run(
        Command::new("cargo")
            // Without it the build script takes the first LLVM it sees, and fails to link.
            .env("LLVM_PREFIX", prefix.trim())
            .args([
                "install",
                "bpf-linker",
                "--version",
                LINKER,
                "--no-default-features",
            ])
            .arg(format!("--features=llvm-{llvm}"))
            .arg("--root")
            .arg(folder),
    )
}

/// Unpacks the static executable that the project releases into `folder/bin`.
fn released_linker(folder: &Path) -> Result<()> {
    let archive = format!(
        "https://github.com/aya-rs/bpf-linker/releases/download/v{LINKER}/\
         bpf-linker-x86_64-unknown-linux-musl.tar.zst"
    );
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    let file = folder.join("bpf-linker.tar.zst");
    shell::run(
        Command::new("curl")
            .args([
                "--fail",
                "--silent",
                "--show-error",
                "--location",
                "--output",
            ])
            .args([file.as_os_str(), archive.as_ref()]),
    )?;
    shell::run(
        Command::new("tar")
            .arg("-xf")
            .arg(&file)
            .arg("-C")
            .arg(&bin),
    )?;
    fs::remove_file(file)?;
    ensure!(
        bin.join("bpf-linker").is_file(),
        "{archive} holds no bpf-linker"
    );
    Ok(())
}

/// Installs Debian packages, or says who must.
fn apt_install(packages: &[&str]) -> Result<()> {
    if shell::on_path("apt-get").is_none() {
        bail!("no rustup nightly with rust-src and no apt-get here: install one by hand");
    }
    if !shell::is_root() {
        bail!(
            "root is needed to install packages: `apt-get install {}`",
            packages.join(" ")
        );
    }
    println!("installing {}", packages.join(" "));
    shell::run(Command::new("apt-get").args(["update", "-qq"]))?;
    shell::run(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "--yes", "-qq", "--no-install-recommends"])
            .args(packages),
    )
}

/// Major version of LLVM in what `rustc -vV` prints.
fn llvm_major(version: &str) -> Option<&str> {
    let llvm = version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    llvm.split('.').next()
}

#[cfg(test)]
mod tests {
    use super::llvm_major;

    #[test]
    fn llvm_major_is_read_from_the_compilers_version() {
        let version =
            "rustc 1.96.0 (ac68faa20 2026-05-25)\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(llvm_major(version), Some("22"));
        assert_eq!(llvm_major("rustc 1.96.0\n"), None);
    }
}
