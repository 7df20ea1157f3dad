//! Tables of real builds.

mod damage;

use super::debug_offsets::{BYTES_MAX, COOKIE, Trust, parse};
use super::*;
use crate::memory::Addr;
use unwind_ebpf::abi::{BOTTOM_BASE_FRAME, BOTTOM_ENTRY_NULL, BOTTOM_NULL};

/// The words of a 3.13 table after its version.
#[rustfmt::skip]
const V3_13: [u64; 71] = [
    0, 283408, 608, 632, 194984, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16, 7752, 0, 7768,
    7760, 312, 0, 8, 16, 72, 152, 160, 232, 32, 80, 8, 0, 56, 72, 70, 208, 112, 120, 128, 136,
    68, 52, 96, 104, 200, 16, 8, 416, 24, 88, 168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24, 16,
    32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 240, 200,
];
/// The words of a 3.14 table after its version.
#[rustfmt::skip]
const V3_14: [u64; 93] = [
    0, 316616, 784, 808, 225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680, 16, 7784, 0,
    7800, 7792, 7992, 0, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80, 74, 64, 0, 216,
    112, 120, 128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 416, 24, 88, 168, 40, 32, 16, 40, 24,
    16, 200, 24, 40, 32, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 264, 192,
    160, 24, 72, 67, 0, 8, 24, 304, 8076, 0, 4, 512,
];
/// The words of a 3.15 table after its version.
#[rustfmt::skip]
const V3_15: [u64; 109] = [
    0, 346568, 912, 936, 226240, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584, 16, 7736, 0,
    7752, 7744, 7944, 0, 888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32, 36, 40, 136, 288, 0,
    88, 8, 0, 56, 80, 74, 64, 0, 216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 424,
    24, 88, 168, 32, 288, 944, 888, 40, 32, 16, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24, 16,
    32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 56, 176, 112, 120, 1120, 104, 160, 24, 72, 67, 0, 8,
    24, 344, 8028, 0, 4, 512,
];

fn bytes(version: u32, words: &[u64]) -> Vec<u8> {
    let words = std::iter::once(u64::from(version)).chain(words.iter().copied());
    let mut bytes = COOKIE.to_vec();
    bytes.extend(words.flat_map(u64::to_le_bytes));
    // What follows in `_PyRuntime`.
    bytes.resize(BYTES_MAX.max(bytes.len()), 0xa5);
    bytes
}

fn published() -> [Vec<u8>; 3] {
    [
        bytes(0x030d_12f0, &V3_13),
        bytes(0x030e_0af0, &V3_14),
        bytes(0x030f_02f0, &V3_15),
    ]
}

#[test]
fn tables_are_valid() {
    let v3_11 = table(Version(0x030b_07f0)).expect("3.11 has a table");
    let v3_12 = table(Version(0x030c_01f0)).expect("3.12 has a table");
    assert_eq!(v3_11.validate(), Ok(()));
    assert_eq!(v3_12.validate(), Ok(()));
    for version in [0x030a_0df0, 0x030d_00f0, 0x0200_00f0] {
        let version = Version(version);
        assert_eq!(table(version), Err(LayoutError::Unsupported(version)));
    }
    let alpha = Version(0x030c_00a3);
    assert_eq!(table(alpha), Err(LayoutError::PreRelease(alpha)));
}

#[test]
fn published_tables_are_read_in_their_order() {
    let [v3_13, v3_14, v3_15] =
        published().map(|bytes| parse(&bytes).expect("a real build's table"));
    for (layout, trust) in [&v3_13, &v3_14, &v3_15] {
        assert_eq!(*trust, Trust::Known, "{}", layout.version);
        assert_eq!((layout.frame.code, layout.frame.previous), (0, 8));
        assert_eq!(layout.frame.instr, Instr::Current(56));
        assert_eq!((layout.code.filename, layout.code.linetable), (112, 136));
        assert_eq!((layout.bytes.size, layout.bytes.data), (16, 32));
        assert_eq!(layout.unicode, tables::UNICODE);
        assert_eq!(layout.interp.gil, Some(16));
    }
    let (v3_13, v3_14, v3_15) = (v3_13.0, v3_14.0, v3_15.0);
    assert_eq!(v3_13.runtime.interpreters_head, 632);
    assert_eq!((v3_13.interp.id, v3_13.interp.next), (7272, 7264));
    assert_eq!(
        (v3_13.interp.threads_head, v3_13.interp.collecting),
        (7344, 7400 + 200)
    );
    assert_eq!(v3_13.thread.current, CurrentFrame::Direct(72));
    assert_eq!(
        (v3_13.thread.thread_id, v3_13.thread.native_thread_id),
        (152, 160)
    );
    assert_eq!(
        (v3_13.thread.datastack_chunk, v3_13.thread.holds_gil),
        (232, None)
    );
    assert_eq!((v3_13.frame.localsplus, v3_13.frame.owner), (72, 70));
    assert_eq!((v3_13.frame.code_tag, v3_13.frame.owner_max), (0, 3));
    assert_eq!(
        (v3_13.code.bytecode, v3_13.interp.code_generation),
        (200, None)
    );

    assert_eq!(v3_14.runtime.interpreters_head, 808);
    assert_eq!(
        (v3_14.interp.threads_head, v3_14.interp.collecting),
        (7344, 7408 + 192)
    );
    assert_eq!(v3_14.interp.code_generation, Some(7992));
    assert_eq!(v3_14.thread.holds_gil, Some(36));
    assert_eq!((v3_14.frame.localsplus, v3_14.frame.owner), (80, 74));
    assert_eq!((v3_14.frame.code_tag, v3_14.frame.owner_max), (3, 4));
    assert_eq!((v3_14.code.bytecode, v3_14.interp.gc_frame), (208, None));

    assert_eq!(
        v3_15.thread.current,
        CurrentFrame::Based {
            current_frame: 72,
            base_frame: 80
        }
    );
    assert_eq!(
        (v3_15.thread.thread_id, v3_15.thread.native_thread_id),
        (176, 184)
    );
    assert_eq!(
        (v3_15.thread.datastack_chunk, v3_15.thread.holds_gil),
        (256, Some(36))
    );
    assert_eq!(
        (v3_15.interp.gc_frame, v3_15.frame.owner_max),
        (Some(7400 + 120), 3)
    );
    assert_eq!(
        (v3_15.interp.collecting, v3_15.interp.code_generation),
        (7400 + 112, Some(7944))
    );
}

#[test]
fn the_kernel_half_is_told_the_same() {
    let runtime = Addr(0x7f00_0000_0000);
    let config = v3_11(Version(0x030b_07f0)).kernel_config(runtime);
    assert_eq!((config.tstate_words, config.frame_words), (40, 9));
    assert_eq!(
        (
            config.has_cframe,
            config.current_frame,
            config.cframe_current,
            config.root_cframe
        ),
        (1, 56, 8, 336)
    );
    assert_eq!(
        (config.is_entry, config.entry_owner, config.bottom),
        (68, 255, BOTTOM_NULL)
    );
    assert_eq!(
        (
            config.identity,
            config.identity_words,
            config.identity_objects
        ),
        (72, 9, [128, 112, 136])
    );
    assert_eq!(
        (config.gil_pointer, config.gil_holder),
        (0, runtime.0 + 0x170)
    );

    let config = v3_12(Version(0x030c_01f0)).kernel_config(runtime);
    assert_eq!(
        (config.tstate_words, config.is_entry, config.entry_owner),
        (32, 0, 3)
    );
    assert_eq!(
        (
            config.identity,
            config.identity_words,
            config.identity_objects
        ),
        (88, 1, [0; 3])
    );
    assert_eq!((config.gil_pointer, config.gil_holder), (384, 8));
    assert_eq!((config.has_gil_flag, config.bottom), (0, BOTTOM_ENTRY_NULL));

    let [_, _, v3_15] = published();
    let (layout, _) = parse(&v3_15).expect("a real build's table");
    let config = layout.kernel_config(runtime);
    assert_eq!((config.tstate_words, config.frame_words), (35, 10));
    assert_eq!((config.base_frame, config.bottom), (80, BOTTOM_BASE_FRAME));
    assert_eq!((config.has_gil_flag, config.holds_gil), (1, 36));
    assert_eq!((config.gc_frame, config.code_tag), (7400 + 120, 3));
}

#[test]
fn other_builds_are_refused_or_marked() {
    let with = |version: u32| parse(&bytes(version, &V3_15)).map(|(_, trust)| trust);
    assert_eq!(with(0x0310_00f0), Ok(Trust::Untested));
    assert_eq!(with(0x030f_00c1), Ok(Trust::Untested));
    let beta = Version(0x030f_00b2);
    assert_eq!(with(beta.0), Err(LayoutError::PreRelease(beta)));
    let old = Version(0x030c_00f0);
    assert_eq!(with(old.0), Err(LayoutError::Unsupported(old)));
    // 3.14's order is not 3.15's.
    assert!(with(0x030e_00f0).is_err());

    let mut free_threaded = V3_14;
    free_threaded[0] = 1;
    let version = Version(0x030e_0af0);
    let refused = parse(&bytes(version.0, &free_threaded));
    assert_eq!(refused, Err(LayoutError::FreeThreaded(version)));

    let [_, whole, _] = published();
    let cut = LayoutError::Short {
        version,
        needed: 760,
        got: 759,
    };
    assert_eq!(parse(&whole[..759]), Err(cut));
    assert!(parse(&whole[..760]).is_ok());
    assert_eq!(parse(&whole[8..]), Err(LayoutError::NoCookie));
}

#[test]
fn errors_name_the_field_and_the_numbers() {
    let mut words = V3_13;
    words[21] = 400; // thread_state.current_frame, beyond the 312 bytes of a PyThreadState
    words[22] = 153; // thread_state.thread_id
    let error = parse(&bytes(0x030d_12f0, &words)).expect_err("both are wrong");
    let text = error.to_string();
    assert_eq!(
        text,
        "PyThreadState.thread_id: offset 153 is not a multiple of 8"
    );
    words[22] = 152;
    let error = parse(&bytes(0x030d_12f0, &words)).expect_err("one is wrong");
    let text = error.to_string();
    assert_eq!(
        text,
        "PyThreadState.current_frame: offset 400 with 8 bytes exceeds the limit of 312"
    );
}
