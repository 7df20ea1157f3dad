//! Any bytes as a record of the ring: every range that it claims lies within it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind_user::sample::{Record, Snapshot};

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = Record::parse(bytes) else {
        return;
    };
    let mut snapshot = Snapshot::default();
    if snapshot.index(&record).is_err() {
        return;
    }
    let captured = snapshot.memory(&record);
    for (addr, range) in snapshot.ranges() {
        let inside = captured
            .get(addr, range.len())
            .expect("a range of the record");
        assert_eq!(inside.len(), range.len());
    }
});
