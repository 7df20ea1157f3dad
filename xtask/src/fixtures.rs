//! `fixtures`: record the programs in tests/fixtures/programs with each version of Python; and
//! `bless`: rewrite what a replay of the recordings is expected to give.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::test::{self, Interpreter, Place};
use crate::{run, shell};

/// Folder from which the programs run, below each interpreter's root: their paths go into the
/// recordings, which must not tell where this machine keeps things.
const FOLDER: &str = "/tmp/unwind-fixtures";

/// Bytes of a recording that shows enough and is small enough to be kept for ever.
const BYTES: std::ops::RangeInclusive<u64> = 24_000..=150_000;
/// Recordings made of a program until one has such a size.
const ATTEMPTS: usize = 20;

/// A program, and how it is sampled so that its recording stays small.
struct Program {
    name: &'static str,
    rate: u32,
    duration: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "calls",
        rate: 97,
        duration: "500ms",
    },
    Program {
        name: "deep",
        rate: 12,
        duration: "350ms",
    },
    Program {
        name: "names",
        rate: 47,
        duration: "600ms",
    },
];

/// Records every program with one interpreter of each version, then blesses.
pub(crate) fn record() -> Result<()> {
    ensure!(
        shell::is_root(),
        "recording needs root: sudo cargo xtask fixtures"
    );
    let build = ["build", "--release", "--quiet", "--package", "unwind-user"];
    shell::run(run::cargo().current_dir(shell::root()).args(build))?;
    let unwind = run::target_dir()?.join("release/unwind");
    for minor in test::SUPPORTED {
        let found = test::interpreters(&[*minor]);
        let Some(python) = found.first() else {
            bail!("there is no python3.{minor} on this machine");
        };
        let folder = fixtures().join(format!("3.{minor}"));
        fs::create_dir_all(&folder)?;
        for program in PROGRAMS {
            let file = folder.join(program.name).with_extension("unwind");
            let label = format!("{} with {}", program.name, python.label);
            let mut attempts = 0..ATTEMPTS;
            // On a busy machine a program may get little time; on an idle one it gets much.
            while attempts.next().is_some() {
                one(&unwind, python, *minor, program, &file).context(label.clone())?;
                let bytes = fs::metadata(&file)?.len();
                println!("{label}: {bytes} bytes");
                if BYTES.contains(&bytes) {
                    break;
                }
            }
            ensure!(!attempts.is_empty(), "{label}: no recording of a good size");
        }
    }
    bless()
}

/// Rewrites the expected stacks of every recording.
pub(crate) fn bless() -> Result<()> {
    let test = [
        "test",
        "--quiet",
        "--package",
        "unwind-tests",
        "--test",
        "replay",
    ];
    let mut cargo = run::cargo();
    shell::run(
        cargo
            .current_dir(shell::root())
            .args(test)
            .env("UNWIND_BLESS", "1"),
    )
}

fn fixtures() -> PathBuf {
    shell::root().join("tests/fixtures")
}

/// Makes one recording.
fn one(
    unwind: &Path,
    python: &Interpreter,
    minor: u8,
    program: &Program,
    file: &Path,
) -> Result<()> {
    let mut target = Target::start(python, minor, program.name)?;
    let pid = target.0.id().to_string();
    let mut command = Command::new(unwind);
    command.args(["run", "--pid", &pid, "--duration", program.duration]);
    command
        .args(["--rate", &program.rate.to_string(), "--output"])
        .arg(file);
    let told = shell::output(command.stderr(Stdio::null()));
    target.end()?;
    told?;
    let recording = fs::read(file)?;
    for private in [shell::home()?, shell::root()] {
        let private = private.to_string_lossy();
        let is_here = |bytes: &[u8]| bytes == private.as_bytes();
        let found = private.len() > 1 && recording.windows(private.len()).any(is_here);
        ensure!(!found, "the recording holds the path {private}");
    }
    Ok(())
}

/// A program that runs, past its beginning.
struct Target(Child);

impl Target {
    fn start(python: &Interpreter, minor: u8, name: &str) -> Result<Self> {
        let name = format!("{name}.py");
        let root = match &python.place {
            Place::Host(_) => PathBuf::from("/"),
            Place::Chroot { root, .. } => root.clone(),
        };
        let inside = Path::new(FOLDER);
        let folder = root.join(inside.strip_prefix("/")?);
        fs::create_dir_all(&folder)?;
        fs::copy(fixtures().join("programs").join(&name), folder.join(&name))?;
        let mut command = python.place.command();
        if matches!(python.place, Place::Host(_)) {
            // The command line goes into the recording. (`chroot` leaves it neutral.)
            command.arg0(format!("python3.{minor}"));
        }
        command
            .args(["-I", "-S"])
            .arg(inside.join(&name))
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the interpreter")?;
        let stdout = child.stdout.take().context("no pipe")?;
        let target = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "the program said {line:?}");
        Ok(target)
    }

    fn end(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.end();
    }
}
