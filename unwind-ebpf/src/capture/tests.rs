//! States of 3.11 that an interrupt meets too seldom to wait for, built in memory.

use std::boxed::Box;
use std::collections::HashMap;

use super::{Scratch, Step, Target};
use crate::abi::{BOTTOM_NULL, ENTERING, OK, ProcConfig, TRUNCATED, TstatePath};

/// Words of a target by address.
#[derive(Default)]
struct Words(HashMap<u64, u64>);

impl Target for Words {
    fn copy<const L: usize, const N: usize>(
        &self,
        addr: u64,
        dst: &mut [u64; N],
        pos: u64,
        words: u64,
    ) -> bool {
        let dst = &mut dst[pos as usize..][..words as usize];
        dst.iter_mut()
            .enumerate()
            .all(|(i, word)| self.word(addr + 8 * i as u64).map(|w| *word = w).is_some())
    }

    fn word(&self, addr: u64) -> Option<u64> {
        self.0.get(&addr).copied()
    }

    fn vouched(&self, _slot: u32) -> u64 {
        0
    }
}

const FS: u64 = 0x7000_0000;
const TSTATE: u64 = 0x1_0000;
const ROOT_CFRAME: u64 = TSTATE + 336;
const CFRAME: u64 = 0x7fff_0000;
const LEAF: u64 = 0x2_0000;
const GENERATOR: u64 = 0x3_0050;
const OWNER_GENERATOR: u64 = 1;

/// The layout of 3.11, as `unwind_user::layout` gives it.
fn config() -> ProcConfig {
    ProcConfig {
        tstate_words: 40,
        interp: 16,
        thread_id: 152,
        current_frame: 56,
        datastack_chunk: 296,
        has_cframe: 1,
        cframe_current: 8,
        root_cframe: 336,
        is_entry: 68,
        generator_state: 5,
        frame_words: 9,
        frame_code: 32,
        frame_previous: 48,
        frame_instr: 56,
        frame_owner: 69,
        entry_owner: 255,
        owner_max: 2,
        bottom: BOTTOM_NULL,
        paths: [
            TstatePath {
                steps: 1,
                offsets: [-8, 0, 0],
            },
            TstatePath::default(),
            TstatePath::default(),
        ],
        ..ProcConfig::default()
    }
}

fn frame(words: &mut Words, addr: u64, previous: u64, owner: u64, is_entry: u64) {
    for i in 0..9 {
        words.0.insert(addr + 8 * i, 0);
    }
    words.0.insert(addr + 48, previous);
    words.0.insert(addr + 64, is_entry << 32 | owner << 40);
}

/// A thread whose leaf was called by a generator that is in this state.
fn thread(generator_state: i8) -> Words {
    let mut words = Words::default();
    for i in 0..40 {
        words.0.insert(TSTATE + 8 * i, 0);
    }
    words.0.insert(FS - 8, TSTATE);
    words.0.insert(TSTATE + 152, FS);
    words.0.insert(TSTATE + 56, CFRAME);
    words.0.insert(CFRAME + 8, LEAF);
    words.0.insert(CFRAME + 16, ROOT_CFRAME);
    words.0.insert(ROOT_CFRAME + 8, 0);
    words.0.insert(ROOT_CFRAME + 16, 0);
    frame(&mut words, LEAF, GENERATOR, 0, 0);
    frame(&mut words, GENERATOR, 0, OWNER_GENERATOR, 1);
    let state = u64::from(generator_state.cast_unsigned()) << 24;
    words.0.insert(GENERATOR - 8, state);
    words
}

fn outcome(words: &Words) -> u32 {
    outcome_with(config(), words)
}

fn outcome_with(config: ProcConfig, words: &Words) -> u32 {
    let mut scratch: Box<Scratch> = Box::default();
    scratch.config = config;
    scratch.begin(words, FS).expect("the thread state is found");
    while scratch.step(words) == Step::Next {}
    scratch.finish(words)
}

#[test]
fn a_suspended_generator_is_no_bottom() {
    assert_eq!(outcome(&thread(-1)), ENTERING);
}

#[test]
fn a_running_generator_can_be_the_bottom() {
    assert_eq!(outcome(&thread(0)), OK);
}

/// A chain that goes round, from a leaf of so many words to a frame so many words below it, while
/// code objects tell these numbers of words.
fn cut(leaf_words: u64, gap_words: u64, leaf_tells: Option<u64>, other_tells: u64) -> u32 {
    const CODE: u64 = 0x5_0000;
    const OTHER_CODE: u64 = 0x6_0000;
    let other = LEAF - gap_words * 8;
    let mut words = thread(0);
    frame(&mut words, LEAF, other, 0, 0);
    frame(&mut words, other, LEAF, 0, 0);
    words.0.insert(LEAF + 32, CODE);
    words.0.insert(other + 32, OTHER_CODE);
    words.0.insert(OTHER_CODE + 40, other_tells);
    if let Some(told) = leaf_tells {
        words.0.insert(CODE + 40, told);
    }
    for (at, value) in [
        (296, LEAF - 0x400),
        (304, LEAF + leaf_words * 8),
        (312, LEAF + 0x1000),
    ] {
        words.0.insert(TSTATE + at, value);
    }
    let config = ProcConfig {
        frame_size: 40,
        ..config()
    };
    outcome_with(config, &words)
}

/// A cframe that is not written yet holds what an older one left: a frame that was just removed,
/// whose memory is others' by now, so that its chain goes round.
#[test]
fn what_was_just_removed_proves_no_cut_chain() {
    assert_eq!(cut(0, 12, None, 12), ENTERING);
    assert_eq!(cut(0, 12, Some(0), 12), ENTERING);
    assert_eq!(cut(8, 12, Some(8), 12), ENTERING);
    assert_eq!(cut(12, 12, Some(12), 12), TRUNCATED);
}

/// Or the frame that was just pushed at the same place, not linked yet to its caller.
#[test]
fn what_was_just_pushed_proves_no_cut_chain() {
    assert_eq!(cut(12, 20, Some(12), 12), ENTERING);
    assert_eq!(cut(12, 20, Some(12), 20), TRUNCATED);
}

/// What a half-written cframe has for its `previous` can be the thread state, whose words then
/// pass for a cframe's.
#[test]
fn the_thread_state_is_no_root_cframe() {
    let mut words = thread(0);
    words.0.insert(CFRAME + 16, TSTATE);
    frame(&mut words, LEAF, 0, 0, 1);
    assert_eq!(outcome(&words), ENTERING);
}
