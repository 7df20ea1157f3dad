"""Prints code objects and a stack as Python sees them, as one line of JSON, and waits.

The stack is printed from where it is: in a function that `C.__init__` calls, often enough that
3.13 and later call `__init__` with a clean-up frame of their own.
"""

import ctypes
import json
import sys


def showable(text):
    return "".join("\\u%04x" % ord(c) if 0xD800 <= ord(c) < 0xE000 else c for c in text)


def describe(code):
    return {
        "addr": id(code),
        "qualname": showable(code.co_qualname),
        "filename": showable(code.co_filename),
        "first_line": code.co_firstlineno,
        "flags": code.co_flags,
        "units": len(code.co_code) // 2,
    }


NAMES = [
    "", "plain", "méthode", "函数Ω", "snake🐍", "a\udc80b", "\ud83d\udc0d", "🐍\udfff",
    "n" * 1024, "é" * 1024, "函" * 1023 + "🐍", "l" * 1025, "m" * 5000 + "1", "m" * 5000 + "2",
    "c\n;\0\x1b",
]
CODES = [describe.__code__.replace(co_qualname=name, co_filename=name + ".py") for name in NAMES]


def frames(frame):
    while frame is not None:
        line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        yield {
            **describe(frame.f_code),
            "position": [line, end_line, column, end_column],
        }
        frame = frame.f_back


def report():
    frame = sys._getframe()
    interpreter_frame = ctypes.c_uint64.from_address(id(frame) + 24).value
    runtime = ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")
    said = {
        "version": sys.hexversion,
        "table": ctypes.string_at(ctypes.addressof(runtime), 888).hex(),
        "frame": interpreter_frame,
        "codes": [describe(code) for code in CODES],
        # Without this frame, which goes on to wait.
        "stack": list(frames(frame.f_back)),
    }
    print(json.dumps(said), flush=True)
    sys.stdin.readline()


class C:
    def __init__(self, last):
        if last:
            report()


def generator():
    for i in range(1000):
        yield C(
            i == 999,
        )


[sorted([0], key=lambda _: len(list(generator())))]
