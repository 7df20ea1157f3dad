"""Programs whose every stack is known, to judge a profiler by: `shapes.py SHAPE`.

Functions come in lanes: `name_3` is of lane 3, calls lane 3 only, and is called by lane 3 or by a
function without lane. The first line on stdout is JSON: `roots`, the functions a stack may begin
with; `edges`, who may call whom; `depth`, the most frames. Then the program runs until it is ended.
"""
import _thread
import collections
import faulthandler
import json
import signal
import sys
import types

LANES = 16
roots = ["<module>"]
edges = [("<module>", "main")]
depth = 100


def lanes(source, calls, count=LANES):
    """Defines `source` once a lane (`#` is its number); `calls` are its edges. The last function
    defined in each lane is returned."""
    for lane in range(count):
        text = source.replace("#", str(lane))
        exec(compile(text, "lane.py", "exec"), globals())
        pairs = calls.replace("#", str(lane)).split()
        edges.extend(zip(pairs[::2], pairs[1::2]))
    last = [line for line in source.splitlines() if line.startswith("def ")][-1]
    name = last[4 : last.index("(")]
    return [globals()[name.replace("#", str(lane))] for lane in range(count)]


WORK = """
def work_#(n):
    total = #
    for step in range(n):
        total ^= step
    return total
"""


def chain():
    """Calls four deep and back, as fast as the interpreter can."""
    global main, turn
    tops = lanes(
        WORK
        + """
def three_#(n):
    return work_#(n) + 1
def two_#(n):
    return three_#(n) + 1
def one_#(n):
    return two_#(n) + 1
""",
        "turn one_# one_# two_# two_# three_# three_# work_#",
    )
    edges.append(("main", "turn"))

    def turn(n):
        total = 0
        for top in tops:
            total += top(n)
        return total

    def main():
        while True:
            turn(3)


def flutter():
    """Two chains of equal weight in turn."""
    global main
    edges.extend([("main", "hot_a"), ("hot_a", "leaf_a"), ("main", "hot_b"), ("hot_b", "leaf_b")])
    names = {}
    for side in "ab":
        exec(
            f"def leaf_{side}():\n    for step in range(20): pass\n"
            f"def hot_{side}():\n    leaf_{side}()\n",
            names,
        )
    hot_a, hot_b = names["hot_a"], names["hot_b"]

    def main():
        while True:
            hot_a()
            hot_b()


def dive():
    """One function 60 calls deep and back."""
    global depth, main
    depth = 2 + 61
    edges.extend([("main", "down"), ("down", "down")])
    names = {}
    exec("def down(n):\n    return n and down(n - 1)\n", names)
    down = names["down"]

    def main():
        while True:
            down(60)


def deep():
    """A thousand calls deep, by a ring of seven functions: a frame lost shows."""
    global depth, main
    depth = 2 + 1000
    sys.setrecursionlimit(3000)
    names = {}
    for i in range(7):
        exec(f"def ring_{i}(n):\n    return n and ring_{(i + 1) % 7}(n - 1)\n", names)
        edges.append((f"ring_{i}", f"ring_{(i + 1) % 7}"))
    edges.append(("main", "ring_0"))
    ring_0 = names["ring_0"]

    def main():
        while True:
            ring_0(999)


def deeper():
    """About as deep as a sample can follow, which is 2,048 frames, and some deeper."""
    global depth, main
    depth = 2048
    sys.setrecursionlimit(4000)
    names = {}
    exec("def spin():\n    for step in range(4000): pass\n", names)
    for i in range(7):
        following = f"ring_{(i + 1) % 7}"
        exec(f"def ring_{i}(n):\n    return {following}(n - 1) if n else spin()\n", names)
        edges.extend([(f"ring_{i}", following), (f"ring_{i}", "spin")])
    edges.append(("main", "ring_0"))
    ring_0 = names["ring_0"]

    def main():
        while True:
            for n in (*range(2030, 2060), 3000):
                ring_0(n)


def generators():
    """Delegation, loops over generators, and generators that C drives."""
    global main
    each = lanes(
        WORK
        + """
def inner_#(n):
    for k in range(n):
        yield work_#(k)
def outer_#(n):
    yield from inner_#(n)
def total_#(n):
    return sum(work_#(k) for k in range(n))
def consume_#(n):
    for _ in outer_#(n):
        pass
    total_#(n)
    g = inner_#(n)
    next(g)
    g.close()
""",
        "main consume_# consume_# outer_# outer_# inner_# inner_# work_# consume_# inner_# "
        "consume_# total_# total_# total_#.<locals>.<genexpr> total_#.<locals>.<genexpr> work_#",
    )

    def main():
        while True:
            for consume in each:
                consume(5)


def coroutines():
    """Await chains that suspend at their end and are resumed from the start."""
    global main
    each = lanes(
        WORK
        + """
@types.coroutine
def pause_#():
    for step in range(9):
        pass
    yield
async def third_#(n):
    work_#(n)
    await pause_#()
    return work_#(n)
async def second_#(n):
    return await third_#(n)
async def first_#(n):
    return await second_#(n)
def drive_#(n):
    task = first_#(n)
    try:
        while True:
            task.send(None)
    except StopIteration:
        pass
""",
        "main drive_# drive_# first_# first_# second_# second_# third_# third_# work_# third_# pause_#",
    )

    def main():
        while True:
            for drive in each:
                drive(9)


def callbacks():
    """Python called by C called by Python: map, sorted, and a finalizer."""
    global main
    each = lanes(
        WORK
        + """
def double_#(x):
    return 2 * work_#(x)
def key_#(x):
    return -work_#(x)
class Thing_#:
    def __del__(self):
        work_#(9)
def mapping_#(n):
    list(map(double_#, range(n)))
def sorting_#(n):
    sorted(range(n), key=key_#)
def dropping_#(n):
    for _ in range(n):
        Thing_#()
def cross_#(n):
    mapping_#(n)
    sorting_#(n)
    dropping_#(n)
""",
        "main cross_# cross_# mapping_# cross_# sorting_# cross_# dropping_# mapping_# double_# "
        "double_# work_# sorting_# key_# key_# work_# dropping_# Thing_#.__del__ "
        "Thing_#.__del__ work_#",
    )

    def main():
        while True:
            for cross in each:
                cross(9)


def threads():
    """Eight threads that fight for the GIL, each in a lane of its own."""
    global begun, main
    begun = [_thread.allocate_lock() for _ in range(8)]
    bodies = lanes(
        WORK
        + """
def low_#(n):
    return work_#(n)
def high_#(n):
    return low_#(n)
def thread_#():
    begun[#].release()
    while True:
        high_#(20)
""",
        "thread_# high_# high_# low_# low_# work_#",
        count=8,
    )
    roots.extend(f"thread_{lane}" for lane in range(8))

    for lock, body in zip(begun, bodies):
        lock.acquire()
        _thread.start_new_thread(body, ())
        lock.acquire()

    def main():
        forever = _thread.allocate_lock()
        forever.acquire()
        forever.acquire()


def turns():
    """Fifty generators advanced in turn, each with a helper of its own."""
    global main
    each = lanes(
        WORK
        + """
def gen_#():
    while True:
        yield work_#(5)
""",
        "main gen_# gen_# work_#",
        count=50,
    )
    queue = collections.deque(make() for make in each)

    def main():
        while True:
            first = queue.popleft()
            next(first)
            queue.append(first)


# Each declares its functions global, so that their qualified names are their names.
globals()[sys.argv[1]]()
# CPython's own word on where it is: the handler runs between two instructions of this thread.
faulthandler.register(signal.SIGUSR1, file=sys.stdout, all_threads=False)
print(json.dumps({"roots": roots, "edges": edges, "depth": depth}), flush=True)
main()
