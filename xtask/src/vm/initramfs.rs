//! The machine's only file system: busybox, a static profiler, and each interpreter in a root of
//! its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, target_dir};
use crate::shell;
use crate::test::{Interpreter, Place};

/// Builds the image (gzip-compressed cpio) and returns its path.
pub(super) fn build(pythons: &[Interpreter]) -> Result<PathBuf> {
    let target = target_dir()?;
    let root = target.join("vm/root");
    // Interpreters of the run before must not come along.
    match fs::remove_dir_all(&root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    for folder in ["bin", "proc", "sys", "dev", "tmp", "etc", "py"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    )?;
    fs::write(root.join("init"), include_str!("init.sh"))?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    let busybox = shell::on_path("busybox").context("no busybox on PATH")?;
    fs::copy(busybox, root.join("bin/busybox"))?;
    fs::copy(static_unwind(&target)?, root.join("bin/unwind"))?;
    for python in pythons {
        take_along(python, &root.join("py").join(&python.label))
            .with_context(|| format!("python {} cannot be taken along", python.label))?;
    }
    pack(&root, &target.join("vm/initramfs.gz"))
}

/// The profiler without shared libraries, in a target folder of its own: other flags would have
/// cargo build everything anew each time.
fn static_unwind(target: &Path) -> Result<PathBuf> {
    const TRIPLE: &str = "x86_64-unknown-linux-gnu";
    let folder = target.join("vm/static");
    let mut build = cargo();
    build
        .current_dir(shell::root())
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .args(["build", "--release", "--quiet", "--package", "unwind-user"])
        .args(["--bin", "unwind", "--target", TRIPLE, "--target-dir"])
        .arg(&folder);
    shell::run(&mut build)?;
    Ok(folder.join(TRIPLE).join("release/unwind"))
}

/// Copies an interpreter, its shared libraries and the modules that it starts with below `into`,
/// each where it lies.
fn take_along(python: &Interpreter, into: &Path) -> Result<()> {
    let root = match &python.place {
        Place::Host(_) => PathBuf::from("/"),
        Place::Chroot { root, .. } => root.clone(),
    };
    let executable = match &python.place {
        Place::Host(path) | Place::Chroot { path, .. } => path,
    };
    let print = "import os, sys\nprint(*[m.__spec__.cached for m in list(sys.modules.values()) if \
                 getattr(getattr(m, '__spec__', None), 'cached', None)], sep='\\n')\n\
                 print(*[m.__file__ for m in list(sys.modules.values()) if \
                 getattr(m, '__file__', None)], sep='\\n')";
    let modules = shell::output(python.place.command().args(["-I", "-S", "-c", print]))?;
    let mut ldd = match &python.place {
        Place::Host(_) => Command::new("ldd"),
        Place::Chroot { root, .. } => {
            let mut command = Command::new("chroot");
            command.arg(root).arg("ldd");
            command
        }
    };
    let libraries = shell::output(ldd.arg(executable))?;
    let words = libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in modules.lines().chain(words) {
        copy_below(&root, Path::new(file), into)?;
    }
    copy_below(&root, executable, into)?;
    fs::create_dir_all(into.join("proc"))?;
    fs::write(
        into.join("python"),
        executable.as_os_str().as_encoded_bytes(),
    )?;
    fs::write(into.join("spin.py"), include_str!("spin.py"))?;
    Ok(())
}

/// Copies the absolute `file` of the file system at `root` to the same place below `into`.
fn copy_below(root: &Path, file: &Path, into: &Path) -> Result<()> {
    let relative = file.strip_prefix("/").context("not an absolute path")?;
    let to = into.join(relative);
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let from = root.join(relative);
    fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Packs `root` as the kernel wants it.
fn pack(root: &Path, image: &Path) -> Result<PathBuf> {
    let script =
        "find . -print0 | cpio --null --create --quiet --format=newc --owner=0:0 | gzip -1";
    let status = Command::new("sh")
        .current_dir(root)
        .args(["-c", script])
        .stdout(Stdio::from(fs::File::create(image)?))
        .status()
        .context("cannot start sh")?;
    ensure!(status.success(), "the initramfs cannot be packed: {status}");
    Ok(image.to_path_buf())
}
