//! Compares stacks with what the program said.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Result, ensure};
use unwind_user::profile::Marker;

use super::frames::{
    CutNames, any_line, brief, is_marker, is_unjudged, unnamed, without_last_line,
};
use super::program::{Said, Spin};
use super::read::{Frame, Stack};

/// Frames that a truncated stack must have, and entries that a stack has before it is truncated.
const KEPT_MIN: usize = 1024;
const WHOLE_MAX: usize = 2048;
/// Wrong stacks in a message.
const SHOWN_MAX: usize = 5;
/// How far the share of a line may be from the truth, and samples that suffice for that.
const SHARE: f64 = 0.05;
const ENOUGH: f64 = 900.0;

/// Whether lines count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    Line,
    Function,
}

/// A stack that must appear.
#[derive(Debug, Default)]
struct Expected {
    seconds: f64,
    hot: BTreeMap<u32, Option<f64>>,
    seen: BTreeMap<Option<u32>, u64>,
    is_truncated: bool,
    is_unproved: bool,
}

/// A number of samples that a machine which is short of CPU time can give, too.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Shortage {
    /// Where it should be.
    #[error("{seen} samples, {due:.0} were due")]
    Near { seen: u64, due: f64 },
    /// Where it passes in no time, unless it is held up there.
    #[error("{passing} of {judged} samples are between places")]
    Passing { passing: u64, judged: u64 },
}

/// Frames without the line of the innermost one.
type Path = Vec<Frame>;

/// What must appear.
#[derive(Debug)]
pub(crate) struct Judge {
    lines: Lines,
    expected: HashMap<Path, Expected>,
    /// Who is called by whom.
    calls: HashSet<(Option<Frame>, Frame)>,
    /// Names that must be cut.
    cut: CutNames,
}

impl Judge {
    pub(crate) fn new(said: &Said, lines: Lines) -> Self {
        let mut judge = Self {
            lines,
            expected: HashMap::new(),
            calls: HashSet::new(),
            cut: CutNames::default(),
        };
        said.spins.iter().for_each(|spin| judge.expect(said, spin));
        judge
    }

    fn expect(&mut self, said: &Said, spin: &Spin) {
        let mut path = Vec::with_capacity(spin.stack.len());
        for (name, file, line) in &spin.stack {
            let line = Some(*line).filter(|_| self.lines == Lines::Line);
            let (name, file) = (self.cut.said(name), self.cut.said(file));
            path.push(unnamed(Frame { name, file, line }));
        }
        let mut caller = None;
        for frame in &path {
            self.calls
                .insert((caller.replace(any_line(frame)), any_line(frame)));
        }
        without_last_line(&mut path);
        let is_truncated = path.len() > WHOLE_MAX;
        let is_unproved = said.minor < 13 && is_truncated && !spin.crosses_c();
        let expected = self.expected.entry(path).or_default();
        expected.seconds += spin.seconds;
        expected.hot.extend(spin.hot.iter().copied());
        expected.is_truncated = is_truncated;
        expected.is_unproved = is_unproved;
    }

    /// Every expected stack appears as often as it should, and no other.
    pub(crate) fn judge(mut self, stacks: &[Stack], rate: u32) -> Result<()> {
        let mut cut = CutNames::default();
        let (mut passing, mut unproved) = (0, 0);
        let mut judged = 0;
        let mut wrong = Vec::new();
        for stack in stacks {
            // Where it runs is not the program's to say.
            let frames = stack
                .frames
                .iter()
                .filter(|frame| !is_marker(frame, Marker::Gc));
            let frames: Vec<_> = frames.map(|frame| cut.shown(frame)).collect();
            if is_unjudged(&frames) {
                continue;
            }
            judged += stack.count;
            if let Some((expected, line)) = self.find(&frames) {
                *expected.seen.entry(line).or_default() += stack.count;
            } else if self.is_passing(&frames) {
                passing += stack.count;
            } else if frames
                .iter()
                .any(|frame| is_marker(frame, Marker::FreedCode))
            {
                unproved += stack.count;
            } else {
                wrong.push(brief(&frames));
            }
        }
        let some = &wrong[..wrong.len().min(SHOWN_MAX)];
        ensure!(
            wrong.is_empty(),
            "{} stacks never were, such as {some:#?}",
            wrong.len()
        );
        // A coroutine's function, made anew each time, may be met once and never again.
        ensure!(
            unproved <= 1 + judged / 1_000,
            "{unproved} of {judged} samples are not proved"
        );
        ensure!(
            passing <= 3 + judged / 100,
            Shortage::Passing { passing, judged }
        );
        ensure!(cut.counts() == self.cut.counts(), "cut names: {cut:?}");
        for (path, expected) in &self.expected {
            if expected.is_unproved && expected.seen.is_empty() {
                continue;
            }
            expected
                .judge(rate, self.lines)
                .map_err(|error| error.context(brief(path)))?;
        }
        Ok(())
    }

    /// The expected stack that this is, and its innermost line.
    fn find(&mut self, frames: &[Frame]) -> Option<(&mut Expected, Option<u32>)> {
        let mut path = frames.to_vec();
        let line = without_last_line(&mut path);
        let is_hot = |expected: &Expected| line.is_none_or(|line| expected.hot.contains_key(&line));
        if !is_marker(frames.first()?, Marker::Truncated) {
            let expected = self
                .expected
                .get_mut(&path)
                .filter(|e| is_hot(e) && !e.is_truncated)?;
            return Some((expected, line));
        }
        let kept = &path[1..];
        let (_, expected) = self.expected.iter_mut().find(|(path, expected)| {
            expected.is_truncated
                && is_hot(expected)
                && kept.len() >= KEPT_MIN
                && path.ends_with(kept)
        })?;
        Some((expected, line))
    }

    /// On the way from one place to another: known calls, then maybe one function that is no
    /// place, and maybe the standard library.
    fn is_passing(&self, frames: &[Frame]) -> bool {
        // The kernel is just giving a new thread, or a new depth, its memory.
        if frames
            .first()
            .is_some_and(|outermost| is_marker(outermost, Marker::PageFault))
        {
            return true;
        }
        let library = |frame: &&Frame| {
            frame.file.contains("/lib/python3") || frame.file.starts_with("<frozen ")
        };
        let inside = frames.iter().rev().take_while(library).count();
        let own = &frames[..frames.len() - inside];
        let (mut caller, own) = match own {
            [marker, outermost, inner @ ..] if is_marker(marker, Marker::Truncated) => {
                (Some(any_line(outermost)), inner)
            }
            whole => (None, whole),
        };
        let known = own.iter().take_while(|frame| {
            let call = (caller.replace(any_line(frame)), any_line(frame));
            self.calls.contains(&call)
        });
        let known = known.count();
        let rest = own.get(known..).unwrap_or_default();
        let is_own = |frame: &Frame| {
            frame.file.ends_with(".py") && frame.line.is_some() == (self.lines == Lines::Line)
        };
        rest.len() <= 1 && rest.iter().all(is_own)
    }
}

impl Expected {
    fn judge(&self, rate: u32, lines: Lines) -> Result<()> {
        let due = self.seconds * f64::from(rate);
        let seen: u64 = self.seen.values().sum();
        // The spread if they came at random, and what a start in a busy machine may cost.
        let spread = 4.0 * due.sqrt() + 2.0;
        let is_near = (seen as f64 - due).abs() <= spread;
        ensure!(seen > 0 && is_near, Shortage::Near { seen, due });
        let count = |line: &u32| self.seen.get(&Some(*line)).copied().unwrap_or(0) as f64;
        let shared = || {
            self.hot
                .iter()
                .filter_map(|(line, share)| Some((line, (*share)?)))
        };
        let total: f64 = shared().map(|(line, _)| count(line)).sum();
        for (line, share) in shared().filter(|_| lines == Lines::Line) {
            let ours = count(line) / total;
            let spread = SHARE
                + if due < ENOUGH {
                    2.0 * (share * (1.0 - share) / due).sqrt()
                } else {
                    0.0
                };
            ensure!(
                (ours - share).abs() <= spread,
                "line {line} has {ours:.3}, not {share}"
            );
        }
        Ok(())
    }
}
