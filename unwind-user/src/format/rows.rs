//! A profile reduced to what a format tells apart.

use super::{Natives, Options, Recursion, Roots};
use crate::profile::{
    Frame, FrameId, IdHash, Interner, Marker, ProcessKey, Profile, StackId, ThreadKey,
};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// What a row is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// The whole profile.
    Whole,
    /// One process.
    Process(ProcessKey),
    /// One thread.
    Thread(ThreadKey),
}

/// A node of the tree of stacks; 0 is its root, the stack without frames.
pub(super) type Node = u32;
/// The root.
pub(super) const ROOT: Node = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Link {
    parent: Node,
    entry: u32,
}

/// Counted stacks of entries, where an entry is whatever a format writes for a frame: frames with
/// equal entries become one.
pub(super) struct Rows<E> {
    entries: Interner<E>,
    links: Interner<Link, IdHash>,
    counts: BTreeMap<(Part, Node), u64>,
}

impl<E: Clone + Eq + Hash> Rows<E> {
    /// The stacks of `profile`, counted by `part`, each with what `roots` gives in front.
    pub(super) fn collect(
        profile: &Profile,
        options: &Options,
        part: impl Fn(ThreadKey) -> Part,
        roots: impl Fn(ThreadKey) -> Vec<E>,
        entry: impl Fn(FrameId) -> E,
    ) -> Self {
        let mut rows = Self {
            entries: Interner::default(),
            links: Interner::default(),
            counts: BTreeMap::new(),
        };
        rows.links.intern(
            Link {
                parent: ROOT,
                entry: u32::MAX,
            },
            u32::MAX,
        );
        let is_hidden = |frame| {
            let is_native = profile.tables.frame_at(frame) == Frame::Marker(Marker::Native);
            is_native && options.natives == Natives::Hidden
        };
        let mut entry_of: HashMap<FrameId, Option<u32>, IdHash> = HashMap::default();
        let mut node_of: HashMap<(Node, StackId), Node, IdHash> = HashMap::default();
        let mut pending = Vec::new();
        for (thread, stack, count) in profile.sorted_samples() {
            let mut root = ROOT;
            for entry in roots(thread) {
                let entry = rows.entry(entry);
                root = rows.push(root, entry);
            }
            // Stacks share their outer frames: go out only to the first stack met before.
            let mut node = root;
            let mut next = Some(stack);
            while let Some(stack) = next {
                if let Some(&known) = node_of.get(&(root, stack)) {
                    node = known;
                    break;
                }
                pending.push(stack);
                next = profile.tables.parent(stack);
            }
            while let Some(stack) = pending.pop() {
                let frame = profile.tables.leaf(stack);
                let entry = *entry_of
                    .entry(frame)
                    .or_insert_with(|| (!is_hidden(frame)).then(|| rows.entry(entry(frame))));
                if let Some(entry) = entry {
                    let is_recursion = node != root && rows.leaf(node) == entry;
                    if !(is_recursion && options.recursion == Recursion::Folded) {
                        node = rows.push(node, entry);
                    }
                }
                node_of.insert((root, stack), node);
            }
            let total = rows.counts.entry((part(thread), node)).or_insert(0);
            *total = total.saturating_add(count);
        }
        rows
    }

    /// The distinct entries; the numbers of [`Rows::innermost_first`] index them.
    pub(super) fn entries(&self) -> &[E] {
        self.entries.values()
    }

    /// The rows, by part. Their stacks have at least one frame.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Part, Node, u64)> + '_ {
        self.counts
            .iter()
            .map(|(&(part, node), &count)| (part, node, count))
    }

    /// The number of nodes. A node's parent has a smaller number than the node.
    pub(super) fn nodes(&self) -> usize {
        self.links.values().len()
    }

    /// The node's parent; the root is its own.
    pub(super) fn parent(&self, node: Node) -> Node {
        self.links.get(node).parent
    }

    /// The node's innermost entry. Not for the root.
    pub(super) fn leaf(&self, node: Node) -> u32 {
        self.links.get(node).entry
    }

    /// The entries of a stack.
    pub(super) fn innermost_first(&self, node: Node) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(node), |&node| Some(self.parent(node)))
            .take_while(|&node| node != ROOT)
            .map(|node| self.leaf(node))
    }

    // Memory ends long before the 2^32 entries or nodes that would not fit.
    fn entry(&mut self, entry: E) -> u32 {
        self.entries.intern(entry, u32::MAX).unwrap_or(0)
    }

    fn push(&mut self, parent: Node, entry: u32) -> Node {
        self.links
            .intern(Link { parent, entry }, u32::MAX)
            .unwrap_or(ROOT)
    }
}

/// What tells threads apart where a format has a place of its own for that.
pub(super) fn part_by(options: &Options) -> impl Fn(ThreadKey) -> Part {
    let roots = options.roots;
    move |thread| match roots {
        Roots::Merged => Part::Process(thread.process()),
        Roots::Threads => Part::Thread(thread),
    }
}

/// Whether samples come from more than one process (or program of one).
pub(super) fn has_several_processes(profile: &Profile) -> bool {
    let mut keys = profile.samples.keys().map(|(thread, _)| thread.process());
    let first = keys.next();
    keys.any(|process| Some(process) != first)
}
