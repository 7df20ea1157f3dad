//! `build-ebpf`: the committed BPF object and the file that vouches for it.

mod compile;
mod lock;
mod object;
pub(crate) mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::lock::Lock;
use crate::shell;

/// Path of the object below the workspace root.
const OBJECT: &str = "unwind-user/src/bpf/unwind.bpf.o";
/// Path of the lock file below the workspace root.
const LOCK: &str = "unwind-user/src/bpf/unwind.bpf.lock";

/// Builds the object and writes it and its lock file, each by rename so that a concurrent compile of
/// unwind-user never embeds half of one.
///
/// With several toolchains installed, the one recorded in the lock file is preferred, so that the
/// object changes only where the sources did.
pub(crate) fn build() -> Result<()> {
    let root = shell::root();
    let recorded = Lock::read(&root.join(LOCK)).ok();
    let mut toolchains = toolchain::installed()?;
    if let Some(lock) = &recorded {
        toolchains.sort_by_key(|toolchain| !lock.names(toolchain));
    }
    let Some(toolchain) = toolchains.first() else {
        bail!(
            "no toolchain here can build the BPF object; `cargo xtask setup-ebpf` installs one.\n\
             (Only those who change unwind-ebpf need it: the built object is committed.)"
        );
    };
    println!("building with {toolchain}");

    let object = compile::object(&root, toolchain)?;
    let lock = Lock::new(lock::sources(&root)?, &object, toolchain);
    replace(&root.join(OBJECT), &object)?;
    replace(&root.join(LOCK), lock.to_string().as_bytes())?;
    println!("wrote {OBJECT} ({} bytes) and {LOCK}", object.len());
    Ok(())
}

/// Fails unless the committed object is the one that the sources give, as far as can be told here.
pub(crate) fn check() -> Result<()> {
    let root = shell::root();
    let lock = Lock::read(&root.join(LOCK))?;
    let committed = fs::read(root.join(OBJECT)).with_context(|| format!("cannot read {OBJECT}"))?;
    lock.check(&lock::sources(&root)?, &committed)?;
    object::check(&committed).with_context(|| format!("{OBJECT} is not fit to be committed"))?;
    println!("{OBJECT}: hashes of sources and object are the recorded ones");

    let Some(toolchain) = toolchain::installed()?
        .into_iter()
        .find(|have| lock.names(have))
    else {
        println!(
            "not rebuilt: {} and {} are not installed here",
            lock.rustc, lock.linker
        );
        return Ok(());
    };
    let rebuilt = compile::object(&root, &toolchain)?;
    if let Some(at) = first_difference(&committed, &rebuilt) {
        bail!(
            "{OBJECT} is not what {toolchain} makes of the sources: {} bytes, rebuilt {} bytes, \
             first difference at byte {at}; `cargo xtask build-ebpf` renews it",
            committed.len(),
            rebuilt.len(),
        );
    }
    println!("rebuilt with {toolchain}: every byte is the same");
    Ok(())
}

/// Offset of the first byte in which two objects differ.
fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    common.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))
}

/// Writes `bytes` to `path` by way of a temporary file beside it.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&temporary, bytes)
        .with_context(|| format!("cannot write {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn difference_is_found_in_bytes_and_in_length() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"axc"), Some(1));
        assert_eq!(first_difference(b"ab", b"abc"), Some(2));
        assert_eq!(first_difference(b"", b"a"), Some(0));
    }
}
