"""``python -m perf.judge_bias``: how often a judge that leans is named, and how often an honest one is.

Draws fresh runs of five students (of self: four) and three judges again and again, in which it is known who
leans on what, and counts. Judges err by themselves and are up to 0.2 apart in strictness. A thousand
experiments of each kind take a quarter of an hour.

    python -m perf.judge_bias --repeats 100
    python -m perf.judge_bias --world length --world self
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measured import entries
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.panel.bias_ledger import judge_biases
from coeval.analysis.panel.output_judges import shown_both_ways, shown_one_way
from coeval.analysis.panel.panel_reading import bias_ledger, model_families, model_family

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


STUDENTS = {"kin-1": 0.85, "two-1": 0.6, "three-1": 0.35, "kin-2": 0.7, "four-1": 0.5}
STRICT_AND_MILD = {"kin-judge": Planted(0.1), "two-judge": Planted(), "three-judge": Planted(-0.1)}
THEMSELVES = {"a-1": 0.6, "b-1": 0.5, "c-1": 0.7, "d-1": 0.4}


class World(NamedTuple):
    """``leaning``: who leans, if anybody; ``biases``: on what, or what is looked at where nobody does."""

    said: str
    biases: tuple[str, ...]
    leaning: str | None
    judges: Mapping[str, Planted]
    items: tuple[int, ...] = (50, 100)
    students: Mapping[str, float] = STUDENTS


HONEST = World("nothing", ("severity", "family", "length"), None, dict.fromkeys(STRICT_AND_MILD, Planted()))
STRICT = World("different strictness", ("family", "length"), None, STRICT_AND_MILD)
KIND = World(
    "0.2 for its family",
    ("family",),
    "kin-judge",
    STRICT_AND_MILD | {"kin-judge": Planted(0.1, family=0.2)},
    (50,),
)
HALF_AS_KIND = World(
    "0.1 for its family", ("family",), "kin-judge", STRICT_AND_MILD | {"kin-judge": Planted(0.1, family=0.1)}
)
LONG = World(
    "0.1 for each doubling",
    ("length",),
    "two-judge",
    STRICT_AND_MILD | {"two-judge": Planted(length=0.1)},
    (50,),
)
VAIN = World(
    "0.2 for itself",
    ("self",),
    "a-1",
    {"a-1": Planted(own=0.2), "b-1": Planted(0.1), "c-1": Planted(-0.1)},
    (50,),
    THEMSELVES,
)
WORLDS = {
    "honest": HONEST,
    "strict": STRICT,
    "family": KIND,
    "half": HALF_AS_KIND,
    "length": LONG,
    "self": VAIN,
}


class Named(NamedTuple):
    """Of so many experiments: in which the judge that leans is named; how often the interval of an honest one
    leaves out zero, on average over them; in which any honest one is named. None where there is none."""

    leaning: float | None
    honest_sure: float
    honest_named: float


def simulate(
    judges: Mapping[str, Planted], items: int, seed: int, students: Mapping[str, float] = STUDENTS
) -> Simulated:
    """The simulated models of this package, as arrays: quality less severity, plus error and leaning."""
    generator = np.random.default_rng(seed)
    names = sorted(students)
    skills = np.array([students[name] for name in names])
    hard = generator.normal(0, 0.2, (items, 1))
    quality = np.clip(skills + hard + generator.normal(0, 0.1, (items, len(names))), 0, 1)
    doublings = generator.normal(8, 0.7, quality.shape)
    levels = []
    for name, judge in sorted(judges.items()):
        related = np.array([model_family(each) == model_family(name) for each in names])
        own = np.array([each == name for each in names])
        seen = quality - judge.severity + judge.noise * generator.normal(size=quality.shape)
        seen = seen + judge.family * related + judge.own * own + judge.length * (doublings - 8)
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


def named(world: World, items: int, repeats: int) -> dict[str, Named]:
    """By bias."""
    families = model_families((*world.students, *world.judges), {})
    others = [name for name in world.judges if name != world.leaning]
    reported: defaultdict[str, list[bool]] = defaultdict(list)
    sure: defaultdict[str, list[float]] = defaultdict(list)
    some: defaultdict[str, list[bool]] = defaultdict(list)
    for seed in range(repeats):
        grid, lengths = simulate(world.judges, items, seed, world.students)
        ledger = bias_ledger(grid, lengths, families)
        leanings = {name: dict(entries(one)) for name, one in judge_biases(ledger).items()}
        for bias in world.biases:
            sure[bias].append(float(np.mean([ledger[name][bias].is_sure for name in others])))
            some[bias].append(any(leanings[name][bias].is_named for name in others))
            if world.leaning is not None:
                reported[bias].append(leanings[world.leaning][bias].is_named)
    return {
        bias: Named(
            float(np.mean(reported[bias])) if reported[bias] else None,
            float(np.mean(sure[bias])),
            float(np.mean(some[bias])),
        )
        for bias in world.biases
    }


def places_named(planted: float, items: int, repeats: int, *, both: bool) -> float:
    """How often a pairwise judge that adds ``planted`` to the answer shown first is named for that: of
    verdicts in both orders, or of preferences in one that is drawn. It errs by 0.1 on each answer."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(repeats):
        gap = random.normal(0.1, 0.2, items)
        first, second = (gap + sign * planted + random.normal(0, 0.14, items) for sign in (1, -1))
        if both:
            bias = shown_both_ways([_verdicts(first)], [_verdicts(second)])
        else:
            is_first = random.random(items) < 0.5
            bias = shown_one_way(expit(STEEP * first[is_first]), expit(STEEP * second[~is_first]))
        found.append(judge_biases({"judge": {"position": bias}})["judge"].position.is_named)
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


def table(repeats: int, worlds: Iterable[World]) -> Iterator[str]:
    heads = ("bias", "planted", "datapoints", "who leans is named", "an honest judge is sure", "any is named")
    yield f"| {' | '.join(heads)} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for world in worlds:
        for items in world.items:
            for bias, found in named(world, items, repeats).items():
                leaning = "" if found.leaning is None else f"{found.leaning:.1%}"
                honest = f"{found.honest_sure:.1%} | {found.honest_named:.1%}"
                yield f"| {bias} | {world.said} | {items} | {leaning} | {honest} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    names = (*WORLDS, "position")
    parser.add_argument("--world", choices=names, action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    needed = arguments.world or names
    worlds = [WORLDS[name] for name in needed if name in WORLDS]
    for line in table(arguments.repeats, worlds) if worlds else ():
        print(line, flush=True)
    for line in places_table(arguments.repeats) if "position" in needed else ():
        print(line, flush=True)
