"""Read a check from the mapping that an experiment file holds; every mistake is reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import ConfigError, Misshapen
from coeval.core.foreign import convert
from coeval.core.plain import shortened
from coeval.judging.checks.code_checks import CommandCheck, PythonCheck
from coeval.judging.checks.rubric_check import RubricCheck
from coeval.judging.checks.text_checks import (
    ContainsCheck,
    ExactCheck,
    LanguageCheck,
    LengthCheck,
    NotContainsCheck,
    OneOfCheck,
    RegexCheck,
    SimilarityCheck,
)
from coeval.judging.checks.value_checks import (
    CostCheck,
    JsonCheck,
    JsonSchemaCheck,
    LatencyCheck,
    NumericCheck,
)

CHECK_KEY = "check"

_ALL: tuple[type[RubricCheck], ...] = (
    ExactCheck, ContainsCheck, NotContainsCheck, RegexCheck, OneOfCheck, NumericCheck, JsonSchemaCheck,
    JsonCheck, LengthCheck, LanguageCheck, SimilarityCheck, LatencyCheck, CostCheck, PythonCheck,
    CommandCheck,
)  # fmt: skip
KINDS: Mapping[str, type[RubricCheck]] = {str(kind.__struct_config__.tag): kind for kind in _ALL}
"""What may stand behind ``check:``."""


class CheckProblem(NamedTuple):
    """A mistake in the options of a check: its key and the place in its list, what is wrong, what
    ``word`` may have been meant for."""

    key: str
    what: str
    word: str = ""
    known: tuple[str, ...] = ()
    entry: tuple[int, ...] = ()


def check_problems(options: Mapping[str, Any]) -> list[CheckProblem]:
    """Return every mistake in a check's options; the file that a function is in is not opened."""
    kind = options.get(CHECK_KEY)
    if not isinstance(kind, str) or kind not in KINDS:
        return [CheckProblem(CHECK_KEY, f"'{kind}' is not a kind of check", str(kind), tuple(KINDS))]
    problems = list(_problems_of_keys(KINDS[kind], options))
    if problems:
        return problems
    try:
        convert(dict(options), KINDS[kind])
    except Misshapen as error:
        return [CheckProblem(CHECK_KEY, f"{kind}: {error}")]
    return []


def code_of(options: Mapping[str, Any]) -> str:
    """Return the code that a check runs, as the file names it; empty where it runs none."""
    match options:
        case {"check": "python", "function": str(function)}:
            return function
        case {"check": "command", "argv": list(argv)}:
            return " ".join(map(str, argv))
    return ""


def _problems_of_keys(kind: type[RubricCheck], options: Mapping[str, Any]) -> Iterator[CheckProblem]:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for key, value in options.items():
        if key == CHECK_KEY:
            continue
        if key not in fields:
            yield CheckProblem(key, f"the key '{key}' is unknown", key, tuple(fields))
            continue
        try:
            convert(value, fields[key].type)
        except Misshapen:
            yield from _unfit(key, value, fields[key].type)
    for name, field in fields.items():
        if field.required and name not in options:
            yield CheckProblem(name, f"the required key '{name}' is missing")


def _unfit(key: str, value: Any, kind: Any) -> Iterator[CheckProblem]:
    """Name the entries of a list that do not fit; else the value as a whole."""
    schema = msgspec.json.schema(kind)
    whole = True
    for number, entry in enumerate(value if isinstance(value, list) and "items" in schema else ()):
        try:
            convert([entry], kind)
        except Misshapen:
            shown = shortened(msgspec.json.encode(entry).decode(), 40)
            quotes = "; put it in quotes" if entry is None or isinstance(entry, bool) else ""
            whole = False
            yield CheckProblem(key, f"is {shown}, not {_needed(schema['items'])}{quotes}", entry=(number,))
    if whole:
        yield CheckProblem(key, f"is not {_needed(schema)}", str(value), tuple(schema.get("enum", ())))


def _needed(schema: Mapping[str, Any]) -> str:
    """What a value of this JSON schema is called, with its bounds."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        parts = (_needed(part) for part in schema["anyOf"] if part.get("type") != "null")
        return " or ".join(dict.fromkeys(parts))
    bounds = [f" {words} {schema[key]:g}" for key, words in _BOUNDS.items() if key in schema]
    return _WORDS[schema["type"]] + " and".join(bounds)


_WORDS = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a mapping",
}  # fmt: skip
_BOUNDS = {"minimum": "of at least", "exclusiveMinimum": "above", "maximum": "of at most"}


def read_check(options: Mapping[str, Any]) -> RubricCheck:
    """Build the check of these options; raises ConfigError with all that is wrong with them."""
    problems = check_problems(options)
    if problems:
        raise ConfigError([f"{problem.key}: {problem.what}" for problem in problems])
    return convert(dict(options), KINDS[options[CHECK_KEY]])
