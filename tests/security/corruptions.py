"""What may become of a file: each corruption changes one in place, by a draw that can be repeated."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

LONG = 17 << 20
"""Bytes: more than the reader's tables take of one line."""

Corruption: TypeAlias = Callable[[Path, random.Random], None]


def _cut(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def _lose_lines(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    gone = set(draw.sample(range(len(lines)), (len(lines) + 1) // 2))
    path.write_bytes(b"".join(line for n, line in enumerate(lines) if n not in gone))


def _overwrite(path: Path, draw: random.Random, times: int, alphabet: bytes) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(times):
        data[draw.randrange(len(data))] = draw.choice(alphabet)
    path.write_bytes(data)


def _insert(path: Path, draw: random.Random, what: bytes) -> None:
    data = path.read_bytes()
    place = draw.randrange(len(data))
    path.write_bytes(data[:place] + what + data[place:])


def _double_a_line(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, draw.choice(lines)]))


def _shuffle(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    draw.shuffle(lines)
    path.write_bytes(b"".join(lines))


def _swap_with_neighbour(path: Path, draw: random.Random) -> None:
    """Exchange the contents of two files of a folder: of the same kind, where there are several."""
    siblings = [other for other in sorted(path.parent.iterdir()) if other.is_file() and other != path]
    alike = [other for other in siblings if other.suffixes[-2:] == path.suffixes[-2:]] or siblings
    other = draw.choice(alike)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def _rewrite(change: Callable[[bytes], bytes]) -> Corruption:
    def rewrite(path: Path, _: random.Random) -> None:
        path.write_bytes(change(path.read_bytes()))

    return rewrite


CORRUPTIONS: dict[str, Corruption] = {
    "cut off": _cut,
    "lines lost": _lose_lines,
    "random bytes": lambda path, draw: _overwrite(path, draw, 8, bytes(range(256))),
    "other letters": lambda path, draw: _overwrite(path, draw, 3, b"abcxyzABC019 _"),
    "doubled": _rewrite(lambda data: data * 2),
    "a line doubled": _double_a_line,
    "lines swapped": _shuffle,
    "swapped with another file": _swap_with_neighbour,
    "deleted": lambda path, _: path.unlink(),
    "emptied": _rewrite(lambda _: b""),
    "CRLF": _rewrite(lambda data: data.replace(b"\n", b"\r\n")),
    "a byte order mark": _rewrite(lambda data: b"\xef\xbb\xbf" + data),
    "no UTF-8": lambda path, draw: _insert(path, draw, b"\xff\xfe"),
    "a long line": _rewrite(lambda data: b"x" * LONG + b"\n" + data),
}


def readable(folder: Path) -> Counter[bytes]:
    """Every line below ``folder`` that is JSON, wherever it stands."""
    found: Counter[bytes] = Counter()
    for path in folder.rglob("*.jsonl"):
        found += readable_lines(path)
    return found


def readable_lines(path: Path) -> Counter[bytes]:
    """The lines of a file that are JSON."""
    found: Counter[bytes] = Counter()
    for line in path.read_bytes().split(b"\n"):
        text = line.strip().removeprefix(b"\xef\xbb\xbf")
        try:
            json.loads(text.decode())
        except ValueError:
            continue
        found[text] += 1
    return found
