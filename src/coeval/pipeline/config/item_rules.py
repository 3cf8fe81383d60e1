"""V-32, and what a task with ``items`` need not say: its attributes and its size follow from its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coeval.core.errors import UsageError
from coeval.pipeline.config.draft import Draft
from coeval.pipeline.config.findings import Finding, KeyPath, written
from coeval.pipeline.config.item_sources import OWN_ITEMS
from coeval.tables.condition import Condition


def complete_items(data: dict[str, Any]) -> None:
    """Fill in what tasks with ``items`` leave out: no attribute declared, all rows used; and with a label, no
    rubric and the label among ``label_attributes``."""
    tasks = data.get("tasks")
    for task in tasks if isinstance(tasks, list) else ():
        items = task.get("items") if isinstance(task, dict) else None
        if not isinstance(items, dict):
            continue
        task.setdefault("target_attributes", {})
        sampling = task.setdefault("sampling", {})
        if isinstance(sampling, dict):
            sampling.setdefault("total", "all")
        labels, label = task.get("label_attributes", []), items.get("label")
        if isinstance(label, str) and isinstance(labels, list) and label not in labels:
            labels = task["label_attributes"] = [*labels, label]
        if labels:
            task.setdefault("rubric", {})


def complete_labels(data: dict[str, Any]) -> None:
    """Fill in the output description of tasks that leave it out and have nothing but labels: the values that
    are declared of them. Those that only items have are not named: with a row more they might be others, and
    every answer would have been asked for differently."""
    tasks = data.get("tasks")
    for task in tasks if isinstance(tasks, list) else ():
        if not isinstance(task, dict) or task.get("rubric") or task.get("output_description"):
            continue
        labels, declared = task.get("label_attributes"), task.get("target_attributes")
        if not isinstance(labels, list) or not isinstance(declared, dict):
            continue
        values = [declared.get(label) if isinstance(label, str) else None for label in labels]
        told = [", ".join(map(written, of)) for of in values if isinstance(of, list) and of]
        if labels and len(told) == len(labels):
            each = [f"{label}, one of: {of}" for label, of in zip(labels, told, strict=True)]
            task["output_description"] = f"One of: {told[0]}" if len(told) == 1 else "; ".join(each)


def item_rules(draft: Draft) -> Iterator[Finding]:
    tables = [index for index in draft.entries("tasks") if draft.raw("tasks", index, "items") is not None]
    for index, name in draft.names("models").items() if tables else ():
        if name == OWN_ITEMS:
            message = f"'{name}' stands for the teacher of a task with items; choose another name"
            yield Finding(("models", index, "name"), "V-32", message)
    for index in draft.entries("tasks"):
        if index in tables:
            yield from _conditions(draft, index)
        elif draft.get("tasks", index, "sampling", "total") == "all":
            message = "is all, and only a task with `items` has a table whose rows these are; write a number"
            yield Finding(("tasks", index, "sampling", "total"), "V-32", message)


def _conditions(draft: Draft, index: int) -> Iterator[Finding]:
    path: KeyPath = ("tasks", index, "items", "where")
    where = draft.get(*path, default=[])
    for condition in [where] if isinstance(where, str) else where:
        try:
            Condition.of(condition)
        except UsageError as error:
            yield Finding(path, "V-32", str(error))
