use std::cell::Cell;

use proptest::prelude::*;

use super::string::object;
use super::{Noise, put};
use crate::layout::{Identity, Instr, Layout, Version, v3_11, v3_12};
use crate::memory::{Addr, Fault, Memory, Ranges};
use crate::python::alive::{Alive, Reading};
use crate::python::code::{Code, CodeError, UNREADABLE, read_code};
use crate::python::identity::read_identity;
use crate::python::linetable::Location;

const CODE: Addr = Addr(0x7f00_1000);
const QUALNAME: Addr = Addr(0x7f00_2000);
const FILENAME: Addr = Addr(0x7f00_3000);
const LINETABLE: Addr = Addr(0x7f00_4000);
const UNITS: u64 = 4;

/// Three units on line 20, the fourth on line 21.
const TABLE: [u8; 5] = [0x82, 0x10, 0x80 | 11 << 3, 4, 9];

/// A function's objects, as the ranges of memory that they fill.
struct Objects(Vec<(Addr, Vec<u8>)>);

impl Objects {
    fn new(layout: &Layout, qualname: &str) -> Self {
        let text = |text: &str| {
            let codes: Vec<u32> = text.chars().map(u32::from).collect();
            object(&layout.unicode, 0, &codes)
        };
        let mut code = vec![0; 300];
        let fields = &layout.code;
        for (at, value) in [
            (fields.code_units, UNITS),
            (fields.filename, FILENAME.0),
            (fields.name, QUALNAME.0),
            (fields.qualname, QUALNAME.0),
            (fields.linetable, LINETABLE.0),
        ] {
            put(&mut code, at, &value.to_le_bytes());
        }
        put(&mut code, fields.firstlineno, &20_u32.to_le_bytes());
        put(&mut code, fields.flags, &3_u32.to_le_bytes());
        if let Identity::Version(at) = fields.identity {
            put(&mut code, at, &77_u32.to_le_bytes());
        }
        let mut table = vec![0; layout.bytes.data as usize];
        put(
            &mut table,
            layout.bytes.size,
            &(TABLE.len() as u64).to_le_bytes(),
        );
        table.extend(TABLE);
        let followed = |mut object: Vec<u8>| {
            object.extend([0xee; 128]); // the next object
            object
        };
        Self(vec![
            (CODE, code),
            (QUALNAME, followed(text(qualname))),
            (FILENAME, followed(text("/srv/app.py"))),
            (LINETABLE, followed(table)),
        ])
    }

    fn memory(&self) -> Ranges<'_> {
        let mut memory = Ranges::new();
        for (addr, bytes) in &self.0 {
            memory.push(*addr, bytes);
        }
        memory
    }

    fn put(&mut self, addr: Addr, at: u64, value: &[u8]) {
        let object = self.0.iter_mut().find(|(start, _)| *start == addr);
        put(&mut object.expect("one of the objects").1, at, value);
    }

    fn without(mut self, addr: Addr) -> Self {
        self.0.retain(|(start, _)| *start != addr);
        self
    }
}

fn layouts() -> [Layout; 2] {
    [v3_11(Version(0x030b_00f0)), v3_12(Version(0x030c_00f0))]
}

fn read(layout: &Layout, objects: &Objects) -> Result<Code, CodeError> {
    read_code(&objects.memory(), layout, CODE)
}

#[test]
fn a_function_is_read_whole() {
    for layout in layouts() {
        let code = read(&layout, &Objects::new(&layout, "C.method")).expect("a code object");
        assert_eq!(
            (code.qualname.as_str(), code.filename.as_str()),
            ("C.method", "/srv/app.py")
        );
        assert_eq!((code.first_line, code.flags, code.code_units), (20, 3, 4));
        assert_eq!(code.bytecode, CODE.add(layout.code.bytecode));
        assert!(code.whole && !code.is_hidden());
    }
}

#[test]
fn missing_parts_are_shown_as_missing() {
    let layout = v3_12(Version(0x030c_00f0));
    let whole = || Objects::new(&layout, "f");
    let code = read(&layout, &whole().without(QUALNAME)).expect("a frame kept");
    assert_eq!((code.qualname.as_str(), code.whole), (UNREADABLE, false));
    assert_eq!(code.filename, "/srv/app.py");
    let code = read(&layout, &whole().without(FILENAME)).expect("a frame kept");
    assert_eq!((code.filename.as_str(), code.whole), (UNREADABLE, false));
    let code = read(&layout, &whole().without(LINETABLE)).expect("a frame kept");
    assert_eq!(code.location(&layout, code.bytecode), Location::default());
    assert!(!code.whole);
    assert!(matches!(
        read(&layout, &whole().without(CODE)),
        Err(CodeError::Fault(_))
    ));
}

#[test]
fn what_is_no_code_object_is_refused() {
    for layout in layouts() {
        let fields = layout.code.clone();
        for (at, value, name) in [
            (fields.code_units, 0_u64, "ob_size"),
            (fields.code_units, 1 << 40, "ob_size"),
            (fields.qualname, 0, "co_qualname"),
            (fields.linetable, 0x1001, "co_linetable"),
        ] {
            let mut objects = Objects::new(&layout, "f");
            objects.put(CODE, at, &value.to_le_bytes());
            if at == fields.qualname {
                // 3.11 faults first where the name belongs to the identity.
                assert!(read(&layout, &objects).is_err());
                continue;
            }
            let expected = CodeError::NotCode {
                addr: CODE,
                field: name,
                value,
            };
            assert_eq!(read(&layout, &objects), Err(expected));
        }
    }
}

#[test]
fn instruction_pointers_mean_what_their_version_says() {
    let [previous, _] = layouts();
    let mut current = v3_12(Version(0x030c_00f0));
    current.frame.instr = Instr::Current(56);
    for layout in [&previous, &current] {
        let code = read(layout, &Objects::new(layout, "f")).expect("a code object");
        let line = |offset: u64| code.location(layout, code.bytecode.add(offset)).line;
        assert_eq!([0, 4, 6].map(line), [Some(20), Some(20), Some(21)]);
        // Beyond the code, between units, elsewhere.
        assert_eq!([8, 1, 4096, 1 << 40].map(line), [None; 4]);
        let not_started = code.location(layout, Addr(code.bytecode.0 - 2));
        let first = matches!(layout.frame.instr, Instr::Previous(_)).then_some(20);
        assert_eq!((not_started.line, not_started.column), (first, None));
        assert_eq!(code.location(layout, Addr::NULL), Location::default());
    }
}

#[test]
fn the_internal_clean_up_code_is_hidden() {
    let layout = v3_12(Version(0x030c_00f0));
    let mut objects = Objects::new(&layout, "__init__");
    let fields = layout.code.clone();
    objects.put(CODE, fields.filename, &QUALNAME.0.to_le_bytes());
    objects.put(CODE, fields.firstlineno, &0_u32.to_le_bytes());
    assert!(!read(&layout, &objects).expect("a code object").is_hidden());
    objects.put(CODE, fields.flags, &0x200_0001_u32.to_le_bytes());
    assert!(read(&layout, &objects).expect("a code object").is_hidden());
    objects.put(CODE, fields.filename, &FILENAME.0.to_le_bytes());
    assert!(!read(&layout, &objects).expect("a code object").is_hidden());
}

#[test]
fn an_identity_lasts_as_long_as_its_object() {
    for layout in layouts() {
        let mut objects = Objects::new(&layout, "C.method");
        let identity = |objects: &Objects| read_identity(&objects.memory(), &layout, CODE);
        let first = identity(&objects).expect("readable");
        assert!(first.is_proof());
        assert_eq!(
            first,
            read(&layout, &objects).expect("a code object").identity
        );
        // The name's hash, once asked for, its cached encodings, and the object behind it.
        let data = layout.unicode.ascii_data;
        objects.put(QUALNAME, 24, &0x1234_5678_u64.to_le_bytes());
        objects.put(QUALNAME, 0, &9_u64.to_le_bytes());
        objects.put(QUALNAME, data + 9, &[0x11; 32]);
        assert_eq!(identity(&objects), Ok(first));

        let field = match layout.code.identity {
            Identity::Version(at) => at,
            Identity::Fields => layout.code.filename,
        };
        objects.put(CODE, field, &78_u32.to_le_bytes());
        assert_ne!(identity(&objects), Ok(first));
    }
}

#[test]
fn names_of_reused_objects_tell_on_3_11() {
    let [layout, _] = layouts();
    let identity = |name: &str| {
        let objects = Objects::new(&layout, name);
        read_identity(&objects.memory(), &layout, CODE).expect("readable")
    };
    assert_eq!(identity("C.method"), identity("C.method"));
    assert_ne!(identity("C.method"), identity("D.method"));
    assert_ne!(identity("C.method"), identity("C.method2"));
}

#[test]
fn version_0_proves_nothing() {
    let [_, layout] = layouts();
    let mut objects = Objects::new(&layout, "f");
    objects.put(CODE, 92, &0_u32.to_le_bytes());
    assert!(
        !read_identity(&objects.memory(), &layout, CODE)
            .expect("readable")
            .is_proof()
    );
}

proptest! {
    #[test]
    fn any_memory_is_survived(
        seed in proptest::collection::vec(any::<u8>(), 0..600),
        addr in any::<u64>(),
        instr in any::<u64>(),
    ) {
        for layout in layouts() {
            let _ = read_identity(&Noise(&seed), &layout, Addr(addr));
            if let Ok(code) = read_code(&Noise(&seed), &layout, Addr(addr)) {
                let location = code.location(&layout, Addr(instr));
                let near = code.bytecode.add(instr % 1000);
                prop_assert!(location.line.is_none() || instr.abs_diff(code.bytecode.0) <= 1 << 31);
                let _ = code.location(&layout, near);
            }
        }
    }

    #[test]
    fn any_damage_is_survived(
        damage in proptest::collection::vec((0..4_usize, 0..160_usize, any::<u8>()), 1..8),
    ) {
        for layout in layouts() {
            let mut objects = Objects::new(&layout, "C.method");
            for (object, at, byte) in &damage {
                if let Some(old) = objects.0[*object].1.get_mut(*at) {
                    *old = *byte;
                }
            }
            if let Ok(code) = read(&layout, &objects) {
                let _ = code.location(&layout, code.bytecode);
            }
        }
    }
}

/// The interpreter's types of code objects and of functions, and the type's name behind each.
const TYPES: [(Addr, &[u8]); 2] = [
    (Addr(0x7f00_5000), b"code\0"),
    (Addr(0x7f00_6000), b"function\0"),
];
/// A function that has the code object.
const FUNCTION: Addr = Addr(0x7f00_7000);

/// A code object of this version, file and count of references, its function, and their types.
fn objects(layout: &Layout, filename: &[u8], version: u32, count: u64) -> Objects {
    let Identity::Version(at) = layout.code.identity else {
        panic!("{} has no versions", layout.version);
    };
    let mut objects = Objects::new(layout, "f");
    let name = |(at, _): (Addr, &[u8])| at.add(0x100);
    let head = |count: u64, (at, _): (Addr, &[u8])| [count.to_le_bytes(), at.0.to_le_bytes()];
    objects.put(CODE, 0, &head(count, TYPES[0]).concat());
    objects.put(CODE, at, &version.to_le_bytes());
    objects.put(FILENAME, layout.unicode.ascii_data, filename);
    let mut function = vec![0; 56];
    put(&mut function, 0, &head(1, TYPES[1]).concat());
    put(&mut function, 48, &CODE.0.to_le_bytes());
    objects.0.push((FUNCTION, function));
    for kind in TYPES {
        let mut object = vec![0; 64];
        put(&mut object, 24, &name(kind).0.to_le_bytes());
        objects.0.push((kind.0, object));
        objects.0.push((name(kind), [kind.1, &[0xee; 16]].concat()));
    }
    objects
}

/// A code object that dies when its names were read, and at whose address another one is in the
/// making when its count is looked at.
struct Replaced<'a> {
    dead: &'a Objects,
    made: &'a Objects,
    identity: Addr,
    now: Cell<Now>,
    /// Identities that are read before the new one has its own.
    stale: u32,
}

#[derive(Clone, Copy)]
enum Now {
    Dead,
    InTheMaking(u32),
    Made,
}

impl Memory for Replaced<'_> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> Result<(), Fault> {
        let is_count = addr == CODE && buf.len() == 16;
        if let (Now::Dead, true) = (self.now.get(), is_count) {
            self.now.set(Now::InTheMaking(self.stale));
        }
        let objects = match self.now.get() {
            Now::InTheMaking(0) | Now::Made => self.made,
            // Count and type are the new one's.
            Now::InTheMaking(_) if is_count => self.made,
            Now::InTheMaking(_) | Now::Dead => self.dead,
        };
        if let (Now::InTheMaking(left), true) = (self.now.get(), addr == self.identity) {
            self.now.set(match left {
                0 => Now::Made,
                left => Now::InTheMaking(left - 1),
            });
        }
        objects.memory().read(addr, buf)
    }
}

/// However long it takes: its maker may be off the CPU all the while.
#[test]
fn one_in_the_making_is_not_taken_for_the_one_that_was_freed() {
    let layout = v3_12(Version(0x030c_00f0));
    let alive = objects(&layout, b"", 77, 1);
    let identity = read_identity(&alive.memory(), &layout, CODE).expect("it is there");
    let (dead, made) = (
        objects(&layout, b"0\0n", 77, 0),
        objects(&layout, b"other", 78, 1),
    );
    for stale in [0, 1, 2, 3, u32::MAX] {
        for function in [None, Some(Addr(0x8000)), Some(CODE)] {
            let memory = Replaced {
                dead: &dead,
                made: &made,
                identity: CODE.add(layout.code.identity_words().0),
                now: Cell::new(Now::Dead),
                stale,
            };
            let reading = Alive::default().read(&memory, &layout, CODE, identity, || function);
            let is_shown = reading.is_some_and(|reading| reading.is_certain);
            assert!(!is_shown, "{stale} {function:?}");
        }
    }
}

#[test]
fn complete_is_what_has_another_reference_or_its_function() {
    let layout = v3_12(Version(0x030c_00f0));
    let read = |objects: &Objects, function: Option<Addr>| {
        let memory = objects.memory();
        let identity = read_identity(&memory, &layout, CODE).expect("it is there");
        Alive::default().read(&memory, &layout, CODE, identity, || function)
    };
    let certain = |objects: &Objects, function| {
        let reading: Option<Reading> = read(objects, function);
        reading.map(|reading| {
            assert_eq!(reading.code.filename, "/srv/app.py");
            reading.is_certain
        })
    };
    let with = |count: u64| objects(&layout, b"", 77, count);
    assert_eq!(certain(&with(0), Some(FUNCTION)), None);
    assert_eq!(certain(&with(1), None), Some(false));
    assert_eq!(certain(&with(1), Some(FUNCTION)), Some(true));
    assert_eq!(certain(&with(2), None), Some(true));
    assert_eq!(certain(&with(0xc000_0000), None), Some(true));
    // A function that was freed, one with other code by now, and what is none.
    for (at, damage) in [(0, 0_u64), (8, TYPES[0].0.0), (48, CODE.0 + 8)] {
        let mut objects = with(1);
        objects.put(FUNCTION, at, &damage.to_le_bytes());
        assert_eq!(certain(&objects, Some(FUNCTION)), Some(false), "{at}");
    }
}

/// 3.11: the fingerprint covers the names.
#[test]
fn a_fingerprint_needs_no_reference() {
    let layout = v3_11(Version(0x030b_00f0));
    let mut objects = objects(&v3_12(Version(0x030c_00f0)), b"", 77, 1);
    let whole = Objects::new(&layout, "f");
    let code = &whole.0[0].1;
    objects.0[0].1[16..].copy_from_slice(&code[16..]);
    objects.0[1..4].clone_from_slice(&whole.0[1..4]);
    let memory = objects.memory();
    let identity = read_identity(&memory, &layout, CODE).expect("it is there");
    let reading = Alive::default().read(&memory, &layout, CODE, identity, || None);
    assert!(reading.is_some_and(|reading| reading.is_certain));
}
