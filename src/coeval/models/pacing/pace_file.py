"""A time that processes share in a file, and change one after the other."""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from coeval.core.plain_file import kind_of

if sys.platform != "win32":
    import fcntl

__all__ = ["change_time"]

_LONGEST = 64
"""Bytes: a file that holds more is somebody's, and none of ours."""


def change_time(path: Path, change: Callable[[float], float | None]) -> None:
    """Replace the time in a file by what ``change`` makes of it, while no other process does.

    Times are seconds since 1970. A file that holds none that can be read is taken to hold one long ago, and
    is mended. ``change`` is called once, and returns None to leave the file as it is. Nothing is waited for.

    Raises
    ------
    BlockingIOError
        another process has the file just now.
    OSError
        it cannot be used: it cannot be made or written, is no file, a link, another user's, or holds more
        than a time.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "files are not shared so on Windows", str(path))
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if (why := _unfit(status)) is not None:
            raise OSError(errno.EINVAL, why, str(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing, or the process's end, gives it back
        text = os.pread(descriptor, _LONGEST + 1, 0)
        if len(text) > _LONGEST:
            raise OSError(errno.EINVAL, "it holds something else", str(path))
        changed = change(_time(text))
        if changed is not None:
            line = b"%.6f\n" % changed
            os.pwrite(descriptor, line, 0)
            if len(text) > len(line):
                os.ftruncate(descriptor, len(line))
    finally:
        os.close(descriptor)


def _unfit(status: os.stat_result) -> str | None:
    """Why a file is not one of ours; somebody may have put it in the place of ours."""
    if (kind := kind_of(status.st_mode)) is not None:
        return f"it is {kind}, not a file"
    if status.st_uid != os.geteuid():
        return "it is another user's"
    if status.st_nlink > 1:
        return "it has another name, too"
    return None


def _time(text: bytes) -> float:
    with suppress(ValueError):
        if math.isfinite(found := float(text)):
            return found
    return -math.inf
