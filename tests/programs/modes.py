"""A thread for each kind of time, until the input ends (`ready`: one line on the output).

waits_here     waits for what never comes
runs_here      runs Python code, and so holds the GIL
releases_here  computes in C without the GIL
handles_here   sleeps while it handles an exception
"""

import hashlib
import sys
import threading
import time

BIG = bytes(64 << 20)


def waits_here(never):
    never.wait()


def runs_here():
    while True:
        sum(range(1000))


def releases_here():
    while True:
        hashlib.sha256(BIG)


def handles_here():
    try:
        raise ValueError
    except ValueError:
        while True:
            time.sleep(0.002)


for work in (lambda: waits_here(threading.Event()), runs_here, releases_here, handles_here):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
