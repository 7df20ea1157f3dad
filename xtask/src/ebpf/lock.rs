//! `unwind.bpf.lock`: from what, and with what, the committed object was built.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::compile::{FLAGS, PROFILE};
use super::toolchain::Toolchain;

/// What the lock file records. All hashes are SHA-256 in lower-case hexadecimal.
#[derive(Debug, PartialEq)]
pub(super) struct Lock {
    sources: String,
    object: String,
    /// Version of the compiler.
    pub(super) rustc: String,
    /// Version of the linker and its LLVM.
    pub(super) linker: String,
}

impl Lock {
    /// The record of `object`, built by `toolchain` from sources with the hash `sources`.
    pub(super) fn new(sources: String, object: &[u8], toolchain: &Toolchain) -> Self {
        Self {
            sources,
            object: hex(Sha256::new_with_prefix(object)),
            rustc: toolchain.rustc_version.clone(),
            linker: toolchain.linker_version.clone(),
        }
    }

    /// Reads a lock file; an error if a field is missing.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let fields: BTreeMap<&str, &str> = text.lines().filter_map(field).collect();
        let get = |name: &str| {
            let value = fields
                .get(name)
                .with_context(|| format!("field {name:?} is missing"))?;
            Ok::<_, anyhow::Error>((*value).to_owned())
        };
        Ok(Self {
            sources: get("sources")?,
            object: get("object")?,
            rustc: get("rustc")?,
            linker: get("bpf-linker")?,
        })
    }

    /// Whether `toolchain` is the one recorded.
    pub(super) fn names(&self, toolchain: &Toolchain) -> bool {
        self.rustc == toolchain.rustc_version && self.linker == toolchain.linker_version
    }

    /// Fails unless `sources` and the hash of `object` are the recorded ones.
    pub(super) fn check(&self, sources: &str, object: &[u8]) -> Result<()> {
        ensure!(
            self.sources == sources,
            "the BPF program's sources have changed since its object was built: \
             `cargo xtask build-ebpf`, then commit the object with them"
        );
        ensure!(
            self.object == hex(Sha256::new_with_prefix(object)),
            "the committed BPF object is not the one recorded beside it: \
             `cargo xtask build-ebpf`, then commit both files"
        );
        Ok(())
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Written by `cargo xtask build-ebpf`; hashes are SHA-256."
        )?;
        writeln!(f, "sources = \"{}\"", self.sources)?;
        writeln!(f, "object = \"{}\"", self.object)?;
        writeln!(f, "rustc = \"{}\"", self.rustc)?;
        writeln!(f, "bpf-linker = \"{}\"", self.linker)
    }
}

/// Hash over all that decides the object's bytes, apart from the toolchain: the crate's sources
/// without its tests, its manifest, the compiler flags, and the versions of the crates that are
/// compiled into it.
pub(super) fn sources(root: &Path) -> Result<String> {
    let package = root.join("unwind-ebpf");
    let mut files = vec![package.join("Cargo.toml")];
    rust_files(&package.join("src"), &mut files)?;
    files.sort();

    let mut hash = Sha256::new();
    for file in files {
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root)?.to_string_lossy().into_owned();
        // Lengths keep bytes from moving between a name and its content unnoticed.
        hash.update(format!("{name}\n{}\n", bytes.len()));
        hash.update(bytes);
    }
    for flag in FLAGS {
        hash.update(format!("{flag}\n"));
    }
    for (name, value) in PROFILE {
        hash.update(format!("{name}={value}\n"));
    }
    for package in linked(&fs::read_to_string(root.join("Cargo.lock"))?) {
        hash.update(format!("{package}\n"));
    }
    Ok(hex(hash))
}

/// Adds the Rust files below `folder` that a build compiles. A file `tests.rs` is none of them: who
/// changes a test needs no BPF toolchain.
fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            files.push(path);
        }
    }
    Ok(())
}

/// `name version` of unwind-ebpf and of each aya crate below it, from the text of a Cargo.lock.
///
/// The other crates below it are helpers of build scripts and derives, which move with unrelated
/// updates; should one of them ever change the object, the rebuild of `--check` finds it.
fn linked(cargo_lock: &str) -> BTreeSet<String> {
    let mut versions = BTreeMap::new();
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for line in cargo_lock.lines() {
        match field(line) {
            Some(("name", value)) => name = value,
            Some(("version", value)) if !name.is_empty() => {
                versions.insert(name, value);
            }
            // A dependency: `"name",` or `"name version",` on a line of its own.
            None if line.starts_with(" \"") => {
                let need = line.trim_matches([' ', '"', ',']);
                needs
                    .entry(name)
                    .or_default()
                    .push(need.split(' ').next().unwrap_or(need));
            }
            _ => {}
        }
    }
    let mut open = vec!["unwind-ebpf"];
    let mut found = BTreeSet::new();
    while let Some(name) = open.pop() {
        let Some(version) = versions.get(name) else {
            continue;
        };
        if found.insert(format!("{name} {version}")) {
            let below = needs.get(name).into_iter().flatten();
            open.extend(below.filter(|need| need.starts_with("aya-")));
        }
    }
    found
}

/// A line `key = "value"`.
fn field(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(" = ")?;
    Some((key, value.strip_prefix('"')?.strip_suffix('"')?))
}

fn hex(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARGO_LOCK: &str = r#"version = 4

[[package]]
name = "aya-ebpf"
version = "0.2.1"
dependencies = [
 "aya-ebpf-cty",
 "syn 2.0.1",
]

[[package]]
name = "aya-ebpf-cty"
version = "0.3.0"

[[package]]
name = "aya-obj"
version = "0.3.0"

[[package]]
name = "syn"
version = "2.0.1"

[[package]]
name = "unwind-ebpf"
version = "0.1.0"
dependencies = [
 "aya-ebpf",
]
"#;

    #[test]
    fn linked_crates_are_the_aya_crates_below_the_program() {
        let linked: Vec<String> = linked(CARGO_LOCK).into_iter().collect();
        assert_eq!(
            linked,
            ["aya-ebpf 0.2.1", "aya-ebpf-cty 0.3.0", "unwind-ebpf 0.1.0"]
        );
    }

    #[test]
    fn sources_are_what_a_build_compiles() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let capture = root.join("unwind-ebpf/src/capture");
        assert!(capture.join("tests.rs").exists());
        let mut files = Vec::new();
        rust_files(&root.join("unwind-ebpf/src"), &mut files).unwrap();
        assert!(files.contains(&capture.join("mod.rs")));
        assert!(!files.contains(&capture.join("tests.rs")));
    }

    fn lock() -> Lock {
        Lock {
            sources: "aa".into(),
            object: hex(Sha256::new_with_prefix(b"object")),
            rustc: "rustc 1.96.0 (ac68faa20 2026-05-25)".into(),
            linker: "bpf-linker 0.13.0 (LLVM 22.1.8)".into(),
        }
    }

    #[test]
    fn lock_survives_its_text_form() {
        assert_eq!(Lock::parse(&lock().to_string()).unwrap(), lock());
        let cut = lock().to_string().replace("rustc", "compiler");
        assert!(
            Lock::parse(&cut)
                .unwrap_err()
                .to_string()
                .contains("\"rustc\" is missing")
        );
    }

    #[test]
    fn check_notices_changed_sources_and_changed_objects() {
        assert!(lock().check("aa", b"object").is_ok());
        let sources = lock().check("ab", b"object").unwrap_err().to_string();
        assert!(sources.contains("sources have changed"), "{sources}");
        let object = lock().check("aa", b"objecT").unwrap_err().to_string();
        assert!(object.contains("not the one recorded"), "{object}");
    }
}
