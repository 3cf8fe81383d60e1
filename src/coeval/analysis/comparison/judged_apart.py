"""Judges who scored one of two compared sides only, in sentences."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from coeval.analysis.comparison.side import Side
from coeval.core.text import listed


class JudgedApart(NamedTuple):
    """Of two sides in a task, by label: who judged the one or the other only. ``nobody_both``: they have no
    other judges."""

    task: str
    sides: tuple[str, str]
    judges: tuple[tuple[str, ...], tuple[str, ...]]
    nobody_both: bool


def judged_apart(found: Sequence[JudgedApart], sides: Sequence[Side]) -> Iterator[str]:
    """Sentences on all pairs of the ``sides`` that were compared."""
    yield from _nobody_both([one for one in found if one.nobody_both], sides)
    yield from _one_only([one for one in found if not one.nobody_both], sides)


def _nobody_both(found: Iterable[JudgedApart], sides: Sequence[Side]) -> Iterator[str]:
    by_task: dict[str, dict[tuple[str, ...], dict[str, None]]] = {}
    for one in found:
        for label, judges in zip(one.sides, one.judges, strict=True):
            by_task.setdefault(one.task, {}).setdefault(judges, {})[label] = None
    alike = _grouped(
        (tuple((judges, tuple(labels)) for judges, labels in judged.items()), task)
        for task, judged in by_task.items()
    )
    for panels, tasks in alike.items():
        each = ", ".join(
            f"{listed(judges)} judged {listed(_names(labels, sides))}" for judges, labels in panels
        )
        both = "both" if len(panels) == 2 else "any two of these"
        yield f"{listed(tasks)}: {each}, and nobody {both}: the difference is also one of judges"


def _one_only(found: Iterable[JudgedApart], sides: Sequence[Side]) -> Iterator[str]:
    by_judge: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for one in found:
        for place, judges in enumerate(one.judges):
            for judge in judges:
                judged, others = by_judge.setdefault((one.task, judge), ({}, {}))
                judged[one.sides[place]] = others[one.sides[1 - place]] = None
    of_task = _grouped(
        ((task, tuple(judged), tuple(others)), judge) for (task, judge), (judged, others) in by_judge.items()
    )
    alike = _grouped(((has, lacks, judges), task) for (task, has, lacks), judges in of_task.items())
    for (has, lacks, judges), tasks in alike.items():
        who, whom = _names(has, sides), _names(lacks, sides)
        so = "so they are" if len(judges) > 1 else "so it is"
        where = "of the comparison" if len(who) == len(whom) == 1 else f"where compared with {listed(whom)}"
        yield (
            f"{listed(tasks)}: {listed(judges)} judged {listed(who)} but not {listed(whom)}, {so} left out "
            f"{where}"
        )


_Key = TypeVar("_Key", bound=Hashable)


def _grouped(pairs: Iterable[tuple[_Key, str]]) -> Mapping[_Key, tuple[str, ...]]:
    """By key, what belongs to it, in order."""
    found: dict[_Key, tuple[str, ...]] = {}
    for key, value in pairs:
        found[key] = (*found.get(key, ()), value)
    return found


def _names(labels: Sequence[str], sides: Sequence[Side]) -> list[str]:
    """Sides by their labels; a folder with all its students, by its name."""
    of_place: dict[str, set[str]] = {}
    for side in sides:
        of_place.setdefault(side.place, set()).add(side.label)
    place_of = {side.label: side.place for side in sides}
    names = (place_of[label] if of_place[place_of[label]] <= set(labels) else label for label in labels)
    return list(dict.fromkeys(names))
