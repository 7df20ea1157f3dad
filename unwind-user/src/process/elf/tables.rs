//! Symbols, sections and notes of an ELF file, bounded.

use std::fs::File;

use object::LittleEndian;
use object::elf::{self, Dyn64, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{
    Dyn as _, GnuHashTable, HashTable, ProgramHeader as _, SectionHeader as _,
};
use object::read::{ReadCache, ReadRef as _};

pub(super) type Header = FileHeader64<LittleEndian>;
pub(super) type Segment = ProgramHeader64<LittleEndian>;
pub(super) type Section = SectionHeader64<LittleEndian>;
pub(super) type Symbol = Sym64<LittleEndian>;
pub(super) type Data<'a> = &'a ReadCache<File>;

pub(super) const LE: LittleEndian = LittleEndian;
/// Most bytes read of one table: a file can claim any size.
const TABLE_MAX: u64 = 64 << 20;

pub(super) fn build_id(segment: &Segment, data: Data<'_>) -> Option<Vec<u8>> {
    (segment.p_filesz(LE) < TABLE_MAX).then_some(())?;
    let mut notes = segment.notes(LE, data).ok()??;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            return Some(note.desc().to_vec());
        }
    }
    None
}

pub(super) fn py_runtime_section(
    header: &Header,
    sections: &[Section],
    data: Data<'_>,
) -> Option<u64> {
    let names = sections.get(header.e_shstrndx.get(LE) as usize)?;
    let names = table(data, names.sh_offset(LE), names.sh_size(LE))?;
    let section = sections.iter().find(|section| {
        let name = names
            .get(section.sh_name(LE) as usize..)
            .unwrap_or_default();
        name.starts_with(b".PyRuntime\0")
    })?;
    Some(section.sh_addr(LE))
}

/// The `.symtab` and its names, by the section headers.
pub(super) fn static_symbols<'a>(
    sections: &[Section],
    data: Data<'a>,
) -> Option<(&'a [Symbol], &'a [u8])> {
    let symbols = sections
        .iter()
        .find(|section| section.sh_type(LE) == elf::SHT_SYMTAB)?;
    let names = sections.get(symbols.sh_link(LE) as usize)?;
    let names = table(data, names.sh_offset(LE), names.sh_size(LE))?;
    let count = symbols.sh_size(LE) / size_of::<Symbol>() as u64;
    Some((symbol_table(data, symbols.sh_offset(LE), count)?, names))
}

/// The dynamic section, as the dynamic linker finds it.
pub(super) struct Dynamic<'a> {
    entries: &'a [Dyn64<LittleEndian>],
    pub(super) names: &'a [u8],
}

impl<'a> Dynamic<'a> {
    pub(super) fn read(segments: &[Segment], data: Data<'a>) -> Option<Self> {
        let dynamic = segments
            .iter()
            .find(|segment| segment.p_type(LE) == elf::PT_DYNAMIC)?;
        (dynamic.p_filesz(LE) < TABLE_MAX).then_some(())?;
        let found = Self {
            entries: dynamic.dynamic(LE, data).ok()??,
            names: &[],
        };
        let (names, _) = file_range(segments, found.value(elf::DT_STRTAB)?)?;
        let names = table(data, names, found.value(elf::DT_STRSZ)?)?;
        Some(Self { names, ..found })
    }

    fn value(&self, tag: i64) -> Option<u64> {
        self.values(tag).next()
    }

    fn values(&self, tag: i64) -> impl Iterator<Item = u64> {
        let entries = self
            .entries
            .iter()
            .filter(move |entry| entry.d_tag(LE) == tag);
        entries.map(|entry| entry.d_val(LE))
    }

    pub(super) fn needed(&self) -> usize {
        let name = |offset| self.names.get(usize::try_from(offset).ok()?..);
        let names = self.values(elf::DT_NEEDED).filter_map(name);
        names.filter(|name| !name.starts_with(b"ld-linux")).count()
    }

    pub(super) fn symbols(&self, segments: &[Segment], data: Data<'a>) -> Option<&'a [Symbol]> {
        // Only the hash tables tell how many symbols there are.
        let hash = |tag| {
            let (offset, size) = file_range(segments, self.value(tag)?)?;
            table(data, offset, size.min(TABLE_MAX))
        };
        let count = match hash(elf::DT_GNU_HASH) {
            Some(bytes) => GnuHashTable::<Header>::parse(LE, bytes)
                .ok()?
                .symbol_table_length(LE)?,
            None => {
                let bytes = hash(elf::DT_HASH)?;
                HashTable::<Header>::parse(LE, bytes)
                    .ok()?
                    .symbol_table_length()
            }
        };
        let (symbols, _) = file_range(segments, self.value(elf::DT_SYMTAB)?)?;
        symbol_table(data, symbols, count.into())
    }
}

/// Where in the file the bytes of `address` are, and how many follow in its segment.
fn file_range(segments: &[Segment], address: u64) -> Option<(u64, u64)> {
    segments
        .iter()
        .filter(|segment| segment.p_type(LE) == elf::PT_LOAD)
        .find_map(|segment| {
            let inside = address.checked_sub(segment.p_vaddr(LE))?;
            let left = segment.p_filesz(LE).checked_sub(inside)?;
            Some((segment.p_offset(LE).checked_add(inside)?, left))
        })
}

fn symbol_table<'a>(data: Data<'a>, offset: u64, count: u64) -> Option<&'a [Symbol]> {
    (count <= TABLE_MAX / size_of::<Symbol>() as u64).then_some(())?;
    data.read_slice_at(offset, usize::try_from(count).ok()?)
        .ok()
}

fn table<'a>(data: Data<'a>, offset: u64, size: u64) -> Option<&'a [u8]> {
    (size <= TABLE_MAX).then_some(())?;
    data.read_bytes_at(offset, size).ok()
}
