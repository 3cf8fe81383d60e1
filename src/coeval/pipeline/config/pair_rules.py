"""The rules of what holds students against each other: pairwise judging (V-40), looks (V-41)."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.core.records import variant_name
from coeval.pipeline.config.draft import Draft
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut


def pair_rules(draft: Draft, index: int) -> Iterator[Finding]:
    """Find what does not go with the way a task is judged: in pairs, or not."""
    task: KeyPath = ("tasks", index)
    baseline, active = draft.get(*task, "baseline"), draft.get(*task, "pairs") == "active"
    if draft.get(*task, "judging") != "pairwise":
        for key, given in (("baseline", baseline is not None), ("pairs", active)):
            if given:
                yield Finding((*task, key), "V-40", "is for `judging: pairwise`; set that, or remove it")
        return
    if draft.get(*task, "evaluation_mode") == "per_factor":
        message = "scores factors one by one, and pairwise judging compares whole answers; remove one of them"
        yield Finding((*task, "evaluation_mode"), "V-40", message)
    if baseline is not None and active:
        message = "chooses among all pairs, and a baseline leaves one for each student; remove one of them"
        yield Finding((*task, "pairs"), "V-40", message)
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


def stop_rules(draft: Draft, index: int) -> Iterator[Finding]:
    """Find what keeps a task from ending by its looks."""
    place: KeyPath = ("tasks", index, "stop")
    stop = draft.get(*place)
    if not isinstance(stop, dict):
        return
    if (stop.get("half_width") is not None) == (stop.get("decided") is True):
        yield Finding(place, "V-41", "says when enough is known; set `half_width: 3` or `decided: true`")
    if draft.get("tasks", index, "judging") == "pairwise":
        message = "is for scores, and this task compares answers; use `pairs: active` there"
        yield Finding(place, "V-41", message)
    elif (draft.all_named("models") or draft.data.get("models") == []) and len(_students(draft, index)) < 2:
        yield Finding(place, "V-41", "ends by differences between students; name two at least")


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
