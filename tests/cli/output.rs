//! Where the profile goes, and where it cannot.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;
use unwind_tests::Case;

use crate::support::{Folder, Running, any_python, attach, ended, finish, run, sampling};

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let case = Case::new("cli", "-", "closed-pipe");
    let python = any_python();
    let target = Running::burn(&python, "forever");
    for output in ["-", "/dev/stdout"] {
        let mut command = attach(&target, Path::new(output), &["--format", "folded"]);
        let mut profiler = sampling(command.stdout(Stdio::piped()));
        target.burns(Duration::from_millis(200));
        drop(profiler.child.stdout.take());
        profiler.signal(Signal::SIGINT);
        let ended = finish(profiler);
        assert_eq!(ended.code, Some(0), "{output}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{output}: {}", ended.err);
        assert!(
            !ended.err.contains("Broken pipe"),
            "{output}: {}",
            ended.err
        );
    }
    case.ok();
}

#[test]
fn what_cannot_be_written_is_one_line() {
    let case = Case::new("cli", "-", "dev-full");
    let target = Running::burn(&any_python(), "forever");
    let ended = ended(&mut attach(
        &target,
        Path::new("/dev/full"),
        &["-d", "300ms"],
    ));
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert!(
        ended.err.contains("/dev/full: No space left"),
        "{}",
        ended.err
    );
    case.ok();
}

#[test]
fn a_place_that_takes_no_file_is_refused_before_the_command_runs() {
    let case = Case::new("cli", "-", "unwritable");
    let folder = Folder::new();
    let file = folder.file("file");
    std::fs::write(&file, "as it was").expect("a file");
    for (output, option) in [
        (folder.file("none/x.svg"), "-o"),
        (file.join("x.svg"), "-o"),
        (folder.0.clone(), "-o"),
        (folder.file("none/x.json"), "--stats"),
    ] {
        let mut command = run(&[option]);
        command.arg(&output);
        if option == "--stats" {
            command.arg("-o").arg(folder.file("x.svg"));
        }
        let ended = ended(command.args(["--", "echo", "ran"]));
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (Some(125), ""),
            "{}",
            ended.err
        );
        assert!(
            ended.err.contains(&*output.to_string_lossy()),
            "{}",
            ended.err
        );
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    assert_eq!(folder.names(), ["file"]);
    assert_eq!(std::fs::read_to_string(&file).expect("kept"), "as it was");
    case.ok();
}

/// A small file system, unmounted when dropped.
struct Tmpfs<'a>(&'a Path);

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        umount(self.0).expect("nothing is open in it");
    }
}

#[test]
fn a_full_disk_keeps_no_half_file() {
    let case = Case::new("cli", "-", "full-disk");
    let folder = Folder::new();
    let size = Some("size=16k");
    let mounted = mount(
        Some("tmpfs"),
        &folder.0,
        Some("tmpfs"),
        MsFlags::empty(),
        size,
    );
    if let Err(error) = mounted {
        return case.skipped(&format!("a tmpfs cannot be mounted: {error}"));
    }
    let tmpfs = Tmpfs(&folder.0);
    std::fs::write(folder.file("x.svg"), "before").expect("a small file");
    let filler = vec![0; 4 << 10];
    let fill = |i: u32| std::fs::write(folder.file(&format!("filler{i}")), &filler).is_ok();
    let fillers = (0..16).take_while(|i| fill(*i)).count();
    assert!(fillers < 16, "the disk is full");
    let full = folder.names().len();
    let target = Running::burn(&any_python(), "forever");
    let profiler = sampling(&mut attach(&target, &folder.file("x.svg"), &["-d", "1h"]));
    target.burns(Duration::from_millis(200));
    // A snapshot that finds no room is no reason to give up.
    profiler.signal(Signal::SIGUSR1);
    target.burns(Duration::from_millis(200));
    profiler.signal(Signal::SIGTERM);
    let ended = finish(profiler);
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    let lines: Vec<_> = ended.err.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("unwind: no snapshot: "),
        "{}",
        ended.err
    );
    assert!(lines[1].contains("No space left"), "{}", ended.err);
    assert_eq!(folder.names().len(), full, "{:?}", folder.names());
    assert_eq!(
        std::fs::read_to_string(folder.file("x.svg")).expect("kept"),
        "before"
    );
    drop(tmpfs);
    case.ok();
}

#[test]
fn odd_file_names() {
    let case = Case::new("cli", "-", "odd-names");
    let target = Running::burn(&any_python(), "forever");
    for name in [
        &b"a b;c '\"$x.folded"[..],
        b"new\nline\x1b[31m.folded",
        b"\xff\xfe.folded",
        b"-o.folded",
    ] {
        let folder = Folder::new();
        let path = folder.0.join(OsStr::from_bytes(name));
        let ended = ended(&mut attach(&target, &path, &["-d", "200ms"]));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(path.exists(), "{:?}", folder.names());
        assert!(!ended.err.contains('\x1b'), "{:?}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{:?}", ended.err);
    }
    case.ok();
}

#[test]
fn an_empty_profile_is_a_file_and_a_note() {
    let case = Case::new("cli", "-", "empty");
    let mut idle = any_python().command();
    idle.args([
        "-c",
        "import sys; print('ready', flush=True); sys.stdin.read()",
    ]);
    let mut idle = Running::start(idle.stdout(Stdio::piped()));
    let output = idle.child.stdout.take().expect("a pipe");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("ready");
    let folder = Folder::new();
    for name in ["x.svg", "x.folded", "x.pb.gz", "x.speedscope.json"] {
        let file = folder.file(name);
        let ended = ended(&mut attach(&idle, &file, &["-d", "200ms"]));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(
            ended.err.contains("the profile is empty: 0 samples"),
            "{}",
            ended.err
        );
        let bytes = std::fs::read(&file).expect("written");
        match name {
            "x.svg" => assert!(bytes.starts_with(b"<?xml"), "{name}"),
            "x.folded" => assert_eq!(bytes, b"", "{name}"),
            "x.pb.gz" => assert!(bytes.starts_with(&[0x1f, 0x8b]), "{name}"),
            _ => drop(serde_json::from_slice::<serde_json::Value>(&bytes).expect("JSON")),
        }
    }
    case.ok();
}

#[test]
fn the_default_name_says_whose_profile_it_is() {
    let case = Case::new("cli", "-", "default-name");
    let folder = Folder::new();
    let mut command = Command::new(unwind_tests::unwind());
    command
        .current_dir(&folder.0)
        .args(["run", "--format", "folded", "--", "sh", "-c", ":"]);
    let ended = ended(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(folder.names(), ["unwind-sh.folded"]);
    case.ok();
}
