"""What users bring in place of a host: answers that exist (V-01, V-20), functions and programs (V-39)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from coeval.pipeline.config.draft import Draft
from coeval.pipeline.config.findings import Finding, KeyPath
from coeval.pipeline.config.schema import OPTIONS, Config, ModelConfig


def complete_students(data: dict[str, Any]) -> None:
    """Fill in that no model takes part where answers exist and the file names none."""
    if data.get("students") or _answers_of_tables(data):
        data.setdefault("models", [])


def _answers_of_tables(data: dict[str, Any]) -> bool:
    """Whether a table of items holds answers too."""
    tasks = data.get("tasks")
    tables = (
        [task.get("items") for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    )
    return any(isinstance(items, dict) and items.get("responses") for items in tables)


def inherited_code(data: dict[str, Any], source: Path) -> Iterator[Finding]:
    """V-39: models that would run code which the file being started does not name."""
    models = data.get("models")
    for index, model in enumerate(models if isinstance(models, list) else ()):
        if isinstance(model, dict) and model.get("interface") in _NEEDED:
            what = f"runs code that {source} names and this file does not; copy that model into this file"
            yield Finding(("models", index, "interface"), "V-39", what)


def own_data_rules(draft: Draft) -> Iterator[Finding]:
    yield from _answered_students(draft)
    yield from _own_code(draft)


def _answered_students(draft: Draft) -> Iterator[Finding]:
    """Models where nobody else answers; how rows of answers are told apart."""
    if draft.data.get("models") == [] and not (draft.data.get("students") or _answers_of_tables(draft.data)):
        yield Finding(("models",), "V-01", "is empty; give at least one entry")
    for index in draft.entries("students"):
        path = ("students", index, "responses")
        responses = draft.get(*path)
        if isinstance(responses, dict) and not responses.keys() & {"prompt", "id"}:
            message = "has neither `prompt` nor `id`, the column that matches an answer to its item; add one"
            yield Finding(path, "V-20", message)


def asked_as(model: ModelConfig) -> str:
    """Return the provider's id of a model, or the code of the user's that it is."""
    given = model.parameters
    match model.interface:
        case "python":
            return str(given["callable"])
        case "command":
            return " ".join(map(quote, given["argv"]))
        case _:
            return model.spec().model


def own_code(config: Config) -> Iterator[str]:
    """Say which code of the user's a run will run, a sentence each."""
    for model in config.models:
        if model.interface in _NEEDED:
            where = "in this process" if model.interface == "python" else "as a program, in no sandbox"
            yield f"{model.name} runs {asked_as(model)} {where}; it is free unless it reports a cost"


_NEEDED = {"python": "callable", "command": "argv"}


def _own_code(draft: Draft) -> Iterator[Finding]:
    for index in draft.entries("models"):
        path: KeyPath = ("models", index, "parameters")
        interface = draft.get("models", index, "interface", default="")
        found = draft.raw(*path, default={})
        given = found if isinstance(found, dict) else {}
        if (needed := _NEEDED.get(interface)) is not None and needed not in given:
            example = "{callable: app.py:answer}" if interface == "python" else "{argv: [./answer.sh]}"
            yield Finding(path, "V-39", f"says no `{needed}`, and {interface} needs one; write {example}")
        for key in sorted(given.keys() & OPTIONS["python"].union(OPTIONS["command"])):
            if key not in OPTIONS.get(interface, ()):
                meant = "python" if key == "callable" else "command"
                yield Finding(
                    (*path, key), "V-39", f"'{key}' belongs to the interface {meant}; this is {interface}"
                )
        if needed is not None and "base_url" in given:
            yield Finding((*path, "base_url"), "V-39", f"{interface} has no address; remove it")
