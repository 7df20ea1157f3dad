//! What of a flame graph is worth drawing.

use super::super::rows::{Node, ROOT};
use super::super::tree::Tree;

/// How large the picture may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Frames narrower than this share of all samples are not drawn: at 1,200 pixels, an eighth
    /// of a pixel.
    pub(super) min_share: f64,
    /// Most bytes of SVG.
    pub(super) svg_bytes: u64,
    /// Most bytes of folded lines held while drawing: deep stacks repeat their outer frames.
    pub(super) line_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            min_share: 0.0001,
            svg_bytes: 16 << 20,
            line_bytes: 96 << 20,
        }
    }
}

/// Bytes of SVG around the label of one frame: its group, title, rectangle and text.
const FRAME_BYTES: u64 = 260;

/// A tree cut to its widest nodes.
pub(super) struct Pruned {
    /// Samples whose drawn stack ends at the node; what was cut counts for the node it hung on.
    pub(super) own: Vec<u64>,
    cut: u64,
    total: u64,
}

impl Pruned {
    /// The share of samples whose stack is not drawn to its end, if any.
    pub(super) fn percent(&self) -> Option<String> {
        let percent = 100.0 * self.cut as f64 / self.total as f64;
        (self.cut > 0).then(|| match percent {
            0.1.. => format!("{percent:.1} %"),
            _ => "less than 0.1 %".to_owned(),
        })
    }
}

/// Keeps the widest nodes of `tree` that fit into `budget`.
pub(super) fn prune(tree: &Tree, budget: Budget) -> Pruned {
    let n = tree.own().len();
    let mut totals = tree.own().to_vec();
    for node in (1..n).rev() {
        let parent = index(tree.parent(number(node)));
        totals[parent] = totals[parent].saturating_add(totals[node]);
    }
    let total = totals[index(ROOT)];
    // A node is at most as wide as its parent and has a larger number: it comes after it.
    let mut widest: Vec<Node> = (1..).take(n.saturating_sub(1)).collect();
    widest.sort_unstable_by_key(|&node| (std::cmp::Reverse(totals[index(node)]), node));

    let min = (total as f64 * budget.min_share).ceil() as u64;
    let mut own = vec![0; n];
    own[index(ROOT)] = total;
    let mut line_len = vec![0_u64; n];
    let (mut svg_bytes, mut line_bytes) = (0_u64, 0_u64);
    for node in widest {
        let (at, parent) = (index(node), index(tree.parent(node)));
        let label = tree.label(node);
        line_len[at] = line_len[parent] + label.len() as u64 + 1;
        // The label stands in the title, and once more if it fits.
        svg_bytes += FRAME_BYTES + 2 * markup_len(label);
        line_bytes += line_len[at];
        if own[parent] == totals[at] {
            // The parent's line goes away: all its samples go on into this node.
            line_bytes = line_bytes.saturating_sub(line_len[parent]);
        }
        if totals[at] < min || svg_bytes > budget.svg_bytes || line_bytes > budget.line_bytes {
            break;
        }
        own[at] = totals[at];
        own[parent] = own[parent].saturating_sub(totals[at]);
    }
    let cut = own
        .iter()
        .zip(tree.own())
        .fold(0_u64, |sum, (drawn, true_own)| {
            sum.saturating_add(drawn.saturating_sub(*true_own))
        });
    Pruned { own, cut, total }
}

/// Bytes of `text` as XML.
fn markup_len(text: &str) -> u64 {
    let markup = text
        .bytes()
        .filter(|byte| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\''));
    text.len() as u64 + 5 * markup.count() as u64
}

fn index(node: Node) -> usize {
    node as usize
}

/// Nodes are counted in `u32`.
fn number(index: usize) -> Node {
    u32::try_from(index).unwrap_or(ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Options;
    use crate::profile::{Location, Profile, ThreadKey};

    /// `a` calls `b` (90) and `c` (9), and runs 1 itself.
    fn tree() -> Tree {
        let mut profile = Profile::default();
        let tables = &mut profile.tables;
        let [a, b, c] = ["a", "b", "c"].map(|name| {
            let function = tables.function(name, "f", 1);
            tables.frame(function, Location::default())
        });
        let stacks = [vec![a], vec![a, b], vec![a, c]].map(|frames| tables.stack(frames));
        for (stack, count) in stacks.into_iter().zip([1, 90, 9]) {
            profile.add(
                ThreadKey {
                    pid: 1,
                    image: 0,
                    tid: 1,
                },
                stack,
                count,
            );
        }
        Tree::new(&profile, &Options::default())
    }

    #[track_caller]
    fn check(budget: Budget, expected_own: [u64; 4], expected_percent: Option<&str>) {
        let pruned = prune(&tree(), budget);
        assert_eq!(pruned.own, expected_own);
        assert_eq!(pruned.percent().as_deref(), expected_percent);
    }

    #[test]
    fn what_is_wide_enough_is_kept() {
        check(Budget::default(), [0, 1, 90, 9], None);
    }

    #[test]
    fn narrow_frames_count_for_their_callers() {
        check(
            Budget {
                min_share: 0.1,
                ..Budget::default()
            },
            [0, 10, 90, 0],
            Some("9.0 %"),
        );
    }

    #[test]
    fn a_small_budget_keeps_the_widest() {
        let budget = Budget {
            svg_bytes: 2 * (FRAME_BYTES + 20),
            ..Budget::default()
        };
        check(budget, [0, 10, 90, 0], Some("9.0 %"));
        // "a (f)" and a separator are 6 bytes, "a (f);b (f)" are 12.
        check(
            Budget {
                line_bytes: 18,
                ..Budget::default()
            },
            [0, 10, 90, 0],
            Some("9.0 %"),
        );
        check(
            Budget {
                line_bytes: 30,
                ..Budget::default()
            },
            [0, 1, 90, 9],
            None,
        );
    }

    #[test]
    fn no_budget_keeps_the_samples() {
        let budget = Budget {
            svg_bytes: 0,
            ..Budget::default()
        };
        check(budget, [100, 0, 0, 0], Some("100.0 %"));
    }
}
