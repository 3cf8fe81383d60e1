"""``python -m perf.g_study``: whether planted variances are found, and errors are those foretold.

Draws scores as sums of normal parts, of students with known means: items and judges are fresh in each run.
Seeded.

    python -m perf.g_study > docs/evidence/g-study.md
    python -m perf.g_study --repeats 100
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.panel.d_study import Prices, best_design, designs, run_errors
from coeval.analysis.panel.g_study import GStudy, g_study

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
    found = g_study(grid_of(scores))
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


# --- Errors foretold


class Foretold(NamedTuple):
    """The standard error of a difference of two students, in points, to other items, to other judges and to
    both: as runs of 100 items and four judges foretell it, and the true one."""

    design: Design
    foretold: tuple[float, float, float]
    true: tuple[float, float, float]


def foretold(repeats: int) -> list[Foretold]:
    generator, prices = np.random.default_rng(3), Prices(None, None, None)
    now = Design()
    found = []
    for _ in range(repeats):
        errors = designs(run_errors(grid_of(drawn(generator, now))), prices)
        found.append([(one.over_items, one.over_judges or 0.0, one.over_both or 0.0) for one in errors])
    roots = points(1.0) * np.sqrt((np.array(found) ** 2).mean(axis=0))
    sizes = [(one.items + now.items, one.judges + now.judges) for one in errors]
    rows = []
    for (n, k), root in zip(sizes, roots, strict=True):
        if n in (100, 200) and k in (4, 6):
            design = Design(items=n, judges=k)
            over_items, over_judges, both = root.tolist()
            rows.append(Foretold(design, (over_items, over_judges, both), _true(design)))
    return rows


def _true(design: Design, parts: Mapping[str, float] = PARTS) -> tuple[float, float, float]:
    n, _, k = design
    items, judges = parts["students_items"] ** 2 / n, parts["students_judges"] ** 2 / k
    rest = parts["residual"] ** 2 / (n * k)
    of_items, of_judges, both = (
        float((2 * v) ** 0.5) for v in (items + rest, judges + rest, items + judges + rest)
    )
    return of_items, of_judges, both


# --- The best design for a budget


class Bought(NamedTuple):
    """What a run of 100 items and four judges buys for as much money again, on average, and the gap that is
    detectable, as it is and with what was bought."""

    said: str
    items: float
    judges: float
    now: float
    then: float


def bought(repeats: int) -> Iterator[Bought]:
    worlds = (("views of students by 4 points", PARTS), ("by 0", {**PARTS, "students_judges": 0.0}))
    for said, parts in worlds:
        generator, prices = np.random.default_rng(4), Prices(0.01, 0.002, 0.001)
        rows = []
        for _ in range(repeats):
            errors = run_errors(grid_of(drawn(generator, Design(), parts)))
            now = designs(errors, prices)[0]
            best = best_design(errors, prices, 100 * (0.01 + 5 * (0.002 + 4 * 0.001)))
            assert best is not None
            rows.append((best.items, best.judges, points(now.detectable), points(best.detectable)))
        yield Bought(said, *np.mean(rows, axis=0).tolist())


def page(repeats: int) -> Iterator[str]:
    yield "# Where scores scatter"
    yield ""
    yield f"`python -m perf.g_study > docs/evidence/g-study.md` draws {repeats:,} runs of each kind:"
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
    yield ""
    yield "## Errors foretold"
    yield ""
    yield "The standard error of a difference between two students, in points: foretold by runs of 100 items"
    yield "and four judges, and true."
    yield ""
    yield "| items | judges | to other items | true | to other judges | true | to both | true |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in foretold(repeats):
        cells = [f"{figure:.2f}" for both in zip(row.foretold, row.true, strict=True) for figure in both]
        yield f"| {row.design.items} | {row.design.judges} | {' | '.join(cells)} |"
    yield ""
    yield "## The best use of a budget"
    yield ""
    yield "An item costs 1 cent, an answer 0.2, a judgment 0.1; as much money again as the run has cost, $4."
    yield ""
    yield "| judges' views | items more | judges more | gap detectable, points | then |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for each in bought(repeats):
        more = f"{each.items:.0f} | {each.judges:.1f}"
        yield f"| {each.said} | {more} | {each.now:.1f} | {each.then:.1f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    for line in page(parser.parse_args().repeats):
        print(line, flush=True)
