"""Judges with a planted bias are the ones that are named; honest ones, however strict, are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.panel.bias_ledger import Bias, bias_ledger
from coeval.analysis.panel.model_families import model_families, model_family

FACTORS = 2


class Planted(NamedTuple):
    """What a judge adds to what it sees: for its family, for itself, for each doubling of the length."""

    severity: float = 0.0
    noise: float = 0.1
    family: float = 0.0
    own: float = 0.0
    length: float = 0.0


STUDENTS = {"kin-1": 0.85, "two-1": 0.6, "three-1": 0.35, "kin-2": 0.7, "four-1": 0.5}
JUDGES = ("kin-judge", "two-judge", "three-judge")


class Simulated(NamedTuple):
    grid: ScoreGrid
    lengths: Floats


def simulate(
    judges: dict[str, Planted], items: int, seed: int, students: dict[str, float] = STUDENTS
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
        kin = np.array([model_family(each) == model_family(name) for each in names])
        own = np.array([each == name for each in names])
        seen = quality - judge.severity + judge.noise * generator.normal(size=quality.shape)
        seen = seen + judge.family * kin + judge.own * own + judge.length * (doublings - 8)
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


def ledgers(
    judges: dict[str, Planted],
    bias: str,
    repeats: int,
    items: int = 50,
    students: dict[str, float] = STUDENTS,
) -> dict[str, list[Bias]]:
    found: dict[str, list[Bias]] = {name: [] for name in judges}
    for seed in range(repeats):
        grid, lengths = simulate(judges, items, seed, students)
        ledger = bias_ledger(grid, lengths, model_families((*students, *judges), {}))
        for name in judges:
            found[name].append(ledger[name][bias])
    return found


def sure(biases: Sequence[Bias]) -> float:
    return float(np.mean([bias.is_sure for bias in biases]))


STRICT_AND_MILD = {"kin-judge": Planted(0.1), "two-judge": Planted(), "three-judge": Planted(-0.1)}


def test_a_judge_that_is_kind_to_its_family_is_named_and_the_honest_ones_are_not() -> None:
    judges = STRICT_AND_MILD | {"kin-judge": Planted(0.1, family=0.2)}
    found = ledgers(judges, "family", 20)
    assert sure(found["kin-judge"]) >= 0.95
    assert np.mean([bias.value or 0 for bias in found["kin-judge"]]) > 0.06
    assert sure(found["two-judge"]) + sure(found["three-judge"]) <= 0.25


def test_honest_judges_of_different_strictness_lean_on_nothing() -> None:
    """Where all give full marks a strict judge looks as kind as the others: that is no leaning."""
    for bias in ("family", "length"):
        found = ledgers(STRICT_AND_MILD, bias, 16)
        assert float(np.mean([sure(biases) for biases in found.values()])) <= 0.13, bias


def test_a_judge_that_likes_long_answers_is_named() -> None:
    judges = STRICT_AND_MILD | {"two-judge": Planted(length=0.1)}
    found = ledgers(judges, "length", 16)
    assert sure(found["two-judge"]) >= 0.9
    assert min(bias.value or 0 for bias in found["two-judge"]) > 0
    assert sure(found["kin-judge"]) + sure(found["three-judge"]) <= 0.3


def test_a_judge_that_likes_itself_is_named() -> None:
    students = {"a-1": 0.6, "b-1": 0.5, "c-1": 0.7, "d-1": 0.4}
    judges = {"a-1": Planted(own=0.2), "b-1": Planted(0.1), "c-1": Planted(-0.1)}
    found = ledgers(judges, "self", 12, students=students)
    assert sure(found["a-1"]) >= 0.9
    assert sure(found["b-1"]) + sure(found["c-1"]) <= 0.35


def test_severity_is_what_the_others_give_more() -> None:
    grid, lengths = simulate({"a": Planted(0.2), "b": Planted(), "c": Planted()}, 60, 1)
    ledger = bias_ledger(grid, lengths, {})
    scores = grid.levels / 2
    expected = scores[:, 1:].mean() - scores[:, 0].mean()
    found = ledger["a"]["severity"]
    assert found.value == pytest.approx(expected, abs=1e-12)
    models = pytest.importorskip("statsmodels.api")
    difference = scores[:, 1:].mean(axis=1) - scores[:, 0]
    fit = models.OLS(difference, np.ones(len(difference))).fit(
        cov_type="cluster", cov_kwds={"groups": grid.item, "use_correction": False}, use_t=True
    )
    error = fit.bse[0] * np.sqrt(60 / 59)
    assert found.low is not None
    assert found.value is not None
    stats = pytest.importorskip("scipy.stats")
    assert found.value - found.low == pytest.approx(stats.t.ppf(0.975, 59) * error, rel=1e-9)
    assert found.is_sure
    assert found.value > 0


def test_what_the_scores_cannot_tell_is_not_told() -> None:
    alone = simulate({"a": Planted()}, 30, 1)
    assert not any(bias.value for bias in bias_ledger(*alone, {})["a"].values())
    kin = {"one": 0.5, "two": 0.7}
    all_kin = simulate({"a": Planted(), "b": Planted()}, 30, 1, kin)
    ledger = bias_ledger(*all_kin, dict.fromkeys(("one", "two", "a", "b"), "same"))
    assert ledger["a"]["family"].value is None
    assert ledger["a"]["self"].value is None
    assert ledger["a"]["length"].value is not None
    grid, lengths = simulate({"a": Planted(), "b": Planted()}, 30, 1, kin)
    assert bias_ledger(grid, np.full_like(lengths, 100.0), {})["a"]["length"].value is None
    assert bias_ledger(grid, np.full_like(lengths, np.nan), {})["a"]["length"].value is None


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-4o-mini", "gpt"),
        ("openai/o3-mini", "gpt"),
        ("us.anthropic.claude-sonnet-4-v1:0", "claude"),
        ("meta-llama/Llama-3.1-8B", "llama"),
        ("Qwen/Qwen3-4B", "qwen"),
        ("sim-large", "sim"),
        ("mine:7b", "mine"),
        ("7b", "7b"),
    ],
)
def test_families_are_told_by_names(name: str, family: str) -> None:
    assert model_family(name) == family
