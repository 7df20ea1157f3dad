//! What tells a code object from a later one at the same address.

use unwind_ebpf::abi::{IDENTITY_WORDS_MAX, NAME_WORDS};

use super::string::{Shape, field};
use crate::layout::{Identity, Layout, UnicodeLayout};
use crate::memory::{Addr, Fault, Memory, Piece};

/// Bytes of a name that belong to an identity.
const NAME_BYTES: usize = NAME_WORDS * 8;
/// Where they begin in the `str`: after `ob_refcnt` and `ob_type`.
pub(crate) const NAME_START: u64 = 16;

/// Code objects read at once.
const BATCH: usize = 64;

/// The identity of a code object; equal for the same object, different for another.
///
/// From 3.12 on it is `co_version`. On 3.11, the fields from `co_firstlineno` to `co_linetable`
/// and the first characters of the qualified name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeIdentity {
    words: [u64; IDENTITY_WORDS_MAX],
    name: [u64; NAME_WORDS],
}

impl CodeIdentity {
    /// Whether equal identities prove the same object. They do not for version 0, which every
    /// code object has once an interpreter has used up its versions, and which CPython's own
    /// static code objects have (they are never freed).
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.words.iter().any(|word| *word != 0)
    }
}

/// Reads the identity of the code object at `addr`: exactly the ranges that the kernel half
/// captures, one read each, so that a record that has them answers.
///
/// # Errors
/// When they cannot be read.
pub fn read_identity(
    memory: &dyn Memory,
    layout: &Layout,
    addr: Addr,
) -> Result<CodeIdentity, Fault> {
    let (start, words) = layout.code.identity_words();
    let mut buffer = [0; IDENTITY_WORDS_MAX * 8];
    let bytes = buffer.get_mut(..words as usize * 8).unwrap_or_default();
    let at = addr.add(start);
    memory.read(at, bytes)?;
    let (mut identity, qualname) = CodeIdentity::parse(layout, bytes);
    if let Some(at) = qualname {
        let mut name = [0; NAME_BYTES];
        memory.read(at, &mut name)?;
        identity.add_name(&layout.unicode, &mut name);
    }
    Ok(identity)
}

/// Reads the identities of many code objects in few system calls, and passes each on with its
/// place in `addrs`: none where it cannot be read.
pub fn read_identities(
    memory: &dyn Memory,
    layout: &Layout,
    addrs: &[Addr],
    mut pass: impl FnMut(usize, Option<CodeIdentity>),
) {
    let (start, words) = layout.code.identity_words();
    let len = (words as usize * 8).min(IDENTITY_WORDS_MAX * 8);
    for (nth, addrs) in addrs.chunks(BATCH).enumerate() {
        let mut buffers = [[0; IDENTITY_WORDS_MAX * 8]; BATCH];
        let at = |i: usize| addrs.get(i).map(|addr| addr.add(start));
        let present = read_each(memory, &mut buffers, len, at);
        let parse = |i: usize| present[i].then(|| CodeIdentity::parse(layout, &buffers[i][..len]));
        let mut identities: [_; BATCH] = std::array::from_fn(parse);
        let named = |i: usize| identities[i].and_then(|(_, qualname)| qualname);
        if (0..BATCH).any(|i| named(i).is_some()) {
            let mut names = [[0; NAME_BYTES]; BATCH];
            let present = read_each(memory, &mut names, NAME_BYTES, named);
            for ((known, name), present) in identities.iter_mut().zip(&mut names).zip(present) {
                match known {
                    Some((identity, Some(_))) if present => {
                        identity.add_name(&layout.unicode, name);
                    }
                    Some((_, Some(_))) => *known = None,
                    _ => {}
                }
            }
        }
        for (i, known) in identities.iter().take(addrs.len()).enumerate() {
            pass(nth * BATCH + i, known.map(|(identity, _)| identity));
        }
    }
}

/// Fills the first `len` bytes of the buffers whose index has an address; tells which are there.
fn read_each<const N: usize>(
    memory: &dyn Memory,
    buffers: &mut [[u8; N]; BATCH],
    len: usize,
    at: impl Fn(usize) -> Option<Addr>,
) -> [bool; BATCH] {
    let mut index = [0; BATCH];
    let mut pieces: [_; BATCH] = std::array::from_fn(|_| Piece::new(Addr::NULL, &mut []));
    let mut count = 0;
    for (i, buffer) in buffers.iter_mut().enumerate() {
        if let Some(addr) = at(i) {
            pieces[count] = Piece::new(addr, &mut buffer[..len]);
            index[count] = i;
            count += 1;
        }
    }
    memory.read_many(&mut pieces[..count]);
    let mut present = [false; BATCH];
    for (piece, i) in pieces.iter().zip(index).take(count) {
        present[i] = piece.present;
    }
    present
}

impl CodeIdentity {
    /// Takes the bytes of a code object that identify it; with the address of the qualified name
    /// where that belongs to the identity.
    fn parse(layout: &Layout, bytes: &[u8]) -> (Self, Option<Addr>) {
        let (start, _) = layout.code.identity_words();
        let mut identity = Self {
            words: [0; IDENTITY_WORDS_MAX],
            name: [0; NAME_WORDS],
        };
        match layout.code.identity {
            Identity::Version(offset) => {
                let version = field(bytes, offset - start).map_or(0, u32::from_le_bytes);
                identity.words[0] = version.into();
                (identity, None)
            }
            Identity::Fields => {
                copy_words(&mut identity.words, bytes);
                let at = field(bytes, layout.code.qualname - start).map_or(0, u64::from_le_bytes);
                (identity, Some(Addr(at).add(NAME_START)))
            }
        }
    }

    fn add_name(&mut self, layout: &UnicodeLayout, name: &mut [u8; NAME_BYTES]) {
        keep_lasting(layout, name);
        copy_words(&mut self.name, name);
    }
}

/// Blanks what changes during a name's life (its hash, its cached encodings) and what follows
/// its last character: that is another object's. `false`, and nothing is blank, if this is no
/// name.
pub(crate) fn keep_lasting(layout: &UnicodeLayout, name: &mut [u8; NAME_BYTES]) -> bool {
    let Ok(shape) = Shape::parse(layout, name, NAME_START) else {
        return false;
    };
    let data = (shape.data - NAME_START) as usize; // at most HEAD_BYTES_MAX
    let characters = shape.length.saturating_mul(shape.width as u64);
    let end = usize::try_from(characters)
        .unwrap_or(usize::MAX)
        .saturating_add(data);
    let length = (layout.length - NAME_START) as usize;
    for (at, byte) in name.iter_mut().enumerate() {
        let kept = (length..length + 8).contains(&at) || (data..end).contains(&at);
        if !kept {
            *byte = 0;
        }
    }
    true
}

fn copy_words(words: &mut [u64], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Version;
    use crate::memory::Ranges;

    /// Code objects of which some cannot be read, whole or in their name, all at once and one by
    /// one.
    #[test]
    fn many_are_read_as_one_by_one() {
        for version in [Version(0x030b_04f0), Version(0x030c_01f0)] {
            let layout = crate::layout::table(version).expect("a known version");
            let (start, words) = layout.code.identity_words();
            let len = words as usize * 8;
            let at = |i: u64| Addr(0x10000 + i * 0x1000);
            let code = |i: u64| {
                let mut bytes = vec![i as u8; len];
                if let Some(to) = bytes.get_mut((layout.code.qualname - start) as usize..)
                    && let Some(to) = to.get_mut(..8)
                {
                    to.copy_from_slice(&at(i).add(0x800).0.to_le_bytes());
                }
                bytes
            };
            let codes: Vec<_> = (0..150).map(code).collect();
            let name = [7; NAME_BYTES];
            let mut memory = Ranges::new();
            for (i, code) in (0..).zip(&codes).filter(|(i, _)| i % 7 != 3) {
                memory.push(at(i).add(start), code);
                if i % 5 != 1 {
                    memory.push(at(i).add(0x800 + NAME_START), &name);
                }
            }
            let addrs: Vec<_> = (0..150).map(at).collect();
            let mut many = Vec::new();
            read_identities(&memory, &layout, &addrs, |i, identity| {
                assert_eq!(i, many.len());
                many.push(identity);
            });
            let one = |addr: &Addr| read_identity(&memory, &layout, *addr).ok();
            assert_eq!(many, addrs.iter().map(one).collect::<Vec<_>>());
            assert!(many.iter().any(Option::is_some) && many.iter().any(Option::is_none));
        }
    }
}
