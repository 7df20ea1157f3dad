"""Spins in frames that live on the heap: generators and coroutines."""
import asyncio
import contextlib
import types

from known import prepare, spin


def inner():
    try:
        yield spin()
        yield 1
        yield 2
    except KeyError:
        spin()
        yield
    finally:
        spin()


def outer():
    yield from inner()


@contextlib.contextmanager
def managed():
    spin()
    try:
        yield
    finally:
        spin()


def generators():
    g = outer()
    for _ in g:
        break
    next(g)
    g.throw(KeyError())
    g.close()
    with managed():
        spin()


@types.coroutine
def pause():
    spin()
    yield
    spin()


async def third():
    await pause()
    return spin()


async def second():
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(third)
        spin()


async def ticks():
    for n in range(2):
        await pause()
        yield n


async def first():
    await second()
    async for _ in ticks():
        spin()
    [spin() async for n in ticks() if n]


def coroutines():
    task = first()
    with contextlib.suppress(StopIteration):
        while True:
            task.send(None)

    async def tasks():
        spin()
        await asyncio.gather(task(), task())

    async def task():
        await asyncio.sleep(0)
        spin()

    loop = prepare(asyncio.new_event_loop)
    loop.run_until_complete(tasks())
    prepare(loop.close)
