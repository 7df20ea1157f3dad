"""A stack of known shape that spins at its leaf: bench_stack.py DEPTH OFF_CHUNK THREADS [FILE]

DEPTH frames below <module>, of which OFF_CHUNK are generators and coroutines, whose frames lie in
objects of their own (the interpreter may add an entry frame on the C stack, and a base frame). The
stack is built anew every few milliseconds, as in a program that works. With a file, each turn of
the leaf is counted in its first 8 bytes, little-endian, so that progress can be read from outside.
"""

import mmap
import sys
import threading

depth, off_chunk, threads = (int(word) for word in sys.argv[1:4])
sys.setrecursionlimit(max(1000, depth * 2))
threading.stack_size(1 << 20)

if len(sys.argv) > 4:
    with open(sys.argv[4], "r+b") as shared:
        progress = memoryview(mmap.mmap(shared.fileno(), 8)).cast("Q")
else:
    progress = memoryview(bytearray(8)).cast("Q")


def leaf():
    for _ in range(200):
        for _ in range(250):
            pass
        progress[0] += 1


async def coroutine(left):
    if left:
        await coroutine(left - 1)
    else:
        leaf()


def generator(left, coroutines):
    if left:
        for _ in generator(left - 1, coroutines):
            pass
    elif coroutines:
        try:
            coroutine(coroutines - 1).send(None)
        except StopIteration:
            pass
    else:
        leaf()
    yield


def function(left):
    if left:
        function(left - 1)
    elif off_chunk:
        coroutines = off_chunk // 2
        for _ in generator(off_chunk - coroutines - 1, coroutines):
            pass
    else:
        leaf()


def main():
    while True:
        # main, the functions, those off the chunk, leaf
        function(depth - off_chunk - 3)


# Each start waits for the new thread: not behind those that work already.
gate = threading.Event()


def thread():
    gate.wait()
    main()


for _ in range(threads - 1):
    threading.Thread(target=thread, daemon=True).start()
print("ready", flush=True)
gate.set()
main()
