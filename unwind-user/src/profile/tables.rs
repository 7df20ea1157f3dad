//! Numbers for names, functions, frames and stacks.

use super::hash::IdHash;
use super::intern::Interner;
use super::{Frame, Function, Location, Marker, name};
use std::sync::Arc;

/// A function of one [`Tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(u32);

/// A frame of one [`Tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

/// A stack of one [`Tables`]; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(u32);

/// How much [`Tables`] hold. Beyond it, [`Marker::ProfileFull`] stands in for what is new.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of names.
    pub name_bytes: usize,
    /// Functions.
    pub functions: u32,
    /// Frames: distinct places in functions.
    pub frames: u32,
    /// Nodes of the prefix tree of stacks, about 30 bytes each.
    pub stacks: u32,
}

impl Default for Limits {
    /// About 110 MB when all are reached, which takes a program of that many distinct stacks.
    fn default() -> Self {
        Self {
            name_bytes: 32 << 20,
            functions: 1 << 18,
            frames: 1 << 19,
            stacks: 1 << 21,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FunctionKey {
    name: u32,
    file: u32,
    first_line: u32,
}

/// A stack is the path from the root of a tree to a node. Node 0 is the root: no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackKey {
    parent: u32,
    frame: u32,
}

const ROOT: u32 = 0;
/// What every table holds in place of anything that it has no room for.
const FULL_FRAME: FrameId = FrameId(0);
const FULL_FUNCTION: FunctionId = FunctionId(0);
const FULL_STACK: StackId = StackId(1);

/// Interned names, functions, frames and stacks.
///
/// Ids are small numbers in the order of first sight, so equal input gives equal ids. They are
/// good for the tables that gave them and for clones of these; with other tables they name
/// something else or panic. Looking up what is known allocates nothing, unless a name is longer
/// than [`super::NAME_BYTES_MAX`].
#[derive(Clone, Debug)]
pub struct Tables {
    limits: Limits,
    name_bytes: usize,
    refused: u64,
    names: Interner<Arc<str>>,
    functions: Interner<FunctionKey>,
    frames: Interner<Frame>,
    stacks: Interner<StackKey, IdHash>,
}

impl Default for Tables {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Tables {
    /// Empty tables that grow up to `limits`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let mut tables = Self {
            limits,
            name_bytes: 0,
            refused: 0,
            names: Interner::default(),
            functions: Interner::default(),
            frames: Interner::default(),
            stacks: Interner::default(),
        };
        // The stand-ins must exist before they are needed. The line sets the function apart from
        // one that a target names like this.
        tables
            .names
            .intern(Arc::from(Marker::ProfileFull.text()), 1);
        tables.functions.intern(
            FunctionKey {
                name: 0,
                file: 0,
                first_line: u32::MAX,
            },
            1,
        );
        tables.frames.intern(Frame::Marker(Marker::ProfileFull), 1);
        tables.stacks.intern(
            StackKey {
                parent: ROOT,
                frame: u32::MAX,
            },
            1,
        );
        tables.stacks.intern(
            StackKey {
                parent: ROOT,
                frame: FULL_FRAME.0,
            },
            2,
        );
        tables
    }

    /// The function of this qualified name and file whose `def` is on `first_line` (0: unknown).
    pub fn function(&mut self, name: &str, file: &str, first_line: u32) -> FunctionId {
        let (Some(name), Some(file)) = (self.name(name), self.name(file)) else {
            return FULL_FUNCTION;
        };
        let key = FunctionKey {
            name,
            file,
            first_line,
        };
        let number = self.functions.intern(key, self.limits.functions);
        number
            .map(FunctionId)
            .unwrap_or_else(|| self.refuse(FULL_FUNCTION))
    }

    /// The frame of `function` executing at `location`.
    pub fn frame(&mut self, function: FunctionId, location: Location) -> FrameId {
        if function == FULL_FUNCTION {
            return FULL_FRAME;
        }
        self.frame_of(Frame::Python { function, location })
    }

    /// The frame that is this marker.
    pub fn marker(&mut self, marker: Marker) -> FrameId {
        self.frame_of(Frame::Marker(marker))
    }

    /// The stack that is `parent` (`None`: no frames yet) with `frame` called by its innermost.
    pub fn push(&mut self, parent: Option<StackId>, frame: FrameId) -> StackId {
        if parent == Some(FULL_STACK) {
            return FULL_STACK;
        }
        let key = StackKey {
            parent: parent.map_or(ROOT, |stack| stack.0),
            frame: frame.0,
        };
        let number = self.stacks.intern(key, self.limits.stacks);
        number
            .map(StackId)
            .unwrap_or_else(|| self.refuse(FULL_STACK))
    }

    /// The stack of these frames; of [`Marker::NoPythonFrames`] when there are none.
    pub fn stack(&mut self, outermost_first: impl IntoIterator<Item = FrameId>) -> StackId {
        let mut stack = None;
        for frame in outermost_first {
            stack = Some(self.push(stack, frame));
        }
        stack.unwrap_or_else(|| {
            let frame = self.marker(Marker::NoPythonFrames);
            self.push(None, frame)
        })
    }

    /// The names and first line of a function.
    #[must_use]
    pub fn function_of(&self, id: FunctionId) -> Function<'_> {
        let key = self.functions.get(id.0);
        Function {
            name: self.names.get(key.name),
            file: self.names.get(key.file),
            first_line: key.first_line,
        }
    }

    /// What a frame is.
    #[must_use]
    pub fn frame_at(&self, id: FrameId) -> Frame {
        *self.frames.get(id.0)
    }

    /// The innermost frame of a stack.
    #[must_use]
    pub fn leaf(&self, stack: StackId) -> FrameId {
        FrameId(self.stacks.get(stack.0).frame)
    }

    /// The stack without its innermost frame; nothing if that was the only one.
    #[must_use]
    pub fn parent(&self, stack: StackId) -> Option<StackId> {
        Some(self.stacks.get(stack.0).parent)
            .filter(|&parent| parent != ROOT)
            .map(StackId)
    }

    /// The frames of a stack, innermost first. Allocates nothing.
    pub fn innermost_first(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(Some(stack), |&stack| self.parent(stack))
            .map(|stack| self.leaf(stack))
    }

    /// The frames of a stack, outermost first; at least one.
    #[must_use]
    pub fn frames_of(&self, stack: StackId) -> Vec<FrameId> {
        let mut frames: Vec<_> = self.innermost_first(stack).collect();
        frames.reverse();
        frames
    }

    /// How often something new was refused for want of room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn name(&mut self, name: &str) -> Option<u32> {
        let name = name::cut(name);
        if let Some(number) = self.names.find(&*name) {
            return Some(number);
        }
        if self.name_bytes.saturating_add(name.len()) > self.limits.name_bytes {
            return self.refuse(None);
        }
        self.name_bytes += name.len();
        self.names.intern(Arc::from(&*name), u32::MAX)
    }

    fn frame_of(&mut self, frame: Frame) -> FrameId {
        let number = self.frames.intern(frame, self.limits.frames);
        number
            .map(FrameId)
            .unwrap_or_else(|| self.refuse(FULL_FRAME))
    }

    fn refuse<T>(&mut self, instead: T) -> T {
        self.refused = self.refused.saturating_add(1);
        instead
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
