"""``python -m perf.training_coverage``: how often what is said of a training run is right.

Simulates training runs whose truth is known, six checkpoints on the same items with several samples of each,
and counts: bands that hold all true means, first better steps that come too early, corrected best scores that
hold the winner's truth, stop signals and alarms that are false. Writes ``docs/training-coverage.md``; seeded,
so that it is the same every time (some ten minutes).

    python -m perf.training_coverage                 the page as it is kept
    python -m perf.training_coverage --repeats 40    a quick look, on the terminal
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from coeval.analysis.comparison.multiplicity import holm
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import SHARE, Floats, Scatter, mean_bounds
from coeval.analysis.training.best_checkpoint import best_checkpoint
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.drift_alarms import WatchedTask, drift_alarms
from coeval.analysis.training.first_better import first_better
from coeval.analysis.training.simultaneous_bands import simultaneous_bounds
from coeval.analysis.training.stop_signal import stop_signal

PAGE = Path(__file__).parents[1] / "docs" / "training-coverage.md"
REPEATS = 400
STEPS = (100, 200, 300, 400, 500, 600)
HARD, OWN = 1.0, 0.5
"""Standard deviations of what makes an item hard at all checkpoints, and at one of them, beside the 1 of what
differs between samples."""

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


DESIGNS = (Design(100, 1), Design(300, 4), Design(541, 8))


class Sweep(NamedTuple):
    """What is seen of one, and the true means; both from 0 to 1."""

    scores: Floats
    truth: Floats


def sweeps(
    scoring: Scoring, shape: str, design: Design, *, repeats: int, seed: int = 0
) -> Iterator[Sweep]:
    """Training runs of this shape."""
    generator = np.random.default_rng([seed, SCORINGS.index(scoring), list(SHAPES).index(shape), *design])
    skill = ndtri(np.array(SHAPES[shape])) * np.sqrt(1 + HARD**2 + OWN**2)
    truth = true_means(scoring, skill)
    items, samples = design
    for _ in range(repeats):
        hard = HARD * generator.standard_normal((items, 1, 1))
        own = OWN * generator.standard_normal((items, len(skill), 1))
        luck = generator.standard_normal((items, len(skill), samples))
        yield Sweep(scoring.score(skill[None, :, None] + hard + own + luck).mean(axis=2), truth)


def true_means(scoring: Scoring, skill: Floats) -> Floats:
    """Over all items and samples there could be."""
    nodes = ndtri((np.arange(200_000) + 0.5) / 200_000) * np.sqrt(1 + HARD**2 + OWN**2)
    return np.array([scoring.score(one + nodes).mean() for one in skill])


def common(scores: Floats, characters: Floats | None = None) -> CommonItems:
    lengths = np.full(scores.shape, np.nan) if characters is None else characters
    return CommonItems(STEPS, scores, lengths, SHARE, ())


class Bands(NamedTuple):
    """Shares of runs whose six intervals hold all six truths, and the mean widths."""

    simultaneous: float
    pointwise: float
    width: float
    pointwise_width: float


def bands(runs: list[Sweep]) -> Bands:
    rows = []
    for scores, truth in runs:
        means = scores.mean(axis=0)
        squares = ((scores - means) ** 2).sum(axis=0)
        alone = [mean_bounds(m, [Scatter(len(scores), s)]) for m, s in zip(means, squares, strict=True)]
        found = [np.array(each) for each in (simultaneous_bounds(scores), alone)]
        held = [bool(((low <= truth) & (truth <= high)).all()) for low, high in (each.T for each in found)]
        rows.append([*held, *(float((each[:, 1] - each[:, 0]).mean()) for each in found)])
    return Bands(*np.mean(rows, axis=0).tolist())


class Firsts(NamedTuple):
    """Shares of runs: a step is named that is no better in truth; the first better one is named; any is."""

    too_early: float
    exact: float
    found: float


def firsts(runs: list[Sweep], method: Callable[[Floats], int | None]) -> Firsts:
    """``method``: the place of the first better one among the checkpoints."""
    rows = []
    for scores, truth in runs:
        better = [at for at in range(1, len(truth)) if truth[at] > truth[0] + 1e-9]
        named = method(scores)
        wrong = named is not None and not (truth[named] > truth[0] + 1e-9)
        rows.append([wrong, bool(better) and named == better[0], named is not None])
    return Firsts(*np.mean(rows, axis=0).tolist())


def ours(scores: Floats) -> int | None:
    found = first_better(common(scores), "share")
    return None if found is None or found.step is None else STEPS.index(found.step)


def by_holm(scores: Floats) -> int | None:
    """The comparisons' own tests, adjusted by Holm."""
    once = np.ones(len(scores))
    pairs = [paired_difference([PairedScores(scores[:, 0], later, once)]) for later in scores.T[1:]]
    adjusted = holm([1.0 if one.p is None else one.p for one in pairs])
    named = (n for n, one in enumerate(pairs, 1) if adjusted[n - 1] < 0.05 and one.difference > 0)
    return next(named, None)


def unadjusted(scores: Floats) -> int | None:
    once = np.ones(len(scores))
    for n, later in enumerate(scores.T[1:], 1):
        one = paired_difference([PairedScores(scores[:, 0], later, once)])
        if one.p is not None and one.p < 0.05 and one.difference > 0:
            return n
    return None


class Best(NamedTuple):
    """Shares of runs whose interval holds the winner's truth: the corrected one, and the usual one; how much
    too high the estimates are on average; the share of corrected estimates that are too high; widths."""

    corrected: float
    usual: float
    bias: float
    usual_bias: float
    above: float
    width: float
    usual_width: float


def best(runs: list[Sweep]) -> Best:
    rows = []
    for scores, truth in runs:
        found = best_checkpoint(common(scores), "share")
        assert found is not None
        at = STEPS.index(found.step)
        squares = float(((scores[:, at] - found.mean) ** 2).sum())
        low, high = mean_bounds(found.mean, [Scatter(len(scores), squares)])
        true = truth[at]
        rows.append(
            [
                found.ci95[0] <= true <= found.ci95[1],
                low <= true <= high,
                found.corrected - true,
                found.mean - true,
                found.corrected > true,
                found.ci95[1] - found.ci95[0],
                high - low,
            ]
        )
    return Best(*np.mean(rows, axis=0).tolist())


class Stops(NamedTuple):
    """How often the signal is given."""

    given: float
    detectable: float


def stops(runs: list[Sweep]) -> Stops:
    found = [stop for scores, _ in runs if (stop := stop_signal(common(scores), "share")) is not None]
    return Stops(
        float(np.mean([stop.stop for stop in found])), float(np.mean([stop.detectable for stop in found]))
    )


def stops_at_the_detectable(scoring: Scoring, design: Design, *, repeats: int) -> Stops:
    """Of runs whose last checkpoint gains just what one comparison can find."""
    pilot = stops(list(sweeps(scoring, "flat", design, repeats=20, seed=1)))
    name = f"flat, then {pilot.detectable:.4f}"
    gained = 0.5 + (pilot.detectable if scoring is RULE else _rule_gain(scoring, pilot.detectable))
    SHAPES[name] = (0.5, 0.5, 0.5, 0.5, 0.5, gained)
    return stops(list(sweeps(scoring, name, design, repeats=repeats)))


def _rule_gain(scoring: Scoring, gain: float) -> float:
    """By how much the share of right answers rises where the mean of this scoring rises by ``gain``."""
    low, high = 0.0, 0.45
    middle = true_means(scoring, np.zeros(1))[0]
    for _ in range(30):
        half = (low + high) / 2
        skill = ndtri(np.array([0.5 + half])) * np.sqrt(1 + HARD**2 + OWN**2)
        low, high = (half, high) if true_means(scoring, skill)[0] - middle < gain else (low, half)
    return (low + high) / 2


class Training(NamedTuple):
    """Of a judged task, of one by rule, and by what share the judged answers grow over the six."""

    said: str
    judged: str
    rule: str
    growth: float


TRAININGS = (
    Training("nothing changes", "flat", "flat", 0.0),
    Training("both get better", "rising", "rising", 0.0),
    Training("judged flat, rules fall", "flat", "falling", 0.0),
    Training("judged rises, rules flat", "rising", "flat", 0.0),
    Training("judged rises, rules fall", "rising", "falling", 0.0),
    Training("judged rises, answers grow by 5 %", "rising", "flat", 0.05),
    Training("judged rises, answers grow by 30 %", "rising", "flat", 0.3),
    Training("judged flat, answers grow by 30 %", "flat", "flat", 0.3),
)
SHAPES["falling"] = SHAPES["rising"][::-1]


class Alarms(NamedTuple):
    rules_fall: float
    answers_grow: float


def alarms(training: Training, design: Design, *, repeats: int) -> Alarms:
    """Shares of runs in which each is given."""
    generator = np.random.default_rng([7, TRAININGS.index(training), *design])
    judged = sweeps(JUDGE, training.judged, design, repeats=repeats, seed=2)
    rule = sweeps(RULE, training.rule, design, repeats=repeats, seed=3)
    growth = (1 + training.growth) ** (np.arange(len(STEPS)) / (len(STEPS) - 1))
    rows = []
    for of_judge, of_rule in zip(judged, rule, strict=True):
        long = np.exp(6 + 0.6 * generator.standard_normal((design.items, 1)))
        own = np.exp(0.3 * generator.standard_normal((design.items, len(STEPS), design.samples)))
        characters = (long[:, :, None] * own).mean(axis=2) * growth
        found = drift_alarms(
            [
                WatchedTask("judged", "points", True, common(of_judge.scores, characters)),
                WatchedTask("by rule", "share", False, common(of_rule.scores)),
            ]
        )
        kinds = {alarm.kind for alarm in found}
        rows.append(["rules fall" in kinds, "answers grow" in kinds])
    return Alarms(*np.mean(rows, axis=0).tolist())
