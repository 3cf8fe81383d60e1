"""How the source is named: the figures of `perf.house` on names, docstrings and the map of the house.

Read off the files, like those on size. A docstring begins with a verb where its first word is
in ``perf/verbs.txt``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

SAYING_NOTHING = frozenset(
    ("found", "one", "place", "each", "said", "known", "shown", "of", "told", "asked", "given", "there")
)
"""Names of variables that say nothing of what they hold."""

VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text(encoding="utf-8").split())
"""Verbs in the imperative with which a docstring begins."""

# A past participle alone, such as `_adjusted` or `taken`, says what was done to something, not to what.
_IRREGULAR = frozenset(
    """
    begun bound broken brought built caught chosen done drawn driven fallen fed found given gone grown heard
    held hidden kept known laid learnt left lent lost made meant met paid said seen sent shown sold spent
    stood sworn taken taught thought thrown told torn understood worn written
    """.split()  # noqa: SIM905
)
_ENDS_ALIKE = frozenset(("embed", "exceed", "feed", "need", "proceed", "seed", "speed"))
_LONG = 15  # lines from which a function without a docstring counts
_TUPLE = 3  # values from which a bare tuple in a signature counts


class Naming(NamedTuple):
    """Counts over all Python files of ``src``. ``untyped`` counts the signatures with ``dict[str, Any]`` or a
    bare tuple of three and more, of functions that another file calls."""

    functions: int
    participles: int
    saying_nothing: int
    docstrings: int
    imperative: int
    long_functions: int
    long_undocumented: int
    modules: int
    unmapped: tuple[str, ...]
    untyped: int

    def __str__(self) -> str:
        participles, verbs = self.participles / self.functions, self.imperative / self.docstrings
        undocumented = self.long_undocumented / self.long_functions
        return "\n".join(
            (
                f"{self.functions:,} functions: {participles:.1%} bare participles or _of…",
                f"{self.saying_nothing:,} variables whose names say nothing",
                f"{self.docstrings:,} docstrings of functions: {verbs:.0%} begin with a verb",
                f"{self.long_functions:,} functions of ≥ {_LONG} lines: {undocumented:.0%} have no docstring",
                f"{self.modules} modules: {len(self.unmapped)} in no row of docs/design.md",
                f"{self.untyped} signatures between files with dict[str, Any] or a tuple of ≥ {_TUPLE}",
            )
        )


def read_naming(source: Path, design: Path) -> Naming:
    """Count the names of all files below ``source``; ``design`` is the map of the house."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))}
    functions = [
        (path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, Function)
    ]
    documented = [text for _, node in functions if (text := ast.get_docstring(node))]
    long = [node for _, node in functions if (node.end_lineno or node.lineno) - node.lineno + 1 >= _LONG]
    return Naming(
        functions=len(functions),
        participles=sum(is_participle(node.name) and not _is_property(node) for _, node in functions),
        saying_nothing=sum(sum(1 for _ in _nothing_names(tree)) for tree in trees.values()),
        docstrings=len(documented),
        imperative=sum(begins_with_verb(text) for text in documented),
        long_functions=len(long),
        long_undocumented=sum(ast.get_docstring(node) is None for node in long),
        modules=len(trees),
        unmapped=unmapped(trees, source, design.read_text(encoding="utf-8")),
        untyped=_untyped_signatures(trees, functions),
    )


def is_participle(name: str) -> bool:
    """Check whether a function is named by a bare participle (``_taken``) or begins with ``_of``."""
    if name == "_of" or name.startswith("_of_"):
        return True
    word = name.strip("_")
    return word in _IRREGULAR or (word.isalpha() and word.endswith(("ed", "ied")) and word not in _ENDS_ALIKE)


def _is_property(function: Function) -> bool:
    return any(ast.unparse(decorator).endswith("property") for decorator in function.decorator_list)


def begins_with_verb(docstring: str) -> bool:
    """Check whether the first word is a verb of `VERBS`."""
    return re.split(r"\W", docstring.lower(), maxsplit=1)[0] in VERBS


def unmapped(files: dict[Path, ast.Module], source: Path, design: str) -> tuple[str, ...]:
    """Name the modules that neither a row nor a folder line of the map has."""
    named = set(re.findall(r"`([\w/]+(?:\.py|/))", design))
    paths = [path.relative_to(source).as_posix() for path in files if path.name != "__init__.py"]
    return tuple(path for path in paths if path not in named and f"{path.rsplit('/', 1)[0]}/" not in named)


def _nothing_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in SAYING_NOTHING:
                yield name
            case _:
                pass


def _untyped_signatures(trees: dict[Path, ast.Module], functions: list[tuple[Path, Function]]) -> int:
    """Count signatures of functions that another file names, by a name that only one file defines."""
    mentions: dict[str, set[Path]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                    mentions.setdefault(name, set()).add(path)
                case _:
                    pass
    return sum(
        bool(mentions.get(node.name, set()) - {path}) and _is_untyped(node) for path, node in functions
    )


def _is_untyped(function: Function) -> bool:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    annotations = [parameter.annotation for parameter in every] + [function.returns]
    return any(_holds_untyped(annotation) for annotation in annotations if annotation is not None)


def _holds_untyped(annotation: ast.expr) -> bool:
    for node in ast.walk(annotation):
        match node:
            case ast.Subscript(
                value=ast.Name(id="dict" | "Mapping"), slice=ast.Tuple(elts=[_, ast.Name(id="Any")])
            ):
                return True
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=values)) if (
                len(values) >= _TUPLE
            ):
                return True
            case _:
                pass
    return False
