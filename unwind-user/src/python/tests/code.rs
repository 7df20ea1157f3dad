use std::cell::Cell;

use proptest::prelude::*;

use super::string::object;
use super::{Noise, put};
use crate::layout::{Identity, Instr, Layout, Version, v3_11, v3_12};
use crate::memory::{Addr, Fault, Memory, Ranges};
use crate::python::alive::CodeType;
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

/// The interpreter's type of code objects, and its name.
const TYPE: Addr = Addr(0x7f00_5000);
const TYPE_NAME: Addr = Addr(0x7f00_6000);

/// A code object that dies when its identity was read, and at whose address another one is in the
/// making when its count is looked at.
struct Replaced<'a> {
    alive: &'a Objects,
    dead: &'a Objects,
    made: &'a Objects,
    identity: Addr,
    now: Cell<Now>,
    /// Identities that are read before the new one has its own.
    stale: u32,
}

#[derive(Clone, Copy)]
enum Now {
    Alive,
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
        let now = self.now.get();
        if addr == self.identity {
            self.now.set(match now {
                Now::Alive => Now::Dead,
                Now::InTheMaking(0) | Now::Made => Now::Made,
                Now::InTheMaking(left) => Now::InTheMaking(left - 1),
                Now::Dead => Now::Dead,
            });
        }
        let objects = match now {
            Now::Alive => self.alive,
            Now::InTheMaking(0) | Now::Made => self.made,
            // Count and type are the new one's.
            Now::InTheMaking(_) if is_count => self.made,
            Now::InTheMaking(_) | Now::Dead => self.dead,
        };
        objects.memory().read(addr, buf)
    }
}

#[test]
fn one_in_the_making_is_not_taken_for_the_one_that_was_freed() {
    let layout = v3_12(Version(0x030c_00f0));
    let Identity::Version(at) = layout.code.identity else {
        panic!("3.12 has versions");
    };
    let objects = |filename: &[u8], version: u32, count: u64| {
        let mut objects = Objects::new(&layout, "f");
        objects.put(CODE, 0, &count.to_le_bytes());
        objects.put(CODE, 8, &TYPE.0.to_le_bytes());
        objects.put(CODE, at, &version.to_le_bytes());
        objects.put(FILENAME, layout.unicode.ascii_data, filename);
        let mut kind = vec![0; 64];
        put(&mut kind, 24, &TYPE_NAME.0.to_le_bytes());
        objects.0.push((TYPE, kind));
        objects.0.push((TYPE_NAME, b"code\0".to_vec()));
        objects
    };
    let alive = objects(b"", 77, 1);
    let identity = read_identity(&alive.memory(), &layout, CODE).expect("it is there");
    let mut kind = CodeType::default();
    let code = kind.read(&alive.memory(), &layout, CODE, identity);
    assert_eq!(
        code.map(|code| code.filename).as_deref(),
        Some("/srv/app.py")
    );
    let (dead, made) = (objects(b"0\0n", 77, 0), objects(b"other", 78, 1));
    for stale in 0..=3 {
        let memory = Replaced {
            alive: &alive,
            dead: &dead,
            made: &made,
            identity: CODE.add(layout.code.identity_words().0),
            now: Cell::new(Now::Alive),
            stale,
        };
        let code = kind.read(&memory, &layout, CODE, identity);
        assert_eq!(code, None, "{stale}");
    }
}
