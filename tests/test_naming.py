"""How the source is named: figures of `perf.naming` that may only fall, and the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from test_layering import SOURCE

from perf.naming import Naming, read_naming

ROOT = SOURCE.parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
# Words that the glossary rejects for one thing and the project needs for another, by what they mean then.
OTHER_SENSES = {
    "output": "what a process writes; tokens of a reply; the folder of `eval-framework`",
    "completion": "Python's of tasks; hosts' name of an API and of its tokens",
    "question": "what a labelling sheet asks a person; a check of IFBench",
    "draw": "a sample of a bootstrap; to draw a picture",
    "session": "a word of this glossary; a person's labels",
    "win": "a comparison of two answers that one of them won, as AlpacaEval and Arena-Hard count them",
    "version": "of a program or an API",
    "candidate": "what is compared with a base in a gate; Gemini's replies; whatever is chosen among",
    "due": "a time that has come",
    "provider": "the pricing file's and users' word for a host",
    "hold": "to keep; a lock",
    "stage": "a table of DuckDB that is read",
    "system": "the role of a message; the operating system",
    "example": "of a help text; data of IFBench",
    "better": "the side with the higher score",
    "ahead": "the side with the higher score; earlier in time",
    "equal": "of equal value",
    "repeat": "to do or to say again, as IFBench asks and `repeat_penalty` punishes",
    "margin": "of a confidence interval in a formula",
    "pending": "hosts' name of a state of a job",
    "project": "Google's and OpenAI's accounts",
    "case": "of letters; of a match statement",
    "trial": "training that Hugging Face calls so; an attempt",
    "accuracy": "the official metric of labels and of IFEval",
    "mark": "of a picture; of a text",
    "axis": "of a picture or an array",
    "percent": "a unit of published metrics",
    "generator": "Python's; of random numbers",
    "review": "a text of the user's",
    "rating": "a star rating in the user's data",
    "iteration": "of an algorithm that repeats itself",
    "annotation": "Python's of types; AlpacaEval's word",
    "grade": "HealthBench's prompt of judges",
    "epoch": "Inspect's samples; the beginning of time stamps",
    "generation": "Gemini's; `generation_retries`, a key of the experiment file",
    "aspect": "`by_aspect` in measures, as the specification names it",
    "error bar": "of a picture",
    "validator": "jsonschema's",
    "dimension": "what scores are chosen by: task, judge, factor, attribute",
}


@pytest.fixture(scope="module")
def naming() -> Naming:
    return read_naming(SOURCE, ROOT / "docs" / "design.md")


def test_functions_are_named_by_verbs(naming: Naming) -> None:
    assert naming.participles <= 0.02 * naming.functions


def test_variables_say_what_they_hold(naming: Naming) -> None:
    assert naming.saying_nothing <= 150


def test_docstrings_begin_with_a_verb(naming: Naming) -> None:
    assert naming.imperative >= 0.8 * naming.docstrings


def test_long_functions_have_a_docstring(naming: Naming) -> None:
    assert naming.long_undocumented <= 0.1 * naming.long_functions


def test_the_map_has_every_module(naming: Naming) -> None:
    assert naming.unmapped == ()


def test_the_map_names_what_there_is() -> None:
    """Every identifier that the map puts into code marks stands in the source or its tools."""
    marked = re.findall(r"`([A-Za-z_]+)`", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
    written = {
        word
        for folder in ("src", "tools", "perf", "tests", "evidence")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".js", ".toml")
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    identifiers = {name for name in marked if "_" in name or name[0].isupper()}
    assert len(identifiers) > 50
    assert identifiers - written == set()


def test_signatures_between_files_are_typed(naming: Naming) -> None:
    assert naming.untyped <= 61


class Rejected(NamedTuple):
    word: str
    instead: str


def rejected_words() -> Iterator[Rejected]:
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0] not in ("word", "---"):
            yield from (Rejected(word.strip(), cells[0]) for word in cells[2].split(",") if word.strip())


def identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def words_of(identifier: str) -> str:
    return " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)).lower()


def test_the_exceptions_are_words_of_the_glossary() -> None:
    assert OTHER_SENSES.keys() <= {rejected.word for rejected in rejected_words()}


def test_no_identifier_has_a_word_that_the_glossary_rejects() -> None:
    banned = [rejected for rejected in rejected_words() if rejected.word not in OTHER_SENSES]
    assert len(banned) > 10
    pattern = re.compile(rf"\b({'|'.join(re.escape(rejected.word) for rejected in banned)})s?\b")
    instead = dict(banned)
    wrong = [
        f"{path.relative_to(SOURCE)}: {name}: say {instead[match[1]]}, not {match[1]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in dict.fromkeys(identifiers(ast.parse(path.read_text(encoding="utf-8"))))
        if (match := pattern.search(words_of(name)))
    ]
    assert wrong == []
