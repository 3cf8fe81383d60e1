"""Translate pydantic's errors to findings: one per mistake, with our wording and rule numbers."""

from __future__ import annotations

import itertools
import re
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from coeval.pipeline.config.findings import (
    FileData,
    Finding,
    KeyPath,
    Suggestion,
    closest_word,
    describe_value,
)
from coeval.pipeline.config.items_section import AnsweredStudent, AnswerTable, Documents, Items, Sampling
from coeval.pipeline.config.schema import OPTIONS, Config, Experiment, ModelConfig, Quota, TaskConfig, Variant
from coeval.pipeline.config.values import CHECK, FACTOR, LIST, MAPPING, OUR_KEYS, WORD, RubricFactor
from coeval.simulation.traits import SAMPLING

# What a key may hold besides a few words.
_USUAL = {
    "rubric": "a mapping (factor: criterion), ",
    "target_attributes": "a mapping (name: [values]), ",
    "nuanced_attributes": "a mapping (name: [values]), ",
}

# What a model's parameters are called, whoever knows them.
_PARAMETERS = OUR_KEYS.union(SAMPLING, *OPTIONS.values())

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
}


# Unknown keys that are compared with known ones, so that a misspelt one is not reported as missing too.
_MOST_GUESSED = 1_000

# By the keys that lead there; all else is the file as a whole.
_SECTIONS: dict[str, type[BaseModel]] = {
    "models": ModelConfig, "models.variants": Variant,
    "students": AnsweredStudent, "students.responses": AnswerTable,
    "tasks": TaskConfig, "tasks.sampling": Sampling, "tasks.items": Items, "tasks.documents": Documents,
    "tasks.rubric": RubricFactor,
    "experiment": Experiment, "experiment.quota": Quota,
}  # fmt: skip


class StructureCheck(NamedTuple):
    """A schema check's ``config`` if the data fits the schema, else the findings and the unusable paths."""

    config: Config | None
    findings: list[Finding]
    broken: frozenset[KeyPath]


def check_structure(data: FileData) -> StructureCheck:
    """Validate the data against the schema: keys, types, single values."""
    try:
        return StructureCheck(Config.model_validate(data), [], frozenset())
    except ValidationError as error:
        details = error.errors(include_url=False)
    unknown = itertools.islice(filter(_is_unknown_key, details), _MOST_GUESSED)
    misspelt = set[KeyPath]().union(*map(_guess_meant_paths, unknown))
    findings = [
        _to_finding(detail)
        for detail in details
        if not (detail["type"] == "missing" and _key_path(detail) in misspelt)
    ]
    return StructureCheck(None, findings, frozenset(misspelt | {_key_path(detail) for detail in details}))


def _key_path(detail: ErrorDetails) -> KeyPath:
    return tuple(part for part in detail["loc"] if part not in (MAPPING, WORD, LIST, CHECK, FACTOR, "[key]"))


def _is_unknown_key(detail: ErrorDetails) -> bool:
    return detail["type"] == "extra_forbidden" or detail["loc"][-1] == "[key]"


def _list_known_keys(detail: ErrorDetails) -> list[str]:
    """List the keys that are allowed where an unknown one stands."""
    if detail["type"] != "extra_forbidden":
        return _list_choices(detail)
    words = [part for part in _key_path(detail)[:-1] if isinstance(part, str)]
    return list(_SECTIONS.get(".".join(words[:2]), Config).model_fields)


def _list_choices(detail: ErrorDetails) -> list[str]:
    return re.findall(r"'([^']*)'", detail.get("ctx", {}).get("expected", ""))


def _guess_meant_paths(detail: ErrorDetails) -> set[KeyPath]:
    """Return the paths that an unknown key was probably meant for, which are then not missing."""
    path = _key_path(detail)
    if (section := _find_section_of_misplaced_key(path)) is not None:
        return {(*path[:-1], section), (*path[:-1], section, path[-1])}
    near = closest_word(str(path[-1]), _list_known_keys(detail))
    return {(*path[:-1], near)} if near else set()


def _find_section_of_misplaced_key(path: KeyPath) -> str | None:
    """Find the neighbouring section that a misplaced key belongs to; None if there is none."""
    key = path[-1]
    match path[:-1]:
        case ("models", int()) if key in _PARAMETERS:
            return "parameters"
        case ("tasks", int()) if key in Sampling.model_fields:
            return "sampling"
        case () if key in Experiment.model_fields:
            return "experiment"
        case _:
            return None


def _to_finding(detail: ErrorDetails) -> Finding:
    path = _key_path(detail)
    if _is_unknown_key(detail):
        if (section := _find_section_of_misplaced_key(path)) is not None:
            return Finding(path, "V-18", f"the key '{path[-1]}' belongs under {section}; move it there")
        keys = _list_known_keys(detail)
        way = Suggestion(str(path[-1]), keys, "known here:")
        return Finding(path, "V-18", f"the key '{path[-1]}' is unknown", way)
    finding = _to_value_finding(detail, path)
    return finding._replace(rule=_find_rule_of_path(path) or finding.rule)


_OWNED_BY_RULES = {
    "models.*.roles": "V-05",
    "models.*.interface": "V-06",
    "experiment.generation_retries": "V-12",
    "experiment.batch": "V-13",
    "experiment.probe_mode": "V-15",
    "experiment.probe_on_fail": "V-16",
}


def _find_rule_of_path(path: KeyPath) -> str | None:
    """Return the rule that owns a path, whatever is wrong with its value."""
    if path in (("models",), ("tasks",)):
        return "V-01"
    words = "".join("*." if isinstance(part, int) else f"{part}." for part in path)
    return next((rule for start, rule in _OWNED_BY_RULES.items() if words.startswith(f"{start}.")), None)


def _to_value_finding(detail: ErrorDetails, path: KeyPath) -> Finding:
    """Describe a value that is missing, has the wrong type or is out of range."""
    if detail["type"] == "literal_error":
        value, choices = detail["input"], _list_choices(detail)
        what = f"{_describe_safely(value, path)} is not valid"
        ways = f"use {_USUAL.get(str(path[-1]), '')}{' | '.join(choices)}"
        return Finding(
            path, "V-20", what, Suggestion(value if isinstance(value, str) else "", choices, always=ways)
        )
    return Finding(path, *_find_rule_and_message(detail, path))


def _find_rule_and_message(detail: ErrorDetails, path: KeyPath) -> tuple[str, str]:
    """Return the rule and the message for pydantic's error of this type."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind.startswith("V-"):
        return kind, detail["msg"]
    if kind == "missing":
        inherited = ", or inherit it by experiment.resume_from" if path in (("models",), ("tasks",)) else ""
        return "V-20", f"the required key '{path[-1]}' is missing; add it{inherited}"
    if kind in ("too_short", "string_too_short"):
        return "V-20", "is empty; give at least one entry" if kind == "too_short" else "is empty; fill it in"
    if kind == "string_pattern_mismatch":
        return "V-20", "is not an address; write https://host/v1 or http://…"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return "V-21", f"is {_describe_safely(value, path)}; use {words} {context[bound]:g}"
    if needed := _KINDS.get(kind):
        return (
            "V-20",
            f"is {_describe_safely(value, path)}, not {needed}; {_suggest_correction(value, needed)}",
        )
    return "V-20", f"{detail['msg']}; see the configuration guide"


def _suggest_correction(value: Any, needed: str) -> str:
    if needed == "text" and isinstance(value, bool | int | float):
        return "put it in quotes"
    if needed == "a list" and isinstance(value, str) and value.strip():
        return f"write [{', '.join(value.replace(',', ' ').split())}]"
    return f"write {needed}"


def _describe_safely(value: Any, path: KeyPath) -> str:
    """Describe a value for a message; credentials are never shown."""
    return "something else" if path[-1] in ("access_key", "account") else describe_value(value)
