//! Packages of any Debian suite, with lists of their own: the machine's sources stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// Where Debian's packages come from; proxies are apt's own configuration.
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt over one suite.
pub(super) struct Apt<'a> {
    folder: &'a Path,
}

impl<'a> Apt<'a> {
    /// Fetches the suite's package lists into `folder`.
    pub(super) fn of_suite(suite: &str, folder: &'a Path) -> Result<Self> {
        ensure!(
            shell::on_path("apt-get").is_some(),
            "there is no apt-get here"
        );
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let source = format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n");
        fs::write(folder.join("sources.list"), source)?;
        let apt = Self { folder };
        shell::run(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    /// Names of the packages that `package` depends on.
    pub(super) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let printed = shell::output(self.command("apt-cache").args(["depends", package]))?;
        let names = printed.lines().filter_map(|line| {
            let line = line.trim_start_matches([' ', '|']);
            line.strip_prefix("Depends: ").map(str::to_owned)
        });
        Ok(names.collect())
    }

    /// Downloads a package and returns its file.
    pub(super) fn download(&self, package: &str) -> Result<PathBuf> {
        let into = self.folder.join("packages");
        fs::create_dir_all(&into)?;
        let mut download = self.command("apt-get");
        shell::run(
            download
                .current_dir(&into)
                .args(["-qq", "download", package]),
        )?;
        let mut files = fs::read_dir(&into)?.flatten().map(|entry| entry.path());
        files
            .find(|path| path.extension().is_some_and(|ext| ext == "deb"))
            .context("no package came")
    }

    fn command(&self, program: &str) -> Command {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            // apt's own user may not enter a folder of ours.
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }
}
