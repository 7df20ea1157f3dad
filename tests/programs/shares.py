"""Functions that use known shares of the CPU: `shares.py`. Prints `{}`, runs until its standard
input ends, and then prints `{"shares": {function: its share of this thread's CPU time}}`.

Each function's time is taken by the thread's CPU clock around the call; there is no other work.
"""
import _thread
import hashlib
import json
import sys
import time
import zlib

DATA = bytes(range(256)) * 1024


def light():
    for step in range(2_000):
        pass


def middle():
    sum(step * step for step in range(4_000))


def heavy():
    total = 0
    for step in range(16_000):
        total += step & 7


def squeeze():
    # Without the GIL.
    zlib.compress(DATA, 1)


def digest():
    # Without the GIL.
    hashlib.sha256(DATA).digest()


def wait():
    sys.stdin.buffer.read()
    ended.append(True)


def main():
    clock = time.thread_time
    while not ended:
        for index, part in enumerate(PARTS):
            begin = clock()
            part()
            spent[index] += clock() - begin


PARTS = (light, middle, heavy, squeeze, digest)
spent = [0.0] * len(PARTS)
ended = []
_thread.start_new_thread(wait, ())
print("{}", flush=True)
main()
shares = {part.__name__: time / sum(spent) for part, time in zip(PARTS, spent)}
print(json.dumps({"shares": shares}), flush=True)
