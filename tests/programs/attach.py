"""A Python process to attach to: says what is true of it, and stays until its input ends.

    attach.py MODE [FILE]

    blocked  one thread, which waits for its input without the GIL
    spin     one thread, which never lets go of the GIL (ended by a signal)
    threads  five more threads: three wait without the GIL, two run
    copy     as blocked, after opening the library FILE
    remap    as blocked, after mapping one page of each file of code once more
    bare     as blocked, without any extension module: no thread state is told

Prints one line, a JSON object: pid, tid (of a thread), and threads, a list of pairs: thread
pointer and address of the thread state (0: not told).
"""

import json
import os
import sys
import threading

mode = sys.argv[1]
if mode == "bare":
    state = int
else:
    import ctypes

    state = ctypes.pythonapi.PyThreadState_Get
    state.restype = ctypes.c_void_p
here = [(threading.get_ident(), state())]
kept = []

if mode == "copy":
    kept.append(ctypes.CDLL(sys.argv[2]))

if mode == "remap":
    import mmap

    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps]
    for path in {line[5] for line in lines if line[1] == "r-xp" and line[-1][0] == "/"}:
        with open(path, "rb") as file:
            page = mmap.mmap(
                file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC, offset=4096
            )
            kept.append(page)

tid = os.getpid()
if mode == "threads":
    reader, writer = os.pipe()
    barrier = threading.Barrier(6)

    def begin():
        here.append((threading.get_ident(), state()))
        barrier.wait()

    def wait():
        begin()
        os.read(reader, 1)

    def run():
        global tid
        tid = threading.get_native_id()
        begin()
        while True:
            pass

    for target in (wait, wait, wait, run, run):
        threading.Thread(target=target, daemon=True).start()
    barrier.wait()

print(json.dumps({"pid": os.getpid(), "tid": tid, "threads": here}), flush=True)
while mode == "spin":
    pass
sys.stdin.read()
os._exit(0)
