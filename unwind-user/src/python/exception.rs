//! Whether a thread raises or handles an exception.

use crate::layout::Layout;
use crate::memory::{Addr, Memory};

/// `PyObject.ob_type`.
const OBJECT_TYPE: u64 = 8;
/// `PyTypeObject.tp_flags`.
const TYPE_FLAGS: u64 = 168;
/// `Py_TPFLAGS_BASE_EXC_SUBCLASS`.
const IS_EXCEPTION: u64 = 1 << 30;
/// Generators and coroutines within each other, each with an item of its own, that are looked at.
const ITEMS_MAX: usize = 1024;

/// Whether the thread with this state raises an exception, or handles one: in the function that
/// runs, or in one that waits for it, generators and coroutines included. Nothing where the build
/// does not tell, or the memory cannot be read.
///
/// As `_PyErr_GetTopmostException` does, items without an exception are skipped: `exc_value` is
/// NULL there, or `None`, which is told from an exception by its type.
#[must_use]
pub fn has_exception(memory: &dyn Memory, layout: &Layout, state: Addr) -> Option<bool> {
    let exceptions = layout.thread.exceptions?;
    if memory.u64(state.add(exceptions.current)).ok()? != 0 {
        return Some(true);
    }
    let mut item = memory.addr(state.add(exceptions.info)).ok()?;
    for _ in 0..ITEMS_MAX {
        if item.is_null() {
            return Some(false);
        }
        // `_PyErr_StackItem`: exc_value, previous_item.
        let value = memory.addr(item).ok()?;
        if !value.is_null() && is_exception(memory, value)? {
            return Some(true);
        }
        item = memory.addr(item.add(8)).ok()?;
    }
    None
}

fn is_exception(memory: &dyn Memory, object: Addr) -> Option<bool> {
    let kind = memory.addr(object.add(OBJECT_TYPE)).ok()?;
    let flags = memory.u64(kind.add(TYPE_FLAGS)).ok()?;
    Some(flags & IS_EXCEPTION != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Version, v3_12};
    use crate::memory::Ranges;

    const STATE: u64 = 0x1000;
    const ITEM: u64 = 0x2000;
    const OUTER: u64 = 0x2010;
    const NONE: u64 = 0x3000;
    const ERROR: u64 = 0x3010;
    const NONE_TYPE: u64 = 0x4000;
    const ERROR_TYPE: u64 = 0x5000;

    /// What is told when the thread state and the two items hold these words.
    fn told(current: u64, items: [[u64; 2]; 2]) -> Option<bool> {
        let mut state = vec![0; 512];
        state[96..104].copy_from_slice(&current.to_le_bytes());
        state[104..112].copy_from_slice(&ITEM.to_le_bytes());
        let bytes = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let items = bytes(items.as_flattened());
        let objects = bytes(&[1, NONE_TYPE, 1, ERROR_TYPE]);
        let mut kinds = [[0; 22]; 2];
        kinds[1][21] = IS_EXCEPTION | 1;
        let [none, error] = kinds.map(|kind| bytes(&kind));
        let mut memory = Ranges::new();
        memory.push(Addr(STATE), &state);
        memory.push(Addr(ITEM), &items);
        memory.push(Addr(NONE), &objects);
        memory.push(Addr(NONE_TYPE), &none);
        memory.push(Addr(ERROR_TYPE), &error);
        has_exception(&memory, &v3_12(Version(0x030c_01f0)), Addr(STATE))
    }

    #[test]
    fn raised_and_handled_ones_are_seen() {
        assert_eq!(told(ERROR, [[0, 0]; 2]), Some(true));
        assert_eq!(told(0, [[ERROR, 0], [0, 0]]), Some(true));
        assert_eq!(told(0, [[0, OUTER], [ERROR, 0]]), Some(true));
        assert_eq!(told(0, [[NONE, OUTER], [ERROR, 0]]), Some(true));
    }

    #[test]
    fn none_is_none() {
        assert_eq!(told(0, [[0, 0]; 2]), Some(false));
        assert_eq!(told(0, [[NONE, OUTER], [NONE, 0]]), Some(false));
    }

    #[test]
    fn cycles_and_gaps_end() {
        assert_eq!(told(0, [[0, OUTER], [0, ITEM]]), None);
        assert_eq!(told(0, [[0, 8], [0, 0]]), None);
        assert_eq!(told(0, [[8, 0], [0, 0]]), None);
    }
}
