"""Burns CPU time in functions of known names: burn.py HOW

    FLOAT        seconds of CPU time in `burn_here`
    forever      in `burn_here`, until the input ends (ready: one line on the output)
    odd          the same, in a function whose name would steer a terminal
    fork-late    burns in `in_parent`, then in a forked child
    fork, multiprocessing-fork, multiprocessing-spawn, subprocess, grandchild, shell
                 starts a child so, which burns in `in_child`, then burns in `in_parent`
    exec, exec-shell
                 burns in `in_parent`, then becomes the child, directly or through a shell
    child        is the child
    first-thread-ends
                 ends its first thread and leaves another, until the input ends
"""

import ctypes
import multiprocessing
import os
import select
import subprocess
import sys
import threading
import time

SECONDS = 0.4


def burn(seconds=SECONDS):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def burn_here(seconds):
    burn(seconds)


def forever():
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        burn_here(0.01)


def in_parent():
    burn()


def in_child():
    burn()


def fork(run):
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    os.waitpid(child, 0)


def main(how):
    child = [sys.executable, os.path.abspath(__file__), "child"]
    through_shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *child]
    if how == "forever":
        forever()
    elif how == "odd":
        odd = "\x1b[31mred\x07"
        burn.__code__ = burn.__code__.replace(co_name=odd, co_qualname=odd)
        forever()
    elif how == "first-thread-ends":
        threading.Thread(target=sys.stdin.read).start()
        # SYS_exit on x86-64: of this thread alone.
        ctypes.CDLL(None).syscall(60, 0)
    elif how == "child":
        in_child()
    elif how == "fork":
        fork(in_child)
        in_parent()
    elif how == "fork-late":
        in_parent()
        fork(in_child)
    elif how.startswith("multiprocessing-"):
        context = multiprocessing.get_context(how.removeprefix("multiprocessing-"))
        process = context.Process(target=in_child)
        process.start()
        process.join()
        in_parent()
    elif how == "subprocess":
        subprocess.run(child, check=True)
        in_parent()
    elif how == "grandchild":
        fork(lambda: subprocess.run(child, check=True))
        in_parent()
    elif how == "shell":
        subprocess.run(through_shell, check=True)
        in_parent()
    elif how == "exec":
        in_parent()
        os.execv(child[0], child)
    elif how == "exec-shell":
        in_parent()
        os.execv("/bin/sh", ["/bin/sh", "-c", 'exec "$@"', "sh", *child])
    else:
        burn_here(float(how))


if __name__ == "__main__":
    main(sys.argv[1])
