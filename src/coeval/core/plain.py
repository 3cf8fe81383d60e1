"""Foreign text where it is shown or logged: what cannot be shown is written out (``\x1b``).

Names, model output and hosts' messages move no cursor, turn no line around and begin no line of their own.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Literal, cast

# Within words of some scripts, and within signs made of several.
_JOINERS = "\u200c\u200d"


def is_shown(character: str) -> bool:
    """Check whether a character is safe to show: no control, no change of direction, not invisible."""
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"


def plain(text: str) -> str:
    """Escape what cannot be shown, and join the lines to one."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def plain_lines(text: str) -> str:
    """Escape like `plain`, line by line; a tab becomes four blanks."""
    if text.isprintable():
        return text
    return "\n".join(map(plain, text.replace("\r\n", "\n").replace("\t", "    ").split("\n")))


class PlainFormatter(logging.Formatter):
    """Log formatter that writes one line per event, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def _escaped(character: str) -> str:
    return character if is_shown(character) else character.encode("unicode_escape", "surrogatepass").decode()


def shortened(text: str, longest: int) -> str:
    """Cut the middle out of a long text, since its end often matters."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} … {text[-longest // 2 :]}"


def short_names(names: Iterable[str], longest: int) -> dict[str, str]:
    """Make a label of at most ``longest`` (10 or more) characters for each name; no two labels are alike.

    A name that fits stays as it is, `plain`. A longer one loses its middle: names begin with their maker and
    end with a size, a date or a number. Where two would look alike, they keep the part that differs, or get
    a number.
    """
    shown = {name: plain(name) for name in dict.fromkeys(names)}
    groups: dict[str, list[str]] = {}
    for name, text in sorted(shown.items(), key=lambda each: len(each[1]) > longest):
        groups.setdefault(_without_middle(text, longest, longest // 2), []).append(name)
    labels: dict[str, str] = {}
    for group in groups.values():
        texts = [shown[name] for name in group]
        labels |= zip(group, _reported_apart(texts, longest, labels.values()), strict=True)
    return {name: labels[name] for name in shown}


def _reported_apart(texts: Sequence[str], longest: int, taken: Collection[str]) -> list[str]:
    """Shorten all in the same way, the first that leaves no two alike."""
    for cut in _cuts(longest, max(map(len, texts))):
        found = [cut(text) for text in texts]
        if len({*found, *taken}) == len(found) + len(taken):
            return found
    found = []
    for text in texts:
        number, label = 1, _without_middle(text, longest, longest // 2)
        while label in found or label in taken:
            number += 1
            room = longest - len(f" ({number})")
            label = f"{_without_middle(text, room, room // 2)} ({number})"
        found.append(label)
    return found


def _cuts(longest: int, length: int) -> Iterator[Callable[[str], str]]:
    """Ways to shorten a text: without its middle, then with another piece of it between its ends."""
    half = longest // 2
    for head in sorted(range(3, longest - 3), key=lambda head: abs(head - half)):
        yield partial(_without_middle, longest=longest, head=head)
    end = longest // 4
    for first in range(end, length, longest // 4):
        yield partial(_with_piece, longest=longest, first=first)


def _without_middle(text: str, longest: int, head: int) -> str:
    return text if len(text) <= longest else f"{text[:head]}…{text[head + 1 - longest :]}"


def _with_piece(text: str, longest: int, first: int) -> str:
    end = longest // 4
    return (
        f"{text[:end]}…{text[first : first + longest - 2 * end - 2]}…{text[-end:]}"
        if len(text) > longest
        else text
    )


# --- Opening regular files only
#
# To open a pipe waits for whoever holds its other end, and to read a device may never end. Only a pipe that
# this process was started with is read, as a shell makes one of ``<(command)``.

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
    """Open a regular file for reading; never block.

    Raises OSError: it is not there, may not be read, or is a folder, a pipe, a socket or a device.
    """
    return cast("BufferedReader", open(path, mode, buffering, opener=_opener))


def file_bytes(path: Path) -> bytes:
    """Read a whole file; raises as `open_file`."""
    with open_file(path) as file:
        return file.read()


# Bytes of a file named by a program's arguments that is part of what the program is: a script, not data.
_LARGEST_SCRIPT = 10 << 20


def scripts_among(words: Iterable[str]) -> list[Path]:
    """Return the words of a command that are files, without large ones; what is none is passed over."""
    there = [Path(word) for word in words if os.path.isfile(word)]  # noqa: PTH113  Path's raises for long ones
    return [file for file in there if file.stat().st_size <= _LARGEST_SCRIPT]


def kind_of(mode: int) -> str | None:
    """Name the kind of a file's ``st_mode``; None for a regular file."""
    return _KINDS.get(stat.S_IFMT(mode))


def refuse_other(descriptor: int, path: str | Path) -> None:
    """Raise OSError unless the open file is regular, or a pipe that the process was given."""
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
