//! The interpreters to test with, as `cargo xtask test` finds them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One interpreter under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Its name in reports: `3.13`, or `3.13-debian` where there are several of a version.
    pub label: String,
    /// Where it lies.
    pub place: Place,
}

/// Where an interpreter lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An executable in this file system.
    Host(PathBuf),
    /// An executable at `path` of the file system below `root`.
    Chroot {
        /// The other root.
        root: PathBuf,
        /// Path below it.
        path: PathBuf,
    },
}

/// The interpreters named by `UNWIND_PYTHONS`: `label=host:/path` and
/// `label=chroot:/root:/path`, joined by `;`.
///
/// # Panics
/// When the variable is not set or names no interpreter, since a test without one tests nothing.
#[must_use]
pub fn pythons() -> Vec<Python> {
    let variable = std::env::var("UNWIND_PYTHONS")
        .expect("UNWIND_PYTHONS names the interpreters; `cargo xtask test` sets it");
    let entries = variable.split(';').filter(|entry| !entry.is_empty());
    let pythons: Vec<_> = entries
        .map(|entry| parse(entry).unwrap_or_else(|| panic!("UNWIND_PYTHONS: {entry:?}")))
        .collect();
    assert!(!pythons.is_empty(), "UNWIND_PYTHONS names no interpreter");
    pythons
}

/// One interpreter of each version: for what does not depend on the build.
#[must_use]
pub fn versions() -> Vec<Python> {
    let mut pythons = pythons();
    let mut seen = BTreeSet::new();
    pythons.retain(|python| seen.insert(python.version().to_owned()));
    pythons
}

fn parse(entry: &str) -> Option<Python> {
    let (label, place) = entry.split_once('=')?;
    let place = match place.split_once(':')? {
        ("host", path) => Place::Host(path.into()),
        ("chroot", place) => {
            let (root, path) = place.split_once(':')?;
            Place::Chroot {
                root: root.into(),
                path: path.into(),
            }
        }
        _ => return None,
    };
    Some(Python {
        label: label.to_owned(),
        place,
    })
}

impl Python {
    /// Its version, such as `3.13`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.label.split('-').next().unwrap_or(&self.label)
    }

    /// A command that starts the interpreter; arguments are to be added.
    #[must_use]
    pub fn command(&self) -> Command {
        match &self.place {
            Place::Host(path) => Command::new(path),
            Place::Chroot { root, path } => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(path);
                command
            }
        }
    }

    /// A command that runs the program `tests/programs/NAME`.
    ///
    /// # Panics
    /// When the program cannot be put below the interpreter's root.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("programs")
            .join(name);
        let seen = match &self.place {
            Place::Host(_) => here,
            Place::Chroot { root, .. } => {
                let inside = Path::new("tmp/unwind-programs");
                let folder = root.join(inside);
                std::fs::create_dir_all(&folder).expect("a folder below the root");
                // By rename: another test may be starting the same program.
                let new = folder.join(format!("{name}.{}", std::process::id()));
                std::fs::copy(here, &new).expect("the program is copied");
                std::fs::rename(new, folder.join(name)).expect("the copy is renamed");
                Path::new("/").join(inside).join(name)
            }
        };
        let mut command = self.command();
        command.arg(seen);
        command
    }

    /// Path of the executable as this file system shows it.
    #[must_use]
    pub fn executable(&self) -> PathBuf {
        match &self.place {
            Place::Host(path) => path.clone(),
            Place::Chroot { root, path } => {
                root.join(path.strip_prefix("/").unwrap_or(path.as_path()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_kinds_of_place() {
        let host = parse("3.11=host:/opt/bin/python3.11").expect("a host entry");
        assert_eq!(host.label, "3.11");
        assert_eq!(host.executable(), Path::new("/opt/bin/python3.11"));
        let chroot = parse("3.15=chroot:/srv/sid:/usr/bin/python3.15").expect("a chroot entry");
        assert_eq!(
            chroot.executable(),
            Path::new("/srv/sid/usr/bin/python3.15")
        );
        let command = chroot.command();
        assert_eq!(command.get_program(), "chroot");
        assert_eq!(
            command.get_args().collect::<Vec<_>>(),
            ["/srv/sid", "/usr/bin/python3.15"]
        );
        assert_eq!(parse("3.11"), None);
        assert_eq!(parse("3.11=vm:/x"), None);
    }
}
