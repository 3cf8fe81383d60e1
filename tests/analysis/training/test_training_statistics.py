"""Statistics over checkpoints against oracles, and their rates of error (`evidence.training_coverage`)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import PairedScores, holm_adjust, paired_difference
from coeval.analysis.intervals import POINTS, SHARE, Scale
from coeval.analysis.training.checkpoint_scores import CommonItems, ItemColumn, select_common_items
from coeval.analysis.training.training_curves import find_first_better
from evidence.training_coverage import (
    DESIGNS,
    JUDGE,
    PAGE,
    REPEATS,
    RULE,
    Design,
    Scoring,
    cells,
    rates,
    sweeps,
)

Array = NDArray[np.float64]


def common(scores: Array, scale: Scale = SHARE) -> CommonItems:
    steps = tuple(100 * (n + 1) for n in range(scores.shape[1]))
    return CommonItems("m", "points" if scale == POINTS else "share", steps, scores, scale, ())


def verdicts(means: list[float], items: int = 300, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    hard = generator.normal(0, 0.15, (items, 1))
    return (generator.random((items, len(means))) < np.array(means) + hard).astype(np.float64)


def test_the_first_better_step_is_named_with_its_difference() -> None:
    scores = verdicts([0.4, 0.42, 0.6, 0.65])
    found = find_first_better(common(scores))
    assert found is not None
    alone = [paired_difference([PairedScores(scores[:, 0], later, np.ones(300))]).p for later in scores.T[1:]]
    assert [gap.p_adjusted for gap in found.gaps.values()] == holm_adjust([p or 0.0 for p in alone])
    assert (found.base, found.step, found.n_items) == (100, 300, 300)
    by = 100 * (scores[:, 2] - scores[:, 0]).mean()
    assert found.sentence.startswith(
        f"step 300 is the first significantly better than step 100: by {by:.1f} ± "
    )
    assert found.sentence.endswith("(p < 0.001 over all checkpoints), 300 paired items")
    later = find_first_better(common(scores), base=300)
    assert later is not None
    assert (later.base, later.step) == (300, None)
    assert "no checkpoint is significantly better than step 300" in later.sentence
    assert list(later.gaps) == [100, 200, 400]
    assert find_first_better(common(scores), base=7) is None
    assert find_first_better(common(scores[:, :1])) is None


def test_a_worse_step_is_never_the_first_better() -> None:
    found = find_first_better(common(verdicts([0.7, 0.4, 0.4])))
    assert found is not None
    assert found.step is None
    assert found.gaps[200].significant


def test_points_are_told_on_their_own_scale() -> None:
    found = find_first_better(common(verdicts([0.3, 0.7]), scale=POINTS))
    assert found is not None
    scores = verdicts([0.3, 0.7])
    by = 100 * (scores[:, 1] - scores[:, 0]).mean()
    assert f"step 200 is the first significantly better than step 100: by {by:.1f} ± " in found.sentence


def column(values: dict[str, float], weights: dict[str, float] | None = None) -> ItemColumn:
    totals = np.array([(weights or {}).get(name, 1.0) for name in values])
    keys, scores = tuple((name, 7) for name in values), np.array([*values.values()])
    once = np.ones(len(values))
    return ItemColumn("m", "share", keys, scores * totals, totals, once, scores.min(), scores.max())


def test_items_are_paired_by_id_and_question() -> None:
    requested_otherwise = column({"a": 1.0, "b": 0.25})._replace(keys=(("a", 8), ("b", 7)))
    columns = [column({"a": 0.0, "b": 1.0}), column({"b": 0.5, "a": 1.0}), requested_otherwise]
    assert select_common_items(dict(enumerate(columns[:2]))).scores.tolist() == [[0.0, 1.0], [1.0, 0.5]]
    assert select_common_items(dict(enumerate(columns))).scores.tolist() == [[1.0, 0.5, 0.25]]


def test_a_checkpoint_with_few_items_costs_the_others_none() -> None:
    many = {str(n): float(n % 2) for n in range(40)}
    few = {str(n): 1.0 for n in range(20)}
    nearly = {str(n): 1.0 for n in range(38)}
    found = select_common_items({1: column(many), 2: column(few), 3: column(nearly)})
    assert found.steps == (1, 3)
    assert found.scores.shape == (38, 2)
    assert found.notes == (
        "left out of the conclusions, with too few of 40 items: step 2 (20)",
        "conclusions rest on 38 items that all checkpoints have; 2 more are scored at some only",
    )


def test_unequal_items_keep_the_metric_as_their_mean() -> None:
    values, weights = {"a": 1.0, "b": 0.0, "c": 0.5}, {"a": 6.0, "b": 2.0, "c": 4.0}
    found = select_common_items({1: column(values, weights), 2: column(values)})
    assert found.scores.mean(axis=0).tolist() == pytest.approx([8 / 12, 0.5])
    spread = float(np.sqrt(((found.scores[:, 0] - 8 / 12) ** 2).sum()) / 3)
    from_ratio = np.array([6 * (1 - 2 / 3), 2 * (0 - 2 / 3), 4 * (0.5 - 2 / 3)]) / 12
    assert spread == pytest.approx(float(np.sqrt((from_ratio**2).sum())))


def test_scores_beyond_the_scale_widen_it() -> None:
    found = select_common_items({1: column({"a": -0.5, "b": 1.0})})
    assert found.scale == Scale(-0.5, 1.0)
    assert found.scores[:, 0].tolist() == [0.0, 1.0]


# What `evidence.training_coverage` measures, on a few cells; and that its page is what it measures.

SOME = Design(300, 2)


@pytest.mark.process
@pytest.mark.parametrize("scoring", [RULE, JUDGE], ids=lambda scoring: scoring.said)
def test_false_claims_of_a_training_run_are_rare(scoring: Scoring) -> None:
    """At most 5 of 100, and three standard errors of 100 runs."""
    runs = {shape: list(sweeps(scoring, shape, SOME, repeats=100)) for shape in ("flat", "a step at 400")}
    found = {shape: rates(of) for shape, of in runs.items()}
    for rate in found.values():
        assert max(rate.too_early, rate.wrong) <= 0.11
    assert found["a step at 400"].exact > (0.1 if scoring is RULE else 0.4)
    assert found["a step at 400"].holds_best == 1


@pytest.mark.process
def test_the_page_is_what_is_measured() -> None:
    found = rates(list(sweeps(JUDGE, "rising", DESIGNS[1], repeats=REPEATS)))
    row = f"| {JUDGE.said} | {DESIGNS[1]} | rising | {cells(found)} |"
    assert row in PAGE.read_text(encoding="utf-8"), "write it again: python -m evidence.training_coverage"
