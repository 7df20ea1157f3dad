"""Prints a line each: version, folder of the headers, offset table in hex (empty before 3.13)."""

import ctypes
import sys
import sysconfig

print(sys.hexversion)
print(sysconfig.get_path("include"))
runtime = ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")
table = ctypes.string_at(ctypes.addressof(runtime), 888)
print(table.hex() if sys.version_info >= (3, 13) else "")
