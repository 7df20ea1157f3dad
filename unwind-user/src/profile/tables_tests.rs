use super::*;

fn python(tables: &mut Tables, name: &str, line: u32) -> FrameId {
    let function = tables.function(name, "a.py", 1);
    tables.frame(function, Location::at_line(line))
}

#[test]
fn equal_stacks_are_one_stack_with_its_frames_in_order() {
    let mut tables = Tables::default();
    let (f, g) = (
        python(&mut tables, "f", 2),
        python(&mut tables, "g", 70_001),
    );
    let stack = tables.stack([f, g]);
    assert_eq!(stack, tables.stack([f, g]));
    assert_ne!(stack, tables.stack([g, f]));
    assert_eq!(tables.frames_of(stack), [f, g]);
    assert_eq!(tables.innermost_first(stack).collect::<Vec<_>>(), [g, f]);
    assert_eq!(tables.leaf(stack), g);
    assert_eq!(tables.refused(), 0);
    let Frame::Python { function, location } = tables.frame_at(g) else {
        panic!("a marker")
    };
    assert_eq!(location.line, Some(70_001));
    let expected = Function {
        name: "g",
        file: "a.py",
        first_line: 1,
    };
    assert_eq!(tables.function_of(function), expected);
}

#[test]
fn no_frames_is_a_stack_that_says_so() {
    let mut tables = Tables::default();
    let stack = tables.stack([]);
    let frames = tables.frames_of(stack);
    assert_eq!(frames.len(), 1);
    assert_eq!(
        tables.frame_at(frames[0]),
        Frame::Marker(Marker::NoPythonFrames)
    );
}

#[test]
fn an_unnamed_function_is_not_the_stand_in_for_full_tables() {
    let mut tables = Tables::default();
    let unnamed = tables.function("", "", 0);
    assert_eq!(tables.function_of(unnamed).name, "");
    let frame = tables.frame(unnamed, Location::default());
    assert!(matches!(tables.frame_at(frame), Frame::Python { .. }));
}

#[test]
fn beyond_each_limit_the_marker_stands_in_and_what_is_known_still_works() {
    let roomy = Limits {
        name_bytes: 100,
        functions: 10,
        frames: 10,
        stacks: 10,
    };
    let tight = [
        Limits {
            name_bytes: 5,
            ..roomy
        },
        Limits {
            functions: 2,
            ..roomy
        },
        Limits { frames: 2, ..roomy },
        Limits { stacks: 3, ..roomy },
    ];
    for limits in tight {
        let mut tables = Tables::new(limits);
        let frame = python(&mut tables, "f", 1);
        let known = tables.stack([frame]);
        assert_eq!(tables.refused(), 0, "{limits:?}");
        let other = python(&mut tables, "g", 2);
        let full = tables.stack([other]);
        assert!(tables.refused() > 0, "{limits:?}");
        assert_eq!(
            tables.frame_at(tables.leaf(full)),
            Frame::Marker(Marker::ProfileFull)
        );
        let frame = python(&mut tables, "f", 1);
        assert_eq!(tables.stack([frame]), known, "{limits:?}");
    }
}
