"""Code objects that live shortly, so that their addresses are used again and again:
`churn.py many|swap|twins`. Prints `{}` and runs until it is ended.

The functions `via_K` live for ever, and each calls code of its own only:
- many: `g_N_K`, which calls `f_N_K`, of the file `gen_N`, where N is never used again;
- swap: `g_0_K` and `f_0_K` of `gen_K`, compiled anew each time;
- twins: `g` and `f` of `gen_K`, alike but for the file's name and the distance of their lines
  (`f` of lane K has a statement every K + 1 lines).
"""
import gc
import sys

LANES = 16
ALIVE = 48

for k in range(LANES):
    exec(f"def via_{k}(run):\n    return run({k})\n", globals())
VIA = [globals()[f"via_{k}"] for k in range(LANES)]

F = """def {f}(x):
    total = x
    for step in range(60):
        total ^= step
    return total
"""
G = """def {g}(x):
    return {f}(x) + 1
"""


def make(f, g, file, spread, order):
    first = F.format(f=f).replace("\n", "\n" * spread)
    parts = [first + "\n" * (30 - first.count("\n")), G.format(f=f, g=g)]
    if order:
        parts.reverse()
    space = {}
    exec(compile("".join(parts), file, "exec"), space)
    return space[g]


def release(run):
    # A function and its globals are a cycle.
    run.__globals__.clear()


def many():
    seed = 1
    alive = []
    n = 0
    while True:
        k = n % LANES
        new = (VIA[k], make(f"f_{n}_{k}", f"g_{n}_{k}", f"gen_{n}", 1, n % 3 == 0))
        n += 1
        if len(alive) < ALIVE:
            alive.append(new)
        else:
            release(alive[(seed >> 8) % ALIVE][1])
            alive[(seed >> 8) % ALIVE] = new
        for _ in range(40):
            seed = (seed * 1103515245 + 12345) % 0x80000000
            via, run = alive[(seed >> 8) % len(alive)]
            via(run)


def alternate(name):
    while True:
        for k in (0, 1):
            f, g, spread = name(k)
            run = make(f, g, "_".join(("gen", str(k))), spread, False)
            via = VIA[k]
            for _ in range(100):
                via(run)
            release(run)
            del run


def swap():
    alternate(lambda k: (f"f_0_{k}", f"g_0_{k}", 1))


def twins():
    alternate(lambda k: ("f", "g", k + 1))


main = globals()[sys.argv[1]]
gc.disable()
print("{}", flush=True)
main()
