"""V-02, V-03, V-04: names of models, tasks and files are unique and can be file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from coeval.core.plain import escape_line
from coeval.core.records import CHECK, EXACT_MATCH, Role, model_of
from coeval.pipeline.config.draft import Draft
from coeval.pipeline.config.findings import Finding, KeyPath
from coeval.store.rundir import RunDir

_NAME = re.compile(r"[A-Za-z0-9._-]+")
# Bytes. File systems take 255; replacing a file needs a temporary one, whose name is longer by up to 16.
LONGEST_FILE_NAME = 239


def check_names(draft: Draft) -> Iterator[Finding]:
    """Find names of models, tasks, variants, the experiment that are used twice or that no file can have."""
    for sections, rule in ((("models", "students"), "V-02"), (("tasks",), "V-03")):
        first: dict[str, str] = {}
        for section in sections:
            for index, name in draft.names(section).items():
                path = (section, index, "name")
                if name in first:
                    message = f"'{name}' is already the name of {first[name]}; rename one of them"
                    yield Finding(path, rule, message)
                else:
                    first[name] = f"{section}[{index}]"
                    yield from _check_name(path, name, is_model=section != "tasks")
                    for variant in draft.variants_by_name(index) if section == "models" else ():
                        if (problem := find_name_problem(variant)) is not None:
                            yield Finding((section, index, "variants", variant), "V-04", problem)
    yield from _check_names_of_response_columns(draft)
    yield from _check_labels_are_unique(draft)
    identifier = draft.get("experiment", "id")
    if identifier is not None:
        yield from _check_name(("experiment", "id"), identifier)
    yield from _check_file_name_lengths(draft)


def _check_names_of_response_columns(draft: Draft) -> Iterator[Finding]:
    """Find bad names among students that only ``items.responses`` of a task names (V-02, V-04)."""
    models = {name: index for index, name in draft.names("models").items()}
    for index in draft.indices("tasks"):
        for name in draft.get("tasks", index, "items", "responses", default={}):
            path = ("tasks", index, "items", "responses", name)
            if name in models:
                message = f"'{name}' is already the name of models[{models[name]}]; rename one of them"
                yield Finding(path, "V-02", message)
            else:
                yield from _check_name(path, name, is_model=True)


def is_valid_name(text: str) -> bool:
    """Check that a text holds only characters of names, so that it can name a file."""
    return bool(_NAME.fullmatch(text)) and text not in (".", "..")


def is_valid_model_name(text: str) -> bool:
    """Check that a model may have this name: valid names, joined by slashes."""
    return all(map(is_valid_name, text.split("/")))


def find_name_problem(name: str, *, is_model: bool = False) -> str | None:
    """Return what is wrong with a model's, task's or experiment's name, and the remedy; None if valid."""
    if not (is_valid_model_name(name) if is_model else is_valid_name(name)):
        slash = ", '/'" if is_model else ""
        return f"'{name}' is not a valid name; use letters, digits, '-', '_'{slash} and '.' only"
    if "__" in name or name != name.strip("_"):
        return f"'{name}' holds '__' or begins or ends with '_', which separates ids; use '-' there"
    if len(name) > LONGEST_FILE_NAME:
        return f"'{name}' has {len(name)} characters, too many for a file; use at most {LONGEST_FILE_NAME}"
    return None


def _check_labels_are_unique(draft: Draft) -> Iterator[Finding]:
    """Find labels that another model has already, as its name or label (V-02)."""
    entries = [(section, index) for section in ("models", "students") for index in draft.indices(section)]
    owners_by_label = {
        name: f"the name of {section}[{index}]"
        for section in ("students", "models")
        for index, name in draft.names(section).items()
    }
    for section, index in entries:
        label = draft.get(section, index, "label")
        if not isinstance(label, str):
            continue
        path = (section, index, "label")
        if label != escape_line(label).strip():
            yield Finding(
                path, "V-02", f"'{label}' begins or ends with a blank, or holds invisible characters"
            )
        elif label in owners_by_label and label != draft.get(section, index, "name"):
            yield Finding(
                path, "V-02", f"'{label}' is {owners_by_label[label]} already; choose another label"
            )
        owners_by_label.setdefault(label, f"the label of {section}[{index}]")


_RESERVED = {EXACT_MATCH: "label scores", CHECK: "checks"}


def _check_name(path: KeyPath, name: str, *, is_model: bool = False) -> Iterator[Finding]:
    if name in _RESERVED and (path[0] in ("models", "students") or "responses" in path):
        yield Finding(path, "V-04", f"'{name}' is reserved for {_RESERVED[name]}; choose another name")
    elif (problem := find_name_problem(name, is_model=is_model)) is not None:
        yield Finding(path, "V-04", problem)


def _check_file_name_lengths(draft: Draft) -> Iterator[Finding]:
    """Find names that together make a file name longer than `LONGEST_FILE_NAME` bytes."""
    roles = {name: draft.get("models", i, "roles", default=[]) for i, name in draft.names("models").items()}

    def longest_name(role: Role, names: Iterable[str], others: Iterable[str] = ()) -> str:
        playing = [*(name for name in names if role in roles.get(model_of(name), ())), *others]
        return max((name for name in playing if len(name) <= LONGEST_FILE_NAME), key=len, default="")

    teacher, judge = longest_name("teacher", roles), longest_name("judge", roles)
    student = longest_name("student", draft.model_and_variant_names(), draft.names("students").values())
    run = RunDir("")
    for index, task in draft.names("tasks").items():
        if not is_valid_name(task) or len(task) > LONGEST_FILE_NAME:
            continue
        # All other files of a task have shorter names.
        answers, verdicts = run.responses(task, student).name, run.evaluations(task, teacher, judge).name
        for file, names in ((answers, [task, student]), (verdicts, [task, teacher, judge])):
            if len(file) > LONGEST_FILE_NAME:
                named = " and ".join(f"'{name}'" for name in dict.fromkeys(filter(None, names)))
                message = (
                    f"{named} make a file name of {len(file)} characters, "
                    f"and at most {LONGEST_FILE_NAME} can be; shorten one of these names"
                )
                yield Finding(("tasks", index, "name"), "V-04", message)
