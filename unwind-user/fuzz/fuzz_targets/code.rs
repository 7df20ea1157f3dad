//! Any bytes as a code object, with its names and location table among them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind_user::layout::{Version, v3_11, v3_12};
use unwind_user::memory::{Addr, Ranges};
use unwind_user::python::code::read_code;

/// Where the bytes lie in the target.
const BASE: Addr = Addr(0x1000);

fuzz_target!(|bytes: &[u8]| {
    let mut memory = Ranges::new();
    memory.push(BASE, bytes);
    for layout in [v3_11(Version(0x030b_07f0)), v3_12(Version(0x030c_01f0))] {
        if let Ok(code) = read_code(&memory, &layout, BASE) {
            for instr in 0..64 {
                let _ = code.location(&layout, code.bytecode.add(instr * 7));
            }
        }
    }
});
