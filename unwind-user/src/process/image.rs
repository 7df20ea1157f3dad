//! Opens the very file that a process has mapped.
//!
//! A path alone does not lead there: the file may be deleted, replaced by an upgrade, or lie in
//! another mount namespace or root, where our path of the same name is another file.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

use super::maps::Mapping;

/// A file that a process has mapped as code, with all its mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Every mapping of the file, by address; at least one of them.
    pub mappings: Vec<Mapping>,
    /// Whether it is the program that the process runs.
    pub is_exe: bool,
}

/// The files that hold code of the process, in the order in which Python is likely: its program,
/// files with `python` in their name, the others. At most `max` of them.
#[must_use]
pub fn images(pid: i32, mappings: &[Mapping], max: usize) -> Vec<Image> {
    let exe = exe_path(pid);
    let exe = std::fs::metadata(exe).ok().map(|file| identity(&file));
    let mut images: Vec<Image> = Vec::new();
    for mapping in mappings
        .iter()
        .filter(|mapping| mapping.is_file() && mapping.perms.exec)
    {
        if images
            .iter()
            .any(|image| image.mappings[0].same_file(mapping))
        {
            continue;
        }
        let all = mappings
            .iter()
            .filter(|other| other.is_file() && other.same_file(mapping));
        let is_exe = exe == Some((mapping.dev, mapping.inode));
        images.push(Image {
            mappings: all.cloned().collect(),
            is_exe,
        });
    }
    images.sort_by_key(|image| (!image.is_exe, !image.names_python()));
    images.truncate(max);
    images
}

impl Image {
    /// The path as the kernel shows it; not necessarily one that leads to the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.mappings[0].path))
    }

    /// Opens the file behind the mappings, without being led to another one.
    ///
    /// # Errors
    /// Permission denied where a way is closed to us, else that of the last way tried; not found
    /// where every way leads to another file.
    pub fn open(&self, pid: i32) -> io::Result<File> {
        let exact = self.is_exe.then(|| exe_path(pid)).into_iter().chain(
            self.mappings
                .iter()
                .map(|mapping| {
                    format!(
                        "/proc/{pid}/map_files/{:x}-{:x}",
                        mapping.start, mapping.end
                    )
                })
                .map(PathBuf::from),
        );
        // These links lead to the mapped file itself; they need CAP_CHECKPOINT_RESTORE, and a
        // mapping may be gone by now.
        for link in exact.take(4) {
            if let Ok(file) = open_regular(&link) {
                return Ok(file);
            }
        }
        let mapping = &self.mappings[0];
        let in_its_root = rooted(pid, self.path());
        open_checked(self.path(), mapping).or_else(|first| {
            // That it is not in its root says less than that it is closed to us in ours.
            open_checked(&in_its_root, mapping).map_err(|second| {
                let denied = first.kind() == io::ErrorKind::PermissionDenied;
                if denied { first } else { second }
            })
        })
    }

    /// Whether its file's name has `python` in it.
    #[must_use]
    pub fn names_python(&self) -> bool {
        let name = self
            .path()
            .file_name()
            .map(std::ffi::OsStr::as_bytes)
            .unwrap_or_default();
        name.windows(6)
            .any(|part| part.eq_ignore_ascii_case(b"python"))
    }
}

fn exe_path(pid: i32) -> PathBuf {
    format!("/proc/{pid}/exe").into()
}

/// `path` as the process `pid` sees it.
fn rooted(pid: i32, path: &Path) -> PathBuf {
    let below = path.strip_prefix("/").unwrap_or(path);
    Path::new(&format!("/proc/{pid}/root")).join(below)
}

/// Opens `path` if it is the file that `mapping` shows.
fn open_checked(path: &Path, mapping: &Mapping) -> io::Result<File> {
    let file = open_regular(path)?;
    if identity(&file.metadata()?) == (mapping.dev, mapping.inode) {
        Ok(file)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Opens a regular file only: to open a device, which can be mapped too, may do something.
fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    File::open(path)
}

/// Device (major, minor) and inode.
fn identity(file: &std::fs::Metadata) -> ((u64, u64), u64) {
    ((major(file.dev()), minor(file.dev())), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps;

    fn ours() -> (i32, Vec<Image>) {
        let pid = std::process::id() as i32;
        let bytes = std::fs::read("/proc/self/maps").expect("our maps");
        (pid, images(pid, &maps::parse(&bytes), 64))
    }

    #[test]
    fn our_program_comes_first_and_its_library_after() {
        let (pid, images) = ours();
        assert!(images[0].is_exe && images.iter().skip(1).all(|image| !image.is_exe));
        assert!(images[0].mappings.len() > 1, "code and data");
        assert!(images.len() > 1, "at least a C library");
        for image in &images {
            let file = image.open(pid).expect("our own file");
            let mapping = &image.mappings[0];
            let opened = identity(&file.metadata().expect("metadata"));
            assert_eq!(opened, (mapping.dev, mapping.inode));
        }
    }

    #[test]
    fn a_path_that_leads_to_another_file_is_refused() {
        let (_, images) = ours();
        let mapping = &images[0].mappings[0];
        assert!(open_checked(images[0].path(), mapping).is_ok());
        let other = Mapping {
            inode: mapping.inode + 1,
            ..mapping.clone()
        };
        let error = open_checked(images[0].path(), &other).expect_err("another inode");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            open_regular(Path::new("/dev/null")).is_err(),
            "a device is not opened"
        );
    }

    #[test]
    fn paths_of_another_root_stay_below_it() {
        assert_eq!(
            rooted(7, Path::new("/usr/bin/x")),
            Path::new("/proc/7/root/usr/bin/x")
        );
    }
}
