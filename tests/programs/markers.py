"""Has C code call Python, and the garbage collector, until the input ends (`ready`: one line).

sorts_here     has `sorted` call `key_here`
collects_here  has the collector call `finalizes_here`
"""

import gc
import select
import sys


def work():
    sum(range(20_000))


class Knot:
    def __init__(self):
        self.self = self

    def __del__(self):
        finalizes_here()


def finalizes_here():
    work()


def key_here(item):
    work()
    return item


def sorts_here():
    sorted([3, 1, 2], key=key_here)


def collects_here():
    Knot()
    gc.collect()


gc.disable()
# Much to look through.
HEAP = [[] for _ in range(100_000)]
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    sorts_here()
    collects_here()
