//! Every format against profiles with odd names, and against arbitrary ones.

mod empty;
mod large;
mod odd_names;
mod pprof;
mod speedscope;
mod svg;
mod totals;

use super::label::tests::text;
use super::{Format, Lines, Natives, Options, Recursion, write};
use crate::profile::{Location, Marker, ProcessInfo, ProcessKey, Profile, ThreadInfo, ThreadKey};
use proptest::prelude::*;
use std::path::Path;

const PERIOD_NS: u64 = 10_101_010;
const THREAD: ThreadKey = ThreadKey {
    pid: 7,
    image: 0,
    tid: 8,
};

/// A frame to be: name, file, line.
type Code<'a> = (&'a str, &'a str, Option<u32>);

fn profile() -> Profile {
    Profile {
        period_ns: PERIOD_NS,
        duration_ns: 2_500_000_000,
        ..Profile::default()
    }
}

/// Counts a stack, outermost first.
fn count(profile: &mut Profile, thread: ThreadKey, stack: &[Code<'_>], count: u64) {
    let tables = &mut profile.tables;
    let mut frames = Vec::new();
    for &(name, file, line) in stack {
        let function = tables.function(name, file, 1);
        frames.push(tables.frame(
            function,
            Location {
                line,
                ..Location::default()
            },
        ));
    }
    let stack = tables.stack(frames);
    profile.add(thread, stack, count);
}

fn bytes(format: Format, profile: &Profile, options: &Options) -> Vec<u8> {
    let mut out = Vec::new();
    write(format, profile, options, &mut out).unwrap();
    out
}

fn string(format: Format, profile: &Profile, options: &Options) -> String {
    String::from_utf8(bytes(format, profile, options)).unwrap()
}

prop_compose! {
    /// Some processes, threads and stacks with any names.
    fn any_profile()(
        stacks in proptest::collection::vec(
            (1..4_u32, 0..2_u32, 1..4_u32, stack(), 1..1000_u64), 0..12),
        names in proptest::collection::vec(text(), 4),
    ) -> Profile {
        let mut profile = profile();
        for (pid, image, tid, stack, n) in &stacks {
            let thread = ThreadKey { pid: *pid, image: *image, tid: *tid };
            let stack: Vec<_> = stack.iter().map(|(n, f, l)| (n.as_str(), f.as_str(), *l)).collect();
            count(&mut profile, thread, &stack, *n);
            let command = names[*pid as usize].clone();
            let process = ProcessInfo { command, python: names[0].clone() };
            profile.processes.insert(thread.process(), process);
            let name = Some(names[*tid as usize].clone());
            profile.threads.insert(thread, ThreadInfo { name, native_tid: None });
        }
        profile
    }
}

fn stack() -> impl Strategy<Value = Vec<(String, String, Option<u32>)>> {
    proptest::collection::vec((text(), text(), any::<Option<u32>>()), 0..5)
}

fn options() -> impl Strategy<Value = Options> {
    use super::{Lines, Roots};
    let roots = prop_oneof![Just(Roots::Merged), Just(Roots::Threads)];
    let lines = prop_oneof![Just(Lines::Line), Just(Lines::Function)];
    let recursion = prop_oneof![Just(Recursion::Unfolded), Just(Recursion::Folded)];
    let natives = prop_oneof![Just(Natives::Hidden), Just(Natives::Shown)];
    let all = (roots, lines, recursion, natives);
    all.prop_map(|(roots, lines, recursion, natives)| Options {
        roots,
        lines,
        recursion,
        natives,
    })
}

#[test]
fn the_extension_names_the_format() {
    let expected = [
        ("out.svg", Some(Format::Flamegraph)),
        ("a/out.folded", Some(Format::Folded)),
        ("out.TXT", Some(Format::Folded)),
        ("out.collapsed", Some(Format::Folded)),
        ("out.pb.gz", Some(Format::Pprof)),
        ("out.pprof", Some(Format::Pprof)),
        ("out.speedscope.json", Some(Format::Speedscope)),
        ("out.json", Some(Format::Speedscope)),
        ("out.gz", None),
        ("svg", None),
        ("", None),
    ];
    for (path, format) in expected {
        assert_eq!(Format::from_extension(Path::new(path)), format, "{path}");
    }
}

#[test]
fn roots_tell_processes_and_threads_apart() {
    use super::{Lines, Roots};
    let mut profile = profile();
    let code = [("f", "a.py", Some(3))];
    count(&mut profile, THREAD, &code, 1);
    count(&mut profile, ThreadKey { tid: 9, ..THREAD }, &code, 2);
    let name = Some("worker".to_owned());
    profile.threads.insert(
        THREAD,
        ThreadInfo {
            name,
            native_tid: None,
        },
    );
    let folded = |profile: &Profile, roots, lines| {
        string(
            Format::Folded,
            profile,
            &Options {
                roots,
                lines,
                ..Options::default()
            },
        )
    };
    assert_eq!(
        folded(&profile, Roots::Merged, Lines::Line),
        "f (a.py:3) 3\n"
    );
    assert_eq!(
        folded(&profile, Roots::Threads, Lines::Function),
        "thread (9);f (a.py) 2\nthread worker (8);f (a.py) 1\n"
    );

    count(&mut profile, ThreadKey { image: 1, ..THREAD }, &code, 4);
    for (image, command) in [(0, "old"), (1, "new")] {
        let info = ProcessInfo {
            command: command.to_owned(),
            python: String::new(),
        };
        profile.processes.insert(
            ProcessKey {
                pid: THREAD.pid,
                image,
            },
            info,
        );
    }
    assert_eq!(
        folded(&profile, Roots::Merged, Lines::Line),
        "process 7 new;f (a.py:3) 4\nprocess 7 old;f (a.py:3) 3\n"
    );
}

#[test]
fn markers_are_frames() {
    let mut profile = profile();
    let [truncated, gc] = [Marker::Truncated, Marker::Gc].map(|m| profile.tables.marker(m));
    let stack = profile.tables.stack([truncated, gc]);
    profile.add(THREAD, stack, 5);
    count(&mut profile, THREAD, &[], 6);
    let folded = string(Format::Folded, &profile, &Options::default());
    assert_eq!(folded, "[no Python frames] 6\n[truncated];<GC> 5\n");
}

#[test]
fn native_code_is_shown_where_it_is_asked_for() {
    let mut profile = profile();
    let function = profile.tables.function("f", "a.py", 1);
    let f = profile.tables.frame(function, Location::at_line(3));
    let native = profile.tables.marker(Marker::Native);
    let stacks = [(&[f, native, f][..], 5), (&[f, f], 6)];
    for (frames, samples) in stacks {
        let stack = profile.tables.stack(frames.iter().copied());
        profile.add(THREAD, stack, samples);
    }
    let shown = |natives| {
        let options = Options {
            natives,
            ..Options::default()
        };
        string(Format::Folded, &profile, &options)
    };
    assert_eq!(shown(Natives::Hidden), "f (a.py:3);f (a.py:3) 11\n");
    assert_eq!(
        shown(Natives::Shown),
        "f (a.py:3);<native>;f (a.py:3) 5\nf (a.py:3);f (a.py:3) 6\n"
    );
}

proptest! {
    /// The order in which stacks were met shows nowhere in what is sorted.
    #[test]
    fn equal_profiles_give_equal_files(profile in any_profile(), options in options()) {
        let mut other = Profile { samples: Default::default(), ..profile.clone() };
        other.tables = Default::default();
        for (thread, stack, n) in profile.sorted_samples().into_iter().rev() {
            let frames = profile.tables.frames_of(stack);
            let frames: Vec<_> = frames.iter().map(|&frame| {
                match profile.tables.frame_at(frame) {
                    crate::profile::Frame::Marker(marker) => other.tables.marker(marker),
                    crate::profile::Frame::Python { function, location } => {
                        let f = profile.tables.function_of(function);
                        let function = other.tables.function(f.name, f.file, f.first_line);
                        other.tables.frame(function, location)
                    }
                }
            }).collect();
            let stack = other.tables.stack(frames);
            other.add(thread, stack, n);
        }
        for format in [Format::Folded, Format::Flamegraph] {
            let (a, b) = (string(format, &profile, &options), string(format, &other, &options));
            prop_assert_eq!(a, b);
        }
    }
}
