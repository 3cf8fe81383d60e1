"""A real terminal of a given width (a pty), and what a person would see on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cli.warm_process import WarmProcess

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")


class Seen(NamedTuple):
    """``screen``: the lines as they stand at the end. ``written``: each line in every state it was drawn
    in. ``piped``: what went to a pipe, where standard output was one."""

    code: int
    screen: list[str]
    written: list[str]
    piped: str


def on_terminal(
    words: Sequence[object],
    columns: int,
    *,
    cwd: Path,
    rows: int = 50,
    out_piped: bool = False,
    **environment: str,
) -> Seen:
    """Run ``python -m MODULE …`` with a terminal of so many columns and rows."""
    _, _, module, *arguments = words
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    here, there = os.pipe()
    around = {**dict.fromkeys(("COLUMNS", "LINES", "NO_COLOR")), "TERM": "xterm-256color", **environment}
    process = WarmProcess(
        *arguments,
        module=str(module),
        cwd=cwd,
        env=around,
        streams=(there if out_piped else slave, slave, slave),
    )
    os.close(slave)
    os.close(there)
    drawn = b"".join(iter(lambda: _read(master), b""))
    os.close(master)
    with os.fdopen(here, "rb") as pipe:
        piped = pipe.read().decode()
    process.communicate()
    screen, written = _draw(drawn.decode())
    return Seen(process.wait(), screen, written, piped)


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:  # all that held the other end have closed it
        return b""


def _draw(text: str) -> tuple[list[str], list[str]]:
    """Follow the signs that move the cursor up, return it, and clear lines; colours and the cursor's
    visibility are passed over. Other signs have no business here, and stand in the text."""
    lines, row, column = [""], 0, 0
    written = []
    for token in _TOKEN.finditer(text):
        arguments, command = token[1], token[2]
        if token[0] in ("\n", "\r") or command in ("A", "K"):
            written.append(lines[row])
        if token[0] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token[0] == "\r":
            column = 0
        elif command == "A":
            row = max(0, row - int(arguments or 1))
        elif command == "K":
            lines[row] = "" if arguments == "2" else lines[row][:column]
        elif command not in ("m", "h", "l"):
            line = lines[row].ljust(column)
            lines[row] = line[:column] + token[0] + line[column + len(token[0]) :]
            column += len(token[0])
    return [line.rstrip() for line in lines], [*written, *lines]
