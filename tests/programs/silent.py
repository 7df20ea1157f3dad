"""Burns CPU time while a word of its own memory names a page that nobody provides.

silent.py HOW, where HOW is which word: `previous` of the running frame, the code object of the frame
below (`code`), or the line table of the running code object (`lines`; `marked`, in a page that looks
as if it were in swap). `command`: the page that holds the command line is gone instead. Prints
`ready`, or why there can be no such page.
"""

import ctypes
import gc
import os
import sys

PAGE = os.sysconf("SC_PAGE_SIZE")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def silence(page, is_marked=False):
    """Registers a page with a userfaultfd that nobody reads (x86-64 and linux/userfaultfd.h).

    The kernel can hold a mark in the page's place, as it does for one in swap.
    """
    fd = libc.syscall(323, os.O_CLOEXEC)
    if fd < 0:
        print("userfaultfd:", os.strerror(ctypes.get_errno()), flush=True)
        sys.exit()
    uffdio_api, uffdio_register, uffdio_writeprotect = 0xC018AA3F, 0xC020AA00, 0xC018AA06
    missing, protected, protects_what_is_missing = 1, 2, 1 << 13
    api = (ctypes.c_uint64 * 3)(0xAA, protects_what_is_missing if is_marked else 0)
    if libc.ioctl(fd, ctypes.c_ulong(uffdio_api), api):
        print("userfaultfd: this kernel knows no such marks", flush=True)
        sys.exit()
    region = (ctypes.c_uint64 * 4)(page, PAGE, missing | protected if is_marked else missing)
    assert libc.ioctl(fd, ctypes.c_ulong(uffdio_register), region) == 0
    if is_marked:
        protect = (ctypes.c_uint64 * 3)(page, PAGE, 1)
        assert libc.ioctl(fd, ctypes.c_ulong(uffdio_writeprotect), protect) == 0


def new_page():
    private, anonymous = 2, 0x20
    return libc.mmap(None, ctypes.c_size_t(PAGE), 3, private | anonymous, -1, ctypes.c_size_t(0))


def words(address, count=40):
    return (ctypes.c_uint64 * count).from_address(address)


def name_page(address, old, is_marked=False):
    """Has the word behind `address` that is `old` name a silent page."""
    memory = words(address)
    index = list(memory).index(old)
    page = new_page()
    silence(page, is_marked)
    memory[index] = page


def frame_address(frame):
    """`f_frame`, the fourth word of a PyFrameObject."""
    return words(id(frame))[3]


def silent_page(how):
    frame = sys._getframe().f_back
    below = frame.f_back
    if how == "previous":
        name_page(frame_address(frame), frame_address(below))
    elif how == "code":
        name_page(frame_address(below), id(below.f_code))
    elif how in ("lines", "marked"):
        name_page(id(frame.f_code), id(frame.f_code.co_linetable), how == "marked")
    else:
        with open("/proc/self/stat") as stat:
            # `arg_start` of proc(5).
            start = int(stat.read().rpartition(")")[2].split()[45])
        # Holds nothing but the padding.
        page = start // PAGE * PAGE + PAGE
        private, anonymous, fixed = 2, 0x20, 0x10
        size = ctypes.c_size_t(PAGE)
        flags = private | anonymous | fixed
        assert libc.mmap(ctypes.c_void_p(page), size, 3, flags, -1, ctypes.c_size_t(0)) == page
        silence(page)


def burn_here():
    silent_page(sys.argv[1])
    print("ready", flush=True)
    while True:
        pass


def below_here():
    burn_here()


if sys.argv[1:] == ["command"]:
    os.execv(sys.executable, [sys.executable, *sys.argv, 3 * PAGE * "x"])
# It would read what names the page.
gc.disable()
below_here()
