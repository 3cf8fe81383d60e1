#!/usr/bin/env python3
"""Draw functions by chance for a test of names: does a name say what its function does?

Two people who did not write the names take it. The first gets ``questions.md`` (file, class and signature
of each function) and writes a sentence on what each does. The second gets these and ``key.md`` (the source),
and marks each right, partly right or wrong. The same seed draws the same functions.

    tools/draw_names.py --seed 7 --count 100 build/names
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src" / "coeval"
FEWEST_LINES = 4


class NamedFunction(NamedTuple):
    """A function and where it is defined; ``of`` are the classes and functions around it, outermost first."""

    file: str
    of: tuple[str, ...]
    node: ast.FunctionDef | ast.AsyncFunctionDef
    text: str

    @property
    def signature(self) -> str:
        """``def name(parameters) -> type``, without decorators but ``property`` and its like."""
        bare = copy(self.node)
        bare.body, bare.decorator_list = [ast.Pass()], []
        head = ast.unparse(bare)
        decorators = [f"@{ast.unparse(decorator)}" for decorator in self.node.decorator_list]
        return "\n".join([*decorators, head.split("\n")[0].removesuffix(":")])


def functions_of(source: Path) -> Iterator[NamedFunction]:
    """Yield the functions of `FEWEST_LINES` lines and more, dunders left out, in order of their files."""
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield from _inside(ast.parse(text), path.relative_to(source).as_posix(), (), text)


def _inside(parent: ast.AST, file: str, of: tuple[str, ...], text: str) -> Iterator[NamedFunction]:
    for node in ast.iter_child_nodes(parent):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines >= FEWEST_LINES and not node.name.startswith("__"):
                    yield NamedFunction(file, of, node, ast.get_source_segment(text, node) or "")
                yield from _inside(node, file, (*of, node.name), text)
            case ast.ClassDef(name=name):
                yield from _inside(node, file, (*of, name), text)
            case _:
                yield from _inside(node, file, of, text)


def _write(path: Path, drawn: list[NamedFunction], with_source: bool) -> None:
    blocks = (
        f"## {number}. `{function.file}`{' · ' + '.'.join(function.of) if function.of else ''}\n\n"
        f"```python\n{function.text if with_source else function.signature}\n```\n"
        for number, function in enumerate(drawn, 1)
    )
    path.write_text("\n".join(blocks), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where questions.md and key.md are written")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    drawn = random.Random(arguments.seed).sample(list(functions_of(SOURCE)), arguments.count)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    _write(arguments.folder / "questions.md", drawn, with_source=False)
    _write(arguments.folder / "key.md", drawn, with_source=True)
    print(f"{len(drawn)} functions: {arguments.folder}/questions.md, {arguments.folder}/key.md")


if __name__ == "__main__":
    main()
