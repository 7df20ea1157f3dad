//! Folded stacks: a line each, its frames outermost first and joined by `;`, a space, the count.
//!
//! Each frame is a [`Label`]; lines are sorted frame by frame. A profile without samples is an
//! empty file.

use super::Options;
use super::label::{Label, LabelError};
use super::tree::Tree;
use crate::profile::Profile;
use std::io::{self, Write};

/// A line read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Frames, outermost first; at least one.
    pub frames: Vec<Label>,
    /// Samples.
    pub count: u64,
}

/// Why a line is no folded stack of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It does not end with a space and a number.
    #[error("the line has no count")]
    NoCount,
    /// A frame is not one of ours.
    #[error(transparent)]
    Frame(#[from] LabelError),
}

/// Reads one line, without its line end.
///
/// # Errors
/// When the line is not of the form that [`super::write`] gives it.
pub fn parse_line(line: &str) -> Result<Line, LineError> {
    let (stack, count) = line.rsplit_once(' ').ok_or(LineError::NoCount)?;
    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
    let count = count
        .parse()
        .ok()
        .filter(|_| is_number)
        .ok_or(LineError::NoCount)?;
    let frames = stack
        .split(';')
        .map(Label::parse)
        .collect::<Result<_, _>>()?;
    Ok(Line { frames, count })
}

/// The line of `stack`, without its line end; what [`parse_line`] reads.
#[must_use]
pub fn render_line(line: &Line) -> String {
    let frames: Vec<_> = line.frames.iter().map(Label::to_string).collect();
    format!("{} {}", frames.join(";"), line.count)
}

pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let tree = Tree::new(profile, options);
    for_each_line(&tree, tree.own(), |stack, count| {
        writeln!(out, "{stack} {count}")
    })
}

/// Calls `f` with each stack of `tree` that `own` has samples for, in order.
pub(super) fn for_each_line(
    tree: &Tree,
    own: &[u64],
    mut f: impl FnMut(&str, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut stack = String::new();
    // Where the frame of each depth ends in `stack`.
    let mut ends = vec![0];
    for &(node, depth) in tree.order() {
        ends.truncate(depth);
        stack.truncate(ends.last().copied().unwrap_or(0));
        if depth > 1 {
            stack.push(';');
        }
        stack.push_str(tree.label(node));
        ends.push(stack.len());
        let count = own[node as usize];
        if count > 0 {
            f(&stack, count)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::label::tests::label;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_line_comes_back(
            frames in proptest::collection::vec(label(), 1..6),
            count in any::<u64>(),
        ) {
            let line = Line { frames, count };
            let rendered = render_line(&line);
            prop_assert_eq!(rendered.lines().count(), 1);
            prop_assert_eq!(parse_line(&rendered), Ok(line));
        }
    }

    #[test]
    fn lines_of_others_are_refused() {
        for line in ["", "f (a)", "f (a) x", "f (a) +1", "f (a) 1.5"] {
            assert_eq!(parse_line(line), Err(LineError::NoCount), "{line}");
        }
        assert!(matches!(parse_line("main;f 3"), Err(LineError::Frame(_))));
        assert!(matches!(parse_line(" 3"), Err(LineError::Frame(_))));
    }
}
