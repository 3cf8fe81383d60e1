"""``python -m evidence.training_coverage``: how often what is said of a training run is right.

Simulates training runs whose truth is known, six checkpoints on the same items with several samples of each,
and counts: bands that hold all true means, first better steps that come too early, corrected best scores that
hold the winner's truth, and alarms that are false. Writes
``docs/evidence/training-coverage.md``; seeded, so that it is the same every time (ten minutes).

    python -m evidence.training_coverage                 the page as it is kept
    python -m evidence.training_coverage --repeats 40    a quick look, on the terminal
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtri

from coeval.analysis.comparison.paired_difference import PairedScores, holm, paired_difference
from coeval.analysis.intervals import SHARE, Floats, Scatter, mean_bounds
from coeval.analysis.training.best_checkpoint import FEWEST, best_checkpoint
from coeval.analysis.training.checkpoint_scores import CommonItems
from coeval.analysis.training.curve_conclusions import first_better, simultaneous_bounds
from coeval.analysis.training.drift_alarms import WatchedTask, drift_alarms
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
    "falling": (0.6, 0.56, 0.52, 0.48, 0.44, 0.4),
}
"""Of the share of answers that a rule calls right; a judge sees the same skill."""
TOLD = tuple(SHAPES)[:5]
"""Those of the tables; the last one is only for alarms."""


class Design(NamedTuple):
    items: int
    samples: int

    def __str__(self) -> str:
        return f"{self.items} × {self.samples}"


DESIGNS = (Design(100, 1), Design(300, 4))
SMALL = (Design(8, 2), Design(20, 2))


class Sweep(NamedTuple):
    """What is seen of one, and the true means; both from 0 to 1."""

    scores: Floats
    truth: Floats


def sweeps(scoring: Scoring, shape: str, design: Design, *, repeats: int, seed: int = 0) -> Iterator[Sweep]:
    """Training runs of this shape."""
    generator = np.random.default_rng([seed, SCORINGS.index(scoring), list(SHAPES).index(shape), *design])
    for _ in range(repeats):
        yield drawn(scoring, SHAPES[shape], design, generator)


def drawn(
    scoring: Scoring, shape: tuple[float, ...], design: Design, generator: np.random.Generator
) -> Sweep:
    items, samples = design
    skill = skill_of(shape)
    hard = HARD * generator.standard_normal((items, 1, 1))
    own = OWN * generator.standard_normal((items, len(skill), 1))
    luck = generator.standard_normal((items, len(skill), samples))
    scores = scoring.score(skill[None, :, None] + hard + own + luck).mean(axis=2)
    return Sweep(scores, true_means(scoring, skill))


def skill_of(shares: tuple[float, ...]) -> Floats:
    return np.asarray(ndtri(np.array(shares)) * ALL, np.float64)


def true_means(scoring: Scoring, skill: Floats) -> Floats:
    """Over all items and samples there could be."""
    return np.array([_true_mean(scoring, float(one)) for one in skill])


@cache
def _true_mean(scoring: Scoring, skill: float) -> float:
    nodes = ndtri((np.arange(200_000) + 0.5) / 200_000) * ALL
    return float(scoring.score(skill + nodes).mean())


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


class Methods(NamedTuple):
    """Of ours, of the comparisons' own tests with Holm's adjustment, and of those without any."""

    ours: Firsts
    holm: Firsts
    unadjusted: Firsts


def firsts(runs: list[Sweep]) -> Methods:
    rows = []
    for scores, truth in runs:
        better = [at for at in range(1, len(truth)) if truth[at] > truth[0] + 1e-9]
        row = []
        for named in first_by_each(scores):
            wrong = named is not None and truth[named] <= truth[0] + 1e-9
            row.append([wrong, bool(better) and named == better[0], named is not None])
        rows.append(row)
    return Methods(*(Firsts(*of.tolist()) for of in np.mean(rows, axis=0)))


def first_by_each(scores: Floats) -> list[int | None]:
    """The place of the first better one among the checkpoints, by each method."""
    found = first_better(common(scores), "share")
    named = [None if found is None or found.step is None else STEPS.index(found.step)]
    once = np.ones(len(scores))
    pairs = [paired_difference([PairedScores(scores[:, 0], later, once)]) for later in scores.T[1:]]
    single = [1.0 if one.p is None else one.p for one in pairs]
    for p_values in (holm(single), single):
        better = (n for n, one in enumerate(pairs) if p_values[n] < 0.05 and one.difference > 0)
        first = next(better, None)
        named.append(None if first is None else first + 1)
    return named


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
        assert found.corrected is not None
        assert found.ci95 is not None
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


def page(repeats: int) -> str:
    """Markdown."""
    parts = [INTRODUCTION.format(repeats=f"{repeats:,}", designs=", ".join(map(str, DESIGNS)))]
    cells = [
        (scoring, design, shape, list(sweeps(scoring, shape, design, repeats=repeats)))
        for scoring in SCORINGS
        for design in DESIGNS
        for shape in TOLD
    ]
    where = [f"| {scoring.said} | {design} | {shape} |" for scoring, design, shape, _ in cells]
    held = [bands(runs) for *_, runs in cells]
    parts += [BANDS, _table(_BANDS, where, [*map(of_bands, [*held, Bands(*_mean(held))])])]
    named = [firsts(runs) for *_, runs in cells]
    whole = Methods(*(Firsts(*_mean([of[at] for of in named])) for at in range(3)))
    parts += [FIRST, _table(_FIRST, where, [*map(of_firsts, [*named, whole])])]
    won = [best(runs) for *_, runs in cells]
    parts += [BEST, _table(_BEST, where, [*map(of_best, [*won, Best(*_mean(won))])])]
    lines = ["| training | items × samples | rules fall | answers grow |", "|---|---|---|---|"]
    for training in TRAININGS:
        for design in DESIGNS:
            reported = alarms(training, design, repeats=repeats)
            lines.append(f"| {training.said} | {design} | {' | '.join(map(percent, reported))} |")
    return "\n\n".join([*parts, ALARMS, "\n".join(lines), FEW, few_items(repeats)]) + "\n"


def few_items(repeats: int) -> str:
    """The table of trials with few items."""
    where, shown = [], []
    for scoring in SCORINGS:
        for design in SMALL:
            for shape in TOLD:
                runs = list(sweeps(scoring, shape, design, repeats=repeats))
                won = ["not told"] * len(_BEST) if design.items < FEWEST else [of_best(best(runs))]
                where.append(f"| {scoring.said} | {design} | {shape} |")
                shown.append(" | ".join([of_bands(bands(runs)), *won]))
    lines = [
        f"| scores | items × samples | shape | {' | '.join([*_BANDS, *_BEST])} |",
        "|---|---|---|" + "---|" * (len(_BANDS) + len(_BEST)),
    ]
    lines += [f"{place} {figures} |" for place, figures in zip(where, shown, strict=True)]
    return "\n".join(lines)


_BANDS = ("all six truths in the band", "in the six 95% intervals", "width", "width of those")
_FIRST = (
    "too early",
    "the first one",
    "any",
    "Holm: too early",
    "the first one",
    "any",
    "unadjusted: too early",
)
_BEST = (
    "corrected interval holds it",
    "usual one",
    "corrected too high by",
    "usual too high by",
    "corrected is too high",
    "width",
    "usual width",
)


def _mean(rows: Sequence[tuple[float, ...]]) -> list[float]:
    return [float(value) for value in np.mean(rows, axis=0)]


def _table(headings: tuple[str, ...], where: list[str], shown: list[str]) -> str:
    """``shown`` has a row more than there are places: the mean of all."""
    lines = [
        f"| scores | items × samples | shape | {' | '.join(headings)} |",
        "|---|---|---|" + "---|" * len(headings),
    ]
    places = [*where, "| all | | |"]
    lines += [f"{place} {figures} |" for place, figures in zip(places, shown, strict=True)]
    return "\n".join(lines)


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def of_bands(found: Bands) -> str:
    shares = map(percent, (found.simultaneous, found.pointwise))
    return " | ".join([*shares, f"{found.width:.3f}", f"{found.pointwise_width:.3f}"])


def of_firsts(found: Methods) -> str:
    return " | ".join(map(percent, [*found.ours, *found.holm, found.unadjusted.too_early]))


def of_best(found: Best) -> str:
    shown = [*map(percent, (found.corrected, found.usual)), f"{found.bias:+.4f}", f"{found.usual_bias:+.4f}"]
    return " | ".join([*shown, percent(found.above), f"{found.width:.3f}", f"{found.usual_width:.3f}"])


INTRODUCTION = """\
# Training runs: coverage, false alarms, power

Written by `python -m evidence.training_coverage`, which simulates training runs whose truth is known: six
checkpoints, on the same items, with several samples of each ({designs}), scored by rules or by a judge, each
cell of {repeats} runs: a figure of 95 has itself a standard error of 1.1. An item that is hard is hard for
all checkpoints. Figures are percentages of runs, but for widths and differences, which are on a scale from 0
to 1. [training-runs.md](training-runs.md) says how the figures are made."""

BANDS = """\
## Bands

How often the simultaneous band holds all six true means, and how often six pointwise 95% intervals do."""

FIRST = """\
## The first better checkpoint

*Too early*: a checkpoint is named that is no better than the base in truth. *The first one*: the first that
is better in truth is named; *any*: some checkpoint is. Beside it, the same by the comparisons' own tests with
Holm's adjustment, and how often it is too early without any. Where every step is a little better than the one
before, naming one of the later ones is no error."""

BEST = """\
## The best checkpoint

How often the interval holds the true mean of the checkpoint that was best by its scores: with the luck of the
winner taken off, and the usual interval. How much too high both scores are on average, and how often the
corrected one is (50: as often as too low)."""

ALARMS = """\
## Alarms

How often each is given. An alarm needs both of its halves: where one is missing, it is false."""


FEW = f"""\
## Few items

Bands and the best checkpoint as above, of trials with few items. With fewer than {FEWEST},
it is not told what of the best one's score is luck."""


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "runs of each kind")
