//! Writes a file whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use thiserror::Error;

/// Links followed to a file, as the kernel does (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// Why the output could not be written.
#[derive(Debug, Error)]
#[error("cannot write {}", path.display())]
pub struct WriteError {
    /// Where to.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// A file that appears at its path when it is whole: until [`Pending::commit`] it is a temporary
/// one beside it, removed when dropped. Links are followed, and a file that is replaced leaves its
/// mode and, where we may, its owner. `-` is standard output; special files such as `/dev/full` or a
/// named pipe are written in place.
pub struct Pending {
    out: BufWriter<Box<dyn Write>>,
    path: PathBuf,
    temporary: Option<Temporary>,
}

/// A file in the making, and where it goes.
struct Temporary {
    file: PathBuf,
    place: PathBuf,
}

impl Pending {
    /// Makes the temporary file.
    ///
    /// # Errors
    /// [`WriteError`] when it cannot be made.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        let failed = |source| WriteError {
            path: path.to_owned(),
            source,
        };
        let mut temporary = None;
        let out: Box<dyn Write> = if is_stdout(path) {
            Box::new(io::stdout())
        } else if is_special(path) {
            Box::new(File::options().write(true).open(path).map_err(failed)?)
        } else {
            let place = destination(path).map_err(failed)?;
            let file = beside(&place);
            let out = create_new(&file).map_err(failed)?;
            unfinished().push(file.clone());
            if let Ok(old) = place.metadata() {
                // Another's file stays readable as it was; it becomes ours where it must.
                let _ = fchown(&out, Some(old.uid()), Some(old.gid()));
                out.set_permissions(old.permissions()).map_err(failed)?;
            }
            temporary = Some(Temporary { file, place });
            Box::new(out)
        };
        let out = BufWriter::with_capacity(64 << 10, out);
        Ok(Self {
            out,
            path: path.to_owned(),
            temporary,
        })
    }

    /// Shows what is written so far at the path, and goes on.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn show(&mut self) -> Result<(), WriteError> {
        let copy = |from: &Path, to: &Path| {
            let mut half = from.to_owned();
            half.add_extension("copy");
            let copied = std::fs::copy(from, &half).and_then(|_| std::fs::rename(&half, to));
            if copied.is_err() {
                // If it was never made there is nothing to remove.
                let _ = std::fs::remove_file(&half);
            }
            copied
        };
        let shown = self.out.flush().and_then(|()| match &self.temporary {
            Some(temporary) => copy(&temporary.file, &temporary.place),
            None => Ok(()),
        });
        shown.map_err(|source| WriteError {
            path: self.path.clone(),
            source,
        })
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// [`WriteError`]; then no half-written file is left.
    pub fn commit(mut self) -> Result<(), WriteError> {
        let committed = self.out.flush().and_then(|()| match &self.temporary {
            Some(temporary) => std::fs::rename(&temporary.file, &temporary.place),
            None => Ok(()),
        });
        match committed {
            Ok(()) => {
                if let Some(temporary) = self.temporary.take() {
                    forget(&temporary.file);
                }
                Ok(())
            }
            Err(source) => Err(WriteError {
                path: self.path.clone(),
                source,
            }),
        }
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nobody can do anything about a file that cannot be removed.
            let _ = std::fs::remove_file(&temporary.file);
            forget(&temporary.file);
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Calls `write` on a [`Pending`] file and puts it in its place.
///
/// A reader of standard output, or of a pipe, that went away is no error: there is nobody to tell.
///
/// # Errors
/// [`WriteError`]; then no half-written file is left.
pub fn write_to(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let mut out = Pending::create(path)?;
    let written = write(&mut out)
        .map_err(|source| WriteError {
            path: path.to_owned(),
            source,
        })
        .and_then(|()| out.commit());
    match written {
        Err(error) if error.source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether the path is no place for a file beside it: a device, a pipe, or a link of `/dev` and
/// `/proc` to an open file, such as `/dev/stdout`.
fn is_special(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
        || ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"]
            .iter()
            .any(|at| path.starts_with(at))
}

/// Temporary files that are being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(temporary: &Path) {
    unfinished().retain(|path| path != temporary);
}

/// Removes what is half written, for a caller who is about to leave without unwinding.
pub(super) fn abandon() {
    for temporary in unfinished().drain(..) {
        // It may be in its place by now.
        let _ = std::fs::remove_file(temporary);
    }
}

/// Makes a file that was not there: in a folder open to all, a link laid in its place beforehand
/// could lead anywhere.
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    match options.open(path) {
        // Left over from a process of the same number.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            options.open(path)
        }
        other => other,
    }
}

/// Checks early that a file can be made at `path`, before minutes are spent sampling for it.
///
/// # Errors
/// [`WriteError`] when its folder is missing or not writable, or `path` is a folder.
pub fn check(path: &Path) -> Result<(), WriteError> {
    let failed = |source| WriteError {
        path: path.to_owned(),
        source,
    };
    if is_stdout(path) || is_special(path) {
        return Ok(());
    }
    if path.is_dir() {
        return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    let temporary = beside(&destination(path).map_err(failed)?);
    create_new(&temporary).map_err(failed)?;
    std::fs::remove_file(&temporary).map_err(failed)
}

/// Where a path leads by its links, there or not.
fn destination(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&place) {
            Ok(to) => place = place.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(place),
        }
    }
    Err(Errno::ELOOP.into())
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_neither_file_nor_temporary() {
        let folder = std::env::temp_dir().join(format!("unwind-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let path = folder.join("x.svg");
        std::fs::write(&path, "before").expect("write");
        let full = |_: &mut dyn Write| Err(io::Error::from(io::ErrorKind::StorageFull));
        assert!(write_to(&path, &mut { full }).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("kept"), "before");
        assert_eq!(std::fs::read_dir(&folder).expect("list").count(), 1);
        write_to(&path, &mut |out| out.write_all(b"after")).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("new"), "after");
        std::fs::remove_dir_all(&folder).expect("cleaned");
    }

    #[test]
    fn a_link_is_followed_and_the_mode_stays() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = std::env::temp_dir().join(format!("unwind-links-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("in")).expect("folders");
        let at = |name: &str| folder.join(name);
        std::fs::write(at("in/real"), "before").expect("written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(at("in/real"), private).expect("private");
        symlink("in/link", at("link")).expect("link");
        symlink("real", at("in/link")).expect("link");
        write_to(&at("link"), &mut |out| out.write_all(b"after")).expect("written");
        assert!(at("link").is_symlink() && at("in/link").is_symlink());
        assert_eq!(
            std::fs::read_to_string(at("in/real")).expect("real"),
            "after"
        );
        let mode = at("in/real").metadata().expect("real").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        symlink("nowhere/x", at("dangling")).expect("link");
        assert!(check(&at("dangling")).is_err());
        symlink("round", at("round")).expect("link");
        assert!(check(&at("round")).is_err());
        std::fs::remove_dir_all(&folder).expect("cleaned");
    }

    #[test]
    fn a_full_device_is_an_error() {
        let big = vec![b'x'; 1 << 16];
        assert!(write_to(Path::new("/dev/full"), &mut |out| out.write_all(&big)).is_err());
    }
}
