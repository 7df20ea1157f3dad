//! Recordings of real interpreters, replayed without one: `fixtures/VERSION/PROGRAM.unwind` must
//! give the stacks in the `.folded` file beside it. `cargo xtask fixtures` records them anew,
//! `cargo xtask bless` rewrites what is expected.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use unwind_ebpf::abi::{OK, OUTCOME_NAMES, WHOLE};
use unwind_tests::Case;
use unwind_user::format::{self, Format, Options};
use unwind_user::profile::Profile;
use unwind_user::record::{self, Event, Recording, Replayed};
use unwind_user::sample::Record;

/// Most bytes of one fixture: they are kept in the repository for ever. Of those of 3.11 most are
/// what identifies code objects.
const BYTES_MAX: usize = 150_000;
/// Set to rewrite what is expected.
const BLESS: &str = "UNWIND_BLESS";

/// Versions and programs that must be there, whatever else is.
const VERSIONS: [&str; 5] = ["3.11", "3.12", "3.13", "3.14", "3.15"];
const PROGRAMS: [&str; 3] = ["calls", "deep", "names"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn folded(profile: &Profile) -> Result<String> {
    let mut text = Vec::new();
    format::write(Format::Folded, profile, &Options::default(), &mut text)?;
    Ok(String::from_utf8(text)?)
}

/// Every fixture: version, program, file.
fn each() -> Result<Vec<(String, String, PathBuf)>> {
    let mut found = Vec::new();
    for version in fs::read_dir(fixtures())? {
        let version = version?;
        for file in fs::read_dir(version.path())? {
            let file = file?.path();
            if file.extension().is_some_and(|end| end == record::EXTENSION) {
                let stem = file.file_stem().context("a file without name")?;
                let program = stem.to_string_lossy().into_owned();
                let version = version.file_name().to_string_lossy().into_owned();
                found.push((version, program, file));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Replays bytes; everything in them must be whole.
fn whole(bytes: &[u8]) -> Result<Replayed> {
    let replayed = record::replay(Cursor::new(bytes))?;
    ensure!(replayed.damage.is_none(), "{:?}", replayed.damage);
    let stats = replayed.stats;
    ensure!(stats.malformed == 0, "{stats:?}");
    ensure!(stats.disagreed == 0, "{stats:?}");
    ensure!(stats.unknown_process == 0, "{stats:?}");
    Ok(replayed)
}

/// Whether there are samples that carry the heads of frames only.
fn has_heads(bytes: &[u8]) -> Result<bool> {
    let mut recording = Recording::open(Cursor::new(bytes))?;
    while let Some(event) = recording.next_event()?? {
        if let Event::Record(bytes) = event
            && Record::parse(bytes)?.header.flags & WHOLE == 0
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn replays(file: &Path) -> Result<()> {
    let bytes = fs::read(file)?;
    ensure!(bytes.len() <= BYTES_MAX, "{} bytes", bytes.len());
    let replayed = whole(&bytes)?;
    let found = folded(&replayed.profile)?;

    // Complete stacks as the kernel half counted them, and those we counted.
    let ok = OUTCOME_NAMES[OK as usize];
    let outcomes = &replayed.profile.outcomes;
    let complete = outcomes.iter().find(|(name, _)| name == ok);
    let complete = complete.context("no outcomes")?.1;
    ensure!(
        complete > 0 && replayed.stats.samples >= complete,
        "{outcomes:?}"
    );
    ensure!(replayed.profile.total() == replayed.stats.samples);
    ensure!(!found.contains("<unreadable>"), "{found}");

    if file.file_stem().is_some_and(|program| program == "deep") {
        ensure!(
            has_heads(&bytes)?,
            "no sample is too large to be carried whole"
        );
    }
    let mut copy = Vec::new();
    let damage = record::copy_scrubbed(Cursor::new(&bytes), &mut copy)?;
    ensure!(
        damage.is_none() && copy == bytes,
        "a scrubbed recording changed when scrubbed"
    );

    let beside = file.with_extension("folded");
    if std::env::var_os(BLESS).is_some() {
        fs::write(&beside, &found)?;
    }
    let expected = fs::read_to_string(&beside).context("run `cargo xtask bless`")?;
    let mut differ = found.lines().zip(expected.lines()).filter(|(a, b)| a != b);
    ensure!(
        found == expected,
        "{} differs: {:?}",
        beside.display(),
        differ.next()
    );
    Ok(())
}

#[test]
fn every_fixture_gives_its_stacks() {
    let mut failed = Vec::new();
    for (version, program, file) in each().expect("fixtures can be listed") {
        let case = Case::new("replay", &version, &program);
        match replays(&file) {
            Ok(()) => case.ok(),
            Err(error) => {
                case.failed(&format!("{error:#}"));
                failed.push(format!("{version} {program}: {error:#}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn no_version_or_program_is_missing() {
    let found = each().expect("fixtures can be listed");
    for version in VERSIONS {
        for program in PROGRAMS {
            let is_it = |(v, p, _): &(String, String, PathBuf)| v == version && p == program;
            assert!(
                found.iter().any(is_it),
                "{version} {program}: run `cargo xtask fixtures`"
            );
        }
    }
}

/// Stacks outermost first that each program has whatever the version, in parts that must come in
/// this order within one line.
const STACKS: [(&str, &[&str]); 6] = [
    (
        "calls",
        &[
            "<module>",
            "main",
            "through_generators",
            "delegating",
            "numbers",
            "spin",
        ],
    ),
    (
        "calls",
        &["<module>", "main", "through_callbacks", "key", "spin"],
    ),
    (
        "calls",
        &[
            "<module>",
            "main",
            "through_comparisons",
            "Number.__lt__",
            "spin",
        ],
    ),
    (
        "calls",
        &[
            "<module>",
            "main",
            "through_coroutines",
            "awaiting",
            "awaited",
            "spin",
        ],
    ),
    ("deep", &["<module>", "even", "odd", "even", "spin"]),
    (
        "names",
        &[
            "long_xxx",
            "surrogate",
            "line",
            "colon",
            "𝔣𝔲𝔫",
            "имя",
            "Größe",
            "plain",
        ],
    ),
];

#[test]
fn stacks_are_what_the_programs_do() {
    for (version, program, file) in each().expect("fixtures can be listed") {
        let bytes = fs::read(&file).expect("a file");
        let replayed = whole(&bytes).expect("a whole recording");
        let found = folded(&replayed.profile).expect("folded stacks");
        for (_, parts) in STACKS.iter().filter(|(of, _)| *of == program) {
            let has = |line: &str| {
                let mut rest = line;
                parts.iter().all(|part| {
                    let at = rest.find(part);
                    at.inspect(|at| rest = &rest[at + part.len()..]).is_some()
                })
            };
            assert!(found.lines().any(has), "{version} {program}: no {parts:?}");
        }
    }
}
