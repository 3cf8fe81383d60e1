"""The rules of one task: its labels (V-17), sample sizes (V-23), templates (V-22, V-24, V-35), seeds (V-28),
and that there is something to score (V-29)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from coeval.core.text import placeholders
from coeval.pipeline.config.draft import Draft
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut
from coeval.pipeline.config.item_sources import BENCHMARK
from coeval.pipeline.config.roles import Teachers
from coeval.pipeline.prompts import NEEDS, VARIABLES

_WITHOUT = {
    "input": "students would not see what they are asked",
    "response": "judges would score answers that they do not see",
    "criterion": "every factor would be judged by the same words",
    "rubric": "judges would not see the factors, which teachers write",
    "target_attributes": "teachers would not see what their items are to cover",
}


def task_rules(draft: Draft) -> Iterator[Finding]:
    teachers = Teachers(draft)
    models = dict.fromkeys(draft.names("models").values()) if draft.all_named("models") else None
    for index in draft.entries("tasks"):
        yield from _labels(draft, index, teachers)
        if not _is_supplied(draft, index, teachers):
            yield from _sample_sizes(draft, index)
        for key, template in _templates(draft, index):
            misnamed = [*_misnamed(index, key, template, models)]
            yield from misnamed or _blind(draft, index, key, template, teachers)
        yield from _seeds(draft, index)
        yield from _scored(draft, index)


def _labels(draft: Draft, index: int, teachers: Teachers) -> Iterator[Finding]:
    labels = draft.get("tasks", index, "label_attributes", default=[])
    declared = draft.get("tasks", index, "target_attributes")
    if declared is None:
        return
    if isinstance(declared, str):
        # What teachers propose is not known yet; what a source run holds neither.
        if draft.get("experiment", "resume_from") is not None:
            return
        declared = draft.get("tasks", index, "target_attributes_seed", default={}) or {}
        otherwise = "with 'auto' or 'complete', declare it in target_attributes_seed"
    else:
        otherwise = "target attributes:"
        if _is_supplied(draft, index, teachers):
            if (own := _columns_of_labels(draft, index)) is None:
                return
            declared = {**own, **declared}
    for position, label in enumerate(labels):
        if label not in declared:
            path: KeyPath = ("tasks", index, "label_attributes", position)
            way = WayOut(label, declared, otherwise)
            yield Finding(path, "V-17", f"'{label}' is not a target attribute", way)


def _columns_of_labels(draft: Draft, index: int) -> dict[str, str] | None:
    """The attributes that a table gives the items; None where others supply them too and none is declared:
    what attributes they have, only they say."""
    items = draft.get("tasks", index, "items", default={})
    if not items and not draft.get("tasks", index, "target_attributes"):
        return None
    label = items.get("label")
    return {**items.get("attributes", {}), **({label: label} if label is not None else {})}


def _is_supplied(draft: Draft, index: int, teachers: Teachers) -> bool:
    """Whether nobody samples attributes for the task: its own table and benchmarks alone serve it."""
    alone = (
        draft.get("tasks", index, "category") == BENCHMARK or draft.raw("tasks", index, "items") is not None
    )
    return bool(teachers.supplying(index)) and (alone or not teachers.asked)


def _sample_sizes(draft: Draft, index: int) -> Iterator[Finding]:
    for sizes, attributes in (("target", "target_attributes"), ("nuance", "nuanced_attributes")):
        declared = draft.get("tasks", index, attributes, default={} if sizes == "nuance" else None)
        default = [1, 1] if sizes == "target" else [0, 0]
        pair = draft.get("tasks", index, "sampling", sizes, default=default)
        usable = draft.sound("tasks", index, attributes) and isinstance(declared, dict)
        if usable and isinstance(pair, list) and pair[0] > len(declared):
            if declared:
                wrong = f"asks for {pair[0]} of {len(declared)} declared {attributes}"
                message = f"{wrong}; use at most {len(declared)}, or declare more"
            else:
                wrong = f"asks for {pair[0]} of each item's {attributes}, and none are declared"
                message = f"{wrong}; declare {attributes}, or set sampling.{sizes} to [0, 0]"
            yield Finding(("tasks", index, "sampling", sizes), "V-23", message)


def _templates(draft: Draft, index: int) -> Iterator[tuple[str, str]]:
    """The templates of a task by their keys, as far as they are text."""
    library = draft.raw("tasks", index, "prompt_library")
    for key, template in library.items() if isinstance(library, dict) else ():
        yield key, template if isinstance(template, str) else ""


def _misnamed(index: int, key: str, template: str, models: Collection[str] | None) -> Iterator[Finding]:
    """``models``: their names, None where not all are known."""
    path: KeyPath = ("tasks", index, "prompt_library", key)
    identifier, dot, model = key.partition(".")
    if identifier not in VARIABLES:
        way = WayOut(identifier, VARIABLES, "templates:")
        yield Finding(path, "V-24", f"there is no template '{identifier}'", way)
        return
    if dot and models is not None and model not in models:
        yield Finding(path, "V-24", f"no model is named '{model}'", WayOut(model, models, "models:"))
    for name in dict.fromkeys(placeholders(template)):
        if name not in VARIABLES[identifier]:
            way = WayOut(name, VARIABLES[identifier], "for literal braces write {{ and }}")
            yield Finding(path, "V-22", f"{{{name}}} is not a variable of {identifier}", way)


def _blind(draft: Draft, index: int, key: str, template: str, teachers: Teachers) -> Iterator[Finding]:
    """What a template does not show of what changes from request to request."""
    omitted = ("tasks", index, "prompts_may_omit")
    if not template.strip() or not draft.sound(*omitted):
        return  # another finding says so
    used = {*placeholders(template), *draft.get(*omitted, default=[])}
    for one_of in NEEDS.get(key.partition(".")[0], ()):
        if one_of & used or not _changes(draft, index, one_of, teachers):
            continue
        *others, name = sorted(one_of, key=lambda name: name in _WITHOUT)
        lacking = " or ".join(f"{{{name}}}" for name in (*others, name))
        message = (
            f"shows no {lacking}: {_WITHOUT[name]}; put it where it belongs, or, if you mean it, set "
            f"prompts_may_omit: [{name}] in the task"
        )
        yield Finding(("tasks", index, "prompt_library", key), "V-35", message)


def _changes(draft: Draft, index: int, one_of: Collection[str], teachers: Teachers) -> bool:
    """Whether a task has such a thing, and its author could not write it into a template."""
    if "rubric" in one_of:
        return isinstance(draft.get("tasks", index, "rubric"), str)
    if "target_attributes" in one_of:
        return bool(draft.get("tasks", index, "target_attributes")) and not _is_supplied(
            draft, index, teachers
        )
    return True


def _seeds(draft: Draft, index: int) -> Iterator[Finding]:
    for attributes, words in (("target_attributes", "auto or complete"), ("nuanced_attributes", "auto")):
        seed, declared = f"{attributes}_seed", ("tasks", index, attributes)
        if draft.raw("tasks", index, seed) is None or not draft.sound(*declared):
            continue
        if not isinstance(draft.get(*declared, default={}), str):
            message = (
                f"is kept beside what teachers propose, and they propose no {attributes}; "
                f"set {attributes} to {words}, or move these there"
            )
            yield Finding(("tasks", index, seed), "V-28", message)


def _scored(draft: Draft, index: int) -> Iterator[Finding]:
    path, labels = ("tasks", index, "rubric"), ("tasks", index, "label_attributes")
    if draft.get(*path) == {} and not draft.raw(*labels) and draft.sound(*labels):
        message = "is empty, and there are no label_attributes: nothing would be scored; add a factor"
        yield Finding(path, "V-29", message)
