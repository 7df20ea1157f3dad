//! Tables of random bytes, with flipped bits and with wild numbers.

use proptest::prelude::*;
use unwind_ebpf::abi::{FRAME_WORDS_MAX, IDENTITY_WORDS_MAX, TSTATE_WORDS_MAX};

use super::published;
use crate::layout::debug_offsets::{BYTES_MAX, COOKIE, parse};
use crate::layout::{CODE_BYTES_MAX, HEAD_BYTES_MAX, Layout, STATE_BYTES_MAX};
use crate::memory::Addr;

/// What the kernel half and the readers rely on, asked in other words than `validate` does.
fn assert_bounded(layout: &Layout) {
    let config = layout.kernel_config(Addr(0x1000));
    let tstate = config.tstate_words * 8;
    assert!(config.tstate_words <= TSTATE_WORDS_MAX as u64);
    for at in [
        config.interp,
        config.thread_id,
        config.current_frame,
        config.datastack_chunk + 16,
    ] {
        assert!(at.is_multiple_of(8) && at + 8 <= tstate);
    }
    assert!(config.holds_gil < tstate && config.base_frame + 8 <= tstate);
    let frame = config.frame_words * 8;
    assert!(config.frame_words <= FRAME_WORDS_MAX as u64);
    for at in [config.frame_code, config.frame_previous, config.frame_instr] {
        assert!(at.is_multiple_of(8) && at + 8 <= frame);
    }
    assert!(config.frame_owner < frame && config.is_entry < frame);
    assert!(
        config.identity_words <= IDENTITY_WORDS_MAX as u64 && config.identity.is_multiple_of(8)
    );
    let code = &layout.code;
    for at in [
        code.filename,
        code.name,
        code.qualname,
        code.linetable,
        code.bytecode,
    ] {
        assert!(at <= CODE_BYTES_MAX);
    }
    let interp = &layout.interp;
    let offsets = [
        interp.next,
        interp.id,
        interp.threads_head,
        interp.collecting,
    ];
    let optional = [
        interp.gil,
        interp.gc_frame,
        interp.code_generation,
        layout.runtime.gil_holder,
    ];
    for at in offsets.into_iter().chain(optional.into_iter().flatten()) {
        assert!(at < STATE_BYTES_MAX);
    }
    assert!(layout.runtime.interpreters_head < STATE_BYTES_MAX);
    let unicode = &layout.unicode;
    assert!(
        unicode
            .ascii_data
            .max(unicode.compact_data)
            .max(layout.bytes.data)
            <= HEAD_BYTES_MAX
    );
}

proptest! {
    #[test]
    fn random_bytes_never_pass_unbounded(tail in proptest::collection::vec(any::<u8>(), 0..1000)) {
        if let Ok((layout, _)) = parse(&tail) {
            assert_bounded(&layout);
        }
        for version in [0x030d_00f0_u64, 0x030e_00f0, 0x030f_00f0, 0x0310_00f0] {
            let mut bytes = COOKIE.to_vec();
            bytes.extend(version.to_le_bytes());
            bytes.extend([0; 8]);
            bytes.extend(&tail);
            if let Ok((layout, _)) = parse(&bytes) {
                assert_bounded(&layout);
            }
        }
    }

    #[test]
    fn damaged_tables_never_pass_unbounded(
        which in 0..3_usize,
        flips in proptest::collection::vec((16..BYTES_MAX, 0..8_u32), 1..4),
    ) {
        let mut bytes = published()[which].clone();
        for (at, bit) in flips {
            bytes[at] ^= 1 << bit;
        }
        if let Ok((layout, _)) = parse(&bytes) {
            assert_bounded(&layout);
        }
    }

    #[test]
    fn words_of_any_size_never_pass_unbounded(
        which in 0..3_usize,
        changes in proptest::collection::vec((2..BYTES_MAX / 8, any::<u64>(), 0..64_u32), 1..4),
    ) {
        let mut bytes = published()[which].clone();
        for (at, word, shift) in changes {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&(word >> shift).to_le_bytes());
        }
        if let Ok((layout, _)) = parse(&bytes) {
            assert_bounded(&layout);
        }
    }
}
