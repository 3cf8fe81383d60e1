"""A folder in one line of the list: its size, who is best, how fast it grows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from coeval.analysis.readers.reader import Reader
from coeval.analysis.scores import results
from coeval.core.figures import share_of_scale
from coeval.core.shown_names import ShownNames
from coeval.pipeline.plan.run_reading import opened


class Best(msgspec.Struct, frozen=True):
    """Who is best, under the whole and the short name; ``what``: what the figure is, where it is no score;
    ``tasks``: of a benchmark's checkpoint, over how many it is."""

    name: str
    short: str
    mean: float
    low: float | None = None
    high: float | None = None
    what: str = ""
    tasks: int = 0


class FolderSummary(msgspec.Struct, frozen=True):
    """How many students and items a folder has, and who is best; ``leads`` are the sentences of its scores,
    ``short`` names by whole ones."""

    students: int
    items: int
    best: Best | None
    leads: tuple[str, ...]
    short: dict[str, str]


def read_summary(folder: Path) -> FolderSummary:
    """Read a folder for its line alone, and let go of it; raises as `opened`."""
    with opened(folder) as (reader, notes):
        return summary_of(reader, results(reader, notes).as_dict())


def summary_of(reader: Reader, found: Mapping[str, Any]) -> FolderSummary:
    """The line of what is read already; ``found`` are its results as plain data."""
    [(items,)] = reader.rows("SELECT count(*) FROM items")
    overall = [one for one in found["students"] if one["task"] is None]
    names = list(
        dict.fromkeys(
            [one["student"] for one in (*overall, *found["labels"])]
            + [one["model"] for one in (*found["metrics"], *found["costs"])]
        )
    )
    shown = ShownNames.of(names, None if reader.planned is None else reader.planned.labels)
    students = {one["student"] for one in (*overall, *found["labels"])} or {
        one["model"] for one in found["metrics"]
    }
    leads = tuple(shown.text(text) for text in found["leads"])
    return FolderSummary(len(students), items, _best(found, overall, shown), leads, shown.key)


def _best(found: Mapping[str, Any], overall: Sequence[Mapping[str, Any]], shown: ShownNames) -> Best | None:
    # The best stands first, whoever does only some of the tasks or is removed last.
    first = next((one for one in overall if one["mean"] is not None), None)
    if first is not None:
        return Best(
            first["student"], shown.text(first["student"]), first["mean"], first["low"], first["high"]
        )
    for part, figure, what in (("pairs", "strength", "wins in 100"), ("labels", "accuracy", "labels right")):
        first = next((one for one in found[part] if one[figure] is not None), None)
        if first is not None:
            name, figures = first["student"], (first[figure], first["low"], first["high"])
            return Best(name, shown.text(name), *figures, what)
    # The first metric of each task is its headline, that of the first sample stands for the others.
    heads: dict[tuple[str, str], Mapping[str, Any]] = {}
    for one in found["metrics"]:
        if one["value"] is not None and one["unit"]:
            heads.setdefault((one["model"], one["task"]), one)
    if not heads:
        return None
    name = next(iter(heads))[0]
    own = [one for (model, _), one in heads.items() if model == name]
    mean = sum(share_of_scale(one["value"], one["unit"]) for one in own) / len(own)
    what = f"{own[0]['task']} {own[0]['metric']}" if len(own) == 1 else f"mean of {len(own)} tasks"
    return Best(name, shown.text(name), mean, what=what, tasks=len(own))


class GrowthRate:
    """How many records a minute are made, and how long the rest takes at that pace."""

    # A look every two seconds: rates over the last two minutes follow a change of pace, and do not jump.
    _LOOKS = 60
    # Seconds: over less, a rate is that of one burst.
    _SOONEST = 5.0

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=self._LOOKS)
        self._left = 0

    def see(self, status: Any) -> None:
        """Take over how much is done and missing, from the status of a folder as plain data."""
        phases = status.get("phases", {}).values() if isinstance(status, dict) else ()
        done = sum(phase["good"] + phase["failed"] for phase in phases)
        self._left = sum(phase.get("owed") or 0 for phase in phases)
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # it was begun again
        self._seen.append((time.monotonic(), done))

    def told(self) -> dict[str, float] | None:
        """Records a minute and seconds left; None where it is too early to say, or nothing moves."""
        if len(self._seen) < 2:
            return None
        (began, first), (_, last) = self._seen[0], self._seen[-1]
        seconds = time.monotonic() - began
        if seconds < self._SOONEST or last <= first:
            return None
        each = (last - first) / seconds
        return {"per_minute": 60 * each, "seconds_left": self._left / each}


def changed_at(times: Sequence[int]) -> str | None:
    """When the latest of some files was written, from their times in nanoseconds; UTC."""
    latest = max(times, default=0)
    return datetime.fromtimestamp(latest / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if latest else None
