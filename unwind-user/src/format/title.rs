//! What a profile is of, in a line.

use super::text;
use crate::profile::Profile;

/// Longest command line in a title, in characters.
const COMMAND_CHARS_MAX: usize = 80;

/// Processes: command, CPython version, pid.
pub(super) fn title(profile: &Profile) -> String {
    let mut processes = profile.processes.iter();
    let Some((key, info)) = processes.next() else {
        return "No process".to_owned();
    };
    let python = match info.python.as_str() {
        "" => String::new(),
        version => format!("CPython {}, ", text::visible(version)),
    };
    let more = match processes.count() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("{} ({python}pid {}){more}", command(&info.command), key.pid)
}

/// Samples, rate and length.
pub(super) fn subtitle(profile: &Profile) -> String {
    let seconds = profile.duration_ns as f64 / 1e9;
    format!(
        "{} samples at {} Hz of {} in {seconds:.1} s",
        profile.total(),
        profile.rate_hz(),
        profile.mode.time()
    )
}

/// Why there are no samples.
pub(super) fn empty_reason(profile: &Profile) -> String {
    let reason = profile
        .empty_reason
        .as_deref()
        .unwrap_or("no process was on a CPU");
    format!("no samples: {}", text::visible(reason))
}

fn command(command: &str) -> String {
    if command.is_empty() {
        return "python".to_owned();
    }
    match command.char_indices().nth(COMMAND_CHARS_MAX) {
        None => text::visible(command).into_owned(),
        Some((end, _)) => format!("{}…", text::visible(&command[..end])),
    }
}
