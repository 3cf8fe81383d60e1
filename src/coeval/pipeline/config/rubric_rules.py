"""Rules of a rubric: something is scored (V-29), weights have factors (V-36), checks are right (V-37)."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.judging.checks.check_options import check_problems, read_check
from coeval.judging.checks.rubric_check import RubricCheck, TargetedCheck
from coeval.judging.checks.value_checks import CostCheck, LatencyCheck
from coeval.pipeline.config.draft import Draft, declared_checks
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut


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
