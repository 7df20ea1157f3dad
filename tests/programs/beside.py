"""A Python thread that spins beside others: `beside.py waiters|natives|unlocked`. Prints `{}` and
runs until it is ended.

- waiters: threads that wait in every common way;
- natives: 200 threads that CPython knows nothing of, and that never stop;
- unlocked: threads inside zlib and hashlib, which run without the GIL.
"""
import _thread
import ctypes
import hashlib
import mmap
import os
import select
import socket
import sys
import time
import zlib


def spin():
    total = 0
    while True:
        total ^= 1


def in_sleep():
    while True:
        time.sleep(3600)


def in_lock():
    lock = _thread.allocate_lock()
    lock.acquire()
    lock.acquire()


def in_recv():
    ends = socket.socketpair()
    ends[0].recv(1)


def in_epoll():
    select.epoll().poll()


def in_select():
    ends = os.pipe()
    select.select([ends[0]], [], [])


def in_read():
    ends = os.pipe()
    os.read(ends[0], 1)


def waiters():
    for wait in (in_sleep, in_lock, in_recv, in_epoll, in_select, in_read):
        _thread.start_new_thread(wait, ())
    main()


def natives():
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code[:4] = b"\xf3\x90\xeb\xfc"  # 1: pause; jmp 1b
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    create = ctypes.CDLL(None).pthread_create
    thread = ctypes.c_ulong()
    # Niced, or one Python thread among 200 would hardly run; niceness is inherited.
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    for _ in range(200):
        if create(ctypes.byref(thread), None, ctypes.c_void_p(start), None):
            sys.exit("pthread_create failed")
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    main()


def squeeze():
    while True:
        zlib.compress(DATA, 9)


def digest():
    while True:
        hashlib.sha256(DATA)


def unlocked():
    for body in (squeeze, digest):
        _thread.start_new_thread(body, ())
    in_lock()


def main():
    print("{}", flush=True)
    spin()


DATA = bytes(range(256)) * 16384
mode = globals()[sys.argv[1]]
if mode is unlocked:
    print("{}", flush=True)
mode()
