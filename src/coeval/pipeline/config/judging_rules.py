"""The rules of how a task is judged: its rubric (V-29, V-36, V-37), pairwise judging (V-40)."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.core.records import variant_name
from coeval.judging.checks.check_options import check_problems, read_check
from coeval.judging.checks.rubric_check import RubricCheck, TargetedCheck
from coeval.judging.checks.value_checks import CostCheck, LatencyCheck
from coeval.pipeline.config.draft import Draft, declared_checks
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut

# --- Rubrics
#
# Rules of a rubric: something is scored (V-29), weights have factors (V-36), checks are right (V-37).


def rubric_rules(draft: Draft, index: int) -> Iterator[Finding]:
    """What is wrong with the rubric of one task."""
    yield from _scored(draft, index)
    yield from _weights(draft, index)
    yield from _checks(draft, index)


def _scored(draft: Draft, index: int) -> Iterator[Finding]:
    path, labels = ("tasks", index, "rubric"), ("tasks", index, "label_attributes")
    if draft.get(*path) == {} and not draft.raw(*labels) and draft.sound(*labels):
        message = "is empty, and there are no label_attributes: nothing would be scored; add a factor"
        yield Finding(path, "V-29", message)


def _weights(draft: Draft, index: int) -> Iterator[Finding]:
    rubric = draft.get("tasks", index, "rubric")
    if not isinstance(rubric, dict):
        return  # teachers write the factors
    labels = draft.get("tasks", index, "label_attributes", default=[])
    for factor in weights if isinstance(weights := draft.raw("tasks", index, "weights"), dict) else ():
        if factor not in rubric or factor in labels:
            path: KeyPath = ("tasks", index, "weights", factor)
            yield Finding(
                path,
                "V-36",
                f"the rubric has no factor '{factor}'",
                WayOut(factor, tuple(rubric), "factors:"),
            )


def _checks(draft: Draft, index: int) -> Iterator[Finding]:
    for factor, options in declared_checks(draft, index):
        problems = check_problems(options)
        if not problems and (why := _never_scored(draft, index, read_check(options))):
            yield Finding(("tasks", index, "rubric", factor), "V-37", why)
        for problem in problems:
            path: KeyPath = ("tasks", index, "rubric", factor, problem.key, *problem.entry)
            known = WayOut(problem.word, problem.known, "known here:") if problem.known else None
            yield Finding(path, "V-37", problem.what, known)


def _never_scored(draft: Draft, index: int, check: RubricCheck) -> str:
    """Say why no answer can have a score by this check, as far as the file tells; empty where some may."""
    roles = {role for model in draft.entries("models") for role in draft.raw("models", model, "roles") or ()}
    if isinstance(check, LatencyCheck | CostCheck) and "student" not in roles:
        return "no student is asked, and answers that exist have neither time nor cost; take the check out"
    items = draft.get("tasks", index, "items")
    if not isinstance(items, dict) or "teacher" in roles or not isinstance(check, TargetedCheck):
        return ""
    known = {*(items.get("attributes") or ()), items.get("label")}
    if check.attribute and check.attribute not in known:
        return f"the items have no attribute '{check.attribute}'; name its column in items.attributes"
    if not (check.attribute or check.constants or items.get("reference")):
        return "the items have no reference; name its column in items.reference, or give value or attribute"
    return ""


# --- Pairwise judging


def pair_rules(draft: Draft, index: int) -> Iterator[Finding]:
    """Find what does not go with the way a task is judged: in pairs, or not."""
    task: KeyPath = ("tasks", index)
    baseline = draft.get(*task, "baseline")
    if draft.get(*task, "judging") != "pairwise":
        if baseline is not None:
            yield Finding((*task, "baseline"), "V-40", "is for `judging: pairwise`; set that, or remove it")
        return
    if draft.get(*task, "evaluation_mode") == "per_factor":
        message = "scores factors one by one, and pairwise judging compares whole answers; remove one of them"
        yield Finding((*task, "evaluation_mode"), "V-40", message)
    if not draft.all_named("models") and draft.data.get("models") != []:
        return
    students = _students(draft, index)
    if len(students) < 2:
        there = f"there is only {students[0]}" if students else "there is none"
        message = f"compares students, and {there}; add another, or judge by scores"
        yield Finding((*task, "judging"), "V-40", message)
    elif baseline is not None and baseline not in students:
        way = WayOut(baseline, students, "students:")
        yield Finding((*task, "baseline"), "V-40", f"no student is called '{baseline}'", way)


def _students(draft: Draft, index: int) -> list[str]:
    """The students of a task: models, or their variants, and those whose answers exist."""
    found = []
    for at, name in draft.names("models").items():
        if "student" in draft.get("models", at, "roles", default=[]):
            found += [variant_name(name, each) for each in draft.variants(at)] or [name]
    for at, name in draft.names("students").items():
        tasks = draft.get("students", at, "tasks")
        if tasks is None or draft.names("tasks").get(index) in tasks:
            found.append(name)
    return [*found, *(draft.raw("tasks", index, "items", "responses") or ())]
