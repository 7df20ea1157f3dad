//! Lines of the target's source files.
//!
//! A file name comes from the target's memory: it can name anything. Only regular files below the
//! target's own root are read, never past a size, and links in them lead nowhere outside.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use crate::process::printable;

/// Longest source file that is read, in bytes.
const FILE_MAX: u64 = 4 << 20;
/// Bytes of all that is kept.
const BYTES_MAX: usize = 32 << 20;
/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 160;

/// Source files of one process, each read once.
#[derive(Debug)]
pub(super) struct Sources {
    root: Option<File>,
    files: HashMap<String, Source>,
    bytes: usize,
    /// Whether lines are missing since the files are too large together.
    pub(super) full: bool,
}

/// A file, and where its lines begin.
#[derive(Debug, Default)]
struct Source {
    text: Vec<u8>,
    lines: Vec<u32>,
}

impl Source {
    fn new(text: Vec<u8>) -> Self {
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at as u32 + 1));
        Self {
            lines: lines.collect(),
            text,
        }
    }

    const fn bytes(&self) -> usize {
        self.text.capacity() + self.lines.capacity() * size_of::<u32>()
    }

    /// A line, from 1.
    fn line(&self, number: u32) -> Option<&[u8]> {
        let number = usize::try_from(number).ok()?;
        let start = *self.lines.get(number.checked_sub(1)?)? as usize;
        let next = self.lines.get(number);
        let end = next.map_or(self.text.len(), |next| *next as usize - 1);
        self.text.get(start..end)
    }
}

impl Sources {
    /// The files that the process `pid` sees.
    pub(super) fn of(pid: i32) -> Self {
        Self {
            root: File::open(format!("/proc/{pid}/root")).ok(),
            files: HashMap::new(),
            bytes: 0,
            full: false,
        }
    }

    /// A line of a file, without its indentation, safe to print; none where it cannot be read, or
    /// has no such line.
    pub(super) fn line(&mut self, file: &str, line: u32) -> Option<String> {
        if !self.files.contains_key(file) {
            if self.bytes > BYTES_MAX {
                self.full = true;
                return None;
            }
            let source = Source::new(self.read(file).unwrap_or_default());
            self.bytes += source.bytes() + file.len();
            self.files.insert(file.to_owned(), source);
        }
        let line = self.files.get(file)?.line(line)?;
        let line = printable(line.trim_ascii());
        let shown = match line.char_indices().nth(LINE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", line.get(..end)?),
            None => line,
        };
        Some(shown).filter(|line| !line.is_empty())
    }

    fn read(&self, file: &str) -> Option<Vec<u8>> {
        // A relative name meant something when the process started; nobody knows what.
        if !file.starts_with('/') {
            return None;
        }
        // NONBLOCK: a pipe would keep us waiting for its other end.
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = File::from(openat2(self.root.as_ref()?, file, how).ok()?);
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.size() > FILE_MAX {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Sources {
        Sources::of(std::process::id() as i32)
    }

    fn path(name: &str) -> String {
        let name = format!("unwind-source-{}-{name}", std::process::id());
        std::env::temp_dir().join(name).display().to_string()
    }

    #[test]
    fn gives_lines_that_are_safe_to_print() {
        let file = path("lines.py");
        std::fs::write(&file, b"first\n    \x1b[2Jsecond\n\n\xff\n").expect("a file");
        let mut sources = ours();
        let mut line = |n| sources.line(&file, n);
        assert_eq!(line(1).as_deref(), Some("first"));
        assert_eq!(line(2).as_deref(), Some("\u{fffd}[2Jsecond"));
        assert_eq!(line(3), None);
        assert_eq!(line(4).as_deref(), Some("\u{fffd}"));
        assert_eq!((line(0), line(99), line(u32::MAX)), (None, None, None));
        std::fs::remove_file(file).expect("our file");
    }

    #[test]
    fn cuts_long_lines() {
        let file = path("long.py");
        std::fs::write(&file, "ä".repeat(1000)).expect("a file");
        let line = ours().line(&file, 1).expect("a line");
        assert_eq!(line.chars().count(), LINE_CHARS_MAX + 1);
        std::fs::remove_file(file).expect("our file");
    }

    #[test]
    fn many_files_are_too_many() {
        let file = path("many.py");
        std::fs::write(&file, vec![b'\n'; FILE_MAX as usize]).expect("a file");
        let mut sources = ours();
        for slashes in 1..50 {
            sources.line(&format!("{}{file}", "/".repeat(slashes)), 1);
        }
        std::fs::remove_file(file).expect("our file");
        assert!(sources.full);
        // One more than there was room for, with all of its line ends.
        assert!(sources.bytes < BYTES_MAX + 10 * FILE_MAX as usize);
    }

    #[test]
    fn reads_regular_files_only() {
        let mut sources = ours();
        for other in [
            "/dev/zero",
            "/",
            "relative.py",
            "<string>",
            "",
            "/nothing/there",
        ] {
            assert_eq!(sources.line(other, 1), None, "{other}");
        }
        let pipe = path("pipe");
        nix::unistd::mkfifo(pipe.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(sources.line(&pipe, 1), None);
        std::fs::remove_file(pipe).expect("our pipe");
    }
}
