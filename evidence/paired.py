"""``python -m evidence.paired``: how often paired comparisons are right, on models whose truth is known.

Draws the scores of two models on the same items again and again: an item that is hard for one is hard for
the other. Counts how often the interval holds the true difference, how often equal models are called
different, and how often models that differ by what a comparison promised to find are found. Writes
``docs/evidence/paired-coverage.md``; seeded, so that it is the same every time (a minute).

    python -m evidence.paired                 the page as it is kept
    python -m evidence.paired --repeats 200   a quick look, on the terminal
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtr, stdtrit
from scipy.stats import beta

from coeval.analysis.comparison.paired_difference import (
    Difference,
    PairedScores,
    holm_adjust,
    paired_difference,
)
from coeval.analysis.intervals import Floats
from evidence.page import write_page

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "paired-coverage.md"
REPEATS = 1000
ITEMS = (6, 10, 20, 50, 200)
MEANS = (
    *((0.5, 0.5), (0.5, 0.6), (0.7, 0.75), (0.9, 0.95), (0.99, 0.99), (0.99, 0.97)),
    *((0.99, 0.1), (0.98, 0.02), (0.998, 0.002)),
)
LOST, NOISE = (0.03, 0.1), (0.002, 0.02)
"""Rare losses: the share of items that the second model loses whole, and what else it differs by."""
TESTED = (0.5, 0.86, 0.96)
LIKENESS = 0.6
"""Correlation of what makes an item hard for the two."""

Draw: TypeAlias = Callable[[Floats, float, np.random.Generator], Floats]


class Kind(NamedTuple):
    """``draw(luck, mean, generator)``: scores of that mean from uniform luck of the same shape."""

    said: str
    draw: Draw


class Share(NamedTuple):
    """Of the intervals, those that hold the truth, and their mean width."""

    coverage: float
    width: float


def verdicts(luck: Floats, mean: float, generator: np.random.Generator) -> Floats:
    return (luck < mean).astype(np.float64)


def judged(luck: Floats, mean: float, generator: np.random.Generator) -> Floats:
    """Six judgments of High, Medium or Low that share their item."""
    return np.asarray(generator.binomial(12, graded(luck, mean, generator)) / 12, dtype=np.float64)


def graded(luck: Floats, mean: float, generator: np.random.Generator) -> Floats:
    """Quantiles of the beta distribution, between 4,097 of them."""
    nodes = ndtr(np.linspace(-8, 8, 4097))
    return np.asarray(np.interp(luck, nodes, beta.ppf(nodes, 4 * mean, 4 * (1 - mean))), np.float64)


KINDS = (
    Kind("six judgments of an item", judged),
    Kind("one verdict, right or wrong", verdicts),
    Kind("many judgments of an item", graded),
)


def draw(
    kind: Kind, means: tuple[float, float], shape: tuple[int, ...], generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """The scores of both models."""
    hard = generator.standard_normal(shape)
    own = np.sqrt(1 - LIKENESS)
    a, b = (ndtr(np.sqrt(LIKENESS) * hard + own * generator.standard_normal(shape)) for _ in means)
    return kind.draw(a, means[0], generator), kind.draw(b, means[1], generator)


def compared(
    kind: Kind, means: tuple[float, float], items: int, *, repeats: int, tasks: int = 1, seed: int = 0
) -> list[list[Difference]]:
    """Of each repetition, the difference in each task."""
    generator = np.random.default_rng([seed, int(1e4 * means[0]), int(1e4 * means[1]), items, tasks])
    a, b = draw(kind, means, (repeats, tasks, items), generator)
    once = np.ones(items)
    return [
        [paired_difference([PairedScores(*scores, once)]) for scores in zip(*of_tasks, strict=True)]
        for of_tasks in zip(a, b, strict=True)
    ]


def coverage(kind: Kind, means: tuple[float, float], items: int, *, repeats: int) -> dict[str, Share]:
    """Of our interval, and of t's beside it."""
    truth = means[1] - means[0]
    found = [one for [one] in compared(kind, means, items, repeats=repeats)]
    generator = np.random.default_rng([0, int(1e4 * means[0]), int(1e4 * means[1]), items, 1])
    a, b = (scores[:, 0] for scores in draw(kind, means, (repeats, 1, items), generator))
    half = stdtrit(items - 1, 0.975) * (b - a).std(axis=1, ddof=1) / np.sqrt(items)
    middle = (b - a).mean(axis=1)
    return {
        "ours": _share(np.array([one.low for one in found]), np.array([one.high for one in found]), truth),
        "t": _share(middle - half, middle + half, truth),
    }


def _share(low: Floats, high: Floats, truth: float) -> Share:
    held = (low <= truth + 1e-12) & (high >= truth - 1e-12)
    return Share(float(held.mean()), float((high - low).mean()))


def false_positives(kind: Kind, mean: float, items: int, *, repeats: int) -> float:
    """How often two models of the same mean are called different."""
    found = compared(kind, (mean, mean), items, repeats=repeats)
    return float(np.mean([one.p is not None and one.p < 0.05 for [one] in found]))


def false_families(kind: Kind, mean: float, items: int, *, repeats: int, tasks: int = 5) -> float:
    """How often, after Holm, any of several tasks is called different where none is."""
    found = compared(kind, (mean, mean), items, repeats=repeats, tasks=tasks)
    return float(np.mean([min(holm_adjust([one.p or 0.0 for one in family])) < 0.05 for family in found]))


class Power(NamedTuple):
    """The difference that comparisons promise to find four times in five, and how often they find it."""

    promised: float
    found: float


def power(kind: Kind, mean: float, items: int, *, repeats: int) -> Power:
    """Of models that differ by what a run of equal ones has promised, one of them nearer to the middle of the
    scale, the share that is found; each run by its own promise."""
    pilot = compared(kind, (mean, mean), items, repeats=50, seed=1)
    promised = [one.minimum_detectable or 1.0 for [one] in pilot]
    found = [
        one.p is not None and one.p < 0.05
        for place, gap in enumerate(promised)
        for [one] in compared(
            kind, (mean, max(mean - gap, 0.001)), items, repeats=max(repeats // 50, 1), seed=2 + place
        )
    ]
    return Power(float(np.mean(promised)), float(np.mean(found)))


def rare_losses(lost: float, noise: float, items: int, *, repeats: int) -> Share:
    """Of our interval, where scores of the two differ by noise but for items that the second loses whole."""
    generator = np.random.default_rng([3, int(1e4 * lost), int(1e4 * noise), items])
    a = graded(generator.random((repeats, items)), 0.8, generator)
    near = np.clip(a + noise * generator.standard_normal(a.shape), 0.0, 1.0)
    b = np.where(generator.random(a.shape) < lost, 0.0, near)
    truth, once = (1 - lost) * float(near.mean()) - float(a.mean()), np.ones(items)
    found = [paired_difference([PairedScores(*pair, once)]) for pair in zip(a, b, strict=True)]
    return _share(np.array([one.low for one in found]), np.array([one.high for one in found]), truth)


def _rare(repeats: int) -> str:
    sizes = (20, 50, 100, 200, 500)
    lines = [
        f"| items lost whole | other differences, sd | {' | '.join(map(str, sizes))} |",
        "|---|---|" + "---|" * 5,
    ]
    for lost in LOST:
        for noise in NOISE:
            cells = (shown_share(rare_losses(lost, noise, items, repeats=repeats)) for items in sizes)
            lines.append(f"| {100 * lost:.0f}% | {noise:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


class Repeated(NamedTuple):
    """Of experiments with two equal models on items of which always so many nearly repeat each other: the
    share that calls them different, and that whose interval leaves zero out; with each item taken for
    independent evidence (``alone``), and with the group taken for it."""

    alone: float
    grouped: float
    interval: float


def repeated(kind: Kind, mean: float, items: int, *, repeats: int, each: int = 4) -> Repeated:
    """What makes an item hard is the same for all of a group; judges' errors are not."""
    generator = np.random.default_rng([1, int(1e4 * mean), items, each])
    hard, *of_models = generator.standard_normal((3, repeats, items // each))
    a, b = (
        kind.draw(
            np.repeat(ndtr(np.sqrt(LIKENESS) * hard + np.sqrt(1 - LIKENESS) * own), each, axis=1),
            mean,
            generator,
        )
        for own in of_models
    )
    clusters, once = np.arange(items) // each, np.ones(items)
    found = np.empty((repeats, 3))
    for at, (one, other) in enumerate(zip(a, b, strict=True)):
        alone = paired_difference([PairedScores(one, other, once)])
        grouped = paired_difference([PairedScores(one, other, once, clusters)])
        found[at] = (
            alone.p is not None and alone.p < 0.05,
            grouped.p is not None and grouped.p < 0.05,
            grouped.low > 0 or grouped.high < 0,
        )
    return Repeated(*found.mean(axis=0).tolist())


def _repeated(repeats: int) -> str:
    lines = ["| scores | mean | items | each item alone, p < 0.05 | groups of 4, p < 0.05 | zero left out |"]
    lines.append("|---|---|---|---|---|---|")
    for kind in KINDS:
        for mean in (0.5, 0.8):
            for items in (40, 200):
                found = repeated(kind, mean, items, repeats=5 * repeats)
                shown = " | ".join(f"{100 * share:.1f}" for share in found)
                lines.append(f"| {kind.said} | {mean} | {items} | {shown} |")
    return "\n".join(lines)


def page(repeats: int) -> str:
    """Markdown."""
    parts = [INTRODUCTION.format(repeats=f"{repeats:,}")]
    for kind in KINDS:
        lines = [f"| means | interval | {' | '.join(map(str, ITEMS))} |", "|---|---|" + "---|" * len(ITEMS)]
        for means in MEANS:
            cells = [coverage(kind, means, items, repeats=repeats) for items in ITEMS]
            for name in ("ours", "t"):
                shown = " | ".join(shown_share(cell[name]) for cell in cells)
                lines.append(
                    f"| {f'{means[0]:g}, {means[1]:g}' if name == 'ours' else ''} | {name} | {shown} |"
                )
        parts += [f"## Intervals: {kind.said}", "\n".join(lines)]
    lines = ["| scores | mean | items | equal models, p < 0.05 | any of 5 tasks, Holm | promised | found |"]
    lines.append("|---|---|---|---|---|---|---|")
    tests = [
        _tests(kind, mean, items, repeats)
        for kind in KINDS
        for mean in TESTED
        for items in (20, 50, 200, 541)
    ]
    lines += [f"| {of.kind.said} | {of.mean} | {of.items} | {_shown(of)} |" for of in tests]
    lines.append(f"| all | | | {_shown(_mean(tests))} |")
    parts += [RARE, _rare(repeats)]
    return "\n\n".join([*parts, TESTS, "\n".join(lines), REPEATED, _repeated(repeats)]) + "\n"


class _Tests(NamedTuple):
    """Shares of experiments, and the difference that was ``promised`` to be found."""

    kind: Kind
    mean: float
    items: int
    once: float
    family: float
    promised: float
    found: float


def _tests(kind: Kind, mean: float, items: int, repeats: int) -> _Tests:
    once = false_positives(kind, mean, items, repeats=repeats)
    family = false_families(kind, mean, items, repeats=repeats)
    return _Tests(kind, mean, items, once, family, *power(kind, mean, items, repeats=repeats))


def _mean(tests: list[_Tests]) -> _Tests:
    return tests[0]._replace(
        once=float(np.mean([of.once for of in tests])),
        family=float(np.mean([of.family for of in tests])),
        promised=float(np.mean([of.promised for of in tests])),
        found=float(np.mean([of.found for of in tests])),
    )


def _shown(of: _Tests) -> str:
    return f"{100 * of.once:.1f} | {100 * of.family:.1f} | {of.promised:.3f} | {100 * of.found:.1f}"


def shown_share(found: Share) -> str:
    return f"{100 * found.coverage:.1f} · {found.width:.3f}"


INTRODUCTION = """\
# Paired comparisons: coverage, false positives, power

Written by `python -m evidence.paired`, which draws the scores of two models on the same items, with known
means. Each cell is of {repeats} experiments: how many in a hundred 95% intervals hold the true difference,
and how wide they are on average. *Ours* is the interval of `coeval compare` ([how it is
made](../compare.md)), *t* the paired t interval. Columns are items.

Where both means lie at the end and items are few, these intervals hold the truth in all cases: of six items
with full marks on both sides, an interval must allow for a failure that was not drawn on either side, and is
then a third of the scale wide both ways; a true difference of 0.02 cannot fall outside. The t interval, which
allows for none, holds that difference in 18 to 88 of a hundred cases at up to 20 items, and a difference of
nothing in all of them as well, since there is nothing to see."""

RARE = """\
## Intervals: rare losses

Scores of a mean of 0.8 that differ by next to nothing, but for items that the second model loses whole.
Where three such items or more are to be expected, 90 intervals in a hundred or more hold the truth. Where
fewer are, none may have been drawn, and no interval of what was drawn can know of it: `coeval gate` allows
for an item that was not drawn."""

TESTS = """\
## Tests

In a hundred experiments: how often two models of equal skill are called different at 5%, how often after
Holm any of five tasks is, and how often models are found of which one has this mean and the other's is lower
by the `minimum_detectable` of a run of equal models (*promised*; it says 80; each run by its own promise).
Of 1,000 experiments, chance leaves ± 1.4 of a figure near 5 and ± 2.5 of one near 80; the last line is the
mean of all. McNemar's exact test keeps below 5 by its nature,
most where few items differ."""

REPEATED = """\
## Items that nearly repeat each other

Two models of equal skill on items of which always four nearly repeat each other: in a hundred experiments
(five times as many as above), how often they are called different at 5% with each item taken for independent
evidence, and with the group taken for it, as `coeval` does
([how groups are found](../measures.md#items-that-nearly-repeat-each-other)); the last column is how often the
95% interval leaves zero out."""


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "experiments of each cell")
