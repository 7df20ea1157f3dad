//! Recordings of real interpreters, for tests.

use std::path::Path;

use unwind_ebpf::abi::SAMPLE;

use super::{Event, Recording};
use crate::layout::Layout;
use crate::sample::Record;

/// All that differ in kind: every version, and both ways of carrying frames.
pub(crate) const ALL: [&str; 6] = [
    "3.11/calls",
    "3.12/calls",
    "3.13/names",
    "3.14/calls",
    "3.15/calls",
    "3.15/deep",
];

/// The bytes of one.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    let file = folder.join(format!("{name}.{}", super::EXTENSION));
    std::fs::read(file).expect("a fixture")
}

/// The layout in one, and its samples.
pub(crate) fn records(name: &str) -> (Layout, Vec<Vec<u8>>) {
    let bytes = bytes(name);
    let mut recording = Recording::open(&bytes[..]).expect("a recording");
    let (mut layout, mut records) = (None, Vec::new());
    while let Some(event) = recording.next_event().expect("bytes").expect("whole") {
        match event {
            Event::Opened(opened) => layout = Some(opened.layout),
            Event::Record(bytes) => {
                let record = Record::parse(bytes).expect("a record");
                records.extend((record.header.kind == SAMPLE).then(|| bytes.to_vec()));
            }
            _ => {}
        }
    }
    (layout.expect("an opened process"), records)
}
