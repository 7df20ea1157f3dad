//! The files we write, read by programs that have nothing of ours: Go's `pprof` and Python's XML
//! parser. The unit tests of `unwind_user::format` have the rest.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_tests::Case;
use unwind_user::format::{self, Format, Options};
use unwind_user::profile::{
    Location, Marker, ProcessInfo, Profile, StackId, ThreadInfo, ThreadKey,
};

const THREAD: ThreadKey = ThreadKey {
    pid: 7,
    image: 0,
    tid: 8,
};
const PERIOD_NS: u64 = 1_000_000;
/// Characters that a reader may trip over, but for line ends: `pprof` prints names as they are.
const ODD: &str = "a;b <c>&\"'\\ \u{1b}[31m\u{0}\u{6}\u{ffff} (7) 𠀀 8";

fn stack(profile: &mut Profile, codes: &[(&str, &str, u32)]) -> StackId {
    let tables = &mut profile.tables;
    let mut frames = Vec::new();
    for &(name, file, line) in codes {
        let function = tables.function(name, file, 70_000);
        let column = Some(4);
        let at = Location {
            column,
            ..Location::at_line(line)
        };
        frames.push(tables.frame(function, at));
    }
    tables.stack(frames)
}

/// 10 samples: 3 on a far line, 2 of an odd name, 5 of a marker.
fn profile() -> Profile {
    let mut profile = Profile {
        period_ns: PERIOD_NS,
        start_ns: 1_700_000_000_000_000_000,
        duration_ns: 1_000_000_000,
        ..Profile::default()
    };
    let main = ("<module>", "main.py", 3);
    let far = stack(&mut profile, &[main, ("A.run", "zażółć.py", 1_200_000)]);
    let odd = stack(&mut profile, &[main, (ODD, "odd.py", 9)]);
    let gc = profile.tables.marker(Marker::Gc);
    let gc = profile.tables.push(Some(far), gc);
    for (stack, count) in [(far, 3), (odd, 2), (gc, 5)] {
        profile.add(THREAD, stack, count);
    }
    let command = format!("python3 {ODD}");
    let python = "3.14.2".to_owned();
    let process = ProcessInfo { command, python };
    profile.processes.insert(THREAD.process(), process);
    let name = Some("worker".to_owned());
    let native_tid = None;
    profile
        .threads
        .insert(THREAD, ThreadInfo { name, native_tid });
    profile
}

/// A directory of one case, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(case: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("unwind-{case}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, profile: &Profile) -> Result<PathBuf> {
        let path = self.0.join(name);
        let format = Format::from_extension(&path).context("no format of that name")?;
        let mut file = std::fs::File::create(&path)?;
        format::write(format, profile, &Options::default(), &mut file)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it: it lies in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {stderr}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `pprof` of an installed Go, which need not be in `PATH`.
fn pprof() -> Option<PathBuf> {
    let mut roots = vec![PathBuf::from("/usr/local/go")];
    if let Ok(entries) = std::fs::read_dir("/usr/lib") {
        let dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
        roots.extend(dirs.filter(|dir| dir.join("pkg/tool").is_dir()));
    }
    let tools = roots
        .into_iter()
        .map(|root| root.join("pkg/tool/linux_amd64/pprof"));
    tools.into_iter().find(|tool| tool.is_file())
}

fn run(case: &str, reader: Option<PathBuf>, check: impl FnOnce(&Path, &Scratch) -> Result<()>) {
    let report = Case::new("formats", "-", case);
    let Some(reader) = reader else {
        return report.skipped("no Go with its pprof tool is installed (Debian: golang-go)");
    };
    match Scratch::new(case).and_then(|scratch| check(&reader, &scratch)) {
        Ok(()) => report.ok(),
        Err(error) => {
            report.failed(&format!("{error:#}"));
            panic!("{error:?}");
        }
    }
}

#[test]
fn go_pprof_reads_samples_functions_lines_and_labels() {
    run("go-pprof", pprof(), |pprof, scratch| {
        let file = scratch.write("out.pb.gz", &profile())?;
        let raw = output(Command::new(pprof).arg("-raw").arg(&file))?;
        for expected in [
            "PeriodType: cpu nanoseconds",
            "Period: 1000000",
            "samples/count cpu/nanoseconds[dflt]",
            "thread:[worker]",
            "python:[3.14.2]",
            "thread_id:[8]",
            "pid:[7]",
            "A.run zażółć.py:1200000",
            "s=70000",
            "<GC>",
            "[python]",
            "[FN]",
        ] {
            ensure!(raw.contains(expected), "no {expected:?} in {raw}");
        }
        let samples = Command::new(pprof)
            .args(["-top", "-lines", "-sample_index=samples"])
            .arg(&file)
            .output()?;
        let top = String::from_utf8_lossy(&samples.stdout);
        let flat: Vec<_> = top
            .lines()
            .skip_while(|line| !line.contains("flat%"))
            .skip(1)
            .map(|line| line.split_whitespace().next().unwrap_or_default())
            .collect();
        ensure!(flat == ["5", "3", "2", "0"], "{top}");
        ensure!(top.contains("<module> main.py:3"), "{top}");
        ensure!(top.contains(ODD), "the odd name is not in {top}");
        let stderr = String::from_utf8_lossy(&samples.stderr);
        ensure!(
            !stderr.contains("ymboliz"),
            "pprof looks for a binary: {stderr}"
        );
        let cpu = output(Command::new(pprof).args(["-top", "-unit=ns"]).arg(&file))?;
        ensure!(cpu.contains("10000000ns total"), "{cpu}");
        Ok(())
    });
}

#[test]
fn go_pprof_reads_an_empty_profile() {
    run("go-pprof-empty", pprof(), |pprof, scratch| {
        let file = scratch.write("out.pb.gz", &Profile::default())?;
        let comments = output(Command::new(pprof).arg("-comments").arg(&file))?;
        ensure!(comments.contains("no samples: "), "{comments}");
        let top = output(Command::new(pprof).arg("-top").arg(&file))?;
        ensure!(top.contains("Type: cpu"), "{top}");
        Ok(())
    });
}

#[test]
fn a_strict_xml_parser_reads_the_flame_graph() {
    const TITLES: &str = "
import sys, xml.etree.ElementTree as tree
for title in tree.parse(sys.argv[1]).iter('{http://www.w3.org/2000/svg}title'):
    print(ascii(title.text))
";
    let python = Some(PathBuf::from("python3"));
    run("xml", python, |python, scratch| {
        let titles = |profile: &Profile| -> Result<Vec<String>> {
            let file = scratch.write("out.svg", profile)?;
            let titles = output(Command::new(python).args(["-c", TITLES]).arg(file))?;
            Ok(titles.lines().map(str::to_owned).collect())
        };
        let boxes = titles(&profile())?;
        ensure!(boxes.len() == 5, "{boxes:?}");
        ensure!(
            boxes.contains(&"'<GC> (5 samples, 50.00%)'".to_owned()),
            "{boxes:?}"
        );
        let odd = boxes.iter().filter(|title| title.contains(r"\\u{1b}[31m"));
        ensure!(odd.count() == 1, "{boxes:?}");
        ensure!(titles(&Profile::default())?.len() == 1);
        Ok(())
    });
}
