"""``python -m perf.house``: how large the source is."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perf.measure import ROOT

SOURCE = ROOT / "src" / "coeval"
_PRAGMAS = ("# noqa", "# type:", "# pragma", "# fmt:")


class House(NamedTuple):
    """Counts over all Python files of ``src``; headers are import statements at the top level of a file."""

    lines: int
    files: int
    folders: int
    header_lines: int
    comment_lines: int

    def __str__(self) -> str:
        return (
            f"{self.lines:,} lines in {self.files} files and {self.folders} folders; import headers "
            f"{self.header_lines / self.lines:.1%}, comments {self.comment_lines / self.lines:.1%} of lines"
        )


def measured(source: Path = SOURCE) -> House:
    files = sorted(source.rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    return House(
        sum(text.count("\n") for text in texts),
        len(files),
        len({path.parent for path in files}),
        sum(_header_lines(text) for text in texts),
        sum(len(set(_comment_lines(text))) for text in texts),
    )


def _header_lines(text: str) -> int:
    statements = (node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)


def _comment_lines(text: str) -> Iterator[int]:
    """The lines with a comment that speaks to a reader, by number."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        said = token.string.lstrip("# -")
        if token.type == tokenize.COMMENT and said and not token.string.startswith(_PRAGMAS):
            yield token.start[0]


if __name__ == "__main__":
    print(measured())
