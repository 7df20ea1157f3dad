//! Reading code objects that are alive.
//!
//! Memory that the target gave back keeps most of its bytes until it is used again, the identity
//! among them, while the strings that the object held may be others already. But whoever frees an
//! object first drops its reference count to 0, and an allocator then keeps its own links in the
//! first word (CPython's) or the first two (the C library's).
//!
//! And another one in the making at its address has a type and a count first, then names, and its
//! version after them (`init_code`, `Objects/codeobject.c`, 3.12 to 3.15): in between, for as long as
//! its maker is off the CPU, it looks like the old one with other names. Nobody but its maker refers
//! to it then. So one that has two references, or the function that is known to run it, is complete.

use super::code::{Code, CodeIdentity, read_code, read_identity};
use crate::layout::{Identity, Layout};
use crate::memory::{Addr, Memory};

/// `ob_refcnt` and `ob_type`.
const HEAD: usize = 16;
/// `PyTypeObject.tp_name`, after a `PyVarObject`.
const TYPE_NAME: u64 = 24;
/// `PyFunctionObject.func_code`, the same in every version.
const FUNCTION_CODE: u64 = 48;

/// What was read of a code object that has the identity asked for, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// All of it.
    pub code: Code,
    /// Whether that is known to be of the object with this identity. If not, it may be of one in
    /// the making; it is known later if the identity is then met in a frame: each is given once.
    pub is_certain: bool,
}

/// The interpreter's types of objects that code is alive with, once one of each was met.
#[derive(Clone, Debug)]
pub struct Alive {
    code: Kind,
    function: Kind,
}

impl Default for Alive {
    fn default() -> Self {
        Self {
            code: Kind::new("code"),
            function: Kind::new("function"),
        }
    }
}

impl Alive {
    /// Reads the code object at `addr` that has this identity; nothing unless it had it, and a
    /// count of references, when all else had been read.
    ///
    /// `function` gives the function that the frame met with this code was called by, if that is
    /// known; it is asked only where the count of references does not tell.
    pub fn read(
        &mut self,
        memory: &dyn Memory,
        layout: &Layout,
        addr: Addr,
        identity: CodeIdentity,
        function: impl FnOnce() -> Option<Addr>,
    ) -> Option<Reading> {
        let is_same = || read_identity(memory, layout, addr).is_ok_and(|now| now == identity);
        let code = is_same().then(|| read_code(memory, layout, addr).ok())??;
        let references = self.code.references(memory, addr)?;
        let is_certain = match layout.code.identity {
            // It covers the start of each name, and where they are.
            Identity::Fields => true,
            Identity::Version(_) => {
                has_others(references)
                    || function().is_some_and(|function| {
                        self.function.references(memory, function).is_some()
                            && memory.u64(function.add(FUNCTION_CODE)) == Ok(addr.0)
                    })
            }
        };
        // What was seen since is of the object with this identity only if it still has it: no
        // later one ever will.
        (code.identity == identity && is_same()).then_some(Reading { code, is_certain })
    }
}

/// A type of the interpreter, by its name, and by its address once an object of it was met.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    addr: Option<Addr>,
}

impl Kind {
    const fn new(name: &'static str) -> Self {
        Self { name, addr: None }
    }

    /// How many references the live object of this type at `addr` has; none if there is no such one.
    fn references(&mut self, memory: &dyn Memory, addr: Addr) -> Option<u32> {
        let mut head = [0; HEAD];
        memory.read(addr, &mut head).ok()?;
        let [count, kind] = words(head);
        let kind = Addr(kind);
        if !is_count(count) {
            return None;
        }
        // Not the first one for ever: what was freed may be another type's by now, even of that name.
        if self.addr != Some(kind) && self.is_named(memory, kind) {
            self.addr = Some(kind);
        }
        (self.addr == Some(kind)).then_some(count as u32)
    }

    fn is_named(&self, memory: &dyn Memory, kind: Addr) -> bool {
        let mut found = [0; 16];
        let found = found.get_mut(..=self.name.len()).unwrap_or_default();
        let at = memory.u64(kind.add(TYPE_NAME)).map(Addr);
        at.is_ok_and(|at| memory.read(at, found).is_ok())
            && found.split_last() == Some((&0, self.name.as_bytes()))
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

/// Whether a count shows that more than one refers to the object.
///
/// Where the C library's heap lies below 4 GiB, a link in free memory looks like a large count. It
/// is at least 0x400: the heap lies behind the program, which begins at 4 MiB, and a link is an address, or
/// one that is shifted by a page (glibc's `PROTECT_PTR`).
const fn has_others(references: u32) -> bool {
    matches!(references, 2..0x400 | IMMORTAL_3_12 | IMMORTAL_3_14)
}

/// `_Py_IMMORTAL_REFCNT`, `Include/object.h`, 3.12 and 3.13; `_Py_IMMORTAL_INITIAL_REFCNT`,
/// `Include/refcount.h`, 3.14 and 3.15.
const IMMORTAL_3_12: u32 = u32::MAX;
const IMMORTAL_3_14: u32 = 3 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Ranges;

    const CODE: Addr = Addr(0x7f00_0000_1000);
    const TYPE: Addr = Addr(0x9000);
    const NAME: Addr = Addr(0xa000);

    fn is_alive(known: &mut Kind, count: u64, kind: u64, name: &[u8]) -> bool {
        let head = [count.to_le_bytes(), kind.to_le_bytes()].concat();
        let pointer = NAME.0.to_le_bytes();
        let mut memory = Ranges::new();
        memory.push(CODE, &head);
        memory.push(TYPE.add(TYPE_NAME), &pointer);
        memory.push(NAME, name);
        known.references(&memory, CODE) == Some(count as u32)
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
                is_alive(&mut Kind::new("code"), count, TYPE.0, b"code\0"),
                "{count:#x}"
            );
        }
    }

    #[test]
    fn freed_memory_is_not() {
        let mut known = Kind::new("code");
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
    fn links_of_a_low_heap_are_no_counts_of_others() {
        for link in [0x1c3_b2a0, 0x1c3b, 0x400] {
            assert!(!has_others(link), "{link:#x}");
        }
        assert!(!has_others(0) && !has_others(1));
        for count in [2, 1_000, 0xffff_ffff, 0xc000_0000] {
            assert!(has_others(count), "{count:#x}");
        }
    }

    #[test]
    fn a_type_of_that_name_is_not_taken_for_the_only_one() {
        let mut known = Kind::new("code");
        known.addr = Some(Addr(0x7000));
        assert!(is_alive(&mut known, 1, TYPE.0, b"code\0"));
    }

    #[test]
    fn another_type_is_no_code() {
        assert!(!is_alive(&mut Kind::new("code"), 1, TYPE.0, b"coder"));
        assert!(!is_alive(&mut Kind::new("code"), 1, 0, b"code\0"));
    }
}
