use proptest::prelude::*;

use crate::python::linetable::{LineTable, Location, entries, locate};

fn at(line: u32, end_line: u32, column: u32, end_column: u32) -> Location {
    Location {
        line: Some(line),
        end_line: Some(end_line),
        column: Some(column),
        end_column: Some(end_column),
    }
}

/// One entry of each form, first line 10.
#[rustfmt::skip]
const EVERY_FORM: [u8; 17] = [
    0x80 | 1 << 3 | 1, 0x53, // short: columns 13 to 16, 2 units
    0x80 | 11 << 3, 4, 9, // next line, columns 4 to 9, 1 unit
    0x80 | 13 << 3 | 7, 0x07, // three lines back, no columns, 8 units
    0x80 | 15 << 3 | 2, // nowhere, 3 units
    0x80 | 14 << 3, 0x48, 0x03, 2, 0x01, 0x41, 0x02, // 100 lines on, to 2 further, columns 0, 128
    0x80, 0x21, // short: columns 2 to 3
];

#[test]
fn every_form_is_decoded() {
    let decoded: Vec<_> = entries(&EVERY_FORM, 10)
        .map(|e| (e.start, e.units, e.location))
        .collect();
    let no_columns = Location {
        line: Some(8),
        end_line: Some(8),
        ..Location::default()
    };
    let expected = [
        (0, 2, at(10, 10, 13, 16)),
        (2, 1, at(11, 11, 4, 9)),
        (3, 8, no_columns),
        (11, 3, Location::default()),
        (14, 1, at(108, 110, 0, 128)),
        (15, 1, at(108, 108, 2, 3)),
    ];
    assert_eq!(decoded, expected);
    assert_eq!(locate(&EVERY_FORM, 10, 10), no_columns);
    assert_eq!(locate(&EVERY_FORM, 10, 16), Location::default());
}

#[test]
fn a_malformed_entry_ends_the_table() {
    assert_eq!(entries(&[0x80, 0x10, 0x00, 0x80, 0x10], 1).count(), 1);
    assert_eq!(entries(&[0x80, 0x10, 0x80], 1).count(), 1);
    assert_eq!(entries(&[0x80 | 13 << 3, 0xff, 0xff], 1).count(), 0);
    assert_eq!(entries(&[], 1).count(), 0);
    // Before the first line there is none.
    assert_eq!(locate(&[0x80 | 13 << 3, 0x05], 1, 0), Location::default());
}

#[test]
fn tables_of_any_length_are_looked_up() {
    // 60,000 statements, each a line of its own and two entries.
    let mut table = vec![0x80 | 13 << 3, 0x02];
    for _ in 0..60_000 {
        table.extend([0x80 | 11 << 3 | 1, 0, 5, 0x80, 0x57]);
    }
    let lines = LineTable::new(table, 0);
    for statement in [0_u32, 1, 31, 32, 33, 4095, 29_999, 59_999] {
        let unit = 1 + 3 * statement;
        assert_eq!(lines.locate(unit), at(statement + 2, statement + 2, 0, 5));
        assert_eq!(
            lines.locate(unit + 1),
            at(statement + 2, statement + 2, 0, 5)
        );
        assert_eq!(
            lines.locate(unit + 2),
            at(statement + 2, statement + 2, 5, 12)
        );
    }
    assert_eq!(lines.locate(180_001), Location::default());
    assert!(lines.heap_bytes() < 60_000 * 8);
}

/// Bytes in which entries are likely.
fn table() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), 0x80..=0xff_u8, 0..0x40_u8];
    proptest::collection::vec(byte, 0..300)
}

proptest! {
    #[test]
    fn any_bytes_decode_the_same_both_ways(table in table(), first in any::<u32>()) {
        let mut unit = 0;
        let lines = LineTable::new(table.clone(), first);
        for entry in entries(&table, first) {
            prop_assert_eq!(entry.start, unit);
            prop_assert!((1..=8).contains(&entry.units));
            unit += entry.units;
            prop_assert_eq!(lines.locate(entry.start), entry.location);
            prop_assert_eq!(lines.locate(unit - 1), entry.location);
        }
        prop_assert_eq!(lines.locate(unit), Location::default());
        prop_assert_eq!(lines.locate(u32::MAX), Location::default());
    }

    #[test]
    fn looking_up_is_scanning(table in table(), units in proptest::collection::vec(0..600_u32, 20)) {
        let lines = LineTable::new(table.clone(), 7);
        for unit in units {
            prop_assert_eq!(lines.locate(unit), locate(&table, 7, unit));
        }
    }
}
