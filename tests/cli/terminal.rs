//! What is seen on a terminal.

use std::process::Command;

use unwind_tests::Case;

use crate::support::{Folder, Running, any_python, attach, ended};

/// Runs a command on a terminal of its own and gives all that was shown there; none where there
/// is no `script` to make one.
fn on_a_terminal(command: &Command) -> Option<String> {
    let quote =
        |word: &std::ffi::OsStr| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"));
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(quote)
        .collect();
    let mut script = Command::new("script");
    script
        .args(["-qefc", &words.join(" "), "/dev/null"])
        .env("TERM", "xterm")
        .env("NO_COLOR", "1");
    if Command::new("script").arg("--version").output().is_err() {
        return None;
    }
    Some(ended(&mut script).out)
}

#[test]
fn one_line_is_refreshed_and_names_cannot_steer_it() {
    let case = Case::new("cli", "-", "status-line");
    let folder = Folder::new();
    let target = Running::burn(&any_python(), "odd");
    let command = attach(&target, &folder.file("x.svg"), &["-d", "3"]);
    let Some(shown) = on_a_terminal(&command) else {
        return case.skipped("script (util-linux) is not installed");
    };
    let lines: Vec<_> = shown.split("\r\x1b[K").collect();
    assert!(lines.len() >= 3, "refreshed in place: {shown:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains(r"\u{1b}[31mred\u{7}")),
        "{shown:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("own CPU") && line.contains("/s of")),
        "{shown:?}"
    );
    let other = shown.replace("\r\x1b[K", "").replace("\r\n", "");
    assert!(!other.contains(char::is_control), "{other:?}");
    let last = lines.last().expect("the last");
    assert!(
        last.starts_with("unwind: ") && last.trim_end().lines().count() == 1,
        "{last:?}"
    );
    case.ok();
}

#[test]
fn a_terminal_that_can_do_nothing_gets_plain_lines() {
    let case = Case::new("cli", "-", "dumb-terminal");
    let folder = Folder::new();
    let target = Running::burn(&any_python(), "forever");
    let plain = attach(&target, &folder.file("x.svg"), &["-d", "1.5"]);
    let mut command = Command::new("env");
    command
        .arg("TERM=dumb")
        .arg(plain.get_program())
        .args(plain.get_args());
    let Some(shown) = on_a_terminal(&command) else {
        return case.skipped("script (util-linux) is not installed");
    };
    assert!(!shown.contains('\x1b'), "{shown:?}");
    case.ok();
}
