"""Spins in functions and files of odd names, itself a file whose name is no UTF-8."""
import os
import shutil
import sys
import tempfile

ODD = b"\xff.py"
if not os.fsencode(__file__).endswith(ODD):
    here = os.path.dirname(os.path.abspath(__file__))
    folder = tempfile.mkdtemp().encode()
    odd = folder + b"/" + ODD
    shutil.copy(__file__, odd)
    os.environ["PYTHONPATH"] = here
    os.execv(sys.executable, [sys.executable, odd, *sys.argv[1:]])
shutil.rmtree(os.path.dirname(os.fsencode(__file__)))

from known import begin, spin

NAMES = [
    "", " ", "f", "a;b", "two\nlines", "cr\rtab\t", "quote'\"", "back\\slash \\n", "a<b>&\"q\"",
    "f (x.py:3)", "f (x.py:3);g (y.py:4) 12", "trailing 12", "12", "# comment", "process 1",
    "thread x (1)", "<module>", "<unnamed>", "<unreadable>", "[truncated]", "&nbsp;", "]]>",
    "</title></svg><script>alert(1)</script>", "\x1b[31mred", "\x00\x06\x7f\x85\u2028\u202e",
    "\ufeff\ufffe\uffff", "café", "кириллица", "zażółć", "函数Ω", "𠀀", "snake🐍", "s\udc80ur",
    "\ud83d\udc0d", "🐍\udfff", "x" * 1024, "x" * 9000 + "1", "x" * 9000 + "2", "é" * 9000,
    "𠀀;" * 4500,
]


def кириллица():
    spin()


def café():
    spin()


def 函数():
    spin()


def 𠀀():
    spin()


# Python takes this for `U`.
def 𝔘():
    spin()


def plain():
    spin()


def each():
    for function in кириллица, café, 函数, 𠀀, U:
        function()
    for name in NAMES:
        yield {"co_qualname": name, "co_filename": "plain.py"}
        yield {"co_qualname": "plain", "co_filename": name}
    for name in "<frozen importlib._bootstrap>", "x.py:12", "x.py:", "zażółć.py", "a)b", "a (b):1":
        yield {"co_filename": name}


begin()
for names in each():
    plain.__code__ = plain.__code__.replace(**names)
    plain()
