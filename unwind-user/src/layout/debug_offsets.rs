//! Reads the offsets that an interpreter publishes about itself (3.13 and later).
//!
//! `_Py_DebugOffsets` begins `_PyRuntime`: a cookie, the version, and then `u64` offsets in an
//! order that belongs to the minor version. The bytes come from the target and may be anything.

use super::unpublished::Unpublished;
use super::words::Words;
use super::{
    BytesLayout, CodeLayout, CurrentFrame, Entry, ExceptionLayout, FrameLayout, Identity, Instr,
    InterpLayout, Layout, LayoutError, RuntimeLayout, ThreadLayout, UnicodeLayout, Version, tables,
    validate,
};

/// Bytes of the largest table known (3.15): read this many, a smaller table is found in them.
pub const BYTES_MAX: usize = 888;

/// First bytes of the table.
pub const COOKIE: [u8; 8] = *b"xdebugpy";

/// Newest minor version whose table order is known.
const NEWEST: (u8, u8) = (3, 15);

/// How far a layout can be relied upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A final release of a version that we know.
    Known,
    /// A newer version, or a release candidate, whose table passes as one that we know: usable
    /// with a warning.
    Untested,
}

/// The version that a table states, from its first 16 bytes.
///
/// # Errors
/// [`LayoutError::NoCookie`] when these bytes begin no table.
pub fn version(bytes: &[u8]) -> Result<Version, LayoutError> {
    let word = bytes
        .strip_prefix(&COOKIE)
        .and_then(|rest| rest.first_chunk::<8>());
    let word = word.ok_or(LayoutError::NoCookie)?;
    // PY_VERSION_HEX has 32 bits; more is no version.
    u32::try_from(u64::from_le_bytes(*word))
        .map(Version)
        .map_err(|_| LayoutError::NoCookie)
}

/// The layout that the first [`BYTES_MAX`] bytes of `_PyRuntime` publish, validated.
///
/// # Errors
/// Why this build is refused: free-threaded, pre-release, older than 3.13, or a table whose
/// numbers cannot be.
pub fn parse(bytes: &[u8]) -> Result<(Layout, Trust), LayoutError> {
    let version = version(bytes)?;
    let minor = version.minor();
    if version.is_unsettled() {
        return Err(LayoutError::PreRelease(version));
    }
    if minor.0 != 3 || minor.1 < 13 {
        return Err(LayoutError::Unsupported(version));
    }
    let known = minor <= NEWEST && version.is_final();
    let layout = read(
        &mut Words {
            bytes,
            at: 2,
            version,
        },
        Unpublished::of(minor.1),
        minor.1,
    )?;
    layout.validate()?;
    Ok((layout, if known { Trust::Known } else { Trust::Untested }))
}

/// Reads the table in its order; sub-struct sizes bound the fields that they belong to.
fn read(words: &mut Words<'_>, facts: Unpublished, minor: u8) -> Result<Layout, LayoutError> {
    let since_14 = minor >= 14;
    let since_15 = minor >= 15;
    let version = words.version;
    if words.next()? != 0 {
        return Err(LayoutError::FreeThreaded(version));
    }

    // runtime_state: size, finalizing, interpreters_head
    let runtime_size = words.next()?;
    words.skip(1);
    let runtime = RuntimeLayout {
        interpreters_head: words.next()?,
        gil_holder: None,
    };

    // interpreter_state: size, id, next, threads_head, [threads_main], gc, imports_modules,
    // sysdict, builtins, ceval_gil, and of the embedded GIL: itself, enabled, locked, last_holder
    let interp_size = words.next()?;
    let (id, next, threads_head) = (words.next()?, words.next()?, words.next()?);
    words.next_if(since_14)?;
    let gc = words.next()?;
    words.skip(3);
    let ceval_gil = words.next()?;
    let own_gil = words.next()?;
    words.skip(1);
    let (locked, holder) = (words.next()?, words.next()?);
    facts.expect(
        "gil.locked within the GIL",
        locked.wrapping_sub(own_gil),
        16,
    )?;
    facts.expect(
        "gil.last_holder within the GIL",
        holder.wrapping_sub(own_gil),
        8,
    )?;
    let code_generation = words.next_if(since_14)?;
    words.next_if(since_14)?;
    let mut interp = InterpLayout {
        next,
        id,
        threads_head,
        gil: Some(ceval_gil),
        collecting: gc,
        gc_frame: None,
        code_generation,
    };

    // thread_state: size, prev, next, interp, current_frame, [base_frame, last_profiled_frame,
    // its sequence], thread_id, native_thread_id, datastack_chunk, status, [holds_gil,
    // gil_requested, current_exception, exc_state]
    let thread_size = words.next()?;
    let (prev, next) = (words.next()?, words.next()?);
    let (interp_pointer, current_frame) = (words.next()?, words.next()?);
    let base_frame = words.next_if(since_15)?;
    words.skip(if since_15 { 2 } else { 0 });
    let current = match base_frame {
        Some(base_frame) => CurrentFrame::Based {
            current_frame,
            base_frame,
        },
        None => CurrentFrame::Direct(current_frame),
    };
    let (thread_id, native_thread_id) = (words.next()?, words.next()?);
    let datastack_chunk = words.next()?;
    facts.expect("PyThreadState._status", words.next()?, 32)?;
    let holds_gil = words.next_if(since_15)?.or(facts.holds_gil);
    let gil_requested = words.next_if(since_15)?;
    let exceptions = match words.next_if(since_15)? {
        // `exc_info` is not published; it is the next word.
        Some(current) => Some(ExceptionLayout {
            current,
            info: current.saturating_add(8),
        }),
        None => facts.exceptions(thread_id),
    };
    words.skip(if since_15 { 1 + 1 } else { 0 }); // and err_stackitem's only word
    let thread = ThreadLayout {
        prev,
        next,
        interp: interp_pointer,
        thread_id,
        native_thread_id,
        current,
        datastack_chunk,
        holds_gil,
        gil_requested,
        exceptions,
    };

    // interpreter_frame: size, previous, executable, instr_ptr, localsplus, owner, [stackpointer,
    // tlbc_index]
    let frame_size = words.next()?;
    let (previous, code, instr) = (words.next()?, words.next()?, words.next()?);
    let (localsplus, owner) = (words.next()?, words.next()?);
    words.skip(if since_14 { 2 } else { 0 });
    let frame = FrameLayout {
        localsplus,
        code,
        code_tag: facts.code_tag,
        previous,
        function: facts.frame_function,
        instr: Instr::Current(instr),
        owner,
        entry: Entry::Owner(facts.entry_owner),
        owner_max: facts.owner_max,
    };

    // code_object: size, filename, name, qualname, linetable, firstlineno, argcount,
    // localsplusnames, localspluskinds, co_code_adaptive, [co_tlbc]
    let code_size = words.next()?;
    let (filename, name, qualname, linetable) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    let firstlineno = words.next()?;
    facts.expect("PyCodeObject.co_firstlineno", firstlineno, 68)?;
    facts.expect("PyCodeObject.co_argcount", words.next()?, 52)?;
    facts.expect("PyCodeObject.co_localsplusnames", words.next()?, 96)?;
    words.skip(1);
    let bytecode = words.next()?;
    words.skip(if since_14 { 1 } else { 0 });

    // pyobject: size, ob_type. A variable-sized object's ob_size follows.
    let code_units = words.next()?;
    words.skip(1);
    let code = CodeLayout {
        filename,
        name,
        qualname,
        linetable,
        firstlineno,
        flags: facts.code_flags,
        bytecode,
        code_units,
        identity: Identity::Version(facts.code_version),
    };

    // type_object (4, or 6 from 3.15 on), heap_type_object (3.15: 2), tuple_object (3),
    // list_object (3), set_object (3.14: 4), dict_object (3), float_object (2), long_object (3)
    words.skip(if since_15 { 6 + 2 } else { 4 } + 3 + 3 + if since_14 { 4 } else { 0 } + 3 + 2 + 3);

    // bytes_object: size, ob_size, ob_sval
    words.skip(1);
    let bytes = BytesLayout {
        size: words.next()?,
        data: words.next()?,
    };

    // unicode_object: size, state, length, asciiobject_size, [compactunicodeobject_size]
    let unicode_size = words.next()?;
    let (state, length, ascii_data) = (words.next()?, words.next()?, words.next()?);
    let compact_data = words
        .next_if(since_15)?
        .unwrap_or(ascii_data.saturating_add(16));
    let unicode = UnicodeLayout {
        length,
        state,
        ascii_data,
        compact_data,
        ..tables::UNICODE
    };

    // gc: size, collecting, [frame, …]
    let gc_size = words.next()?;
    let collecting = words.next()?;
    let gc_frame = words.next_if(since_15)?;
    interp.collecting = gc.saturating_add(collecting);
    interp.gc_frame = gc_frame.map(|frame| gc.saturating_add(frame));

    words.check_whole()?;
    let layout = Layout {
        version,
        runtime,
        interp,
        thread,
        frame,
        code,
        unicode,
        bytes,
    };
    validate::within(
        &layout,
        &validate::Sizes {
            runtime: runtime_size,
            interp: interp_size,
            gc: (gc, gc_size),
            thread: thread_size,
            frame: frame_size,
            code: code_size,
            unicode: unicode_size,
        },
    )?;
    Ok(layout)
}
