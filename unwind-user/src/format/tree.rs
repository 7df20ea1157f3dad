//! Labelled stacks as a tree in the order in which they are written.

use super::label::Label;
use super::rows::{Node, Part, ROOT, Rows, has_several_processes};
use super::{Options, Roots};
use crate::profile::{Profile, ThreadKey};

/// The stacks of a profile as their labels' texts.
pub(super) struct Tree {
    rows: Rows<String>,
    /// Samples whose stack ends at the node.
    own: Vec<u64>,
    /// Nodes but the root and their depth (1 is outermost): parents first, siblings by label.
    order: Vec<(Node, usize)>,
}

impl Tree {
    pub(super) fn new(profile: &Profile, options: &Options) -> Self {
        let several = has_several_processes(profile);
        let roots = |thread: ThreadKey| {
            let process = several.then(|| Label::of_process(profile, thread.process()));
            let apart = options.roots == Roots::Threads;
            let thread = apart.then(|| Label::of_thread(profile, thread));
            process
                .into_iter()
                .chain(thread)
                .map(|label| label.to_string())
                .collect()
        };
        let rows = Rows::collect(
            profile,
            options,
            |_| Part::Whole,
            roots,
            |frame| Label::of_frame(profile, frame, options.lines).to_string(),
        );
        let mut own = vec![0; rows.nodes()];
        for (_, node, count) in rows.iter() {
            own[node as usize] = count;
        }
        let order = preorder(&rows);
        Self { rows, own, order }
    }

    pub(super) fn order(&self) -> &[(Node, usize)] {
        &self.order
    }

    pub(super) fn own(&self) -> &[u64] {
        &self.own
    }

    pub(super) fn parent(&self, node: Node) -> Node {
        self.rows.parent(node)
    }

    pub(super) fn label(&self, node: Node) -> &str {
        &self.rows.entries()[self.rows.leaf(node) as usize]
    }
}

fn preorder(rows: &Rows<String>) -> Vec<(Node, usize)> {
    let mut by_label: Vec<u32> = (0..).take(rows.entries().len()).collect();
    by_label.sort_unstable_by_key(|&entry| &rows.entries()[entry as usize]);
    let mut rank = vec![0; by_label.len()];
    for (i, entry) in (0_u32..).zip(by_label) {
        rank[entry as usize] = i;
    }
    // Siblings lie together, the last one first: as they are to be pushed.
    let mut nodes: Vec<Node> = (1..).take(rows.nodes().saturating_sub(1)).collect();
    nodes.sort_unstable_by_key(|&node| {
        (
            rows.parent(node),
            std::cmp::Reverse(rank[rows.leaf(node) as usize]),
        )
    });
    let mut order = Vec::with_capacity(nodes.len());
    let mut pending = Vec::new();
    let push_children = |pending: &mut Vec<_>, node, depth| {
        let begin = nodes.partition_point(|&child| rows.parent(child) < node);
        let children = nodes[begin..]
            .iter()
            .take_while(|&&child| rows.parent(child) == node);
        pending.extend(children.map(|&child| (child, depth)));
    };
    push_children(&mut pending, ROOT, 1);
    while let Some((node, depth)) = pending.pop() {
        order.push((node, depth));
        push_children(&mut pending, node, depth + 1);
    }
    order
}
