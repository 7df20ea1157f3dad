//! One compilation of the BPF program, the same in any folder.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::object;
use super::toolchain::Toolchain;
use crate::shell;

/// Target of the kernel half: the running machine's byte order is fixed to little endian.
const TARGET: &str = "bpfel-unknown-none";

/// Compiler flags that decide what the object holds. Part of the sources' hash.
pub(super) const FLAGS: &[&str] = &[
    // aya-ebpf chooses the layout of registers by the kernel's architecture, not by the target's.
    "--cfg=bpf_target_arch=\"x86_64\"",
    // BTF is made from the debug information of the compiler.
    "-Cdebuginfo=2",
    "-Clink-arg=--btf",
    // Else a few words copied or set to 0 become a call of a loop over bytes.
    "-Clink-arg=--disable-expand-memcpy-in-order",
];

/// The release profile of the object. Part of the sources' hash.
pub(super) const PROFILE: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_LTO", "true"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
];

/// Variables by which a caller's environment would change the build.
const FOREIGN: &[&str] = &["RUSTC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN", "RUST_", "CARGO"];
/// Those of them that only say where cargo keeps things and how it reaches them.
const HARMLESS: &[&str] = &[
    "CARGO_HOME",
    "CARGO_HTTP",
    "CARGO_NET",
    "CARGO_REGISTR",
    "CARGO_SOURCE",
];

/// Compiles the program in the workspace `root` and returns the object without DWARF, checked.
pub(super) fn object(root: &Path, toolchain: &Toolchain) -> Result<Vec<u8>> {
    let target_dir = root.join("target/ebpf");
    // The registry's folder must be known before the build, to be mapped away.
    shell::run(cargo(root, toolchain).args(["fetch", "--locked", "--quiet"]))?;
    let flags = FLAGS
        .iter()
        .map(OsString::from)
        .chain(remaps(root, toolchain)?);
    let flags: Vec<OsString> = flags.collect();
    shell::run(
        cargo(root, toolchain)
            .envs(PROFILE.iter().copied())
            .env(
                "CARGO_ENCODED_RUSTFLAGS",
                flags.join(OsString::from("\x1f").as_os_str()),
            )
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &toolchain.linker)
            .args([
                "build",
                "--locked",
                "--release",
                "--target",
                TARGET,
                "-Zbuild-std=core",
            ])
            .args([
                "--package",
                "unwind-ebpf",
                "--bin",
                "unwind-bpf",
                "--features",
                "program",
            ])
            .arg("--target-dir")
            .arg(&target_dir),
    )?;
    let built = target_dir.join(TARGET).join("release/unwind-bpf");
    let built = fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
    let stripped = object::strip(&built)?;
    object::check(&stripped)?;
    Ok(stripped)
}

/// The toolchain's cargo, in an environment that holds nothing of the caller's flags.
fn cargo(root: &Path, toolchain: &Toolchain) -> Command {
    let mut command = Command::new(toolchain.sysroot.join("bin/cargo"));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let has = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if has(FOREIGN) && !has(HARMLESS) {
            command.env_remove(&name);
        }
    }
    command
        .current_dir(root)
        .env("RUSTC", toolchain.sysroot.join("bin/rustc"))
        // `-Z build-std` on a stable compiler; it changes nothing else.
        .env("RUSTC_BOOTSTRAP", "1");
    command
}

/// Flags that replace every absolute path: they would end up in BTF's line information.
fn remaps(root: &Path, toolchain: &Toolchain) -> Result<Vec<OsString>> {
    let rust_src = toolchain.rust_src();
    let mut prefixes = vec![(root.to_path_buf(), "."), (rust_src.clone(), "rust-src")];
    // Debian's rust-src is a symbolic link, and `core` is compiled by its resolved path.
    prefixes.push((rust_src.canonicalize()?, "rust-src"));
    let registries = cargo_home()?.join("registry/src");
    for registry in fs::read_dir(&registries)
        .with_context(|| format!("cannot list {}", registries.display()))?
    {
        prefixes.push((registry?.path(), "crates"));
    }
    let flag = |(from, to): (PathBuf, &str)| {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        flag
    };
    Ok(prefixes.into_iter().map(flag).collect())
}

fn cargo_home() -> Result<PathBuf> {
    match env::var_os("CARGO_HOME") {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => Ok(shell::home()?.join(".cargo")),
    }
}
