"""``python -m evidence.leaning``: how often a judge that leans is named, and how often an honest one is.

Draws runs in which it is known who leans on what, and counts. Judges err by 0.1 on each answer, and see each
student (or each family) higher or lower than the others do, at random: that is scatter, and no favour.

    python -m evidence.leaning > docs/evidence/leaning.md
    python -m evidence.leaning --repeats 100
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.compute import position_bias_between_items, position_bias_within_items
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.panel.bias_ledger import (
    FamilyBias,
    LengthContrast,
    adjust_biases_by_judge,
    judge_length_contrast_sentences,
    judge_pair_contrasts,
)
from coeval.analysis.panel.panel_reading import estimate_biases_by_judge, model_families, model_family

# Runs of each kind: a share of 5% is known to ±1.4 points.
REPEATS = 1000
FACTORS = 2
TIE, STEEP = 0.06, 8.0
"""Pairwise judges: what difference is a tie, and how steep a preference is."""


class Planted(NamedTuple):
    """What a judge adds to what it sees: for its family, for itself, for each doubling of the length."""

    severity: float = 0.0
    noise: float = 0.1
    family: float = 0.0
    own: float = 0.0
    length: float = 0.0


class Simulated(NamedTuple):
    grid: ScoreGrid
    lengths: Floats


class Scatter(NamedTuple):
    """The standard deviations of what each judge adds to each student, and to each family."""

    students: float = 0.0
    families: float = 0.0


STUDENTS = {"kin-1": 0.85, "two-1": 0.6, "three-1": 0.35, "kin-2": 0.7, "four-1": 0.5}
SIX = {"kin-1": 0.75, "two-1": 0.6, "three-1": 0.35, "four-1": 0.5, "five-1": 0.65, "six-1": 0.45}
TWELVE = {**SIX, **{name.replace("1", "2"): 1.05 - skill for name, skill in SIX.items()}}
THREE_FAMILIES = {name: skill for name, skill in TWELVE.items() if name.startswith(("kin", "two", "three"))}
STRICT_AND_MILD = {"kin-judge": Planted(0.1), "two-judge": Planted(), "three-judge": Planted(-0.1)}
FOUR_JUDGES = {**STRICT_AND_MILD, "no-judge": Planted()}
SIX_JUDGES = {f"{name.removesuffix('-1')}-judge": Planted() for name in SIX}
THEMSELVES = {"a-1": 0.6, "b-1": 0.5, "c-1": 0.7, "d-1": 0.4, "e-1": 0.55}
# What adds some 15 points to a score: near the middle of the scale a level is worth as much.
FIFTEEN = 0.15


class World(NamedTuple):
    """``leaning``: who leans, if anybody, on ``bias``."""

    said: str
    bias: str
    leaning: str | None
    judges: Mapping[str, Planted]
    students: Mapping[str, float]
    scatter: Scatter = Scatter()
    items: int = 100


def _with(judges: Mapping[str, Planted], **leaning: Planted) -> dict[str, Planted]:
    return {**judges, **{name.replace("_", "-"): planted for name, planted in leaning.items()}}


SOME, MORE, BY_FAMILY = Scatter(0.05), Scatter(0.1), Scatter(families=0.07)
KIND_OF_SIX = _with(SIX_JUDGES, two_judge=Planted(family=FIFTEEN))
KIND_OF_THREE = _with(STRICT_AND_MILD, two_judge=Planted(family=FIFTEEN))
KIN_SCATTER = World("scatter 0.1", "family", None, SIX_JUDGES, SIX, MORE)
STRICT = World("different strictness, no scatter", "family", None, STRICT_AND_MILD, STUDENTS, items=50)
KIND = World("0.15 for its family, no scatter", "family", "two-judge", KIND_OF_THREE, STUDENTS)
THREE = World("0.15 for its family, no scatter", "family", "two-judge", KIND_OF_THREE, THREE_FAMILIES)
VAIN = World(
    "0.2 for itself, no scatter",
    "self",
    "a-1",
    {"a-1": Planted(own=0.2), "b-1": Planted(0.1), "c-1": Planted(-0.1)},
    THEMSELVES,
)
WORLDS = (
    STRICT,
    World("scatter 0.05", "family", None, STRICT_AND_MILD, SIX, SOME),
    World("scatter 0.1", "family", None, STRICT_AND_MILD, SIX, MORE),
    World("scatter 0.05", "family", None, SIX_JUDGES, SIX, SOME),
    KIN_SCATTER,
    World("scatter 0.1", "family", None, FOUR_JUDGES, THREE_FAMILIES, MORE),
    World("scatter 0.1", "family", None, STRICT_AND_MILD, THREE_FAMILIES, MORE),
    World("scatter of families 0.07", "family", None, SIX_JUDGES, TWELVE, BY_FAMILY),
    World("scatter 0.05", "self", None, dict.fromkeys(("a-1", "b-1", "c-1"), Planted()), THEMSELVES, SOME),
    KIND,
    World("0.15 for its family, scatter 0.05", "family", "two-judge", KIND_OF_THREE, SIX, SOME),
    THREE,
    World("0.15 for its family, no scatter", "family", "two-judge", KIND_OF_SIX, SIX),
    World("0.15 for its family, scatter 0.05", "family", "two-judge", KIND_OF_SIX, SIX, SOME),
    World("0.15 for its family, scatter 0.05", "family", "two-judge", KIND_OF_SIX, TWELVE, SOME),
    VAIN,
)


class Named(NamedTuple):
    """Of so many runs: in which the judge that leans is named, None where there is none; how often an honest
    one is, on average over them; in which any honest one is; what the judge that leans gives on average."""

    leaning: float | None
    honest: float
    any_honest: float
    value: float | None


def simulate(
    judges: Mapping[str, Planted],
    items: int,
    seed: int,
    students: Mapping[str, float] = STUDENTS,
    scatter: Scatter | None = None,
) -> Simulated:
    """The simulated models of this package, as arrays: quality less severity, plus error and leaning."""
    generator = np.random.default_rng(seed)
    names = sorted(students)
    skills = np.array([students[name] for name in names])
    hard = generator.normal(0, 0.2, (items, 1))
    quality = np.clip(skills + hard + generator.normal(0, 0.1, (items, len(names))), 0, 1)
    doublings = generator.normal(8, 0.7, quality.shape)
    _, family = np.unique([model_family(name) for name in names], return_inverse=True)
    levels = []
    for name, judge in sorted(judges.items()):
        related = np.array([model_family(each) == model_family(name) for each in names])
        own = np.array([each == name for each in names])
        seen = quality - judge.severity + judge.noise * generator.normal(size=quality.shape)
        seen = seen + judge.family * related + judge.own * own + judge.length * (doublings - 8)
        if scatter is not None:
            seen += generator.normal(0, scatter.students, len(names))
            seen += generator.normal(0, scatter.families, len(names))[family]
        worth = seen[..., None] + 0.05 * generator.normal(size=(*quality.shape, FACTORS))
        levels.append(np.where(worth >= 2 / 3, 2, np.where(worth >= 1 / 3, 1, 0)).reshape(-1))
    shape = (items, len(names), FACTORS)
    item, student, factor = (place.reshape(-1) for place in np.indices(shape))
    zeros = np.zeros(items, np.int32)
    grid = ScoreGrid(
        item=item,
        student=student,
        factor=factor,
        levels=np.stack(levels, axis=1).astype(np.int8),
        items=GridItems([f"i{n:05d}" for n in range(items)], zeros, zeros, {}),
        students=tuple(names),
        judges=tuple(sorted(judges)),
        factors=("f", "g"),
        tasks=("t",),
        teachers=("w",),
        designs=(TaskDesign(frozenset(judges), frozenset(("f", "g"))),),
    )
    return Simulated(grid, 2 ** np.repeat(doublings.reshape(-1), FACTORS))


def favours(world: World, seed: int) -> dict[str, FamilyBias]:
    """By judge, in one run of a world."""
    families = model_families((*world.students, *world.judges), {})
    grid, _ = simulate(world.judges, world.items, seed, world.students, world.scatter)
    found = adjust_biases_by_judge(estimate_biases_by_judge(grid, families))
    return {judge: one.own if world.bias == "self" else one.family for judge, one in found.items()}


def named(world: World, repeats: int) -> Named:
    leaning, honest, values = [], [], []
    for seed in range(repeats):
        found = favours(world, seed)
        honest.append([one.is_significant for judge, one in found.items() if judge != world.leaning])
        if world.leaning is not None:
            leaning.append(found[world.leaning].is_significant)
            values.append(found[world.leaning].size)
    return Named(
        float(np.mean(leaning)) if leaning else None,
        float(np.mean(honest)),
        float(np.mean(np.any(honest, axis=1))),
        float(np.mean(values)) if values else None,
    )


def favour_table(repeats: int) -> Iterator[str]:
    heads = (
        "of",
        "planted",
        "families",
        "judges",
        "items",
        "who leans is named",
        "found",
        "an honest judge is named",
        "any is",
    )
    yield f"| {' | '.join(heads)} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for world in WORLDS:
        found = named(world, repeats)
        families = len({model_family(name) for name in world.students})
        told = "" if found.leaning is None else f"{found.leaning:.1%}"
        value = "" if found.value is None else f"{100 * found.value:+.1f}"
        size = f"{families} ({len(world.students)} students) | {len(world.judges)} | {world.items}"
        cells = f"{told} | {value} | {found.honest:.1%} | {found.any_honest:.1%}"
        yield f"| {world.bias} | {world.said} | {size} | {cells} |"


# --- Length


LONG = {"kin-judge": Planted(0.1, length=0.1), "two-judge": Planted(length=0.1), "three-judge": Planted(-0.1)}
LENGTH_WORLDS = (("nobody", STRICT_AND_MILD), ("two of three", LONG))


class LengthNamed(NamedTuple):
    """Of so many runs, in which the contrast of the two who may like length is significant; that of each of
    them and the third; and in which a sentence names the third without one of the others."""

    between: float
    against: float
    alone: float


def contrasts(judges: Mapping[str, Planted], seed: int) -> dict[tuple[str, str], LengthContrast]:
    return judge_pair_contrasts(*simulate(judges, 50, seed))


def length_named(judges: Mapping[str, Planted], repeats: int) -> LengthNamed:
    rows = []
    for seed in range(repeats):
        found = contrasts(judges, seed)
        between = found["kin-judge", "two-judge"].is_significant
        against = [found[pair].is_significant for pair in found if "three-judge" in pair]
        said = [text for text in judge_length_contrast_sentences(found) if "three-judge" in text]
        alone = any("kin-judge" not in text and "two-judge" not in text for text in said)
        rows.append((float(between), float(np.mean(against)), float(alone)))
    return LengthNamed(*np.mean(rows, axis=0).tolist())


def length_table(repeats: int) -> Iterator[str]:
    heads = ("who likes length, 0.1 a doubling", "the two differ", "either and the third", "third alone")
    yield f"| {' | '.join(heads)} |"
    yield "| --- | ---: | ---: | ---: |"
    for said, judges in LENGTH_WORLDS:
        yield f"| {said} | {' | '.join(f'{share:.1%}' for share in length_named(judges, repeats))} |"


# --- Position


def places_named(planted: float, items: int, repeats: int, *, both: bool) -> float:
    """How often a pairwise judge that adds ``planted`` to the answer shown first is named for that: of
    verdicts in both orders, or of preferences in one that is drawn. It errs by 0.1 on each answer."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(repeats):
        gap = random.normal(0.1, 0.2, items)
        first, second = (gap + sign * planted + random.normal(0, 0.14, items) for sign in (1, -1))
        if both:
            bias = position_bias_within_items([_verdicts(first)], [_verdicts(second)])
        else:
            is_first = random.random(items) < 0.5
            bias = position_bias_between_items(
                expit(STEEP * first[is_first]), expit(STEEP * second[~is_first])
            )
        found.append(adjust_biases_by_judge({"judge": {"position": bias}})["judge"].position.is_significant)
    return float(np.mean(found))


def _verdicts(seen: Floats) -> Floats:
    """A win, or a tie where hardly a difference is seen."""
    return np.where(np.abs(seen) < TIE, 0.5, (seen > 0).astype(np.float64))


PLACES = ((True, 0.0, 100), (True, 0.1, 100), (False, 0.0, 250), (False, 0.1, 250))


def places_table(repeats: int) -> Iterator[str]:
    yield "| orders | added to the first | prompts | named |"
    yield "| --- | ---: | ---: | ---: |"
    for both, planted, items in PLACES:
        share = places_named(planted, items, repeats, both=both)
        yield f"| {'both' if both else 'one'} | {planted} | {items} | {share:.1%} |"


def page(repeats: int) -> Iterator[str]:
    yield "# Whether a judge leans"
    yield ""
    yield f"`python -m evidence.leaning > docs/evidence/leaning.md` draws {repeats:,} runs of each kind."
    yield "*Named*: in `findings`, by Holm's p-value over the judges."
    yield ""
    yield "## Favour for one's own"
    yield ""
    yield "*Scatter*: what each judge adds to each student at random, a standard deviation of quality;"
    yield "0.1 is some 8 to 10 points of score. *Found*: points of score, on average."
    yield ""
    yield from favour_table(repeats)
    yield ""
    yield "## Length"
    yield ""
    yield "Three judges, one 0.1 stricter and one 0.1 milder than the third; five students, 50 items."
    yield ""
    yield from length_table(repeats)
    yield ""
    yield "## Position"
    yield ""
    yield "A pairwise judge of answers that differ by 0.1 ± 0.2, which errs by 0.1 on each."
    yield ""
    yield from places_table(repeats)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    for line in page(parser.parse_args().repeats):
        print(line, flush=True)
