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
    """Wrap a text to lines of at most ``width`` terminal cells.

    Words, paths and commands are never broken: one wider than the line stands alone and runs over it, so
    that a terminal copies it as one. Continuation lines keep their line's indent, behind a leading "- ".
    """
    return [part for line in text.split("\n") for part in _wrap_line(line, width)]


def _wrap_line(line: str, width: int) -> Iterator[str]:
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
    """Break a name for a narrow column, at the ends of its words where they fit."""
    lines = [""]
    for word in _NAME_PART.findall(name):
        if lines[-1] and cell_len(lines[-1] + word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)
