//! Any bytes as `str` and `bytes` objects: bounded, and text whatever they hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind_user::layout::{Version, v3_11, v3_12};
use unwind_user::memory::{Addr, Ranges};
use unwind_user::python::string::{NAME_CHARS_MAX, read_bytes, read_str};

/// Where the bytes lie in the target.
const BASE: Addr = Addr(0x1000);
/// Characters that the longest escape takes.
const ESCAPE: usize = 10;

fuzz_target!(|bytes: &[u8]| {
    let mut memory = Ranges::new();
    memory.push(BASE, bytes);
    for layout in [v3_11(Version(0x030b_07f0)), v3_12(Version(0x030c_01f0))] {
        if let Ok(name) = read_str(&memory, &layout.unicode, BASE, NAME_CHARS_MAX) {
            assert!(name.text.chars().count() <= NAME_CHARS_MAX * ESCAPE);
        }
        if let Ok(copy) = read_bytes(&memory, &layout.bytes, BASE, 1 << 20) {
            assert!(copy.len() <= bytes.len());
        }
    }
});
