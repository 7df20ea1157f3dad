//! What an ELF file says about the Python in it.
//!
//! Only headers and the dynamic symbols are read, piece by piece, so that a binary of 100 MB costs
//! little. The dynamic symbols are found through the segments: they survive when the section
//! headers are stripped.

mod tables;

use std::fs::File;

use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};

use self::tables::{
    Data, Dynamic, Header, LE, Segment, Symbol, build_id, py_runtime_section, static_symbols,
};
use super::maps::Mapping;

const PAGE: u64 = 4096;

/// What an ELF file says about the Python in it. Addresses are the file's own: add the load bias.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The segments that are mapped.
    pub loads: Vec<Load>,
    /// Initial thread-local storage.
    pub tls: Option<Tls>,
    /// Section `.PyRuntime`, then the symbol `_PyRuntime` if it lies elsewhere.
    pub py_runtime: Vec<u64>,
    /// Symbol `Py_Version`: 8 bytes, `PY_VERSION_HEX` (3.11+).
    pub py_version: Option<u64>,
    /// Libraries that the dynamic linker maps before the program starts, itself not counted.
    pub needed: usize,
    /// Whether `Py_Initialize` is defined here: some CPython of any age.
    pub py_initialize: bool,
    /// The linker's build id; empty where there is none.
    pub build_id: Vec<u8>,
}

/// A mapped segment (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Offset in the file.
    pub offset: u64,
    /// Address in the file's own terms.
    pub vaddr: u64,
    /// Bytes that come from the file.
    pub file_size: u64,
}

/// The thread-local block of a module (`PT_TLS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Bytes a thread.
    pub size: u64,
    /// Alignment, at least 1.
    pub align: u64,
}

/// The file is no ELF file that an x86-64 Linux process can run, or a damaged one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Another class, byte order or machine.
    #[error("not a 64-bit x86 ELF file")]
    NotOurs,
    /// The headers contradict themselves.
    #[error("damaged ELF file: {0}")]
    Damaged(#[from] object::read::Error),
}

impl Elf {
    /// Reads the headers and dynamic symbols of `file`.
    ///
    /// # Errors
    /// [`ElfError`], where the file is no x86-64 ELF file or its headers are damaged.
    pub fn read(file: File) -> Result<Self, ElfError> {
        let cache = ReadCache::new(file);
        let data = &cache;
        let header = Header::parse(data).map_err(|_| ElfError::NotOurs)?;
        if !header.is_little_endian() || header.e_machine.get(LE) != elf::EM_X86_64 {
            return Err(ElfError::NotOurs);
        }
        let segments = header.program_headers(LE, data)?;
        let mut found = Self::default();
        found.add_segments(segments, data);
        // Whatever of the rest is missing or damaged is as good as stripped.
        let sections = header.section_headers(LE, data).unwrap_or_default();
        if let Some(address) = py_runtime_section(header, sections, data) {
            found.py_runtime.push(address);
        }
        if let Some(dynamic) = Dynamic::read(segments, data) {
            found.needed = dynamic.needed();
            if let Some(symbols) = dynamic.symbols(segments, data) {
                found.add_symbols(symbols, dynamic.names);
            }
        }
        // An executable that exports nothing keeps the names for its debugger, if not stripped.
        if found.py_version.is_none()
            && !found.py_runtime.is_empty()
            && let Some((symbols, names)) = static_symbols(sections, data)
        {
            found.add_symbols(symbols, names);
        }
        Ok(found)
    }

    /// What to add to the file's addresses, if `mapping` is a mapping of one of its segments.
    #[must_use]
    pub fn bias(&self, mapping: &Mapping) -> Option<u64> {
        // Two segments can share a page of the file; a mapping from there on is the later one's.
        let load = self.loads.iter().rev().find(|load| {
            let first = load.offset & !(PAGE - 1);
            (first..load.offset.saturating_add(load.file_size)).contains(&mapping.offset)
        })?;
        let vaddr = load
            .vaddr
            .wrapping_add(mapping.offset)
            .wrapping_sub(load.offset);
        Some(mapping.start.wrapping_sub(vaddr))
    }

    fn add_segments(&mut self, segments: &[Segment], data: Data<'_>) {
        for segment in segments {
            match segment.p_type(LE) {
                elf::PT_LOAD => self.loads.push(Load {
                    offset: segment.p_offset(LE),
                    vaddr: segment.p_vaddr(LE),
                    file_size: segment.p_filesz(LE),
                }),
                elf::PT_TLS => {
                    let align = segment.p_align(LE).max(1);
                    self.tls = Some(Tls {
                        size: segment.p_memsz(LE),
                        align,
                    });
                }
                elf::PT_NOTE if self.build_id.is_empty() => {
                    self.build_id = build_id(segment, data).unwrap_or_default();
                }
                _ => {}
            }
        }
    }

    fn add_symbols(&mut self, symbols: &[Symbol], names: &[u8]) {
        for symbol in symbols.iter().filter(|symbol| !symbol.is_undefined(LE)) {
            let name = names.get(symbol.st_name(LE) as usize..).unwrap_or_default();
            let is = |wanted: &[u8]| {
                name.strip_prefix(wanted)
                    .is_some_and(|n| n.first() == Some(&0))
            };
            let address = symbol.st_value(LE);
            if is(b"_PyRuntime") && !self.py_runtime.contains(&address) {
                self.py_runtime.push(address);
            } else if is(b"Py_Version") {
                self.py_version = Some(address);
            } else if is(b"Py_Initialize") {
                self.py_initialize = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps;

    #[test]
    fn knows_its_own_file() {
        let file = File::open("/proc/self/exe").expect("our executable");
        let elf = Elf::read(file).expect("our executable is ELF");
        assert!(elf.needed > 0, "a C library");
        assert!(elf.py_runtime.is_empty() && elf.py_version.is_none() && !elf.py_initialize);
        assert!(!elf.build_id.is_empty() && elf.tls.is_some_and(|tls| tls.size > 0));
        // Every mapping of the file gives the same bias.
        let exe = std::fs::read_link("/proc/self/exe").expect("our path");
        let bytes = std::fs::read("/proc/self/maps").expect("our maps");
        let mut biases: Vec<_> = maps::parse(&bytes)
            .iter()
            .filter(|mapping| mapping.path == exe.as_os_str().as_encoded_bytes())
            .filter_map(|mapping| elf.bias(mapping))
            .collect();
        assert!(biases.len() > 1);
        biases.dedup();
        assert_eq!(biases.len(), 1);
    }

    #[test]
    fn finds_dynamic_symbols_without_section_headers() {
        let bytes = std::fs::read("/proc/self/maps").expect("our maps");
        let libc = maps::parse(&bytes)
            .into_iter()
            .find(|m| m.path.ends_with(b"/libc.so.6"));
        let path = String::from_utf8(libc.expect("the C library").path).expect("a plain path");
        let cache = ReadCache::new(File::open(path).expect("the C library"));
        let header = Header::parse(&cache).expect("ELF");
        let segments = header.program_headers(LE, &cache).expect("segments");
        let dynamic = Dynamic::read(segments, &cache).expect("a dynamic section");
        let symbols = dynamic.symbols(segments, &cache).expect("dynamic symbols");
        let malloc = symbols
            .iter()
            .find(|symbol| dynamic.names[symbol.st_name(LE) as usize..].starts_with(b"malloc\0"));
        assert!(malloc.is_some_and(|symbol| symbol.st_value(LE) != 0));
    }

    #[test]
    fn refuses_what_is_no_elf() {
        let file = File::open("/proc/self/maps").expect("/proc");
        assert_eq!(Elf::read(file), Err(ElfError::NotOurs));
    }
}
