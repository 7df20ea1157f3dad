"""Compiles the standard library and prints, for each code object, what Python says of it.

To stdout, little-endian u32: co_firstlineno, bytes of co_linetable, the bytes, the number of runs
of equal positions, and for each run its code units, line, end line, column, end column (all bits
set for None). To stderr: the number of files compiled and of files that are no valid Python.
"""

import array
import itertools
import os
import sys
import sysconfig
import warnings


def functions(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, type(code)):
            yield from functions(const)


def describe(code):
    runs = array.array("I")
    for position, group in itertools.groupby(code.co_positions()):
        runs.append(sum(1 for _ in group))
        runs.extend(0xFFFFFFFF if part is None else part for part in position)
    table = code.co_linetable
    head = array.array("I", [code.co_firstlineno, len(table)])
    return head.tobytes() + table + array.array("I", [len(runs) // 5]).tobytes() + runs.tobytes()


def sources():
    for folder, folders, names in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = sorted(set(folders) - {"__pycache__", "site-packages"})
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".py"))


warnings.simplefilter("ignore")
compiled = invalid = 0
for path in sources():
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        invalid += 1  # the compiler's own test cases
        continue
    compiled += 1
    for function in functions(code):
        sys.stdout.buffer.write(describe(function))
print(compiled, "files,", invalid, "invalid", file=sys.stderr)
