//! Judges stacks by what a program says of itself: where they may begin, and who may call whom.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;
use unwind_tests::Profile;
use unwind_user::format::Label;
use unwind_user::profile::Marker;

/// What `programs/shapes.py` says.
#[derive(Debug)]
pub(crate) struct Rules {
    roots: HashSet<String>,
    edges: HashMap<String, HashSet<String>>,
    depth: usize,
}

/// What the stacks of a profile amount to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Samples with a legal stack.
    pub(crate) good: u64,
    /// Samples by illegal stack.
    bad: BTreeMap<String, u64>,
    /// Samples that say that they lack something: a page that was not there, a code object that
    /// could not be proved.
    unproved: u64,
    /// Samples of which only the innermost frames are there, all of them legal.
    pub(crate) cut: u64,
    /// Legal samples by the kind of their leaf.
    pub(crate) leaves: BTreeMap<String, u64>,
    /// Samples by function on the stack, once a stack.
    pub(crate) on_stack: BTreeMap<String, u64>,
    /// Frames of the deepest legal stack.
    pub(crate) deepest: usize,
}

/// A function's name without the number of its lane: `work` of `work_3`.
pub(crate) fn kind(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((kind, lane)) if lane.bytes().all(|byte| byte.is_ascii_digit()) => kind,
        _ => name,
    }
}

impl Rules {
    /// Reads them from the program's first line.
    pub(crate) fn read(said: &Value) -> Result<Self, String> {
        let malformed = || format!("no rules: {said}");
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(malformed);
        let list = |value: &Value| value.as_array().cloned().ok_or_else(malformed);
        let roots = list(&said["roots"])?
            .iter()
            .map(text)
            .collect::<Result<_, _>>()?;
        let mut edges = HashMap::<_, HashSet<_>>::new();
        for pair in list(&said["edges"])? {
            edges
                .entry(text(&pair[0])?)
                .or_default()
                .insert(text(&pair[1])?);
        }
        let depth = said["depth"].as_u64().ok_or_else(malformed)? as usize;
        Ok(Self {
            roots,
            edges,
            depth,
        })
    }

    fn is_legal(&self, names: &[&str]) -> bool {
        names
            .first()
            .is_some_and(|first| self.roots.contains(*first))
            && self.is_chain(names)
    }

    /// Whether each calls the next.
    fn is_chain(&self, names: &[&str]) -> bool {
        let follows = |pair: &[&str]| {
            self.edges
                .get(pair[0])
                .is_some_and(|callees| callees.contains(pair[1]))
        };
        names.len() <= self.depth && names.windows(2).all(follows)
    }

    fn is_cut(&self, frames: &[Label]) -> bool {
        let [Label::Marker(Marker::Truncated), innermost @ ..] = frames else {
            return false;
        };
        let names: Option<Vec<&str>> = innermost.iter().map(function).collect();
        names.is_some_and(|names| self.is_chain(&names))
    }

    /// Judges every stack of a profile.
    pub(crate) fn judge(&self, profile: &Profile) -> Verdict {
        let mut verdict = Verdict::default();
        for line in &profile.lines {
            if line.frames.iter().any(is_freed) {
                verdict.unproved += line.count;
                continue;
            }
            if self.is_cut(&line.frames) {
                verdict.cut += line.count;
                continue;
            }
            let names: Option<Vec<&str>> = line.frames.iter().map(function).collect();
            let names = names.filter(|names| self.is_legal(names));
            let Some(names) = names else {
                let shown: Vec<_> = line.frames.iter().map(ToString::to_string).collect();
                let (head, tail) = shown.split_at(shown.len().min(4));
                let tail = &tail[tail.len().saturating_sub(5)..];
                let text = format!("({}) {} … {}", shown.len(), head.join(";"), tail.join(";"));
                *verdict.bad.entry(text).or_default() += line.count;
                continue;
            };
            verdict.good += line.count;
            verdict.deepest = verdict.deepest.max(names.len());
            if let Some(leaf) = names.last() {
                *verdict.leaves.entry(kind(leaf).to_owned()).or_default() += line.count;
            }
            for name in names.iter().collect::<BTreeSet<_>>() {
                *verdict.on_stack.entry((*name).to_owned()).or_default() += line.count;
            }
        }
        verdict
    }

    /// Functions that no good stack has. The program itself may do nothing but wait.
    pub(crate) fn unseen(&self, verdict: &Verdict) -> Vec<&str> {
        let named = self.edges.values().flatten().chain(&self.roots);
        let working = named.filter(|name| !["<module>", "main"].contains(&name.as_str()));
        let unseen = working.filter(|name| !verdict.on_stack.contains_key(*name));
        unseen
            .map(String::as_str)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}

/// The name of a frame that is a function; a marker is in no legal stack.
fn function(frame: &Label) -> Option<&str> {
    match frame {
        Label::Function { name, .. } => Some(name),
        _ => None,
    }
}

fn is_freed(frame: &Label) -> bool {
    matches!(frame, Label::Marker(Marker::FreedCode | Marker::PageFault))
}

/// Of so many samples one may hold a code object that could not be proved, in programs that keep
/// all of theirs.
const UNPROVED: u64 = 1_000;

impl Verdict {
    /// An error if a stack was illegal or cut, or if too many could not be proved.
    pub(crate) fn all_good(&self) -> Result<(), String> {
        if self.cut > 0 {
            return Err(format!("{} stacks cut", self.cut));
        }
        self.none_bad(UNPROVED)
    }

    /// The same, but stacks may be cut, and one of so many need not be proved.
    pub(crate) fn none_bad(&self, unproved: u64) -> Result<(), String> {
        if self.unproved * unproved > self.good + unproved {
            return Err(format!(
                "{} of {} samples not proved",
                self.unproved, self.good
            ));
        }
        if self.bad.is_empty() && self.good > 0 {
            return Ok(());
        }
        let bad: u64 = self.bad.values().sum();
        let mut worst: Vec<_> = self.bad.iter().collect();
        worst.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        worst.truncate(3);
        Err(format!(
            "{bad} bad stacks and {} good ones, such as {worst:?}",
            self.good
        ))
    }

    /// Share of the good samples whose leaf is of this kind.
    pub(crate) fn share(&self, kind: &str) -> f64 {
        self.leaves.get(kind).copied().unwrap_or(0) as f64 / self.good.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use unwind_user::format::folded::parse_line;

    fn judged(lines: &[&str]) -> Verdict {
        let said = json!({"roots": ["<module>"], "depth": 5, "edges": [
            ["<module>", "main"], ["main", "one_0"], ["one_0", "two_0"],
            ["main", "one_1"], ["one_1", "two_1"], ["two_1", "two_1"],
        ]});
        let lines = lines
            .iter()
            .map(|line| parse_line(line).expect("a line"))
            .collect();
        let profile = Profile {
            lines,
            stats: json!({}),
        };
        Rules::read(&said).expect("rules").judge(&profile)
    }

    #[test]
    fn legal_stacks_are_counted() {
        let verdict = judged(&[
            "<module> (m);main (m);one_0 (m);two_0 (m) 3",
            "<module> (m) 1",
        ]);
        assert_eq!(verdict.all_good(), Ok(()));
        assert_eq!((verdict.good, verdict.deepest), (4, 4));
        assert_eq!((verdict.share("two"), verdict.share("main")), (0.75, 0.0));
    }

    #[test]
    fn each_kind_of_illegal_stack_is_found() {
        for bad in [
            "<module> (m);main (m);one_0 (m);two_1 (m) 1",
            "main (m);one_0 (m) 1",
            "<module> (m);one_0 (m) 1",
            "<module> (m);main (m);<freed code> 2",
            "[truncated];main (m);one_0 (m) 1",
            "<module> (m);main (m);one_1 (m);two_1 (m);two_1 (m);two_1 (m) 1",
        ] {
            assert!(
                judged(&["<module> (m);main (m) 9", bad])
                    .all_good()
                    .is_err(),
                "{bad}"
            );
        }
        assert!(
            judged(&[]).all_good().is_err(),
            "an empty profile shows nothing"
        );
    }
}
