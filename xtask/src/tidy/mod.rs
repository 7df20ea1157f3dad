//! `tidy`: rules of this repository that a compiler cannot check.

mod mask;
mod rules;

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// Checks every file that git tracks or would track; an error if a rule is broken.
pub(crate) fn tidy() -> Result<()> {
    let root = shell::root();
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let files = shell::output(Command::new("git").current_dir(&root).args(list))?;
    let (mut checked, mut broken) = (0, 0);
    for path in files.split_terminator('\0') {
        // A tracked file that is deleted but not yet committed, and a link to a folder, have no text.
        let file = root.join(path);
        if !file.is_file() {
            continue;
        }
        let bytes = fs::read(&file).with_context(|| format!("cannot read {path}"))?;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        if text.contains('\0') {
            continue;
        }
        checked += 1;
        for finding in rules::check(path, &text) {
            println!("{path}:{}: {}", finding.line, finding.what);
            broken += 1;
        }
    }
    if broken > 0 {
        bail!("{broken} findings in {checked} files");
    }
    println!("{checked} files are tidy");
    Ok(())
}
