//! Any bytes as the body of a sample, walked with the layout of either older version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind_user::layout::{Version, v3_11, v3_12};
use unwind_user::memory::{Addr, Ranges};
use unwind_user::python::frame::{Chain, DEPTH_MAX, Parsed, walk};

/// Where the bytes lie in the target.
const BASE: Addr = Addr(0x1000);

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first_chunk() else {
        return;
    };
    let mut memory = Ranges::new();
    memory.push(BASE, bytes);
    let first = Addr(u64::from_le_bytes(*first));
    for layout in [v3_11(Version(0x030b_07f0)), v3_12(Version(0x030c_01f0))] {
        let frames = Parsed {
            layout: &layout.frame,
            memory: &memory,
        };
        for first in [first, BASE] {
            let mut raw = Vec::new();
            let chain = Chain {
                first,
                gc: BASE,
                ..Chain::default()
            };
            let (_, met) = walk(&layout, &frames, chain, &mut raw);
            let markers = raw.iter().filter(|frame| frame.marker().is_some()).count();
            assert!(markers <= 2 * met as usize && met <= DEPTH_MAX);
            assert!(raw.len() - markers <= met as usize);
        }
    }
});
