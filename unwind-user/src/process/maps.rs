//! `/proc/PID/maps`: what is mapped where.
//!
//! A parser of our own, over bytes: paths there need not be UTF-8, and every library that we know
//! fails on them or replaces what it does not understand.

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset in the file of the byte at [`Self::start`].
    pub offset: u64,
    /// What the target may do with it.
    pub perms: Perms,
    /// Device of the file, major and minor; `(0, 0)` where there is none.
    pub dev: (u64, u64),
    /// Inode of the file; 0 where there is none.
    pub inode: u64,
    /// The path as the kernel shows it from our root, unescaped; empty for anonymous memory.
    pub path: Vec<u8>,
    /// The file has been unlinked. ([`Self::path`] is without the kernel's ` (deleted)`.)
    pub deleted: bool,
}

/// Access rights of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perms {
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub exec: bool,
    /// Shared with other processes: writes reach the file.
    pub shared: bool,
}

impl Mapping {
    /// Whether it shows a file (and not anonymous memory, `[heap]`, `[vdso]`, …).
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.first() == Some(&b'/')
    }

    /// Whether both map the same file.
    #[must_use]
    pub fn same_file(&self, other: &Self) -> bool {
        (self.dev, self.inode) == (other.dev, other.inode)
    }
}

/// Reads the lines of `/proc/PID/maps`; a line that is none is left out.
#[must_use]
pub fn parse(bytes: &[u8]) -> Vec<Mapping> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter_map(line)
        .collect()
}

fn line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let end = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        let (field, tail) = rest.split_at(end);
        rest = tail.get(1..).unwrap_or_default();
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let perms = field()?;
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?;
    // The kernel pads with spaces before the path; a path shown here begins with `/` or `[`.
    let path = rest.trim_ascii_start();
    let (path, deleted) = match path.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    (start < end).then_some(())?;
    Some(Mapping {
        start,
        end,
        offset: hex(offset)?,
        perms: parse_perms(perms.as_bytes())?,
        dev: (hex(major)?, hex(minor)?),
        inode: inode.parse().ok()?,
        path: unescape(path),
        deleted,
    })
}

fn parse_perms(perms: &[u8]) -> Option<Perms> {
    let &[read, write, exec, shared] = perms else {
        return None;
    };
    Some(Perms {
        read: read == b'r',
        write: write == b'w',
        exec: exec == b'x',
        shared: shared == b's',
    })
}

/// The kernel escapes only newlines, as `\012`; a backslash itself is shown as it is.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(byte);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &[u8]) -> Mapping {
        let mut mappings = parse(line);
        assert_eq!(mappings.len(), 1, "{}", line.escape_ascii());
        mappings.remove(0)
    }

    #[test]
    fn reads_a_plain_line() {
        let line = b"7f86511eb000-7f86511ed000 r-xp 00027000 fe:0a 1234                       /usr/lib/libc.so.6\n";
        let expected = Mapping {
            start: 0x7f86_511e_b000,
            end: 0x7f86_511e_d000,
            offset: 0x27000,
            perms: Perms {
                read: true,
                exec: true,
                ..Perms::default()
            },
            dev: (0xfe, 0x0a),
            inode: 1234,
            path: b"/usr/lib/libc.so.6".to_vec(),
            deleted: false,
        };
        assert_eq!(one(line), expected);
        assert!(one(line).is_file());
    }

    #[test]
    fn keeps_spaces_newlines_and_bytes_that_are_no_utf8() {
        let mapping = one(b"1000-2000 rw-s 00000000 00:01 9   /tmp/a b\\012\xff\xfe (deleted)");
        assert_eq!(mapping.path, b"/tmp/a b\n\xff\xfe");
        assert!(mapping.deleted && mapping.perms.shared && mapping.perms.write);
    }

    #[test]
    fn anonymous_and_special_mappings_are_no_files() {
        let anonymous = one(b"1000-2000 rw-p 00000000 00:00 0 ");
        assert!(anonymous.path.is_empty() && !anonymous.is_file());
        assert!(!one(b"1000-2000 r-xp 00000000 00:00 0   [vdso]").is_file());
    }

    #[test]
    fn leaves_out_what_is_no_line() {
        assert!(parse(b"").is_empty());
        assert!(parse(b"rubbish\n1000 r-xp 0 0:0 0\n2000-1000 r-xp 0 0:0 0\n\xff-1 r").is_empty());
        assert!(parse(b"1000-2000 r-x 0 0:0 0").is_empty());
    }

    #[test]
    fn reads_our_own_maps() {
        let bytes = std::fs::read("/proc/self/maps").expect("/proc");
        let mappings = parse(&bytes);
        assert_eq!(
            mappings.len(),
            bytes.split(|&byte| byte == b'\n').count() - 1
        );
        let here = reads_our_own_maps as fn() as usize as u64;
        let code = mappings
            .iter()
            .find(|m| (m.start..m.end).contains(&here))
            .expect("our code");
        assert!(code.perms.exec && code.is_file());
    }
}
