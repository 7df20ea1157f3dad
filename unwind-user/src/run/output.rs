//! Writes a file whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why the output could not be written.
#[derive(Debug, Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    /// Where to.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Calls `write` on a temporary file beside `path` and renames it there; `-` is standard output.
/// Special files such as `/dev/full` or a named pipe are written in place.
///
/// A reader of standard output that went away is no error: there is nobody to tell.
///
/// # Errors
/// [`WriteError`]; then no half-written file is left.
pub fn write_to(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    if path == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        return match write(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(failed),
        };
    }
    let is_special = path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
    if is_special {
        let mut out = BufWriter::new(File::options().write(true).open(path).map_err(failed)?);
        return write(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    let temporary = beside(path);
    let attempt = || {
        let mut out = BufWriter::new(File::create(&temporary)?);
        write(&mut out)?;
        out.flush()?;
        std::fs::rename(&temporary, path)
    };
    let mut attempt = attempt;
    attempt().map_err(|source| {
        // If it was never made there is nothing to remove.
        let _ = std::fs::remove_file(&temporary);
        failed(source)
    })
}

/// Checks early that a file can be made at `path`, before minutes are spent sampling for it.
///
/// # Errors
/// [`WriteError`] when its folder is missing or not writable, or `path` is a folder.
pub fn check(path: &Path) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    if path == Path::new("-") || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Ok(());
    }
    if path.is_dir() {
        return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    let temporary = beside(path);
    File::create(&temporary).map_err(failed)?;
    std::fs::remove_file(&temporary).map_err(failed)
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
    fn a_full_device_is_an_error() {
        let big = vec![b'x'; 1 << 16];
        assert!(write_to(Path::new("/dev/full"), &mut |out| out.write_all(&big)).is_err());
    }
}
