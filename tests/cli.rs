//! `unwind run` as a person meets it: the built program, its exit codes, files and words.

#[path = "cli/children.rs"]
mod children;
#[path = "cli/clean.rs"]
mod clean;
#[path = "cli/command.rs"]
mod command;
#[path = "cli/markers.rs"]
mod markers;
#[path = "cli/modes.rs"]
mod modes;
#[path = "cli/output.rs"]
mod output;
#[path = "cli/refused.rs"]
mod refused;
#[path = "cli/remote.rs"]
mod remote;
#[path = "cli/signals.rs"]
mod signals;
#[path = "cli/silent.rs"]
mod silent;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/terminal.rs"]
mod terminal;
