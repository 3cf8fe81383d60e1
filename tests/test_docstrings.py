"""Docstrings and comments name what exists: what stands in single backticks is a name of the source."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "coeval"

LIBRARIES = frozenset({"datasets", "nltk"})
"""Libraries that are named and never imported, beside those that the source imports and Python's own."""

_VALUE = re.compile(r"``.*?``", re.DOTALL)  # a value, a file, a field: not checked
_COMMENT = re.compile(r"(?:^|  |^ +)# (.*`.*)$")
_NAME = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")


class Names(NamedTuple):
    """What may be named. ``modules``: by each end of a module's dotted path, the names in it; ``every``: all
    names there are; ``rooms``: what a path begins with; ``libraries``: ours and Python's."""

    modules: dict[str, frozenset[str]]
    every: frozenset[str]
    rooms: frozenset[str]
    libraries: frozenset[str]

    def hold(self, name: str) -> bool:
        """Whether it is a name, a path down to a name (``pacing.window.Window``), or a library's."""
        first, *rest = words = name.split(".")
        if first in self.libraries or name in self.modules:
            return True
        for end in range(len(rest), 0, -1):
            if (module := ".".join(words[:end])) in self.modules:
                return words[end] in self.modules[module] and self.every.issuperset(words[end + 1 :])
        return first not in self.rooms and self.every.issuperset(words)


class Read(NamedTuple):
    """The names that a file defines, the libraries that it imports, its docstrings and comments by line."""

    defined: frozenset[str]
    libraries: frozenset[str]
    said: tuple[tuple[int, str], ...]


def read(path: Path) -> Read:
    text = path.read_text(encoding="utf-8")
    comments = ((number, _COMMENT.search(line)) for number, line in enumerate(text.splitlines(), 1))
    said = [(number, found[1]) for number, found in comments if found is not None]
    defined, libraries = set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                defined.add(name)
            case ast.arg(arg=name):
                defined.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.Expr(value=ast.Constant(value=str() as docstring)):
                said.append((node.lineno, docstring))
            case ast.Import(names=names):
                libraries.update(alias.name.split(".")[0] for alias in names)
            case ast.ImportFrom(module=str() as module, names=names):
                libraries.add(module.split(".")[0])
                if path.name == "__init__.py":  # the package hands them on
                    defined.update(alias.name for alias in names)
            case _:
                pass
    return Read(frozenset(defined), frozenset(libraries), tuple(said))


def read_names(source: Path, files: dict[Path, Read]) -> Names:
    modules: dict[str, frozenset[str]] = {}
    for path, file in files.items():
        parts = path.relative_to(source.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts == ("coeval", "api"):
            modules["coeval"] = file.defined
        for begin in range(len(parts)):
            end = ".".join(parts[begin:])
            modules[end] = modules.get(end, frozenset()) | file.defined
    every = frozenset[str]().union(*modules.values(), (end for end in modules if "." not in end))
    rooms = frozenset({"coeval", *(place.stem for place in source.iterdir())})
    libraries = LIBRARIES.union(
        sys.stdlib_module_names, dir(builtins), *(file.libraries for file in files.values())
    )
    return Names(modules, every, rooms, libraries - {"coeval"})


def unknown_names(source: Path) -> list[str]:
    files = {path: read(path) for path in sorted(source.rglob("*.py"))}
    names = read_names(source, files)
    return [
        f"{path.relative_to(source)}:{line}: {name}"
        for path, file in files.items()
        for line, said in file.said
        for name in _NAME.findall(_VALUE.sub("", said))
        if not names.hold(name)
    ]


@pytest.mark.process
def test_names_in_docstrings_and_comments_exist() -> None:
    assert unknown_names(SOURCE) == [], (
        "name what exists, or put a value, a file or a foreign field between double backticks"
    )


@pytest.mark.parametrize(
    ("said", "is_known"),
    [
        ("`Shelf`", True),
        ("`Shelf.books`", True),
        ("`rooms.shelf`", True),
        ("`coeval.rooms.shelf.Shelf`", True),
        ("`rooms.shelf.find()`", True),
        ("`os.path`", True),
        ("``nothing`` of ours", True),
        ("`Cupboard`", False),
        ("`Shelf.boxes`", False),
        ("`rooms.cupboard`", False),
        ("`coeval.shelf`", False),
        ("`rooms.shelf.lose`", False),
    ],
)
def test_a_name_that_is_gone_is_found(tmp_path: Path, said: str, is_known: bool) -> None:
    room = tmp_path / "coeval" / "rooms"
    room.mkdir(parents=True)
    (room / "shelf.py").write_text(
        f'"""{said}"""\nclass Shelf:\n    books: int\ndef find(shelf): ...\n', encoding="utf-8"
    )
    assert (unknown_names(tmp_path / "coeval") == []) is is_known
