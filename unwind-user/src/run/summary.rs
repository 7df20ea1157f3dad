//! What a session amounted to: the last line on standard error, and `--stats`.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::Ended;
use super::totals::Totals;
use crate::format::text::visible;

/// Seconds from which on our own CPU time is told as a share.
const SHARE_FROM: f64 = 3.0;

/// The end of a session.
#[derive(Debug, Serialize)]
pub(super) struct Summary<'a> {
    ended: &'static str,
    #[serde(flatten)]
    totals: Totals,
    #[serde(skip)]
    empty_reason: Option<&'a str>,
    #[serde(skip)]
    output: &'a Path,
}

impl<'a> Summary<'a> {
    pub(super) fn new(
        ended: Ended,
        totals: Totals,
        empty_reason: Option<&'a str>,
        output: &'a Path,
    ) -> Self {
        let ended = match ended {
            Ended::Duration => "duration",
            Ended::Signal(signal) => signal.name(),
            Ended::TargetExited => "target exited",
            Ended::Unwritable => "recording failed",
        };
        Self {
            ended,
            totals,
            empty_reason,
            output,
        }
    }

    pub(super) fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = &self.totals;
        if let Some(reason) = self.empty_reason {
            writeln!(f, "unwind: the profile is empty: {reason}")?;
        }
        write!(f, "unwind: {} samples", totals.samples)?;
        if self.ended == "duration" {
            write!(f, " in {:.1} s", totals.seconds)?;
        } else {
            write!(f, ", {} after {:.1} s", self.ended, totals.seconds)?;
        }
        let output = self.output.to_string_lossy();
        let is_remote = totals.backend == "remote";
        let taken = if is_remote { "periods" } else { "interrupts" };
        write!(
            f,
            ", written to {}; {} {taken}:",
            visible(&output),
            totals.interrupts
        )?;
        let met = totals
            .outcomes
            .iter()
            .filter(|(name, count)| **count > 0 || **name == "ok");
        for (i, (name, count)) in met.enumerate() {
            write!(f, "{} {name} {count}", if i == 0 { "" } else { "," })?;
        }
        let unusable = totals.disagreed + totals.malformed_records + totals.unknown_process;
        if unusable > 0 {
            write!(f, "; {unusable} of their records were of no use")?;
        }
        if let Some(kept) = totals.kept {
            let of = if totals.mode == "cpu" {
                "on-CPU time"
            } else {
                "the periods"
            };
            write!(f, "; {:.1} % of {of} kept", 100.0 * kept)?;
        }
        write!(
            f,
            "; {} frames read late, {} freed",
            totals.frames_late, totals.targets.freed_frames
        )?;
        if let Some(ns) = totals.kernel_ns_per_sample {
            let place = if is_remote {
                "from outside"
            } else {
                "in the kernel"
            };
            write!(f, "; {:.2} us a sample {place}", ns / 1e3)?;
        }
        let own = totals.agent_cpu_seconds;
        if totals.seconds < SHARE_FROM {
            // Mostly what the start took.
            write!(f, "; own CPU {own:.2} s")?;
        } else {
            let share = 100.0 * own / totals.seconds;
            write!(f, "; own CPU {share:.1} % of a core")?;
        }
        write!(f, ", peak memory {} MiB", totals.agent_peak_bytes >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_of_no_use_is_told() {
        let text = |disagreed, malformed_records, seconds| {
            let totals = Totals {
                interrupts: 9,
                disagreed,
                malformed_records,
                seconds,
                agent_cpu_seconds: 0.5,
                ..Totals::default()
            };
            Summary::new(Ended::Duration, totals, None, Path::new("x")).to_string()
        };
        let (all, some) = (text(0, 0, 10.0), text(3, 2, 0.1));
        assert!(
            !all.contains("of no use") && all.contains("own CPU 5.0 % of a core"),
            "{all}"
        );
        assert!(
            some.contains("; 5 of their records were of no use"),
            "{some}"
        );
        // A share of so short a time would tell of the start alone.
        assert!(some.contains("own CPU 0.50 s"), "{some}");
    }
}
