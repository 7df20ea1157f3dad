//! The fields that are read of each struct, for checking.

use super::{CurrentFrame, Entry, Identity, Instr, Layout};

/// A field: name, offset, bytes read there, alignment.
pub(super) struct Field(
    pub(super) &'static str,
    pub(super) u64,
    pub(super) u64,
    pub(super) u64,
);

impl Field {
    pub(super) const fn pointer(name: &'static str, offset: u64) -> Self {
        Self(name, offset, 8, 8)
    }

    const fn int(name: &'static str, offset: u64) -> Self {
        Self(name, offset, 4, 4)
    }

    const fn byte(name: &'static str, offset: u64) -> Self {
        Self(name, offset, 1, 1)
    }
}

pub(super) fn runtime(layout: &Layout) -> Vec<Field> {
    let runtime = &layout.runtime;
    let head = Field::pointer(
        "_PyRuntimeState.interpreters.head",
        runtime.interpreters_head,
    );
    // last_holder and locked
    let gil = runtime
        .gil_holder
        .map(|at| Field("_PyRuntimeState.ceval.gil", at, 16, 8));
    std::iter::once(head).chain(gil).collect()
}

pub(super) fn interp(layout: &Layout) -> Vec<Field> {
    let interp = &layout.interp;
    let mut fields = vec![
        Field::pointer("PyInterpreterState.next", interp.next),
        Field::pointer("PyInterpreterState.id", interp.id),
        Field::pointer("PyInterpreterState.threads.head", interp.threads_head),
    ];
    fields.extend(
        interp
            .gil
            .map(|at| Field::pointer("PyInterpreterState.ceval.gil", at)),
    );
    let generation = interp.code_generation;
    fields.extend(
        generation.map(|at| Field::pointer("PyInterpreterState.code_object_generation", at)),
    );
    fields.extend(gc(layout));
    fields
}

pub(super) fn gc(layout: &Layout) -> Vec<Field> {
    let interp = &layout.interp;
    let frame = interp
        .gc_frame
        .map(|at| Field::pointer("PyInterpreterState.gc.frame", at));
    let collecting = Field::int("PyInterpreterState.gc.collecting", interp.collecting);
    std::iter::once(collecting).chain(frame).collect()
}

pub(super) fn thread(layout: &Layout) -> Vec<Field> {
    let thread = &layout.thread;
    let mut fields = vec![
        Field::pointer("PyThreadState.prev", thread.prev),
        Field::pointer("PyThreadState.next", thread.next),
        Field::pointer("PyThreadState.interp", thread.interp),
        Field::pointer("PyThreadState.thread_id", thread.thread_id),
        Field::pointer("PyThreadState.native_thread_id", thread.native_thread_id),
        // datastack_top and datastack_limit, too
        Field(
            "PyThreadState.datastack_chunk",
            thread.datastack_chunk,
            24,
            8,
        ),
    ];
    match thread.current {
        CurrentFrame::CFrame { cframe, .. } => {
            fields.push(Field::pointer("PyThreadState.cframe", cframe));
        }
        CurrentFrame::Direct(current_frame) => {
            fields.push(Field::pointer("PyThreadState.current_frame", current_frame));
        }
        CurrentFrame::Based {
            current_frame,
            base_frame,
        } => {
            fields.push(Field::pointer("PyThreadState.current_frame", current_frame));
            fields.push(Field::pointer("PyThreadState.base_frame", base_frame));
        }
    }
    fields.extend(
        thread
            .holds_gil
            .map(|at| Field::byte("PyThreadState.holds_gil", at)),
    );
    fields.extend(
        thread
            .gil_requested
            .map(|at| Field::int("PyThreadState.gil_requested", at)),
    );
    if let Some(exceptions) = thread.exceptions {
        fields.push(Field::pointer(
            "PyThreadState.current_exception",
            exceptions.current,
        ));
        fields.push(Field::pointer("PyThreadState.exc_info", exceptions.info));
    }
    fields
}

pub(super) fn cframe(layout: &Layout) -> Vec<Field> {
    match layout.thread.current {
        CurrentFrame::CFrame {
            current_frame,
            previous,
            ..
        } => vec![
            Field::pointer("_PyCFrame.current_frame", current_frame),
            Field::pointer("_PyCFrame.previous", previous),
        ],
        CurrentFrame::Direct(_) | CurrentFrame::Based { .. } => Vec::new(),
    }
}

pub(super) fn frame(layout: &Layout) -> Vec<Field> {
    let frame = &layout.frame;
    let (Instr::Previous(instr) | Instr::Current(instr)) = frame.instr;
    let mut fields = vec![
        Field::pointer("_PyInterpreterFrame.f_executable", frame.code),
        Field::pointer("_PyInterpreterFrame.previous", frame.previous),
        Field::pointer("_PyInterpreterFrame.f_funcobj", frame.function),
        Field::pointer("_PyInterpreterFrame.instr_ptr", instr),
        Field::byte("_PyInterpreterFrame.owner", frame.owner),
    ];
    if let Entry::Flag(offset) = frame.entry {
        fields.push(Field::byte("_PyInterpreterFrame.is_entry", offset));
    }
    fields
}

pub(super) fn code(layout: &Layout) -> Vec<Field> {
    let code = &layout.code;
    let mut fields = vec![
        Field::pointer("PyCodeObject.co_filename", code.filename),
        Field::pointer("PyCodeObject.co_name", code.name),
        Field::pointer("PyCodeObject.co_qualname", code.qualname),
        Field::pointer("PyCodeObject.co_linetable", code.linetable),
        Field::int("PyCodeObject.co_firstlineno", code.firstlineno),
        Field::int("PyCodeObject.co_flags", code.flags),
        Field::pointer("PyCodeObject.ob_size", code.code_units),
    ];
    if let Identity::Version(offset) = code.identity {
        fields.push(Field::int("PyCodeObject.co_version", offset));
    }
    fields
}

pub(super) fn unicode(layout: &Layout) -> Vec<Field> {
    vec![
        Field::pointer("PyASCIIObject.length", layout.unicode.length),
        Field::int("PyASCIIObject.state", layout.unicode.state),
    ]
}
