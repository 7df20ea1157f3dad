//! One refreshed line on a terminal while a session runs; nothing elsewhere.

use std::io::{self, IsTerminal, Write};

use terminal_size::terminal_size_of;
use unwind_ebpf::abi;

use super::session::Session;
use super::totals::{agent_cpu, shown};
use crate::format::text::visible;

/// Functions named in the line.
const TOP: usize = 3;

/// Characters of each name.
const NAME_CHARS: usize = 24;

/// The status line.
#[derive(Debug)]
pub(super) struct Status {
    is_terminal: bool,
    is_shown: bool,
    rate: u64,
    samples: u64,
    cpu: std::time::Duration,
}

impl Status {
    pub(super) fn new(rate: u64) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let is_terminal = io::stderr().is_terminal() && !is_dumb;
        Self {
            is_terminal,
            is_shown: false,
            rate,
            samples: 0,
            cpu: agent_cpu(),
        }
    }

    /// Refreshes the line; called once a second.
    pub(super) fn show(&mut self, session: &Session) {
        let samples = session.pipeline().stats.samples;
        let cpu = agent_cpu();
        let (new, used) = (samples - self.samples, cpu.saturating_sub(self.cpu));
        self.samples = samples;
        self.cpu = cpu;
        if !self.is_terminal {
            return;
        }
        let lost = session.counters().map_or(0, |counters| {
            let total: u64 = counters.outcomes.iter().sum();
            total - shown(&counters, &[abi::OK, abi::TRUNCATED, abi::PAGE_FAULT])
        });
        let profile = session.pipeline().profile();
        let total = profile.total().max(1) as f64;
        let top = profile.top(TOP).into_iter().map(|top| {
            // What a target calls its functions must not steer the terminal.
            let name: String = visible(top.name).chars().take(NAME_CHARS).collect();
            format!("{name} {:.0} %", 100.0 * top.samples as f64 / total)
        });
        let top = top.collect::<Vec<_>>().join(", ");
        let line = format!(
            "{samples} samples ({new}/s of {} Hz), {lost} not shown, own CPU {:.1} %  {top}",
            self.rate,
            100.0 * used.as_secs_f64()
        );
        let width = terminal_width();
        let line: String = line.chars().take(width.saturating_sub(1)).collect();
        self.is_shown = true;
        print(&format!("\r\x1b[K{line}"));
    }

    /// A line that stays, above the status.
    pub(super) fn note(&mut self, text: &str) {
        self.clear();
        print(&format!("unwind: {text}\n"));
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            print("\r\x1b[K");
        }
    }
}

/// Prints to standard error; nobody may be reading it.
pub(super) fn print(text: &str) {
    let mut err = io::stderr();
    // A terminal that went away is no reason to stop sampling.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

fn terminal_width() -> usize {
    terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0))
}
