"""Every way in which a Python stack grows and shrinks, for a reader that looks after each instruction.

The functions' call graph is EDGES: `caller callee`. A stack is legal if it starts at `<module>` and
each frame's function may be called by the one before. Prints `ready` and then loops until stdin
closes or the process is ended.
"""
import gc
import sys

EDGES = """
<module> main
main calls calls leaf leaf inner
main generators generators gen gen inner generators delegating delegating gen
main coroutines coroutines coro coro awaited awaited inner
main throwing throwing catcher catcher inner throwing outer_gen outer_gen catcher
main closing closing closer closer inner
main exceptions exceptions raiser raiser raiser raiser inner
main executes executes <module> <module> fresh fresh inner
main chunks chunks deep deep deep deep inner
main callbacks callbacks mapped mapped inner callbacks key key inner callbacks <lambda> <lambda> inner
main classes classes C.__init__ C.__init__ inner classes D.__init__ D.__init__ C.__init__
classes C.__del__ C.__del__ inner classes C.__getattr__ C.__getattr__ inner classes C.__add__ C.__add__ inner
main contexts contexts managed managed inner contexts inner
main comprehensions comprehensions <genexpr> <genexpr> inner comprehensions inner
comprehensions <listcomp> <listcomp> inner
"""


def inner(n):
    return n + 1


def leaf(n):
    return inner(n) * 2


def calls():
    for i in range(3):
        leaf(i)


def gen(n):
    for i in range(n):
        yield inner(i)


def delegating(n):
    yield from gen(n)


def generators():
    for _ in gen(2):
        pass
    for _ in delegating(2):
        pass


class Pause:
    def __await__(self):
        yield 1


async def awaited(n):
    await PAUSE
    return inner(n)


async def coro(n):
    return await awaited(n)


def coroutines():
    c = coro(3)
    try:
        while True:
            c.send(None)
    except StopIteration:
        pass


def catcher():
    while True:
        try:
            yield 1
        except KeyError:
            inner(1)


def outer_gen():
    yield from catcher()


def throwing():
    for make in (catcher, outer_gen):
        g = make()
        next(g)
        g.throw(KeyError("x"))
        g.close()


def closer():
    try:
        yield 1
    finally:
        inner(2)


def closing():
    g = closer()
    next(g)
    g.close()
    g = closer()
    next(g)
    del g


def raiser(n):
    if n == 0:
        inner(0)
        raise ValueError("x")
    raiser(n - 1)


def exceptions():
    try:
        raiser(3)
    except ValueError:
        pass


def executes():
    space = {"inner": inner}
    exec(FRESH, space)


# Many locals, so that a dozen frames leave the 16 KiB of the first data-stack chunk.
exec(f"""
def deep(n, {", ".join(f"x{i}=0" for i in range(200))}):
    if n == 0:
        return inner(n)
    return deep(n - 1)
""")


def chunks():
    deep(DEPTH)


def mapped(x):
    return inner(x)


def key(x):
    return -inner(x)


def callbacks():
    list(map(mapped, (1, 2)))
    sorted((3, 1, 2), key=key)
    max((1, 2), key=lambda x: inner(x))


class C:
    def __init__(self, n):
        self.n = inner(n)

    def __del__(self):
        inner(1)

    def __getattr__(self, name):
        return inner(1)

    def __add__(self, other):
        return inner(other)


class D(C):
    def __init__(self, n):
        super().__init__(n)


def classes():
    c = C(1)
    c.missing
    c + 2
    del c
    d = D(2)
    del d


def managed():
    inner(1)
    yield
    inner(2)


def contexts():
    for _ in managed():
        inner(3)


def comprehensions():
    [inner(x) for x in (1, 2)]
    sum(inner(x) for x in (1, 2))


def main():
    while True:
        calls()
        generators()
        coroutines()
        throwing()
        closing()
        exceptions()
        executes()
        callbacks()
        classes()
        contexts()
        comprehensions()
        chunks()


# awaited() suspends in this object's own generator, which is Python code too: name it in the graph.
PAUSE = Pause()
# Compiled once: the compiler takes 100,000 instructions in which no stack changes.
FRESH = compile("def fresh(n):\n    return inner(n)\nfresh(1)\n", "fresh.py", "exec")
DEPTH = int(sys.argv[1]) if len(sys.argv) > 1 else 20
# So does a collection of all that was imported.
gc.collect()
gc.freeze()
words = EDGES.split() + ["awaited", "Pause.__await__"]
print("edges", *words, flush=True)
print("ready", flush=True)
main()
