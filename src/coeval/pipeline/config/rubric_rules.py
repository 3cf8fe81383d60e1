"""Rules of a rubric: something is scored (V-29), weights have factors (V-36), checks are right (V-37)."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.judging.checks.check_options import check_problems
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
        for problem in check_problems(options):
            path: KeyPath = ("tasks", index, "rubric", factor, problem.key, *problem.entry)
            known = WayOut(problem.word, problem.known, "known here:") if problem.known else None
            yield Finding(path, "V-37", problem.what, known)
