"""Spins at places whose lines are easily got wrong, below every kind of frame."""
import _thread
import atexit
import functools
import importlib
import importlib.util
import sys
import threading
import time
import weakref

from known import LONG, begin, prepare, spin, tell
from suspended import coroutines, generators


def run(source, name="<string>", **names):
    """Executes source, which sees `spin` and `names`; returns its names."""
    names = {"spin": spin, "tell": tell, "sys": sys, "time": time, **names}
    exec(prepare(compile, source, name, "exec"), names)
    return names


def shares():
    n = 1
    end = tell(sys._getframe(), {1: None, 3: None, 4: 0.7, 5: 0.3}, 1.0)
    while time.thread_time() < end:
        # No period of the loop must fall in with that of the samples.
        n, m = n * 1103515245 + 12345 & 0x7FFFFFFF, 1000 + n % 4001
        sum(range(1000, 1000 + m * 7))
        sum(range(1000, 1000 + m * 3))


def recursion():
    def down(n, innermost=spin):
        return down(n - 1, innermost) if n else innermost()

    # Each level by way of C.
    def across(n):
        return list(map(across, [n - 1])) if n else spin()

    # C is crossed within the frames that are kept.
    def crossed():
        return list(map(down, [900]))

    sys.setrecursionlimit(12_000)
    for depth in 1_000, 2_030, 5_000:
        down(depth)
    down(5_000, crossed)
    across(300)


class A:
    def run(self):
        return spin()


class B:
    def run(self):
        return spin()


def keep(function):
    spin()

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(
            *args,
            **kwargs,
        )

    return wrapper


def decorator_of(_):
    return keep


class Number:
    def __add__(self, other):
        spin()
        return self

    def add(self, other):
        return self + other

    @property
    def value(self):
        return spin()

    def __getattr__(self, name):
        return spin()

    def __eq__(self, other):
        return not spin()

    def __enter__(self):
        return spin()

    def __exit__(self, *_):
        spin()
        return True


def places():
    @decorator_of(
        spin(),
    )
    @keep
    def decorated(*args, last=None):
        """A line.

        Another.
        """
        return spin()

    decorated(
        1,
        spin(),
        last=[
            2,
            spin(),
        ],
    )
    number = Number()
    (number
        .add(1)
        .add(
            2))
    total = (
        number
        + 1
    )
    total.value, total.missing
    [0].index(number)
    if (spin() or
            spin()):
        pass
    try:
        try:
            spin()
            raise KeyError
        finally:
            spin()
    except KeyError:
        spin()
        try:
            raise ValueError from None
        except ValueError:
            spin()
    else:
        pass
    with Number() as _, \
            Number():
        spin()
        raise KeyError
    for _ in (
        1,
    ):
        spin()
    assert not spin(), (
        "")
    try:
        return 1
    finally:
        spin()


class Thing:
    def __init__(self, last):
        self.last = last
        if last:
            self.begin()

    def begin(self):
        spin()

    def __del__(self):
        if self.last:
            spin()


class Meta(type):
    def __new__(meta, name, bases, names):
        spin()
        return type.__new__(meta, name, bases, names)

    def __call__(cls, *args):
        return spin()


def crossings():
    list(map(spin, [1]))
    sorted([1], key=spin)
    min([1], key=lambda _: spin())
    functools.reduce(lambda a, b: spin(), [1, 2])
    # Often enough that calls of the class are specialised.
    for n in range(100):
        Thing(n == 99)
    class Made(metaclass=Meta):
        spin()
    Made()
    target = Thing(False)
    watch = weakref.ref(target, spin)
    del target, watch
    target = Thing(False)
    watch = weakref.ref(target, spin)
    del target


def comprehensions():
    f = lambda: (lambda: spin())()
    f()
    [spin() for _ in [1]]
    {spin() for _ in [1]}
    {1: spin() for _ in [1]}
    list(spin() for _ in [1])
    [[spin()
      for _ in [1]]
     for _ in [1]]
    class Body:
        for _ in [1]:
            spin()
        lam = lambda: spin()
    Body.lam()


class Finder:
    def find_spec(self, name, path, target=None):
        spin()
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return spin() or None

    def exec_module(self, module):
        exec("\n\nspin()", {"spin": spin})


def executed():
    exec("spin()")
    eval("[\n\nspin()]")
    run("\n" * 70_000 + "def far(): return spin()\nfar()", "far.py")
    run("def wide():\n" + "\n" * 70_000 + " return (spin(),\n\nspin())\nwide()", "wide.py")
    run("\n" * 1_199_999 + "spin()", "very_far.py")
    body = " x = 0\n" * 50_000
    hot = " end = tell(sys._getframe(), {1: None}, 0.1)\n while time.thread_time() < end: x = 1\n"
    big = run(f"def big():\n{body} spin()\n{hot}{body}", "big.py")
    big["big"]()
    sys.meta_path.insert(0, Finder())
    import found
    del sys.meta_path[0]


def threads():
    thread = threading.Thread(target=lambda: spin(seconds=LONG), name="worker")
    thread.start()
    thread.join()
    done = _thread.allocate_lock()
    done.acquire()

    def low():
        spin(seconds=LONG)
        done.release()

    _thread.start_new_thread(low, ())
    done.acquire()
    threading.stack_size(512 << 20)
    thread = threading.Thread(target=recursion, name="deep")
    thread.start()
    thread.join()


def traced():
    sys.settrace(lambda *_: None)
    A().run()
    sys.settrace(None)


def main():
    begin()
    shares()
    A().run(), B().run()
    places()
    crossings()
    comprehensions()
    generators()
    coroutines()
    executed()
    threads()
    traced()
    atexit.register(spin)
    atexit.register(lambda: spin())


main()
