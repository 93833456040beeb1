"""How much memory this process uses, so exactly that a leak of a few megabytes shows."""

import ctypes
import gc
import sys

#: Bytes. What an average object of at most 512 bytes takes in CPython's own pools here.
SMALL_BLOCK = 100


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "free", "fast", "maps", "mapped", "most", "fast_free", "used", "unused", "top")
    )


def in_use() -> int:
    """Return the bytes that are allocated now.

    Not the resident size: the allocators keep what was freed for later, tens of megabytes after a burst. And not
    tracemalloc, under which all takes three times as long. What is larger than 512 bytes glibc counts to the byte; the
    rest CPython counts by the piece.
    """
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    large: int = found.used + found.mapped
    return large + sys.getallocatedblocks() * SMALL_BLOCK
