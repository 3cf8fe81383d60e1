"""Opening what others put in the place of a file: it is read if it is one.

To open a pipe waits for whoever holds its other end, and to read a device may never end. Only a pipe that
this process was started with is read, as a shell makes one of ``<(command)``.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Literal, cast

__all__ = ["file_bytes", "kind_of", "open_file", "refuse_other"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


_OURS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Where a process finds what it was started with."""


def open_file(path: Path, mode: Literal["rb", "r+b"] = "rb", buffering: int = -1) -> BufferedReader:
    """The file, open; it waits for nobody.

    Raises
    ------
    OSError
        it is not there, may not be read, or is a folder, a pipe, a socket or a device.
    """
    return cast("BufferedReader", open(path, mode, buffering, opener=_opener))


def file_bytes(path: Path) -> bytes:
    """All of a file; raises as `open_file`."""
    with open_file(path) as file:
        return file.read()


def kind_of(mode: int) -> str | None:
    """What something of this ``st_mode`` is where it is no file."""
    return _KINDS.get(stat.S_IFMT(mode))


def refuse_other(descriptor: int, path: str | Path) -> None:
    """Raise OSError where what is open is no file, nor a pipe that was handed to us."""
    kind = kind_of(os.fstat(descriptor).st_mode)
    if kind is not None and not (kind == "a pipe" and str(path).startswith(_OURS)):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))


def _opener(path: str, flags: int) -> int:
    waiting_for_nobody = getattr(os, "O_NONBLOCK", 0)  # not on Windows, whose pipes are no files
    descriptor = os.open(path, flags | waiting_for_nobody, 0o644)
    try:
        refuse_other(descriptor, path)
        if waiting_for_nobody:
            os.set_blocking(descriptor, True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
