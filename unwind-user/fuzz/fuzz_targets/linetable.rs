//! Any bytes as a location table: all entries, and look-ups that agree with them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind_user::python::linetable::{LineTable, entries};

fuzz_target!(|bytes: &[u8]| {
    let lines = LineTable::new(bytes.to_vec(), 1);
    let mut last = 0;
    for entry in entries(bytes, 1) {
        assert!(entry.start >= last);
        last = entry.start;
        assert_eq!(lines.locate(entry.start), entry.location);
    }
    let _ = lines.locate(u32::MAX);
});
