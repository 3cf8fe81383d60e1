"""``python -m evidence.g_study``: whether planted variances are found.

Draws scores as sums of normal parts, of students with known means: items and judges are fresh in each run.
Seeded.

    python -m evidence.g_study > docs/evidence/g-study.md
    python -m evidence.g_study --repeats 100
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.panel.g_study import GStudy, estimate_g_study

REPEATS = 1000
# In points: those of a usual run, a judge's view of a student among them.
PARTS = {
    "items": 15.0,
    "judges": 8.0,
    "students_items": 10.0,
    "students_judges": 4.0,
    "items_judges": 6.0,
    "residual": 12.0,
}
DICE = {**dict.fromkeys(PARTS, 0.0), "residual": 30.0}
# What judges of one mind leave: items that are hard for all.
PERFECT = {**dict.fromkeys(PARTS, 0.0), "items": 15.0, "residual": 0.5}
# Levels of a scale so fine that rounding is no part of the scatter: 0.02 points.
_LEVELS = 30_001
_WIDE = 5.0
"""Of the scale in units of its middle: no score is cut off."""


class Design(NamedTuple):
    items: int = 100
    students: int = 5
    judges: int = 4


def drawn(
    generator: np.random.Generator, design: Design, parts: Mapping[str, float] = PARTS, apart: float = 20.0
) -> Floats:
    """(n, S, k), in points; the students lie ``apart`` from the first to the last."""
    n, s, k = design
    shapes = {
        "items": (n, 1, 1),
        "judges": (1, 1, k),
        "students_items": (n, s, 1),
        "students_judges": (1, s, k),
        "items_judges": (n, 1, k),
        "residual": (n, s, k),
    }
    scores = np.broadcast_to(50 + np.linspace(-apart / 2, apart / 2, s)[:, None], (n, s, k)).copy()
    for name, sd in parts.items():
        scores += generator.normal(0, sd, shapes[name]) if sd else 0.0
    return scores


def grid_of(scores: Floats, tasks: int = 1) -> ScoreGrid:
    """Of points, which may lie outside of 0 to 100: shrunk around the middle, to `points` again. Items are of
    each task in turn."""
    n, s, k = scores.shape
    shrunk = 0.5 + (scores - 50) / (100 * _WIDE)
    levels: Any = np.rint(np.clip(shrunk, 0, 1) * (_LEVELS - 1)).astype(np.int16)
    item, student = (axis.ravel() for axis in np.indices((n, s)))
    judges = tuple(f"judge-{place}" for place in range(k))
    names = tuple(f"task-{place}" for place in range(tasks))
    return ScoreGrid(
        item,
        student,
        np.zeros(n * s, np.int64),
        levels.reshape(-1, k),
        GridItems([f"{place:05d}" for place in range(n)], np.arange(n) % tasks, np.zeros(n, np.int64), {}),
        tuple(f"student-{place}" for place in range(s)),
        judges,
        ("factor",),
        names,
        ("teacher",),
        (TaskDesign(frozenset(judges), frozenset({"factor"})),) * tasks,
        scale=np.linspace(0, 1, _LEVELS),
    )


def points(shrunk: float | None) -> float:
    """Of the shrunk scale of `grid_of`."""
    return float("nan") if shrunk is None else 100 * _WIDE * shrunk


def studied(scores: Floats) -> GStudy:
    found = estimate_g_study(grid_of(scores))
    assert found is not None
    return found


# --- Components


class Found(NamedTuple):
    """Of one part, in points: planted, the root of the mean variance found, the middle 95% of the roots, and
    how often its 95% interval holds the planted variance."""

    part: str
    planted: float
    found: float
    low: float
    high: float
    held: float


def components(repeats: int) -> list[Found]:
    generator = np.random.default_rng(1)
    variances: dict[str, list[float]] = {name: [] for name in PARTS}
    held: dict[str, list[bool]] = {name: [] for name in PARTS}
    for _ in range(repeats):
        found = studied(drawn(generator, Design())).components
        for name, sd in PARTS.items():
            one = found[name].variance
            variances[name].append(one.value or 0.0)
            held[name].append((one.low or 0.0) <= (sd / points(1.0)) ** 2 <= (one.high or 0.0))
    rows = []
    for name, sd in PARTS.items():
        of = np.array(variances[name])
        roots = points(1.0) * np.sign(of) * np.sqrt(np.abs(of))
        mean = points(max(float(of.mean()), 0.0) ** 0.5)
        low, high = np.quantile(roots, [0.025, 0.975]).tolist()
        rows.append(Found(name.replace("_", " × "), sd, mean, low, high, float(np.mean(held[name]))))
    return rows


# --- Reliability


class Reliable(NamedTuple):
    """Eρ² over runs: the true one, the median, the middle 95%, in what share of the runs it is above 0.1, and
    in what share its interval holds the true one."""

    true: float
    median: float
    low: float
    high: float
    above: float
    held: float


def reliability(parts: Mapping[str, float], apart: float, repeats: int, design: Design) -> Reliable:
    generator = np.random.default_rng(2)
    variance = float(np.linspace(-apart / 2, apart / 2, design.students).var(ddof=1))
    n, _, k = design
    error = (
        parts["students_items"] ** 2 / n
        + parts["students_judges"] ** 2 / k
        + parts["residual"] ** 2 / (n * k)
    )
    true = variance / (variance + error)
    found = [studied(drawn(generator, design, parts, apart)).reliability for _ in range(repeats)]
    values = [one.value or 0.0 for one in found]
    held = [one.low is not None and one.high is not None and one.low <= true <= one.high for one in found]
    low, median, high = np.quantile(values, [0.025, 0.5, 0.975]).tolist()
    return Reliable(true, median, low, high, float(np.mean(np.array(values) > 0.1)), float(np.mean(held)))


RELIABLE = (
    ("three judges who throw dice", DICE, 0.0, Design(judges=3)),
    ("three perfect judges", PERFECT, 20.0, Design(judges=3)),
    ("the parts above, three judges", PARTS, 20.0, Design(judges=3)),
    ("the parts above, students 5 apart", PARTS, 5.0, Design(judges=3)),
)


def page(repeats: int) -> Iterator[str]:
    yield "# Where scores scatter"
    yield ""
    yield f"`python -m evidence.g_study > docs/evidence/g-study.md` draws {repeats:,} runs of each kind:"
    yield "100 items, five students 20 points apart from the first to the last, four judges. Items and judges"
    yield "are fresh in each."
    yield ""
    yield "## Components"
    yield ""
    yield "Standard deviations in points: planted, and the root of the mean variance found. The interval is"
    yield "over items: it says nothing of other judges, so it holds what judges are planted with less often."
    yield ""
    yield "| part | planted | found | 95 in 100 runs | interval holds |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for one in components(repeats):
        shown = f"{one.planted:.1f} | {one.found:.1f} | {one.low:.1f} to {one.high:.1f} | {one.held:.1%}"
        yield f"| {one.part} | {shown} |"
    yield ""
    yield "## Eρ²"
    yield ""
    yield "Five students say little of it where they hardly differ: what chance shows of dice is seldom 0."
    yield "The interval is over items, by these judges."
    yield ""
    yield "| judges | true | median | 95 in 100 runs | above 0.1 | interval holds |"
    yield "| --- | ---: | ---: | --- | ---: | ---: |"
    for said, parts, apart, design in RELIABLE:
        found = reliability(parts, apart, repeats, design)
        shown = f"{found.true:.3f} | {found.median:.3f} | {found.low:.2f} to {found.high:.2f}"
        yield f"| {said} | {shown} | {found.above:.1%} | {found.held:.1%} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    for line in page(parser.parse_args().repeats):
        print(line, flush=True)
