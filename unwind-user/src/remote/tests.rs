//! Targets whose memory lies.

use std::cell::Cell;

use proptest::prelude::*;
use unwind_ebpf::abi::{FRAMES_MAX, OUTCOMES, WHOLE};

use super::capture::{Capture, Origin};
use crate::layout::{CurrentFrame, Layout, Version, v3_11, v3_12};
use crate::memory::{Addr, Fault, Memory};
use crate::python::exception::has_exception;
use crate::python::frame::{Chain, Parsed, walk};
use crate::python::tstate::threads;
use crate::sample::Snapshot;

/// Every address has a word, one of these: chains go round, and lead anywhere.
struct Lies<'a> {
    words: &'a [u64],
    reads: Cell<u64>,
}

impl Memory for Lies<'_> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        self.reads.set(self.reads.get() + 1);
        let len = buf.len();
        for (nth, to) in buf.chunks_mut(8).enumerate() {
            let at = addr.add(8 * nth as u64).0 >> 3;
            let index = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % self.words.len() as u64;
            let word = self.words.get(index as usize).ok_or(Fault { addr, len })?;
            to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
        }
        // Some of it is not there.
        if addr.0 % 67 == 3 {
            return Err(Fault { addr, len });
        }
        Ok(())
    }
}

fn layouts() -> [Layout; 3] {
    let mut based = v3_12(Version(0x030c_01f0));
    based.thread.current = CurrentFrame::Based {
        current_frame: 72,
        base_frame: 80,
    };
    [
        v3_11(Version(0x030b_07f0)),
        v3_12(Version(0x030c_01f0)),
        based,
    ]
}

/// Words that a target would choose: small numbers, near and far pointers, the end of everything.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..8_u64,
        (0..64_u64).prop_map(|n| 0x1000 + 8 * n),
        (0..64_u64).prop_map(|n| 0x7fff_0000_0000 + 16 * n),
        (0..16_u64).prop_map(|n| u64::MAX - n),
        (0..16_u64).prop_map(|n| (1 << 63) - 8 * n),
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_memory_is_survived(
        words in proptest::collection::vec(word(), 1..40),
        state in word(),
    ) {
        for layout in layouts() {
            let memory = Lies { words: &words, reads: Cell::default() };
            let mut capture = Capture::new(layout.kernel_config(Addr(0x5000)));
            let outcome = match capture.take(&memory, Origin::State(Addr(state))) {
                Ok(outcome) | Err(outcome) => outcome,
            };
            prop_assert!((outcome as usize) < OUTCOMES);
            // Each frame once or twice, with all that belongs to its code object.
            prop_assert!(memory.reads.get() < 32 * u64::from(FRAMES_MAX));
            if let Ok(record) = capture.record() {
                let mut snapshot = Snapshot::default();
                prop_assert!(snapshot.index(&record).is_ok());
                let captured = snapshot.memory(&record);
                let chain = Chain::of(&record.header);
                let mut raw = Vec::new();
                let (_, met) = if record.header.flags & WHOLE != 0 {
                    let frames = Parsed { layout: &layout.frame, memory: &captured };
                    walk(&layout, &frames, chain, &mut raw)
                } else {
                    walk(&layout, &snapshot.heads(), chain, &mut raw)
                };
                let functions = raw.iter().filter(|frame| frame.marker().is_none());
                prop_assert!(met <= FRAMES_MAX && functions.count() <= met as usize);
            }
            let _ = has_exception(&memory, &layout, Addr(state));
            prop_assert!(threads(&memory, &layout, Addr(state)).states.len() <= 8192);
        }
    }
}
