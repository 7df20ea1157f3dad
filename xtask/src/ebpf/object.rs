//! What may be in a committed object: BTF, but no DWARF and no path of the machine that built it.

use anyhow::{Result, ensure};
use object::build::ByteString;
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;
use object::{File, Object, ObjectSection, SectionKind};

/// Words that give away a package registry.
const REGISTRIES: &[&str] = &["registry", "crates.io", "github.com"];

/// Shortest run of printable bytes that counts as a string, as for strings(1).
const SHORTEST: usize = 4;

/// The object without its DWARF sections, their relocations and the symbols that name them.
pub(super) fn strip(elf: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(elf)?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    builder.delete_orphans();
    // LLVM keeps the sections' names among the symbols'; the builder wants a table of their own.
    if !builder
        .sections
        .iter()
        .any(|section| matches!(section.data, SectionData::SectionString))
    {
        let names = builder.sections.add();
        names.name = ByteString::from(&b".shstrtab"[..]);
        names.sh_type = SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
    }
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(stripped)
}

/// Fails unless the object has BTF with line information, no DWARF, and no string that begins with
/// `/` or names a registry.
pub(super) fn check(elf: &[u8]) -> Result<()> {
    let file = File::parse(elf)?;
    for name in [".BTF", ".BTF.ext"] {
        ensure!(
            file.section_by_name(name).is_some(),
            "the object has no section {name}"
        );
    }
    for section in file.sections() {
        let name = section.name()?;
        ensure!(
            !name.starts_with(".debug_"),
            "the object has a DWARF section, {name}"
        );
        // Instructions and relocations are numbers; a `/` among them is no path.
        if matches!(section.kind(), SectionKind::Text | SectionKind::Metadata) {
            continue;
        }
        for string in strings(section.data()?) {
            let registry = REGISTRIES.iter().any(|word| string.contains(word));
            ensure!(
                !string.starts_with('/') && !registry,
                "section {name} of the object names a place on the machine that built it: {string}"
            );
        }
    }
    Ok(())
}

/// Runs of at least [`SHORTEST`] printable ASCII bytes.
fn strings(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let runs = bytes.split(|byte| !matches!(byte, b' '..=b'~'));
    runs.filter(|run| run.len() >= SHORTEST)
        .filter_map(|run| std::str::from_utf8(run).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object as Writer, StandardSegment};
    use object::{Architecture, BinaryFormat, Endianness};

    fn elf(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        for (name, data) in sections {
            let segment = writer.segment_name(StandardSegment::Debug).to_vec();
            let id = writer.add_section(segment, name.as_bytes().to_vec(), SectionKind::Debug);
            writer.append_section_data(id, data, 1);
        }
        writer.write().unwrap()
    }

    #[test]
    fn dwarf_is_stripped_and_the_rest_kept() {
        let full = elf(&[
            (".BTF", b"btf"),
            (".BTF.ext", b"ext"),
            (".debug_info", b"dwarf"),
        ]);
        assert!(
            check(&full)
                .unwrap_err()
                .to_string()
                .contains(".debug_info")
        );
        let stripped = strip(&full).unwrap();
        check(&stripped).unwrap();
        let file = File::parse(&*stripped).unwrap();
        assert_eq!(
            file.section_by_name(".BTF").unwrap().data().unwrap(),
            b"btf"
        );
        assert_eq!(
            file.section_by_name(".BTF.ext").unwrap().data().unwrap(),
            b"ext"
        );
    }

    #[test]
    fn paths_and_registries_are_found() {
        for bad in [
            "a\0/home/me/lib.rs\0",
            "x\0index.crates.io-1949cf8c6b5b557f\0",
        ] {
            let error = check(&elf(&[(".BTF", bad.as_bytes()), (".BTF.ext", b"")])).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("section .BTF of the object names"),
                "{error}"
            );
        }
        let relative = b"\0./unwind-ebpf/src/main.rs\0a / b\0/\0";
        check(&elf(&[(".BTF", relative), (".BTF.ext", b"")])).unwrap();
        assert!(
            check(&elf(&[(".BTF", b"btf")]))
                .unwrap_err()
                .to_string()
                .contains(".BTF.ext")
        );
    }
}
