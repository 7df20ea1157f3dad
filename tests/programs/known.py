"""Says where a program is, then spins there: for a test to compare with a profile of it.

On stdout, a line of JSON each: first the version, then one before each spin, at last an empty one.
Functions named `begin`, `prepare`, `tell` and `end` are on a stack only while nothing is to be
judged.
"""
import atexit
import json
import select
import sys
import threading
import time

SECONDS = 0.025
# Long enough for a thread to be seen alive.
LONG = 0.3
# The name of a code object that is gone cannot be proved.
alive = {}


def showable(text):
    """Lone surrogates as the profiler spells them."""
    return "".join("\\u%04x" % ord(c) if 0xD800 <= ord(c) < 0xE000 else c for c in text)


def stack(frame):
    """Name, file and line of each frame, outermost first."""
    frames = []
    while frame is not None:
        code = alive[id(frame.f_code)] = frame.f_code
        frames.append([showable(code.co_qualname), showable(code.co_filename), frame.f_lineno])
        frame = frame.f_back
    return frames[::-1]


def say(said):
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def tell(frame, hot, seconds):
    """Says that `frame` is about to use so much CPU time on the lines `hot`: from distance to the
    line it is at, to share of the time, or None where that is left open. Returns when to end."""
    tid = threading.get_native_id()
    with open(f"/proc/self/task/{tid}/comm", "rb") as file:
        comm = file.read().rstrip(b"\n").decode()
    frames = stack(frame)
    hot = [[frames[-1][2] + distance, share] for distance, share in hot.items()]
    say({"stack": frames, "hot": hot, "seconds": seconds, "tid": tid, "comm": comm})
    return time.thread_time() + seconds


def spin(*_, seconds=SECONDS):
    end = tell(sys._getframe(), {1: None, 2: None}, seconds)
    while time.thread_time() < end:
        for _ in range(200): pass
    return 0


def prepare(function, *arguments):
    return function(*arguments)


def begin():
    """Runs until told to go on by a line of standard input. What is still to be registered with
    atexit comes before the end."""
    atexit.register(end)
    say({"minor": sys.version_info[1]})
    while not select.select([0], [], [], 0)[0]:
        pass
    sys.stdin.readline()


def end():
    """Waits, with all code objects alive, until standard input ends."""
    say({})
    sys.stdin.readline()
