"""``python -m evidence.training_coverage``: how often what is said of a training run is right.

Simulates training runs whose truth is known, six checkpoints on the same items with several samples of each,
and counts: first better steps that come too early, and checkpoints that are called worse than the shipped one
though they are as good. Writes ``docs/evidence/training-coverage.md``; seeded, so that it is the same every
time (three minutes).

    python -m evidence.training_coverage                 the page as it is kept
    python -m evidence.training_coverage --repeats 40    a quick look, on the terminal
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtri

from coeval.analysis.intervals import SHARE, Floats
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.sweep_comparison import choose_best_checkpoint
from coeval.analysis.training.training_curves import CheckpointMatrix, TrainedCheckpoint, find_first_better
from evidence.page import write_page

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "training-coverage.md"
REPEATS = 400
STEPS = (100, 200, 300, 400, 500, 600)
HARD, OWN = 1.0, 0.5
"""Standard deviations of what makes an item hard at all checkpoints, and at one of them, beside the 1 of what
differs between samples."""
ALL = float(np.sqrt(1 + HARD**2 + OWN**2))

Score: TypeAlias = Callable[[Floats], Floats]


class Scoring(NamedTuple):
    """``score(quality)``: what an answer is given, from 0 to 1."""

    said: str
    score: Score


def by_rule(quality: Floats) -> Floats:
    return (quality > 0).astype(np.float64)


def by_judge(quality: Floats) -> Floats:
    """Whole points from 1 to 10."""
    return np.asarray((np.clip(np.rint(5.5 + 2 * quality), 1, 10) - 1) / 9, np.float64)


RULE, JUDGE = Scoring("by rule, right or wrong", by_rule), Scoring("judged, 1 to 10 points", by_judge)
SCORINGS = (RULE, JUDGE)

SHAPES: dict[str, tuple[float, ...]] = {
    "flat": (0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
    "rising": (0.4, 0.44, 0.48, 0.52, 0.56, 0.6),
    "rising, then falling": (0.4, 0.46, 0.52, 0.52, 0.46, 0.4),
    "a step at 400": (0.5, 0.5, 0.5, 0.58, 0.58, 0.58),
    "near the end, a step at 400": (0.95, 0.95, 0.95, 0.98, 0.98, 0.98),
}
"""Of the share of answers that a rule calls right; a judge sees the same skill."""


class Design(NamedTuple):
    items: int
    samples: int

    def __str__(self) -> str:
        return f"{self.items} × {self.samples}"


DESIGNS = (Design(20, 2), Design(100, 1), Design(300, 4))


class Sweep(NamedTuple):
    """What is seen of one, and the true means; both from 0 to 1."""

    scores: Floats
    truth: Floats


def sweeps(scoring: Scoring, shape: str, design: Design, *, repeats: int) -> Iterator[Sweep]:
    """Training runs of this shape."""
    generator = np.random.default_rng([SCORINGS.index(scoring), list(SHAPES).index(shape), *design])
    skill = np.asarray(ndtri(np.array(SHAPES[shape])) * ALL, np.float64)
    items, samples = design
    for _ in range(repeats):
        hard = HARD * generator.standard_normal((items, 1, 1))
        own = OWN * generator.standard_normal((items, len(skill), 1))
        luck = generator.standard_normal((items, len(skill), samples))
        scores = scoring.score(skill[None, :, None] + hard + own + luck).mean(axis=2)
        yield Sweep(scores, np.array([_true_mean(scoring, float(one)) for one in skill]))


@cache
def _true_mean(scoring: Scoring, skill: float) -> float:
    """Over all items and samples there could be."""
    nodes = ndtri((np.arange(200_000) + 0.5) / 200_000) * ALL
    return float(scoring.score(skill + nodes).mean())


class Rates(NamedTuple):
    """Shares of training runs. *First better*: a step is named that is no better in truth; the first better
    one is named; any is. *Shipped*: one that is as good or better is called worse; the best in truth is the
    shipped one or tied with it; and how many are tied, on average."""

    too_early: float
    exact: float
    found: float
    wrong: float
    holds_best: float
    tied: float


def rates(runs: list[Sweep]) -> Rates:
    rows = []
    for scores, truth in runs:
        first = find_first_better(CommonItems("score", "share", STEPS, scores, SHARE, ()))
        assert first is not None
        named = None if first.step is None else STEPS.index(first.step)
        better = [at for at in range(1, len(truth)) if truth[at] > truth[0] + 1e-9]
        checkpoints = tuple(TrainedCheckpoint("run", step) for step in STEPS)
        chosen = choose_best_checkpoint(
            CheckpointMatrix("task", "score", "share", checkpoints, (scores,), SHARE)
        )
        assert chosen is not None
        kept = [STEPS.index(one.step) for one in (chosen.best, *chosen.peers)]
        lost = [at for at in range(len(truth)) if at not in kept]
        rows.append(
            [
                named is not None and named not in better,
                bool(better) and named == better[0],
                named is not None,
                any(truth[at] >= truth[kept[0]] - 1e-9 for at in lost),
                any(truth[at] >= truth.max() - 1e-9 for at in kept),
                len(chosen.peers),
            ]
        )
    return Rates(*np.mean(rows, axis=0).tolist())


def page(repeats: int) -> str:
    """Markdown."""
    lines = [
        f"| scores | items × samples | shape | {' | '.join(_HEADINGS)} |",
        "|---|---|---|" + "---|" * len(_HEADINGS),
    ]
    for scoring in SCORINGS:
        for design in DESIGNS:
            for shape in SHAPES:
                found = rates(list(sweeps(scoring, shape, design, repeats=repeats)))
                lines.append(f"| {scoring.said} | {design} | {shape} | {cells(found)} |")
    designs = ", ".join(map(str, DESIGNS))
    return INTRODUCTION.format(repeats=f"{repeats:,}", designs=designs) + "\n\n" + "\n".join(lines) + "\n"


_HEADINGS = ("too early", "the first one", "any", "wrongly worse", "best kept", "tied")


def cells(found: Rates) -> str:
    return " | ".join([*(f"{100 * share:.1f}" for share in found[:-1]), f"{found.tied:.1f}"])


INTRODUCTION = """\
# Training runs: false claims, power

Written by `python -m evidence.training_coverage`, which simulates training runs whose truth is known: six
checkpoints, on the same items, with several samples of each ({designs}), scored by rules or by a
judge. Each cell has {repeats} runs: a figure of 5 has itself a standard error of 1.1. An item that is hard
is hard for all checkpoints. Figures are percentages of runs, but for *tied*, the mean number of checkpoints
tied with the shipped one. [training-runs.md](../training-runs.md) says how the figures are made.

*The first better checkpoint.* *Too early*: a checkpoint is named that is no better than the base in truth.
*The first one*: the first that is better in truth is named; *any*: some checkpoint is. If every step is a
little better than the one before, naming a later one is no error.

*The shipped checkpoint.* *Wrongly worse*: some checkpoint that is as good as the shipped one in truth, or
better, is called significantly worse. *Best kept*: the best in truth is shipped or tied with it."""


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "runs of each kind")
