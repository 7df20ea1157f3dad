//! Walks a frame chain.

use crate::layout::{CurrentFrame, Entry, FrameLayout, Instr, Layout};
use crate::memory::{Addr, Fault, Memory};

/// Frames followed at most, so that a cycle ends; what the kernel half follows, too.
pub const DEPTH_MAX: u32 = unwind_ebpf::abi::FRAMES_MAX;

/// The parts of a `_PyInterpreterFrame` that a walk needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHead {
    /// Code object, tag bits included.
    pub code: Addr,
    /// The caller's frame.
    pub previous: Addr,
    /// `prev_instr` or `instr_ptr`.
    pub instr: Addr,
    /// Who owns the frame.
    pub owner: u8,
    /// `is_entry` where the layout has one.
    pub flag: u8,
}

/// Where a walk takes frames from.
pub trait Frames {
    /// The frame at `addr`.
    ///
    /// # Errors
    /// [`Fault`] when it is not there.
    fn head(&self, addr: Addr) -> Result<FrameHead, Fault>;
}

/// Frames parsed from target memory.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a, M> {
    /// How frames look.
    pub layout: &'a FrameLayout,
    /// Where they are.
    pub memory: M,
}

/// Longest frame header of any layout; `Layout::validate` checks it.
const HEADER_MAX: usize = unwind_ebpf::abi::FRAME_WORDS_MAX * 8;

impl<M: Memory> Frames for Parsed<'_, M> {
    fn head(&self, addr: Addr) -> Result<FrameHead, Fault> {
        let layout = self.layout;
        let mut bytes = [0; HEADER_MAX];
        let len = (layout.localsplus as usize).min(HEADER_MAX);
        let fault = Fault { addr, len };
        let header = bytes.get_mut(..len).ok_or(fault)?;
        self.memory.read(addr, header)?;
        let header = &*header;
        let word = |offset: u64| {
            let at = offset as usize;
            let bytes = header
                .get(at..at + 8)
                .and_then(|b| b.try_into().ok())
                .ok_or(fault)?;
            Ok(Addr(u64::from_le_bytes(bytes)))
        };
        let byte = |offset: u64| header.get(offset as usize).copied().ok_or(fault);
        let (Instr::Previous(instr) | Instr::Current(instr)) = layout.instr;
        let flag = if let Entry::Flag(offset) = layout.entry {
            byte(offset)?
        } else {
            0
        };
        Ok(FrameHead {
            code: word(layout.code)?,
            previous: word(layout.previous)?,
            instr: word(instr)?,
            owner: byte(layout.owner)?,
            flag,
        })
    }
}

/// A Python function's frame: which code, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawFrame {
    /// Code object, without tag bits.
    pub code: Addr,
    /// `prev_instr` or `instr_ptr`.
    pub instr: Addr,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the bottom of the stack.
    Complete,
    /// A frame was not there.
    Fault(Fault),
    /// After [`DEPTH_MAX`] frames.
    TooDeep,
    /// At a frame whose owner this version does not have.
    BadOwner(u8),
    /// At a NULL that is not the bottom.
    Broken,
}

/// Appends the Python frames from `first` on to `out`, innermost first, and says why it stopped
/// and how many frames it met, entry frames included. Frames found before the stop are kept.
pub fn walk(
    layout: &Layout,
    frames: &impl Frames,
    first: Addr,
    base_frame: Addr,
    out: &mut Vec<RawFrame>,
) -> (End, u32) {
    let frame = &layout.frame;
    let has_base = matches!(layout.thread.current, CurrentFrame::Based { .. });
    let mut next = first;
    let mut met = 0;
    while met < DEPTH_MAX {
        if next.is_null() || next == base_frame {
            let bottom = if has_base {
                next == base_frame
            } else {
                met == 0
            };
            return (if bottom { End::Complete } else { End::Broken }, met);
        }
        let head = match frames.head(next) {
            Ok(head) => head,
            Err(fault) => return (End::Fault(fault), met),
        };
        if head.owner > frame.owner_max {
            return (End::BadOwner(head.owner), met);
        }
        met += 1;
        let (is_python, is_entry) = match frame.entry {
            Entry::Flag(_) => (true, head.flag != 0),
            Entry::Owner(entry) => (head.owner < entry, head.owner >= entry),
        };
        let code = Addr(head.code.0 & !frame.code_tag);
        if is_python && !code.is_null() {
            out.push(RawFrame {
                code,
                instr: head.instr,
            });
        }
        if head.previous.is_null() && !has_base {
            let any = matches!(frame.entry, Entry::Flag(_));
            return (
                if any || is_entry {
                    End::Complete
                } else {
                    End::Broken
                },
                met,
            );
        }
        next = head.previous;
    }
    (End::TooDeep, met)
}
