//! Any bytes as what an interpreter publishes of itself: a layout that holds, or a refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind_user::layout::debug_offsets::{COOKIE, parse};

fuzz_target!(|bytes: &[u8]| {
    let headed = [&COOKIE[..], bytes].concat();
    for bytes in [bytes, &headed] {
        if let Ok((layout, _)) = parse(bytes) {
            layout.validate().expect("a layout that was accepted");
        }
    }
});
