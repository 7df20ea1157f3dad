/* Prints what the headers of one interpreter say: a name as in unwind's layouts, and a number. */

#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe.h>
#include <internal/pycore_stackref.h>
#endif
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SAY(name, value) printf("%s %zu\n", name, (size_t)(value))
#define FIELD(name, type, field) SAY(name, offsetof(type, field))

/* The bits of a str's state that an assignment sets. */
#define STATE_BITS(name, field, value)                            \
    do {                                                          \
        PyASCIIObject object;                                     \
        unsigned int bits;                                        \
        memset(&object, 0, sizeof object);                        \
        object.state.field = (value);                             \
        memcpy(&bits, &object.state, sizeof bits);                \
        SAY(name, bits);                                          \
    } while (0)

int main(void)
{
    SAY("version", PY_VERSION_HEX);
    FIELD("runtime.interpreters_head", _PyRuntimeState, interpreters.head);
    FIELD("interp.next", PyInterpreterState, next);
    FIELD("interp.id", PyInterpreterState, id);
    FIELD("interp.threads_head", PyInterpreterState, threads.head);
    FIELD("interp.collecting", PyInterpreterState, gc.collecting);
    FIELD("thread.prev", PyThreadState, prev);
    FIELD("thread.next", PyThreadState, next);
    FIELD("thread.interp", PyThreadState, interp);
    FIELD("thread.thread_id", PyThreadState, thread_id);
    FIELD("thread.native_thread_id", PyThreadState, native_thread_id);
    FIELD("thread.datastack_chunk", PyThreadState, datastack_chunk);
    FIELD("thread.datastack_top", PyThreadState, datastack_top);
    FIELD("thread.datastack_limit", PyThreadState, datastack_limit);
    FIELD("frame.localsplus", _PyInterpreterFrame, localsplus);
    FIELD("frame.previous", _PyInterpreterFrame, previous);
    FIELD("frame.owner", _PyInterpreterFrame, owner);
    FIELD("code.filename", PyCodeObject, co_filename);
    FIELD("code.name", PyCodeObject, co_name);
    FIELD("code.qualname", PyCodeObject, co_qualname);
    FIELD("code.linetable", PyCodeObject, co_linetable);
    FIELD("code.firstlineno", PyCodeObject, co_firstlineno);
    FIELD("code.flags", PyCodeObject, co_flags);
    FIELD("code.bytecode", PyCodeObject, co_code_adaptive);
    FIELD("code.code_units", PyVarObject, ob_size);
    FIELD("unicode.length", PyASCIIObject, length);
    FIELD("unicode.state", PyASCIIObject, state);
    SAY("unicode.ascii_data", sizeof(PyASCIIObject));
    SAY("unicode.compact_data", sizeof(PyCompactUnicodeObject));
    STATE_BITS("unicode.kind_mask", kind, 7);
    STATE_BITS("unicode.compact_mask", compact, 1);
    STATE_BITS("unicode.ascii_mask", ascii, 1);
    FIELD("type.flags", PyTypeObject, tp_flags);
    FIELD("function.code", PyFunctionObject, func_code);
    FIELD("object.type", PyObject, ob_type);
    FIELD("exception.value", _PyErr_StackItem, exc_value);
    FIELD("exception.previous", _PyErr_StackItem, previous_item);
    FIELD("bytes.size", PyVarObject, ob_size);
    FIELD("bytes.data", PyBytesObject, ob_sval);
    FIELD("gil.last_holder", struct _gil_runtime_state, last_holder);
    FIELD("gil.locked", struct _gil_runtime_state, locked);

#if PY_VERSION_HEX < 0x030c0000
    FIELD("frame.function", _PyInterpreterFrame, f_func);
    FIELD("runtime.gil_holder", _PyRuntimeState, ceval.gil.last_holder);
    FIELD("frame.is_entry", _PyInterpreterFrame, is_entry);
    SAY("frame.owner_max", FRAME_OWNED_BY_FRAME_OBJECT);
#else
    FIELD("frame.function", _PyInterpreterFrame, f_funcobj);
    FIELD("interp.gil", PyInterpreterState, ceval.gil);
    FIELD("code.version", PyCodeObject, co_version);
#endif

#if PY_VERSION_HEX < 0x030d0000
    FIELD("frame.code", _PyInterpreterFrame, f_code);
    FIELD("frame.prev_instr", _PyInterpreterFrame, prev_instr);
    FIELD("thread.cframe", PyThreadState, cframe);
    FIELD("thread.exc_info", PyThreadState, exc_info);
#if PY_VERSION_HEX < 0x030c0000
    FIELD("thread.current_exception", PyThreadState, curexc_type);
#else
    FIELD("thread.current_exception", PyThreadState, current_exception);
#endif
    FIELD("thread.root_cframe", PyThreadState, root_cframe);
    FIELD("cframe.current_frame", _PyCFrame, current_frame);
    FIELD("cframe.previous", _PyCFrame, previous);
#else
    FIELD("frame.code", _PyInterpreterFrame, f_executable);
    FIELD("frame.instr_ptr", _PyInterpreterFrame, instr_ptr);
    FIELD("thread.current_frame", PyThreadState, current_frame);
    FIELD("thread.current_exception", PyThreadState, current_exception);
    FIELD("thread.exc_info", PyThreadState, exc_info);
#endif

#if PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030e0000
    SAY("frame.entry_owner", FRAME_OWNED_BY_CSTACK);
    SAY("frame.owner_max", FRAME_OWNED_BY_CSTACK);
#endif

#if PY_VERSION_HEX >= 0x030e0000
    SAY("frame.entry_owner", FRAME_OWNED_BY_INTERPRETER);
    SAY("frame.code_tag", Py_TAG_BITS);
    FIELD("thread.holds_gil", PyThreadState, holds_gil);
    FIELD("interp.code_generation", PyInterpreterState, _code_object_generation);
#if PY_VERSION_HEX < 0x030f0000
    SAY("frame.owner_max", FRAME_OWNED_BY_CSTACK);
#else
    SAY("frame.owner_max", FRAME_OWNED_BY_INTERPRETER);
    FIELD("thread.base_frame", PyThreadState, base_frame);
    FIELD("thread.gil_requested", PyThreadState, gil_requested);
    FIELD("interp.gc_frame", PyInterpreterState, gc.frame);
#endif
#else
    SAY("frame.code_tag", 0);
#endif
    return 0;
}
