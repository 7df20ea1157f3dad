//! Reading code objects that are alive.
//!
//! Memory that the target gave back keeps most of its bytes until it is used again, the identity
//! among them, while the strings that the object held may be others already. But whoever frees an
//! object first drops its reference count to 0, and an allocator then keeps its own links in the
//! first word (CPython's) or the first two (the C library's).

use super::code::{Code, CodeIdentity, read_code, read_identity};
use crate::layout::Layout;
use crate::memory::{Addr, Memory};

/// `ob_refcnt` and `ob_type`.
const HEAD: usize = 16;
/// `PyTypeObject.tp_name`, after a `PyVarObject`.
const TYPE_NAME: u64 = 24;

/// The interpreter's type of code objects, once one was met.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeType(Option<Addr>);

impl CodeType {
    /// Reads the code object at `addr` that has this identity; nothing unless it was alive, and the
    /// same one, until all of it was read.
    ///
    /// Where it was freed meanwhile, another one can be in the making at its address: that has a count
    /// and a type at once, but keeps the bytes of the old one, identity included, until its
    /// constructor comes to them (`init_code`). That takes far less time than to read all again, and
    /// what is read then must be the same.
    pub fn read(
        &mut self,
        memory: &dyn Memory,
        layout: &Layout,
        addr: Addr,
        identity: CodeIdentity,
    ) -> Option<Code> {
        let first = self.read_once(memory, layout, addr, identity)?;
        let again = self.read_once(memory, layout, addr, identity)?;
        (first == again).then_some(again)
    }

    fn read_once(
        &mut self,
        memory: &dyn Memory,
        layout: &Layout,
        addr: Addr,
        identity: CodeIdentity,
    ) -> Option<Code> {
        let is_same = || read_identity(memory, layout, addr).is_ok_and(|now| now == identity);
        let code = is_same().then(|| read_code(memory, layout, addr).ok())??;
        // Freed memory keeps its identity for a while, but not the names.
        (self.is_alive(memory, addr) && is_same()).then_some(code)
    }

    /// Whether a live code object lies at `addr`: one that was there before, and still has its
    /// identity *after* this said so, has been alive until now.
    fn is_alive(&mut self, memory: &dyn Memory, addr: Addr) -> bool {
        let mut head = [0; HEAD];
        if memory.read(addr, &mut head).is_err() {
            return false;
        }
        let [count, kind] = words(head);
        let kind = Addr(kind);
        if !is_count(count) {
            return false;
        }
        if self.0.is_none() && is_code_type(memory, kind) {
            self.0 = Some(kind);
        }
        self.0 == Some(kind)
    }
}

fn words(head: [u8; HEAD]) -> [u64; 2] {
    let all = u128::from_le_bytes(head);
    [all as u64, (all >> 64) as u64]
}

/// Whether this can be a count of references rather than a link to other free memory. The count
/// proper is the low half, immortal or not; the top 16 bits may hold flags (3.14+).
const fn is_count(word: u64) -> bool {
    word as u32 != 0 && (word >> 32) & 0xffff == 0
}

fn is_code_type(memory: &dyn Memory, kind: Addr) -> bool {
    let mut name = [0; 5];
    let at = memory.u64(kind.add(TYPE_NAME)).map(Addr);
    at.is_ok_and(|at| memory.read(at, &mut name).is_ok()) && name == *b"code\0"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Ranges;

    const CODE: Addr = Addr(0x7f00_0000_1000);
    const TYPE: Addr = Addr(0x9000);
    const NAME: Addr = Addr(0xa000);

    fn is_alive(known: &mut CodeType, count: u64, kind: u64, name: &[u8]) -> bool {
        let head = [count.to_le_bytes(), kind.to_le_bytes()].concat();
        let pointer = NAME.0.to_le_bytes();
        let mut memory = Ranges::new();
        memory.push(CODE, &head);
        memory.push(TYPE.add(TYPE_NAME), &pointer);
        memory.push(NAME, name);
        known.is_alive(&memory, CODE)
    }

    #[test]
    fn counts_of_every_version_are_alive() {
        for count in [
            1,
            4_000,
            0xffff_ffff,
            0xc000_0000,
            0x0004_0000_c000_0000,
            1 << 48 | 3,
        ] {
            assert!(
                is_alive(&mut CodeType::default(), count, TYPE.0, b"code\0"),
                "{count:#x}"
            );
        }
    }

    #[test]
    fn freed_memory_is_not() {
        let mut known = CodeType::default();
        assert!(is_alive(&mut known, 1, TYPE.0, b"code\0"));
        for count in [0, 0x7f00_0000_2000, 0x5555_5575_0010, 0x0000_0005_5555_5750] {
            assert!(
                !is_alive(&mut known, count, TYPE.0, b"code\0"),
                "{count:#x}"
            );
        }
        let key = 0x1234_5678_9abc_def0;
        assert!(!is_alive(&mut known, 0x1c3_b2a0, key, b"code\0"));
    }

    #[test]
    fn another_type_is_no_code() {
        assert!(!is_alive(&mut CodeType::default(), 1, TYPE.0, b"coder"));
        assert!(!is_alive(&mut CodeType::default(), 1, 0, b"code\0"));
    }
}
