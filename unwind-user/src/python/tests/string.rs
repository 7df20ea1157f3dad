use proptest::prelude::*;

use super::{Noise, put};
use crate::layout::{UnicodeLayout, Version, v3_11, v3_12};
use crate::memory::{Addr, Ranges};
use crate::python::string::{NAME_CHARS_MAX, ObjectError, PyStr, read_bytes, read_str};

const AT: Addr = Addr(0x7f00_1230);

/// A compact `str` with characters of `kind` bytes; ASCII where `kind` is 0.
pub(super) fn object(layout: &UnicodeLayout, kind: u32, characters: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ascii = if kind == 0 { layout.ascii_mask } else { 0 };
    let state = kind.max(1) << 2 | layout.compact_mask | ascii;
    put(
        &mut bytes,
        layout.length,
        &(characters.len() as u64).to_le_bytes(),
    );
    put(&mut bytes, layout.state, &state.to_le_bytes());
    let mut at = if kind == 0 {
        layout.ascii_data
    } else {
        layout.compact_data
    };
    put(&mut bytes, at, &[]);
    for character in characters {
        put(
            &mut bytes,
            at,
            &character.to_le_bytes()[..kind.max(1) as usize],
        );
        at += u64::from(kind.max(1));
    }
    put(&mut bytes, at, &[0; 4]);
    bytes
}

fn read(layout: &UnicodeLayout, bytes: &[u8], max: usize) -> Result<PyStr, ObjectError> {
    let mut memory = Ranges::new();
    memory.push(AT, bytes);
    read_str(&memory, layout, AT, max)
}

fn text(kind: u32, characters: &[u32]) -> String {
    let layouts = [v3_11(Version(0x030b_00f0)), v3_12(Version(0x030c_00f0))];
    let [first, second] = layouts.map(|layout| {
        let bytes = object(&layout.unicode, kind, characters);
        let read = read(&layout.unicode, &bytes, NAME_CHARS_MAX).expect("a whole str");
        assert!(!read.cut);
        read.text
    });
    assert_eq!(first, second);
    first
}

fn codes(text: &str) -> Vec<u32> {
    text.chars().map(u32::from).collect()
}

#[test]
fn every_kind_is_decoded() {
    assert_eq!(text(0, &codes("")), "");
    assert_eq!(text(0, &codes("C.method")), "C.method");
    assert_eq!(text(1, &codes("méthode")), "méthode");
    assert_eq!(text(2, &codes("Ωμέγα.函数")), "Ωμέγα.函数");
    assert_eq!(text(4, &codes("𝔘𝔫𝔦🐍")), "𝔘𝔫𝔦🐍");
}

#[test]
fn what_is_no_character_stays_visible() {
    assert_eq!(text(2, &[0x61, 0xdc80, 0x62]), "a\\udc80b");
    assert_eq!(text(2, &[0xd83d, 0xdc0d]), "\\ud83d\\udc0d");
    assert_eq!(text(4, &[0xdfff, 0x1f40d]), "\\udfff🐍");
    assert_eq!(text(4, &[0x0011_0000, u32::MAX]), "\\U00110000\\Uffffffff");
    assert_eq!(text(0, &[0x61, 0xff]), "a\\xff");
}

#[test]
fn long_names_are_cut_so_that_they_differ() {
    let layout = v3_12(Version(0x030c_00f0)).unicode;
    let long = |last: char| {
        let name = format!("{}{last}", "n".repeat(5000));
        let bytes = object(&layout, 0, &codes(&name));
        read(&layout, &bytes, NAME_CHARS_MAX).expect("a whole str")
    };
    let (a, b) = (long('a'), long('b'));
    assert!(a.cut && b.cut);
    assert_eq!(a.text.chars().count(), NAME_CHARS_MAX);
    assert!(a.text.starts_with(&"n".repeat(NAME_CHARS_MAX - 13)));
    assert_eq!(a.text.chars().nth(NAME_CHARS_MAX - 13), Some('…'));
    assert_ne!(a.text, b.text);
    assert_eq!(a, long('a'));

    let exact = object(&layout, 0, &codes(&"n".repeat(NAME_CHARS_MAX)));
    assert!(
        !read(&layout, &exact, NAME_CHARS_MAX)
            .expect("a whole str")
            .cut
    );
}

#[test]
fn what_is_no_compact_str_is_an_error() {
    let layout = v3_12(Version(0x030c_00f0)).unicode;
    let state = |state: u32| {
        let mut bytes = object(&layout, 0, &codes("name"));
        put(&mut bytes, layout.state, &state.to_le_bytes());
        read(&layout, &bytes, 10)
    };
    assert!(state(0x64).is_ok());
    assert_eq!(state(0x44), Err(ObjectError::NotCompact(0x44)));
    assert_eq!(state(0x6c), Err(ObjectError::Kind(0x6c)));
    assert_eq!(state(0x68), Err(ObjectError::Kind(0x68)));
    let mut bytes = object(&layout, 0, &codes("name"));
    put(&mut bytes, layout.length, &u64::MAX.to_le_bytes());
    assert_eq!(
        read(&layout, &bytes, 10),
        Err(ObjectError::Length(u64::MAX))
    );
    put(&mut bytes, layout.length, &1_000_000_u64.to_le_bytes());
    assert!(matches!(
        read(&layout, &bytes, 1000),
        Err(ObjectError::Fault(_))
    ));
}

#[test]
fn bytes_are_bounded() {
    let layout = v3_12(Version(0x030c_00f0)).bytes;
    let content: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
    let mut object = vec![0; layout.data as usize];
    object.extend(&content);
    put(&mut object, layout.size, &100_000_u64.to_le_bytes());
    let mut memory = Ranges::new();
    memory.push(AT, &object);
    assert_eq!(read_bytes(&memory, &layout, AT, 100_000), Ok(content));
    assert_eq!(
        read_bytes(&memory, &layout, AT, 99_999),
        Err(ObjectError::Length(100_000))
    );
}

proptest! {
    #[test]
    fn any_memory_gives_a_bounded_name(
        seed in proptest::collection::vec(any::<u8>(), 1..400),
        addr in any::<u64>(),
        max in 0..2000_usize,
    ) {
        for layout in [v3_11(Version(0x030b_00f0)), v3_12(Version(0x030c_00f0))] {
            if let Ok(name) = read_str(&Noise(&seed), &layout.unicode, Addr(addr), max) {
                // The longest way to show a character is \U and eight digits.
                prop_assert!(name.text.chars().count() <= max.max(13) * 10);
            }
            if let Ok(bytes) = read_bytes(&Noise(&seed), &layout.bytes, Addr(addr), 1 << 20) {
                prop_assert!(bytes.len() <= 1 << 20);
            }
        }
    }

    #[test]
    fn any_text_survives(name in any::<String>()) {
        prop_assert_eq!(text(4, &codes(&name)), name);
    }
}
