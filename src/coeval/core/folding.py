"""Lines folded to a width: between words, where paths, names and commands stay in one piece."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

# What stays in one piece: a command with its options, or else a word.
_PIECE = re.compile(
    r"`[^`\s][^`\n]*`\S*"  # what stands in backticks
    r"|\S*\b(?:coeval|eval-framework)\b(?: [a-z]+(?= -))?(?: --?[a-z][\w-]*(?: (?!-)[^\s;,]+)?)+\S*"
    r"|\S+"
)
_NAME_PART = re.compile(r"[^-_./ ]*[-_./ ]+|[^-_./ ]+")


def wrap_lines(text: str, width: int) -> list[str]:
    """The lines of ``text``, each of at most ``width`` cells where its pieces allow it.

    What is folded goes on as far from the edge as its line begins, behind a first "- "; a piece that is wider
    than the line stands alone, and runs over it: a terminal then shows it in two rows, and copies it as one.
    """
    return [part for line in text.split("\n") for part in _folded(line, width)]


def _folded(line: str, width: int) -> Iterator[str]:
    if cell_len(line) <= width:
        yield line
        return
    indent = line[: len(line) - len(line.lstrip(" "))]
    current, end = "", 0
    for piece in _PIECE.finditer(line):
        blanks = line[end : piece.start()] if current else indent
        if current and cell_len(current + blanks + piece[0]) > width:
            yield current
            current, blanks = "", indent + "  " * line.startswith("- ", len(indent))
        current += blanks + piece[0]
        end = piece.end()
    yield current


def wrap_name(name: str, width: int) -> str:
    """A name in a column too narrow for it: in lines that end where its words do, if these fit."""
    lines = [""]
    for word in _NAME_PART.findall(name):
        if lines[-1] and cell_len(lines[-1] + word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)
