use super::*;
use crate::layout::{Layout, Version, v3_12};
use crate::python::frame::{Chain, DEPTH_MAX, End, Parsed, RawFrame, walk};
use crate::record::fixtures;
use proptest::collection::vec;
use proptest::prelude::*;
use unwind_ebpf::abi::{SAMPLE, WHOLE, segment_tag};

fn layout() -> Layout {
    v3_12(Version(0x030c_01f0))
}

/// The bytes of a record: a head that fits, and this body.
fn record(header: RecordHeader, body: &[u64]) -> Vec<u8> {
    let header = RecordHeader {
        abi: ABI_VERSION,
        body_words: body.len() as u32,
        ..header
    };
    let mut bytes = Vec::new();
    write_record(&header, body, &mut bytes);
    bytes
}

/// Takes a record apart as the pipeline does, without believing anything; frames met.
fn take_apart(bytes: &[u8], layout: &Layout) -> Option<(Vec<RawFrame>, End)> {
    let record = Record::parse(bytes).ok()?;
    let mut snapshot = Snapshot::default();
    snapshot.index(&record).ok()?;
    let captured = snapshot.memory(&record);
    for (addr, range) in snapshot.ranges() {
        assert!(captured.has(addr));
        assert!(range.end <= record.body.len());
        let inside = captured
            .get(addr, range.len())
            .expect("a range of the record");
        assert_eq!(inside.len(), range.len());
        assert_eq!(captured.get(addr.add(1), usize::MAX), None);
    }
    let mut raw = Vec::new();
    let chain = Chain::of(&record.header);
    let (end, met) = if record.header.flags & WHOLE != 0 {
        let frames = Parsed {
            layout: &layout.frame,
            memory: &captured,
        };
        walk(layout, &frames, chain, &mut raw)
    } else {
        walk(layout, &snapshot.heads(), chain, &mut raw)
    };
    let functions = raw.iter().filter(|frame| frame.marker().is_none());
    assert!(functions.count() <= met as usize && met <= DEPTH_MAX);
    Some((raw, end))
}

/// Words that look like what a body holds: small numbers, addresses near each other, tags.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0_u64..64).prop_map(|n| 0x1000 + 8 * n),
        (0_u64..4, 0_u64..24, 0_u64..5).prop_map(|(kind, n, owner)| segment_tag(kind, n, owner)),
        (0_u64..4, any::<u32>()).prop_map(|(kind, n)| segment_tag(kind, n.into(), 0)),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_taken_apart_or_refused(bytes in vec(any::<u8>(), 0..600)) {
        take_apart(&bytes, &layout());
    }

    #[test]
    fn any_body_is_taken_apart_or_refused(
        body in vec(word(), 0..200),
        flags in 0_u32..16,
        frame in word(),
        base_frame in word(),
    ) {
        let header = RecordHeader { kind: SAMPLE, flags, frame, base_frame, ..Default::default() };
        take_apart(&record(header, &body), &layout());
    }

    #[test]
    fn a_cut_record_says_so(body in vec(any::<u64>(), 1..20), cut in 1_usize..150) {
        let whole = record(RecordHeader { kind: SAMPLE, ..Default::default() }, &body);
        let bytes = &whole[..whole.len().saturating_sub(cut)];
        prop_assert_eq!(Record::parse(bytes).err(), Some(RecordError::Cut(bytes.len())));
    }

    #[test]
    fn real_records_that_were_damaged(
        fixture in 0..fixtures::ALL.len(),
        nth in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let (layout, records) = fixtures::records(fixtures::ALL[fixture]);
        let mut bytes = records[nth.index(records.len())].clone();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        take_apart(&bytes, &layout);
    }
}

#[test]
fn a_segment_that_leaves_the_record_is_refused() {
    let header = RecordHeader {
        kind: SAMPLE,
        ..Default::default()
    };
    for (tag, words) in [
        (SEGMENT_RANGE, 2),
        (SEGMENT_RANGE, u64::from(u32::MAX)),
        (7, 1),
    ] {
        let bytes = record(header, &[0x1000, segment_tag(tag, words, 0), 1]);
        let parsed = Record::parse(&bytes).expect("a record");
        assert_eq!(
            Snapshot::default().index(&parsed),
            Err(RecordError::Segment(0))
        );
    }
}

#[test]
fn real_records_are_whole() {
    for fixture in fixtures::ALL {
        let (layout, records) = fixtures::records(fixture);
        for bytes in &records {
            let (raw, end) = take_apart(bytes, &layout).expect("a good record");
            assert_eq!(end, End::Complete, "{fixture}");
            assert!(!raw.is_empty());
        }
    }
}
