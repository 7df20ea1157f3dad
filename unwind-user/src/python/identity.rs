//! What tells a code object from a later one at the same address.

use std::hash::{DefaultHasher, Hasher as _};

use unwind_ebpf::abi::{IDENTITY_OBJECTS, IDENTITY_WORDS_MAX, OBJECT_WORDS};

use super::string::{Shape, field};
use crate::layout::{Identity, IdentityObject, Layout};
use crate::memory::{Addr, Fault, Memory, Piece};

/// Bytes of an object that belong to an identity.
pub(crate) const OBJECT_BYTES: usize = OBJECT_WORDS * 8;
/// Where they begin in the object: after `ob_refcnt` and `ob_type`.
pub(crate) const OBJECT_START: u64 = 16;

/// Code objects read at once.
const BATCH: usize = 64;

/// The identity of a code object; equal for the same object, different for another.
///
/// From 3.12 on it is `co_version`. On 3.11, the fields from `co_firstlineno` to `co_linetable`,
/// and a hash of the start of each object that [`crate::layout::CodeLayout::identity_objects`] names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeIdentity {
    words: [u64; IDENTITY_WORDS_MAX],
    objects: [u64; IDENTITY_OBJECTS],
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
    let mut identity = CodeIdentity::parse(layout, bytes);
    for (nth, object) in layout.code.identity_objects().iter().flatten().enumerate() {
        let mut start = [0; OBJECT_BYTES];
        memory.read(object.start(layout, bytes), &mut start)?;
        identity.add(nth, layout, *object, &mut start);
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
        for (nth, object) in layout.code.identity_objects().iter().flatten().enumerate() {
            let start = |i: usize| {
                let identity = identities.get(i)?;
                identity.map(|_| object.start(layout, &buffers[i][..len]))
            };
            let mut starts = [[0; OBJECT_BYTES]; BATCH];
            let present = read_each(memory, &mut starts, OBJECT_BYTES, start);
            for ((known, start), present) in identities.iter_mut().zip(&mut starts).zip(present) {
                match known {
                    Some(identity) if present => identity.add(nth, layout, *object, start),
                    _ => *known = None,
                }
            }
        }
        for (i, known) in identities.iter().take(addrs.len()).enumerate() {
            pass(nth * BATCH + i, *known);
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
    /// Takes the bytes of a code object that identify it; its objects are to be added.
    fn parse(layout: &Layout, bytes: &[u8]) -> Self {
        let (start, _) = layout.code.identity_words();
        let mut identity = Self {
            words: [0; IDENTITY_WORDS_MAX],
            objects: [0; IDENTITY_OBJECTS],
        };
        match layout.code.identity {
            Identity::Version(offset) => {
                let version = field(bytes, offset - start).map_or(0, u32::from_le_bytes);
                identity.words[0] = version.into();
            }
            Identity::Fields => copy_words(&mut identity.words, bytes),
        }
        identity
    }

    fn add(
        &mut self,
        nth: usize,
        layout: &Layout,
        object: IdentityObject,
        start: &mut [u8; OBJECT_BYTES],
    ) {
        object.keep_lasting(layout, start);
        let mut hasher = DefaultHasher::new();
        hasher.write(start);
        if let Some(hash) = self.objects.get_mut(nth) {
            *hash = hasher.finish();
        }
    }
}

impl IdentityObject {
    /// Where its bytes begin that belong to the identity of the code object whose
    /// [`crate::layout::CodeLayout::identity_words`] these are.
    pub(crate) fn start(self, layout: &Layout, identity: &[u8]) -> Addr {
        let (start, _) = layout.code.identity_words();
        let at = field(identity, self.pointer().saturating_sub(start));
        Addr(at.map_or(0, u64::from_le_bytes)).add(OBJECT_START)
    }

    /// Blanks what changes during its life (its hash, its cached encodings) and what follows its
    /// last byte: that is another object's. `false`, and nothing is blank, if this is no such
    /// object (any more).
    pub(crate) fn keep_lasting(self, layout: &Layout, start: &mut [u8; OBJECT_BYTES]) -> bool {
        let (length_at, data, bytes) = match self {
            Self::Str(_) => {
                let Ok(shape) = Shape::parse(&layout.unicode, start, OBJECT_START) else {
                    return false;
                };
                let bytes = shape.length.saturating_mul(shape.width as u64);
                (layout.unicode.length, shape.data, bytes)
            }
            Self::Bytes(_) => {
                let at = layout.bytes.size.saturating_sub(OBJECT_START);
                let size = field(start, at).map_or(0, u64::from_le_bytes);
                (layout.bytes.size, layout.bytes.data, size)
            }
        };
        let within =
            |at: u64| usize::try_from(at.saturating_sub(OBJECT_START)).unwrap_or(usize::MAX);
        let (length, data) = (within(length_at), within(data));
        let end = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .saturating_add(data);
        for (at, byte) in start.iter_mut().enumerate() {
            let kept = at.wrapping_sub(length) < 8 || (data..end).contains(&at);
            if !kept {
                *byte = 0;
            }
        }
        true
    }
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

    /// Code objects of which some cannot be read, whole or in one of their objects, all at once
    /// and one by one.
    #[test]
    fn many_are_read_as_one_by_one() {
        for version in [Version(0x030b_04f0), Version(0x030c_01f0)] {
            let layout = crate::layout::table(version).expect("a known version");
            let (start, words) = layout.code.identity_words();
            let len = words as usize * 8;
            let at = |i: u64| Addr(0x10000 + i * 0x1000);
            let object = |i: u64, nth: u64| at(i).add(0x800 + nth * 0x100);
            let code = |i: u64| {
                let mut bytes = vec![i as u8; len];
                let objects = layout.code.identity_objects().into_iter().flatten();
                for (nth, pointer) in (0..).zip(objects) {
                    let to = (pointer.pointer() - start) as usize;
                    bytes[to..to + 8].copy_from_slice(&object(i, nth).0.to_le_bytes());
                }
                bytes
            };
            let codes: Vec<_> = (0..150).map(code).collect();
            let object_start = [7; OBJECT_BYTES];
            let mut memory = Ranges::new();
            for (i, code) in (0..).zip(&codes).filter(|(i, _)| i % 7 != 3) {
                memory.push(at(i).add(start), code);
                for nth in (0..3).filter(|nth| i % 5 != nth + 1) {
                    memory.push(object(i, nth).add(OBJECT_START), &object_start);
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

    /// 3.11: code objects at one address, alike in all fields, differ by what their objects hold;
    /// what comes behind an object, or changes in it, makes no difference.
    #[test]
    fn the_start_of_each_object_tells_code_apart() {
        let layout = crate::layout::table(Version(0x030b_04f0)).expect("a known version");
        let (start, words) = layout.code.identity_words();
        let objects = layout
            .code
            .identity_objects()
            .expect("3.11 has no versions");
        let addr = |nth: usize| Addr(0x2000 + 0x100 * nth as u64);
        let identity = |changed: Option<(usize, u64)>| {
            let mut code = vec![0; words as usize * 8];
            let mut starts = [[0_u8; 80]; IDENTITY_OBJECTS];
            for (nth, object) in objects.into_iter().enumerate() {
                let to = (object.pointer() - start) as usize;
                code[to..to + 8].copy_from_slice(&addr(nth).0.to_le_bytes());
                let bytes = &mut starts[nth];
                bytes[16] = 2; // length, or size
                if let IdentityObject::Str(_) = object {
                    let kind = 1 << layout.unicode.kind_mask.trailing_zeros();
                    let state = kind | layout.unicode.compact_mask | layout.unicode.ascii_mask;
                    bytes[layout.unicode.state as usize..][..4]
                        .copy_from_slice(&state.to_le_bytes());
                }
                if let Some((_, at)) = changed.filter(|(other, _)| *other == nth) {
                    bytes[at as usize] ^= 1;
                }
            }
            let mut memory = Ranges::new();
            for (nth, bytes) in starts.iter().enumerate() {
                memory.push(addr(nth), bytes);
            }
            memory.push(Addr(0x1000).add(start), &code);
            read_identity(&memory, &layout, Addr(0x1000)).expect("all is there")
        };
        let same = identity(None);
        for (nth, object) in objects.into_iter().enumerate() {
            let data = match object {
                IdentityObject::Str(_) => layout.unicode.ascii_data,
                IdentityObject::Bytes(_) => layout.bytes.data,
            };
            for (at, differs) in [(16, true), (24, false), (data + 1, true), (data + 2, false)] {
                let other = identity(Some((nth, at)));
                assert_eq!(other != same, differs, "byte {at} of {object:?}");
            }
        }
    }
}
