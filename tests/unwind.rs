//! Runs the built profiler on a process, and reads what it wrote.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use unwind_user::format::Label;
use unwind_user::format::folded::{Line, parse_line};
use unwind_user::profile::Marker;

/// What one run of `unwind run` wrote.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The folded stacks.
    pub lines: Vec<Line>,
    /// The JSON of `--stats`.
    pub stats: Value,
}

impl Profile {
    /// Samples in the folded stacks.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.lines.iter().map(|line| line.count).sum()
    }

    /// A number of `--stats` by its name.
    ///
    /// # Panics
    /// When there is no such number, since the test would compare nothing.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        let number = self.stats[name].as_f64();
        number.unwrap_or_else(|| panic!("--stats has no number {name}: {}", self.stats))
    }

    /// Interrupts that ended so, by the name in `--stats`.
    ///
    /// # Panics
    /// When there is no such outcome.
    #[must_use]
    pub fn outcome(&self, name: &str) -> u64 {
        let count = self.stats["outcomes"][name].as_u64();
        count.unwrap_or_else(|| panic!("--stats has no outcome {name}: {}", self.stats))
    }

    /// All outcomes that occurred.
    #[must_use]
    pub fn outcomes(&self) -> Vec<(String, u64)> {
        let outcomes = self.stats["outcomes"].as_object().into_iter().flatten();
        let counted = outcomes.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

/// Path of the profiler: `UNWIND_BIN`, else built now in release mode beside this test.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn unwind() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| match std::env::var_os("UNWIND_BIN") {
            Some(path) => path.into(),
            None => build(),
        })
        .clone()
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--release", "--package", "unwind-user"])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "the profiler does not build"
    );
    // Tests lie in TARGET/PROFILE/deps.
    let test = std::env::current_exe().expect("a path of this test");
    let target = test.ancestors().nth(3).expect("a target directory");
    target.join("release/unwind")
}

/// Profiles a process with `options` of `unwind run`, which must say when to end.
///
/// # Errors
/// When the profiler fails, or writes what cannot be read back; with its standard error.
pub fn profile(pid: u32, options: &[&str]) -> Result<Profile, String> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("unwind-test-{}-{run}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (folded, stats) = (folder.join("x.folded"), folder.join("x.json"));
    let mut command = Command::new(unwind());
    command
        .args(["run", "--pid", &pid.to_string()])
        .args(options);
    command.arg("-o").arg(&folded).arg("--stats").arg(&stats);
    let read = || -> Result<Profile, String> {
        let ended = command
            .output()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let stderr = String::from_utf8_lossy(&ended.stderr);
        if !ended.status.success() {
            return Err(format!("unwind: {}: {stderr}", ended.status));
        }
        let text = |path: &PathBuf| {
            std::fs::read_to_string(path)
                .map_err(|error| format!("{}: {error}; {stderr}", path.display()))
        };
        let lines = text(&folded)?
            .lines()
            .map(|line| {
                let mut parsed =
                    parse_line(line).map_err(|error| format!("{error} in {line:?}"))?;
                // Where it runs is not the program's to say.
                parsed
                    .frames
                    .retain(|frame| *frame != Label::Marker(Marker::Gc));
                Ok(parsed)
            })
            .collect::<Result<_, String>>()?;
        let stats = serde_json::from_str(&text(&stats)?).map_err(|error| error.to_string())?;
        Ok(Profile { lines, stats })
    };
    let mut read = read;
    let profile = read();
    // A leftover in the temporary folder harms nobody.
    std::fs::remove_dir_all(&folder).ok();
    profile
}
