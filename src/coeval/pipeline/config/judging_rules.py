"""The rules of how a task is judged: its rubric (V-29, V-36, V-37), pairwise judging (V-40)."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.core.records import variant_name
from coeval.judging.checks.check_options import find_check_problems, read_check
from coeval.judging.checks.rubric_check import RubricCheck, TargetedCheck
from coeval.judging.checks.value_checks import CostCheck, LatencyCheck
from coeval.pipeline.config.draft import Draft, list_checks
from coeval.pipeline.config.findings import Finding, KeyPath, Suggestion

# --- Rubrics
#
# Rules of a rubric: something is scored (V-29), weights have factors (V-36), checks are right (V-37).


def check_rubric(draft: Draft, index: int) -> Iterator[Finding]:
    """Check the rubric of one task: something is scored, weights have factors, checks are valid."""
    yield from _check_something_is_scored(draft, index)
    yield from _check_weights_name_factors(draft, index)
    yield from _check_declared_checks(draft, index)


def _check_something_is_scored(draft: Draft, index: int) -> Iterator[Finding]:
    path, labels = ("tasks", index, "rubric"), ("tasks", index, "label_attributes")
    if draft.get(*path) == {} and not draft.get_raw(*labels) and draft.is_sound(*labels):
        message = "is empty, and there are no label_attributes: nothing would be scored; add a factor"
        yield Finding(path, "V-29", message)


def _check_weights_name_factors(draft: Draft, index: int) -> Iterator[Finding]:
    rubric = draft.get("tasks", index, "rubric")
    if not isinstance(rubric, dict):
        return  # teachers write the factors
    labels = draft.get("tasks", index, "label_attributes", default=[])
    for factor in draft.get_mapping("tasks", index, "weights"):
        if factor not in rubric or factor in labels:
            path: KeyPath = ("tasks", index, "weights", factor)
            yield Finding(
                path,
                "V-36",
                f"the rubric has no factor '{factor}'",
                Suggestion(factor, tuple(rubric), "factors:"),
            )


def _check_declared_checks(draft: Draft, index: int) -> Iterator[Finding]:
    for factor, options in list_checks(draft, index):
        problems = find_check_problems(options)
        if not problems and (why := _explain_never_scored(draft, index, read_check(options))):
            yield Finding(("tasks", index, "rubric", factor), "V-37", why)
        for problem in problems:
            path: KeyPath = ("tasks", index, "rubric", factor, problem.key, *problem.entry)
            suggestion = Suggestion(problem.word, problem.known, "known here:") if problem.known else None
            yield Finding(path, "V-37", problem.what, suggestion)


def _explain_never_scored(draft: Draft, index: int, check: RubricCheck) -> str:
    """Say why a check can score no answer, as far as the file shows; empty if it may score some."""
    roles = {
        role for model in draft.indices("models") for role in draft.get_raw("models", model, "roles") or ()
    }
    if isinstance(check, LatencyCheck | CostCheck) and "student" not in roles:
        return "no student is called, and existing answers have neither time nor cost; remove the check"
    items = draft.get("tasks", index, "items")
    if not isinstance(items, dict) or "teacher" in roles or not isinstance(check, TargetedCheck):
        return ""
    attributes = {*(items.get("attributes") or ()), items.get("label")}
    if check.attribute and check.attribute not in attributes:
        return f"the items have no attribute '{check.attribute}'; name its column in items.attributes"
    if not (check.attribute or check.constants or items.get("reference")):
        return "the items have no reference; name its column in items.reference, or give value or attribute"
    return ""


# --- Pairwise judging


def check_pairwise(draft: Draft, index: int) -> Iterator[Finding]:
    """Check the settings that pairwise judging needs or excludes (V-40)."""
    task: KeyPath = ("tasks", index)
    baseline = draft.get(*task, "baseline")
    if draft.get(*task, "judging") != "pairwise":
        if baseline is not None:
            yield Finding((*task, "baseline"), "V-40", "is for `judging: pairwise`; set that, or remove it")
        return
    if draft.get(*task, "evaluation_mode") == "per_factor":
        message = "scores factors one by one, and pairwise judging compares whole answers; remove one of them"
        yield Finding((*task, "evaluation_mode"), "V-40", message)
    if not draft.has_all_names("models") and draft.data.get("models") != []:
        return
    students = _list_students(draft, index)
    if len(students) < 2:
        count = f"there is only {students[0]}" if students else "there is none"
        message = f"compares students, and {count}; add another, or judge by scores"
        yield Finding((*task, "judging"), "V-40", message)
    elif baseline is not None and baseline not in students:
        way = Suggestion(baseline, students, "students:")
        yield Finding((*task, "baseline"), "V-40", f"no student is named '{baseline}'", way)


def _list_students(draft: Draft, index: int) -> list[str]:
    """Name the students of a task: models or their variants, and those with existing answers."""
    students = []
    for entry_index, name in draft.names("models").items():
        if "student" in draft.get("models", entry_index, "roles", default=[]):
            students += [variant_name(name, own) for own in draft.variants_by_name(entry_index)] or [name]
    for entry_index, name in draft.names("students").items():
        tasks = draft.get("students", entry_index, "tasks")
        if tasks is None or draft.names("tasks").get(index) in tasks:
            students.append(name)
    return [*students, *(draft.get_raw("tasks", index, "items", "responses") or ())]
