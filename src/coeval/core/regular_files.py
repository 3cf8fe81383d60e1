"""Opening regular files only: a pipe or a device never blocks or never ends.

To open a pipe waits for whoever holds its other end, and to read a device may never end. Only a pipe that
this process was started with is read, as a shell makes one of ``<(command)``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path
from typing import Literal, cast

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

# Where a process finds what it was started with.
_OURS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def open_file(path: Path, mode: Literal["rb", "r+b"] = "rb", buffering: int = -1) -> BufferedReader:
    """Open a regular file for reading; never block. Raises OSError: it is not there, may not be read, or is a
    folder, a pipe, a socket or a device."""
    return cast("BufferedReader", open(path, mode, buffering, opener=_open_without_blocking))


def read_file_bytes(path: Path) -> bytes:
    """Read a whole file; raises as `open_file`."""
    with open_file(path) as file:
        return file.read()


# Bytes of a file named by a program's arguments that is part of what the program is: a script, not data.
_LARGEST_SCRIPT = 10 << 20


def find_small_files(words: Iterable[str]) -> list[Path]:
    """Return the words of a command that are files, without large ones; what is none is passed over."""
    files = [Path(word) for word in words if os.path.isfile(word)]  # noqa: PTH113  Path's raises for long ones
    return [file for file in files if file.stat().st_size <= _LARGEST_SCRIPT]


def irregular_file_kind(mode: int) -> str | None:
    """Name the kind of a file's ``st_mode``; None for a regular file."""
    return _KINDS.get(stat.S_IFMT(mode))


def require_regular_file(descriptor: int, path: str | Path) -> None:
    """Raise OSError unless the open file is regular, or a pipe that the process was given."""
    kind = irregular_file_kind(os.fstat(descriptor).st_mode)
    if kind is not None and not (kind == "a pipe" and str(path).startswith(_OURS)):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))


def _open_without_blocking(path: str, flags: int) -> int:
    waiting_for_nobody = getattr(os, "O_NONBLOCK", 0)  # not on Windows, whose pipes are no files
    descriptor = os.open(path, flags | waiting_for_nobody, 0o644)
    try:
        require_regular_file(descriptor, path)
        if waiting_for_nobody:
            os.set_blocking(descriptor, True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
