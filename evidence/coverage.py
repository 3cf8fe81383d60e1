"""``python -m evidence.coverage``: how often intervals hold the true mean, and how wide they are.

Draws the scores of items again and again from distributions whose mean is known, and counts. Beside the
intervals of the result table stand the two that one would take otherwise: t, and Wilson's with the effective
sample size. Writes ``docs/evidence/coverage.md``; seeded, so that it is the same every time (a few minutes).

    python -m evidence.coverage                 the page as it is kept
    python -m evidence.coverage --repeats 200   a quick look, on the terminal
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import stdtrit

from coeval.analysis.intervals import Bounds, Floats, mean_over_strata
from evidence.page import write_page

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "coverage.md"
REPEATS = 2000
MEANS = (0.5, 0.7, 0.9, 0.95, 0.98, 0.992, 0.999)
ITEMS = (4, 6, 10, 20, 50, 100)
TASKS = (1, 4)

Draw: TypeAlias = Callable[[float, tuple[int, ...], np.random.Generator], Floats]
Method: TypeAlias = Callable[[Sequence[Floats]], Bounds]


class Truth(NamedTuple):
    """A distribution of items' scores: ``draw(mean, shape, generator)``."""

    said: str
    draw: Draw


class Found(NamedTuple):
    """Share of the intervals that hold the true mean, and their mean width."""

    coverage: float
    width: float


Cell: TypeAlias = tuple[str, str, float, int, int]
"""Truth, method, mean, tasks, items of each."""


def yes_or_no(mean: float, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    return (generator.random(shape) < mean).astype(np.float64)


def levels(mean: float, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    """High, Medium or Low from each of two judges for each of three factors: six that share their item."""
    given = generator.binomial(2, _graded(mean, (*shape, 1), generator), (*shape, 6)) / 2
    return np.asarray(given.mean(axis=-1), dtype=np.float64)


def fine(mean: float, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    """As many judgments as one likes; skewed towards the far end where the mean is near one."""
    return _graded(mean, shape, generator)


def rare_failures(mean: float, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    """Full marks, or a quarter of them."""
    return np.where(generator.random(shape) < (1 - mean) / 0.75, 0.25, 1.0)


def much_alike(mean: float, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    """Standard deviation 0.1 at a mean of 0.5."""
    return generator.beta(24 * mean, 24 * (1 - mean), shape)


def _graded(mean: float, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    return generator.beta(4 * mean, 4 * (1 - mean), shape)


SIX = Truth("six judgments of an item", levels)
TRUTHS = (
    SIX,
    Truth("one verdict, right or wrong", yes_or_no),
    Truth("many judgments of an item", fine),
    Truth("rare failures", rare_failures),
    Truth("items much alike", much_alike),
)


def ours(tasks: Sequence[Floats]) -> Bounds:
    """The interval of the result table."""
    interval = mean_over_strata(tasks)
    assert interval.low is not None
    assert interval.high is not None
    return Bounds(interval.low, interval.high)


def t_interval(tasks: Sequence[Floats]) -> Bounds:
    """Mean ± t · SE with Satterthwaite's (1946) degrees of freedom, cut at the ends of the scale."""
    mean = float(np.mean([scores.mean() for scores in tasks]))
    parts = np.array([scores.var(ddof=1) / len(scores) for scores in tasks]) / len(tasks) ** 2
    freedom = np.array([len(scores) - 1 for scores in tasks])
    if not parts.any():
        return Bounds(mean, mean)
    degrees = parts.sum() ** 2 / np.sum(parts**2 / freedom)
    half = float(np.sqrt(parts.sum()) * stdtrit(degrees, 0.975))
    return Bounds(max(mean - half, 0.0), min(mean + half, 1.0))


def wilson_effective(scores: Floats) -> Bounds:
    """Wilson's interval with ``n_eff = m(1 − m)/v`` (n where v = 0), and t of n − 1 for z."""
    n, mean = len(scores), float(scores.mean())
    variance = float(scores.var(ddof=1)) / n
    effective = mean * (1 - mean) / variance if variance > 1e-15 else n  # less is rounding
    t = float(stdtrit(n - 1, 0.975))
    centre = (mean + t**2 / (2 * effective)) / (1 + t**2 / effective)
    half = t * np.sqrt(mean * (1 - mean) / effective + (t / (2 * effective)) ** 2) / (1 + t**2 / effective)
    return Bounds(min(float(centre - half), mean), max(float(centre + half), mean))


def wilson_mover(tasks: Sequence[Floats]) -> Bounds:
    """The mean over tasks by MOVER: ``L = m − √Σ(m_t − l_t)²/T``, U likewise (Zou and Donner 2008)."""
    means = np.array([scores.mean() for scores in tasks])
    parts = np.array([wilson_effective(scores) for scores in tasks])
    down, up = np.sqrt(np.sum((means[:, None] - parts) ** 2, axis=0)) / len(tasks)
    return Bounds(float(means.mean() - down), float(means.mean() + up))


METHODS: dict[str, Method] = {"ours": ours, "Wilson": wilson_mover, "t": t_interval}


def simulate(
    truth: Truth, mean: float, tasks: int, items: int, *, repeats: int, seed: int = 0
) -> dict[str, Found]:
    """Every method on the same draws."""
    generator = np.random.default_rng([seed, int(1000 * mean), tasks, items])
    drawn = truth.draw(mean, (repeats, tasks, items), generator)
    found = {}
    for name, method in METHODS.items():
        low, high = np.array([method(list(each)) for each in drawn]).T
        held = (low <= mean + 1e-12) & (high >= mean - 1e-12)
        found[name] = Found(float(held.mean()), float((high - low).mean()))
    return found


def grid(repeats: int) -> dict[Cell, Found]:
    """Every truth, mean, number of tasks and of items."""
    found: dict[Cell, Found] = {}
    for truth in TRUTHS:
        for tasks in TASKS:
            for mean in MEANS:
                for items in ITEMS:
                    cell = simulate(truth, mean, tasks, items, repeats=repeats)
                    found |= {(truth.said, name, mean, tasks, items): of for name, of in cell.items()}
    return found


def page(found: dict[Cell, Found], repeats: int) -> str:
    """Markdown."""
    parts = [INTRODUCTION.format(repeats=f"{repeats:,}")]
    for tasks, heading in ((1, "One task"), (4, "Four tasks, the mean of their means")):
        parts += [f"## {heading}, {SIX.said}", _by_mean(found, tasks)]
    parts += ["## All distributions", SUMMARY, _by_truth(found)]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """# Coverage and width of the intervals

Written by `python -m evidence.coverage`, which draws items' scores from distributions whose mean is known.
Each cell is of {repeats} draws: how many in a hundred 95% intervals hold the true mean, and how wide they are
on average. *Ours* is the interval of the result table ([how it is made](intervals.md)); *Wilson* is Wilson's
with the effective sample size, over tasks by MOVER; *t* is mean ± t · SE, cut at the ends of the scale.
Columns are items of each task."""

SUMMARY = """\
Over all means and numbers of items of the tables above: the lowest and the mean coverage, and the
mean width where the mean is at most 0.7, and above. Few items with one verdict each, or with either of two
scores, have so few possible means that no interval comes near 95 in every cell."""


def shown_cell(found: Found) -> str:
    return f"{100 * found.coverage:.1f} · {found.width:.3f}"


def _by_mean(found: dict[Cell, Found], tasks: int) -> str:
    lines = [
        f"| mean | interval | {' | '.join(f'{items}' for items in ITEMS)} |",
        "|---|---|" + "---|" * len(ITEMS),
    ]
    for mean in MEANS:
        for name in METHODS:
            cells = [found[SIX.said, name, mean, tasks, items] for items in ITEMS]
            shown = " | ".join(map(shown_cell, cells))
            lines.append(f"| {mean if name == 'ours' else ''} | {name} | {shown} |")
    return "\n".join(lines)


def _by_truth(found: dict[Cell, Found]) -> str:
    lines = [
        "| scores | tasks | interval | lowest | mean | width ≤ 0.7 | width > 0.7 |",
        "|---|---|---|---|---|---|---|",
    ]
    for truth in TRUTHS:
        for tasks in TASKS:
            for name in METHODS:
                cells = {cell[2:]: of for cell, of in found.items() if cell[:2] == (truth.said, name)}
                of_tasks = [(mean, of) for (mean, count, _), of in cells.items() if count == tasks]
                coverage = [100 * of.coverage for _, of in of_tasks]
                middle = np.mean([of.width for mean, of in of_tasks if mean <= 0.7])
                ends = np.mean([of.width for mean, of in of_tasks if mean > 0.7])
                first = (truth.said, str(tasks)) if name == "ours" else ("", "")
                figures = (f"{min(coverage):.1f}", f"{np.mean(coverage):.1f}", f"{middle:.3f}", f"{ends:.3f}")
                lines.append(f"| {' | '.join((*first, name, *figures))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    write_page(lambda repeats: page(grid(repeats), repeats), PAGE, REPEATS, __doc__, "draws of each cell")
