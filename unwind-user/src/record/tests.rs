use std::cell::RefCell;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use unwind_ebpf::abi::{RecordHeader, WHOLE};

use super::scrub::{ReadScrubber, Scrubber};
use super::*;
use crate::format::{self, Format};
use crate::layout::Layout;
use crate::memory::{Addr, Fault, Memory};
use crate::profile::Profile;
use crate::python::frame::{Chain, Parsed, RawFrame, function_of, walk};
use crate::python::identity::read_identity;
use crate::sample::{Record, Snapshot};

/// Frames of a recording: kind and payload. The first follows the head.
type Frames = Vec<(u8, Vec<u8>)>;

fn frames(mut bytes: &[u8]) -> Frames {
    bytes = &bytes[16..];
    let mut frames = Vec::new();
    let mut payload = Vec::new();
    while let frame::Frame::Whole(kind) = frame::read(&mut bytes, &mut payload).expect("bytes") {
        frames.push((kind, payload.clone()));
    }
    frames
}

/// A recording of these frames, sums and all.
fn recording(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Recorder::new(Vec::new(), Start::default(), Keep::All)
        .finish(None)
        .expect("memory takes it");
    bytes.truncate(16);
    for (kind, payload) in frames {
        frame::write(&mut bytes, *kind, payload).expect("memory takes it");
    }
    bytes
}

fn encoded(event: &Event<'_>) -> (u8, Vec<u8>) {
    let mut payload = Vec::new();
    let kind = event.encode(&mut payload);
    (kind, payload)
}

/// A recording of three samples, with all that these need.
static SMALL: LazyLock<Frames> = LazyLock::new(|| {
    let all = frames(&fixtures::bytes("3.14/calls"));
    let is = |kind: u8, event: &Event<'_>| encoded(event).0 == kind;
    let third = all
        .iter()
        .enumerate()
        .filter(|(_, (kind, _))| is(*kind, &Event::Record(&[])));
    let third = third.map(|(at, _)| at).nth(2).expect("three samples");
    let mut small = all[..=third].to_vec();
    small.extend(
        all[third..]
            .iter()
            .filter(|(kind, _)| is(*kind, &Event::Batch(0)))
            .take(1)
            .cloned(),
    );
    small.extend(all.last().cloned());
    small
});

fn folded(profile: &Profile) -> String {
    let mut text = Vec::new();
    format::write(
        Format::Folded,
        profile,
        &format::Options::default(),
        &mut text,
    )
    .expect("memory");
    String::from_utf8(text).expect("text")
}

/// Replays, and copies, without believing anything.
fn try_all(bytes: &[u8]) -> Option<Replayed> {
    let mut copy = Vec::new();
    let copied = copy_scrubbed(bytes, &mut copy);
    let replayed = replay(bytes);
    assert_eq!(copied.is_ok(), replayed.is_ok());
    replayed.ok()
}

#[test]
fn a_small_recording_is_whole() {
    let replayed = try_all(&recording(&SMALL)).expect("a recording");
    assert_eq!(replayed.damage, None);
    assert_eq!(replayed.profile.total(), 3);
}

#[test]
fn cut_anywhere_the_whole_part_is_read() {
    let whole = recording(&SMALL);
    // Where frames end, and the samples in batches that ended by then.
    let mut ends = vec![(16, 0)];
    let mut samples = 0;
    for (kind, payload) in SMALL.iter() {
        let &(end, mut proved) = ends.last().expect("never empty");
        match Event::decode(*kind, payload) {
            Some(Event::Record(_)) => samples += 1,
            Some(Event::Batch(_)) => proved = samples,
            _ => {}
        }
        ends.push((end + frame::size(payload.len()), proved));
    }
    for len in 0..whole.len() {
        match replay(&whole[..len]) {
            Err(RecordingError::NotOurs) => assert!(len < 16),
            Err(RecordingError::Nothing) => assert!((16..ends[1].0).contains(&(len as u64))),
            Err(error) => panic!("{len}: {error}"),
            Ok(replayed) => {
                let last = ends.iter().rfind(|(end, _)| *end <= len as u64);
                let &(at, proved) = last.expect("the head is whole");
                assert_eq!(replayed.damage, Some(Damage::Cut(at)), "{len}");
                assert_eq!(replayed.profile.total(), proved, "{len}");
            }
        }
    }
}

#[test]
fn other_files_and_versions_are_refused_in_words() {
    let whole = recording(&SMALL);
    let told = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        replay(&bytes[..]).expect_err("refused").to_string()
    };
    assert!(told(0, b'U').contains("not a recording"));
    assert!(told(8, 9).contains("format 9"));
    assert!(told(10, 9).contains("layout 9"));
    assert!(told(13, !whole[13]).contains("nothing"));
    let told = |bytes: &[u8]| replay(bytes).expect_err("refused").to_string();
    assert!(told(b"").contains("not a recording"));
    assert!(told(b"<?xml version=\"1.0\"?>").contains("not a recording"));
}

#[test]
fn a_layout_that_cannot_be_relied_upon_is_not_used() {
    let mut frames = SMALL.clone();
    fn decoded((kind, payload): &(u8, Vec<u8>)) -> Option<Event<'_>> {
        Event::decode(*kind, payload)
    }
    let at = frames
        .iter()
        .position(|f| matches!(decoded(f), Some(Event::Opened(_))));
    let at = at.expect("an opened process");
    let Some(Event::Opened(mut opened)) = decoded(&frames[at]) else {
        unreachable!()
    };
    opened.layout.frame.localsplus = 1 << 40;
    frames[at] = encoded(&Event::Opened(opened));
    let replayed = replay(&recording(&frames)[..]).expect("a recording");
    assert!(matches!(replayed.damage, Some(Damage::Malformed(_))));
    assert_eq!(replayed.profile.total(), 0);
}

#[test]
fn what_one_batch_may_hold_is_bounded() {
    let pid = match Event::decode(SMALL[1].0, &SMALL[1].1) {
        Some(Event::Opened(opened)) => opened.pid,
        other => panic!("{other:?}"),
    };
    let mut frames = SMALL[..2].to_vec();
    let read = encoded(&Event::Read {
        pid,
        addr: Addr(8),
        result: Ok(&[7; 1 << 20]),
    });
    frames.extend(std::iter::repeat_n(read, READ_BYTES_MAX >> 20));
    let replayed = replay(&recording(&frames)[..]).expect("a recording");
    assert!(
        matches!(replayed.damage, Some(Damage::Malformed(_))),
        "{:?}",
        replayed.damage
    );

    let mut sample = SMALL
        .iter()
        .find(|(kind, _)| encoded(&Event::Record(&[])).0 == *kind)
        .cloned();
    let sample = sample.as_mut().expect("a sample");
    sample.1[80..84].copy_from_slice(&(1_u32 << 21).to_le_bytes());
    let frames: Frames = SMALL[..2].iter().chain([&*sample; 3]).cloned().collect();
    let replayed = replay(&recording(&frames)[..]).expect("a recording");
    assert!(
        matches!(replayed.damage, Some(Damage::Malformed(_))),
        "{:?}",
        replayed.damage
    );
}

#[test]
fn an_output_that_fails_is_told_at_the_end() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for room in [0, 16, 20, 200] {
        let recorder = Recorder::new(Full(room), Start::default(), Keep::All);
        (0..50).for_each(|pid| recorder.event(&Event::Closed(pid)));
        assert!(recorder.is_broken());
        let error = recorder.finish(None).err().expect("no room");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{room}");
    }
    let bytes = recording(&SMALL);
    assert!(matches!(
        copy_scrubbed(&bytes[..], Full(99)),
        Err(RecordingError::Io(_))
    ));
}

#[test]
fn every_event_is_read_as_it_was_written() {
    let (layout, _) = fixtures::records("3.11/calls");
    let fault = Fault {
        addr: Addr(9),
        len: 77,
    };
    let described = Described {
        pid: 1,
        image: 2,
        command: "python3 é\n".to_owned(),
        python: Some("3.11.7".to_owned()),
        threads: vec![(3, "main".to_owned())],
    };
    let end = End {
        duration_ns: u64::MAX,
        outcomes: vec![("ok".to_owned(), 4)],
        empty_reason: Some("none".to_owned()),
    };
    let events = [
        Event::Start(Start {
            mode: crate::profile::Mode::Wall,
            period_ns: 1,
            kernel: "6.1".to_owned(),
            ..Start::default()
        }),
        Event::Opened(Box::new(Opened {
            pid: 7,
            image: 1,
            layout,
        })),
        Event::Described(described),
        Event::Closed(u32::MAX),
        Event::Record(b"record"),
        Event::Read {
            pid: 1,
            addr: Addr(u64::MAX),
            result: Ok(b"bytes"),
        },
        Event::Read {
            pid: 1,
            addr: Addr(9),
            result: Err(fault),
        },
        Event::Batch(5),
        Event::End(end),
    ];
    for event in &events {
        let (kind, payload) = encoded(event);
        assert_eq!(Event::decode(kind, &payload).as_ref(), Some(event));
    }
}

/// Memory whose reads are scrubbed as late reads are.
struct ScrubbedReads<'a, M>(&'a M, RefCell<ReadScrubber>);

impl<M: Memory> Memory for ScrubbedReads<'_, M> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        self.0.read(addr, buf)?;
        let kept = self.1.borrow_mut().read(addr, buf).to_vec();
        buf.copy_from_slice(&kept);
        Ok(())
    }
}

/// Whether a scrubbed record gives what the whole one does, with late reads scrubbed too; and
/// stays the same when it is scrubbed again.
fn scrubbed_is_same(bytes: &[u8], layout: &Layout) -> bool {
    let mut scrubber = Scrubber::default();
    let Some(scrubbed) = scrubber.record(bytes, layout).map(<[u8]>::to_vec) else {
        return true;
    };
    let is_same = walked(bytes, layout) == walked(&scrubbed, layout);
    is_same && scrubber.record(&scrubbed, layout) == Some(&scrubbed)
}

/// All that the pipeline takes from a record: frames, and the identities and functions of their
/// code objects.
fn walked(bytes: &[u8], layout: &Layout) -> impl PartialEq + use<> {
    let record = Record::parse(bytes).expect("a record");
    let mut snapshot = Snapshot::default();
    snapshot.index(&record).expect("a good record");
    let captured = snapshot.memory(&record);
    let mut raw = Vec::new();
    let chain = Chain::of(&record.header);
    let ended = if record.header.flags & WHOLE != 0 {
        let frames = Parsed {
            layout: &layout.frame,
            memory: &captured,
        };
        walk(layout, &frames, chain, &mut raw)
    } else {
        walk(layout, &snapshot.heads(), chain, &mut raw)
    };
    let memory = ScrubbedReads(&captured, RefCell::new(ReadScrubber::new(layout)));
    let identity = |frame: &RawFrame| read_identity(&memory, layout, frame.code);
    let identities: Vec<_> = raw.iter().map(identity).collect();
    let is_whole = record.header.flags & WHOLE != 0;
    let codes = raw
        .iter()
        .filter(|frame| is_whole && frame.marker().is_none());
    let function = |frame: &RawFrame| function_of(&layout.frame, &captured, chain, frame.code);
    let functions: Vec<_> = codes.map(function).collect();
    (ended, raw, identities, functions)
}

/// What is blank in a scrubbed record does not matter: filled, and scrubbed again, it is the same.
#[test]
fn scrubbing_takes_what_the_layout_does_not_name() {
    for fixture in fixtures::ALL
        .into_iter()
        .filter(|fixture| !fixture.ends_with("deep"))
    {
        let (layout, records) = fixtures::records(fixture);
        let (record, mut scrubber) = (&records[0], Scrubber::default());
        let mut is_dropped = |changed: &[u8]| scrubber.record(changed, &layout) == Some(record);
        let mut filled = record.clone();
        let mut dropped = 0;
        for at in size_of::<RecordHeader>()..record.len() {
            let value = std::mem::replace(&mut filled[at], 0xa5);
            if value == 0 && is_dropped(&filled) {
                dropped += 1;
            } else {
                filled[at] = value;
            }
        }
        assert!(
            4 * dropped > record.len(),
            "{fixture}: {dropped} of {} bytes",
            record.len()
        );
        assert!(walked(&filled, &layout) == walked(record, &layout));
    }
}

proptest! {
    #[test]
    fn a_flipped_bit_is_found(at in any::<Index>(), bit in 0..8) {
        let mut bytes = recording(&SMALL);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        if let Some(replayed) = try_all(&bytes) {
            prop_assert!(replayed.damage.is_some());
            prop_assert!(replayed.profile.total() <= 3);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in vec(any::<u8>(), 0..400), is_headed: bool) {
        let mut all = if is_headed { recording(&SMALL[..2]) } else { Vec::new() };
        all.extend(bytes);
        try_all(&all);
    }

    /// Someone who computes the sums can write anything.
    #[test]
    fn forged_events_do_no_harm(
        changes in vec((any::<Index>(), any::<Index>(), any::<u8>(), 0..6), 1..8),
        fixture in 0..fixtures::ALL.len(),
    ) {
        let mut frames = frames(&fixtures::bytes(fixtures::ALL[fixture]));
        frames.truncate(400);
        for (at, byte, value, how) in changes {
            let at = at.index(frames.len());
            let (kind, payload) = &mut frames[at];
            match how {
                0 => *kind = value % 12,
                1 => payload.truncate(byte.index(payload.len() + 1)),
                2 => frames[at..].rotate_left(1),
                3 => drop(frames.remove(at)),
                _ if payload.is_empty() => {}
                _ => {
                    let at = byte.index(payload.len());
                    payload[at] = value;
                }
            }
            if frames.is_empty() {
                break;
            }
        }
        if let Some(replayed) = try_all(&recording(&frames)) {
            folded(&replayed.profile);
        }
    }

    #[test]
    fn scrubbing_changes_nothing(
        fixture in 0..fixtures::ALL.len(),
        nth in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..40),
    ) {
        let (layout, records) = fixtures::records(fixtures::ALL[fixture]);
        let mut bytes = records[nth.index(records.len())].clone();
        // Not in the head, which tells what the record is.
        let head = size_of::<RecordHeader>();
        for (at, value) in changes {
            let at = head + at.index(bytes.len() - head);
            bytes[at] = value;
        }
        prop_assert!(scrubbed_is_same(&bytes, &layout));
    }
}
