"""Permissions of files as they are for everybody: root may otherwise write and read everything."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522  # of the interface of Linux, which takes two words of each set
_OVERRIDES = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextmanager
def obeyed_permissions() -> Iterator[None]:
    """Within the block this thread may do with files what their permissions say, even if it is root's."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    before = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice
    assert libc.capget(header, before) == 0
    lowered = (ctypes.c_uint32 * 6)(*before)
    lowered[0] &= ~_OVERRIDES & 0xFFFFFFFF
    assert libc.capset(header, lowered) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0
