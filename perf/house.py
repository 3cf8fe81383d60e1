"""``python -m perf.house``: how large the source is, and how much of it one item passes on its way.

Static figures are read off the files. With ``--trace`` one item is written, answered and judged at the cheap
server (`perf.server`) under a profile hook, which counts the modules and functions of ours that run.
"""

from __future__ import annotations

import argparse
import ast
import io
import tempfile
import threading
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from perf.measure import ROOT, experiment, serving
from perf.naming import read_naming

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


class ItemsWay(NamedTuple):
    """What runs of our code before the first request, from there to a judgment, and for the answer alone."""

    modules_before: int
    modules_of_item: int
    functions_of_item: int
    functions_of_answer: int

    def __str__(self) -> str:
        return (
            f"{self.modules_before} modules run before the first request; {self.modules_of_item} modules and "
            f"{self.functions_of_item} functions from an item to its judgment, {self.functions_of_answer} of "
            "them for the answer"
        )


def traced() -> ItemsWay:
    """Follow one item with one student and one judge, from start to end of its run."""
    import coeval

    stages: list[set[CodeType]] = [set()]  # a further one begins with the first request, and with each record
    first, record = "HostedModel.complete", "Journal.append"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(SOURCE)):
            return
        if code.co_qualname == (record if len(stages) > 1 else first):
            stages.append(set())
        stages[-1].add(code)

    with tempfile.TemporaryDirectory() as folder, serving(0.005) as url:
        entry = {"interface": "vllm", "parameters": {"model": "m", "base_url": url}}
        models = {role: {**entry, "roles": [role]} for role in ("teacher", "student", "judge")}
        path = Path(folder) / "e.yaml"
        path.write_text(experiment("house", models, 1, 1, storage_folder=folder, probe_mode="disable"))
        threading.setprofile(note)
        try:
            coeval.run(path)
        finally:
            threading.setprofile(None)
    before, *item = stages[:4]
    return ItemsWay(
        len({code.co_filename for code in before}),
        len({code.co_filename for stage in item for code in stage}),
        len(set[CodeType]().union(*item)),
        len(item[1]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", action="store_true", help="count what one item passes, too")
    arguments = parser.parse_args()
    print(measured())
    print(read_naming(SOURCE, ROOT / "docs" / "design.md"))
    if arguments.trace:
        print(traced())


if __name__ == "__main__":
    main()
