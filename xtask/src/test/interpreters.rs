//! The CPython interpreters on this machine.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::rootfs::Rootfs;
use crate::shell;

/// The minor versions of Python 3 that unwind supports.
pub(crate) const SUPPORTED: &[u8] = &[11, 12, 13, 14, 15];

/// Where an interpreter lies, and how to start it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// An executable in this file system.
    Host(PathBuf),
    /// An executable at `path` below another root, for `chroot ROOT PATH`.
    Chroot { root: PathBuf, path: PathBuf },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) => write!(f, "host:{}", path.display()),
            Self::Chroot { root, path } => {
                write!(f, "chroot:{}:{}", root.display(), path.display())
            }
        }
    }
}

impl Place {
    /// A command that starts the interpreter; arguments are to be added.
    pub(crate) fn command(&self) -> Command {
        match self {
            Self::Host(path) => Command::new(path),
            Self::Chroot { root, path } => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(path);
                command
            }
        }
    }

    /// Whether this is a CPython 3.`minor` with a GIL that starts.
    fn is(&self, minor: u8) -> bool {
        let print = "import sys, sysconfig; print(sys.implementation.name, *sys.version_info[:2], \
                     sysconfig.get_config_var('Py_GIL_DISABLED') or 0)";
        let printed = shell::output(self.command().args(["-I", "-c", print]));
        printed.is_ok_and(|printed| printed.trim() == format!("cpython 3 {minor} 0"))
    }
}

/// One interpreter under test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interpreter {
    /// `3.13`, or `3.13-pyenv` and `3.13-debian` where there are two.
    pub(crate) label: String,
    pub(crate) place: Place,
}

/// Finds the interpreters of the given minor versions, at most one of pyenv's and one of the
/// system's (from `rootfs` where that has it) each.
pub(super) fn find(minors: &[u8], rootfs: Option<&Rootfs>) -> BTreeMap<u8, Vec<Interpreter>> {
    let pyenv = pyenv_root();
    let find = |&minor: &u8| {
        let of_pyenv = pyenv.as_deref().and_then(|root| in_pyenv(root, minor));
        let of_rootfs = rootfs
            .map(|rootfs| rootfs.python(minor))
            .filter(|place| place.is(minor));
        let of_system = match of_rootfs {
            Some(place) => Some(("debian", place)),
            None => on_path(minor, pyenv.as_deref()).map(|place| ("system", place)),
        };
        let of_pyenv = of_pyenv.map(|place| ("pyenv", place));
        (
            minor,
            labelled(minor, of_pyenv.into_iter().chain(of_system).collect()),
        )
    };
    minors.iter().map(find).collect()
}

/// Names the interpreters of one version, with their origin where one version would not do.
fn labelled(minor: u8, found: Vec<(&str, Place)>) -> Vec<Interpreter> {
    let single = found.len() == 1;
    let label = |origin: &str| match single {
        true => format!("3.{minor}"),
        false => format!("3.{minor}-{origin}"),
    };
    found
        .into_iter()
        .map(|(origin, place)| Interpreter {
            label: label(origin),
            place,
        })
        .collect()
}

/// The value of `UNWIND_PYTHONS`: `label=kind:path` joined by `;`.
pub(crate) fn variable<'a>(interpreters: impl Iterator<Item = &'a Interpreter>) -> String {
    let entries = interpreters.map(|python| format!("{}={}", python.label, python.place));
    entries.collect::<Vec<_>>().join(";")
}

fn pyenv_root() -> Option<PathBuf> {
    let named = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let asked = || {
        let root = shell::output(Command::new("pyenv").arg("root")).ok()?;
        Some(PathBuf::from(root.trim()))
    };
    let root = named
        .or_else(asked)
        .or_else(|| Some(shell::home().ok()?.join(".pyenv")))?;
    root.join("versions").is_dir().then_some(root)
}

/// pyenv's newest patch release of a version.
fn in_pyenv(root: &Path, minor: u8) -> Option<Place> {
    let entries = fs::read_dir(root.join("versions")).ok()?;
    let mut releases: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((patch(path.file_name()?.to_str()?, minor)?, path))
        })
        .collect();
    releases.sort();
    let pythons = releases.iter().rev();
    let mut places =
        pythons.map(|(_, path)| Place::Host(path.join(format!("bin/python3.{minor}"))));
    places.find(|place| place.is(minor))
}

/// The patch number in a release's name: 7 in `3.11.7`. Development versions and free-threaded
/// builds (`3.13-dev`, `3.13.0t`) have other names.
fn patch(name: &str, minor: u8) -> Option<u32> {
    name.strip_prefix(&format!("3.{minor}."))?.parse().ok()
}

/// The first `python3.X` on `PATH` that is neither pyenv's shim nor pyenv's interpreter.
fn on_path(minor: u8, pyenv: Option<&Path>) -> Option<Place> {
    let folders = env::split_paths(&env::var_os("PATH")?).collect::<Vec<_>>();
    let real = folders.iter().filter_map(|dir| {
        let path = dir.join(format!("python3.{minor}"));
        // A shim is a script: it must not be resolved, but skipped by where it lies.
        (!pyenv.is_some_and(|root| path.starts_with(root))).then(|| path.canonicalize().ok())?
    });
    let mut places = real
        .filter(|path| !pyenv.is_some_and(|root| path.starts_with(root)))
        .map(Place::Host);
    places.find(|place| place.is(minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_from_other_builds() {
        assert_eq!(patch("3.11.7", 11), Some(7));
        assert_eq!(patch("3.11.10", 11), Some(10));
        assert_eq!(patch("3.1.7", 11), None);
        assert_eq!(patch("3.13.0t", 13), None);
        assert_eq!(patch("3.13-dev", 13), None);
    }

    #[test]
    fn labels_name_the_origin_only_where_there_are_two() {
        let host = Place::Host("/opt/python3.13".into());
        let chroot = Place::Chroot {
            root: "/srv/sid".into(),
            path: "/usr/bin/python3.13".into(),
        };
        let one = labelled(13, vec![("debian", chroot.clone())]);
        assert_eq!(
            variable(one.iter()),
            "3.13=chroot:/srv/sid:/usr/bin/python3.13"
        );
        let two = labelled(13, vec![("pyenv", host), ("debian", chroot)]);
        assert_eq!(
            variable(two.iter()),
            "3.13-pyenv=host:/opt/python3.13;3.13-debian=chroot:/srv/sid:/usr/bin/python3.13"
        );
        assert_eq!(variable(labelled(13, Vec::new()).iter()), "");
    }

    #[test]
    fn a_program_that_is_not_the_version_is_refused() {
        assert!(!Place::Host("/bin/true".into()).is(11));
        assert!(!Place::Host("/nonexistent/python3.11".into()).is(11));
    }
}
