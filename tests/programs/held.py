"""Stands still at one place after the other, for a test to compare with a dump of it.

At each place a line of JSON on stdout: `frames`, innermost first, as [qualified name, file, line,
end line, column, end column], and whether it handles an `exception`; then it waits for a line on
stdin. At last no frames.

`held.py threads N` starts N threads that wait instead, and says their native ids. `held.py modes`
starts one that spins and one that handles an exception, and says theirs. `held.py interpreter`
makes an interpreter that another thread runs, and says which. `held.py storm` starts threads all
the time, and says which stay.
"""
import _thread
import json
import os
import sys
import threading
import time


def position(frame):
    code = frame.f_code
    for index, where in enumerate(code.co_positions()):
        if index == frame.f_lasti // 2:
            return list(where)


def hold():
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        frames.append([code.co_qualname, code.co_filename, *position(frame)])
        frame = frame.f_back
    exception = sys.exc_info()[1] is not None
    sys.stdout.write(json.dumps({"frames": frames, "exception": exception}) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


class Näme:
    def __init__(self, place):
        place()

    def method(self, place):
        return (lambda: place())()

    @classmethod
    def made(cls, place): place()

    @property
    def value(self):
        hold()

    def __del__(self):
        hold()

    def __enter__(self):
        hold()
        return self

    def __exit__(self, *exception):
        hold()

    def __lt__(self, other):
        hold()
        return False

    def __getattr__(self, name):
        hold()
        return name


def generator(place):
    yield 1
    place()
    yield from inner(place)


def inner(place):
    try:
        yield 2
    finally:
        place()


async def coroutine(place, left):
    if left:
        return await coroutine(place, left - 1)
    place()


async def async_generator(place):
    place()
    yield 1


async def each(place):
    async for _ in async_generator(place):
        place()


def drive(awaitable):
    try:
        awaitable.send(None)
    except StopIteration:
        pass


def recurse(left, place):
    if left:
        recurse(left - 1, place)
    else:
        place()


def raising():
    try:
        raise ValueError("held")
    except ValueError:
        hold()
    finally:
        hold()


def generator_that_handles():
    try:
        raise KeyError
    except KeyError:
        hold()
        yield 1
        hold()


async def coroutine_that_handles():
    try:
        raise KeyError
    except KeyError:
        await coroutine(hold, 1)


def handling(place):
    try:
        raise KeyError
    except KeyError:
        # With an exception of the caller's, and none of its own.
        list(inner(place))


def decorated(function):
    def wrapper(*args, **kwargs):
        return function(
            *args,
            **kwargs,
        )

    return wrapper


@decorated
def plain(place):
    place()


def places():
    hold()
    plain(hold)
    thing = Näme(hold)
    thing.method(hold)
    Näme.made(hold)
    thing.value
    thing.absent
    with thing:
        hold()
    list(map(lambda _: hold(), [1]))
    sorted([1, 2], key=lambda _: hold() or 0)
    min(thing, thing)
    list(generator(hold))
    stopped = inner(hold)
    next(stopped)
    stopped.close()
    thrown = inner(hold)
    next(thrown)
    try:
        thrown.throw(KeyError)
    except KeyError:
        pass
    [hold() for _ in range(1)]
    {hold(): 1 for _ in "a"}
    any(hold() for _ in "ab")
    drive(coroutine(hold, 3))
    drive(each(hold))
    recurse(40, hold)
    recurse(900, hold)
    raising()
    for _ in generator_that_handles():
        hold()
    drive(coroutine_that_handles())
    handling(hold)
    exec(compile("\n\nhold()", "exec'd <file>", "exec"), globals())
    eval("hold()")
    many = "def many():\n" + "    x = 1\n" * 5000 + "    hold()\n"
    exec(compile(many, "many.py", "exec"), globals())
    globals()["many"]()

    class Body:
        hold()

    del thing


def threads(count):
    ready = threading.Barrier(count + 1)
    done = threading.Event()

    def wait(left):
        if left:
            wait(left - 1)
        else:
            ready.wait()
            done.wait()

    for number in range(count):
        threading.Thread(target=wait, args=(number % 20,), daemon=True).start()
    ready.wait()
    ids = [thread.native_id for thread in threading.enumerate()]
    sys.stdout.write(json.dumps(ids) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def modes():
    ready = threading.Barrier(3)
    done = threading.Event()

    def spins():
        ready.wait()
        while not done.is_set():
            pass

    def handles():
        try:
            raise KeyError
        except KeyError:
            ready.wait()
            done.wait()

    started = [threading.Thread(target=target, daemon=True) for target in (spins, handles)]
    for thread in started:
        thread.start()
    ready.wait()
    ids = {"main": threading.get_native_id()}
    ids.update(zip(("spins", "handles"), [thread.native_id for thread in started]))
    sys.stdout.write(json.dumps(ids) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()
    done.set()


SCRIPT = """
import time
def b1(n):
    for _ in range(n): pass
def a1(n):
    b1(n)
def b2(n):
    for _ in range(n): pass
def a2(n):
    b2(n)
def go():
    while True:
        a1(50)
        a2(50)
        # 3.11 asks another interpreter's threads for the GIL in vain.
        time.sleep(0)
go()
"""


def spin():
    while True:
        for _ in range(1000):
            pass
        # 3.11 asks another interpreter's threads for the GIL in vain.
        time.sleep(0)


def interpreter(wait):
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    made = interpreters.create()
    runner = threading.Thread(target=interpreters.run_string, args=(made, SCRIPT), daemon=True)
    runner.start()
    sys.stdout.write(json.dumps({"runner": runner.native_id}) + "\n")
    sys.stdout.flush()
    wait()
    os._exit(0)


def storm():
    def pass_by():
        pass

    def starts():
        while True:
            try:
                for _ in range(30):
                    _thread.start_new_thread(pass_by, ())
            except RuntimeError:
                pass
            time.sleep(0.0005)

    stay = [threading.Thread(target=time.sleep, args=(1000,), daemon=True) for _ in range(3)]
    stay += [threading.Thread(target=starts, daemon=True) for _ in range(3)]
    for thread in stay:
        thread.start()
    ids = [threading.get_native_id()] + [thread.native_id for thread in stay]
    sys.stdout.write(json.dumps(ids) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()
    os._exit(0)


sys.setrecursionlimit(3000)
if sys.argv[1:2] == ["threads"]:
    threads(int(sys.argv[2]))
elif sys.argv[1:2] == ["modes"]:
    modes()
elif sys.argv[1:2] == ["interpreter"]:
    interpreter(sys.stdin.readline)
elif sys.argv[1:2] == ["interpreter-beside"]:
    interpreter(spin)
elif sys.argv[1:2] == ["storm"]:
    storm()
else:
    places()
    sys.stdout.write('{"frames": []}\n')
