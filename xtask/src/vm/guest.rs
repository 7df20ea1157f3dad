//! The emulated machine, and what it printed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell;

const QEMU: &str = "qemu-system-x86_64";
/// Debian packages with what is needed.
const PACKAGES: [(&str, &str); 3] = [
    (QEMU, "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
];
/// A machine that does not end by then hangs. Emulation takes a minute or two on a busy host.
const TIMEOUT_SECONDS: &str = "900";

/// What one case of `init.sh` printed.
#[derive(Debug)]
pub(super) struct Block {
    /// The case.
    pub(super) name: String,
    /// Its lines.
    pub(super) lines: Vec<String>,
    /// Exit code of what was tried.
    pub(super) code: i32,
}

/// Says which packages are missing, all at once.
pub(super) fn require() -> Result<()> {
    let missing = PACKAGES
        .iter()
        .filter(|(program, _)| shell::on_path(program).is_none());
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    bail!(
        "the emulated machine needs: apt-get install {}",
        packages.join(" ")
    )
}

/// Boots `kernel` with `initramfs`, waits for the machine to power off, and returns its report,
/// whose last block is `end` if it came that far.
pub(super) fn boot(kernel: &Path, initramfs: &Path, console: bool) -> Result<Vec<Block>> {
    let mut machine = Command::new("timeout")
        .args([TIMEOUT_SECONDS, QEMU])
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "1024",
        ])
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-serial",
            "stdio",
        ])
        .args(["-no-reboot", "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {QEMU}"))?;
    let mut lines = Vec::new();
    if let Some(serial) = machine.stdout.take() {
        for line in BufReader::new(serial).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
            if console {
                println!("| {line}");
            }
            lines.push(line);
        }
    }
    machine.wait()?;
    Ok(blocks(&lines))
}

/// Cuts the console's lines into the blocks that `init.sh` marks.
fn blocks(lines: &[String]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in lines {
        // The firmware's last line has no end, so the first mark may not begin a line.
        if let Some((_, name)) = line.split_once("@@ ") {
            open = Some(Block {
                name: name.to_owned(),
                lines: Vec::new(),
                code: -1,
            });
        } else if let Some(code) = line.strip_prefix("@= ") {
            blocks.extend(open.take().map(|block| Block {
                code: code.parse().unwrap_or(-1),
                ..block
            }));
        } else if let Some(block) = &mut open {
            block.lines.push(line.clone());
        }
    }
    blocks.extend(open);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_block_has_no_exit_code() {
        let lines = ["x@@ a", "1", "2", "@= 0", "noise", "@@ b", "3"].map(str::to_owned);
        let [a, b] = &blocks(&lines)[..] else {
            panic!("two blocks")
        };
        assert_eq!((a.name.as_str(), a.lines.len(), a.code), ("a", 2, 0));
        assert_eq!((b.name.as_str(), b.lines.len(), b.code), ("b", 1, -1));
    }
}
