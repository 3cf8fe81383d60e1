"""Each statistic over checkpoints against an oracle; how often they are right is `test_training_coverage`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from coeval.analysis.comparison.paired_difference import sign_flips
from coeval.analysis.intervals import POINTS, SHARE, Scale, clustered_mean
from coeval.analysis.training.best_checkpoint import Estimates, best_checkpoint, winner
from coeval.analysis.training.checkpoint_scores import (
    CheckpointScores,
    CommonItems,
    ItemColumn,
    common_items,
    side_by_side,
)
from coeval.analysis.training.curve_conclusions import (
    conclude_curve,
    first_better,
    pointwise_level,
    simultaneous_bounds,
    step_down,
)
from coeval.analysis.training.drift_alarms import WatchedTask, drift_alarms, trend
from evidence.training_coverage import (
    DESIGNS,
    JUDGE,
    PAGE,
    REPEATS,
    RULE,
    TRAININGS,
    Design,
    Scoring,
    alarms,
    bands,
    best,
    firsts,
    of_best,
    sweeps,
)

Array = NDArray[np.float64]


def common(scores: Array, characters: Array | None = None, scale: Scale = SHARE) -> CommonItems:
    steps = tuple(100 * (n + 1) for n in range(scores.shape[1]))
    lengths = np.full(scores.shape, np.nan) if characters is None else characters
    return CommonItems(steps, scores, lengths, scale, ())


def verdicts(means: list[float], items: int = 300, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    hard = generator.normal(0, 0.15, (items, 1))
    return (generator.random((items, len(means))) < np.array(means) + hard).astype(np.float64)


def test_one_checkpoint_has_the_usual_interval_and_alike_ones_too() -> None:
    scores = verdicts([0.6])
    [band] = simultaneous_bounds(scores)
    alone = clustered_mean(scores[:, 0], np.arange(len(scores)))
    assert (band.low, band.high) == pytest.approx((alone.low, alone.high))
    assert pointwise_level(np.repeat(scores, 5, axis=1)) == pytest.approx(0.95, abs=0.004)


@pytest.mark.process
def test_independent_checkpoints_have_sidaks_level_and_alike_items_no_less() -> None:
    independent = np.random.default_rng(1).random((2000, 4))
    assert pointwise_level(independent) == pytest.approx(0.95**0.25, abs=0.003)
    settled = verdicts([0.5, 0.6, 0.7])
    settled[:, 1] = 1
    assert pointwise_level(settled) == pytest.approx(0.95 ** (1 / 3))
    assert simultaneous_bounds(settled)[1].low < 1


def test_a_single_comparison_has_the_p_value_of_all_flips() -> None:
    differences = np.random.default_rng(2).normal(0.3, 1, 12)
    [p] = step_down(differences[:, None])
    assert p == pytest.approx(sign_flips(differences), abs=0.012)


def test_step_down_is_stricter_than_one_test_and_no_stricter_than_bonferroni() -> None:
    generator = np.random.default_rng(3)
    differences = generator.normal([0.3, 0.12, 0.0], 1, (200, 3)) + generator.normal(0, 1, (200, 1))
    alone = [step_down(differences[:, [n]])[0] for n in range(3)]
    together = step_down(differences)
    for p, adjusted in zip(alone, together, strict=True):
        assert p - 0.01 <= adjusted <= min(3 * p + 0.01, 1)
    assert together == sorted(together)
    assert together[2] == pytest.approx(alone[2], abs=0.03), "the last one is left alone"
    assert step_down(np.zeros((10, 2))) == [1.0, 1.0]


def test_the_first_better_step_is_named_with_its_difference() -> None:
    scores = verdicts([0.4, 0.42, 0.6, 0.65])
    found = first_better(common(scores), "share")
    assert found is not None
    assert (found.base, found.step, found.n_items) == (100, 300, 300)
    by = 100 * (scores[:, 2] - scores[:, 0]).mean()
    assert found.sentence.startswith(
        f"step 300 is the first significantly better than step 100: by {by:.1f} ± "
    )
    assert found.sentence.endswith("(p < 0.001 over all checkpoints), 300 paired items")
    later = first_better(common(scores), "share", base=300)
    assert later is not None
    assert (later.base, later.step) == (300, None)
    assert "no checkpoint is significantly better than step 300" in later.sentence
    assert [one.step for one in later.checkpoints] == [100, 200, 400]
    assert first_better(common(scores), "share", base=7) is None
    assert first_better(common(scores[:, :1]), "share") is None


def test_a_worse_step_is_never_the_first_better() -> None:
    found = first_better(common(verdicts([0.7, 0.4, 0.4])), "share")
    assert found is not None
    assert found.step is None
    assert found.checkpoints[0].p_adjusted < 0.05


def test_points_are_told_on_their_own_scale() -> None:
    found = first_better(common(verdicts([0.3, 0.7]), scale=POINTS), "points")
    assert found is not None
    scores = verdicts([0.3, 0.7])
    assert found.checkpoints[0].difference == pytest.approx(9 * (scores[:, 1] - scores[:, 0]).mean())


def test_a_clear_winner_keeps_its_score_and_its_interval() -> None:
    """Nobody else could have won: nothing was luck."""
    found = winner(Estimates(np.array([0.0, 10.0]), np.diag([1.0, 1.0])))
    assert found.place == 1
    assert found.estimate == pytest.approx(10, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((8.04, 11.96), abs=0.06)


def test_of_two_the_winners_mean_is_a_normal_cut_off_where_the_other_wins() -> None:
    """Two independent means, one apart: the conditional median against scipy's truncated normal, where the
    simultaneous interval is far away."""
    found = winner(Estimates(np.array([0.0, 1.0]), np.diag([1.0, 1.0])))
    below = stats.truncnorm(-found.estimate, np.inf, loc=found.estimate).cdf(1.0)
    assert below == pytest.approx(0.5, abs=0.01)
    assert found.estimate < 0.75
    assert found.low < found.estimate < found.high


def test_a_tie_is_corrected_and_stays_within_reach() -> None:
    tied = np.repeat(verdicts([0.5]), 3, axis=1)
    same = best_checkpoint(common(tied), "share")
    assert same is not None
    assert same.corrected == pytest.approx(same.mean, abs=0.02), "alike in every item: no luck"
    found = best_checkpoint(common(verdicts([0.5] * 6, seed=3)), "share")
    assert found is not None
    assert found.corrected is not None
    assert found.ci95 is not None
    assert found.corrected < found.mean
    assert found.ci95[0] < found.corrected < found.ci95[1]


def test_the_best_of_full_marks_has_an_interval_within_the_scale() -> None:
    found = best_checkpoint(common(np.ones((40, 3))), "share")
    assert found is not None
    assert found.ci95 is not None
    assert found.mean == 1
    assert 0.85 < found.ci95[0] < 1
    assert found.ci95[1] <= 1


FEW_ITEMS = np.array(
    [
        [0.285, 0.249, 0.547, 0.189, 0.833, 0.523, 1.0],
        [0.44, 0.361, 0.398, 0.562, 0.63, 0.815, 0.879],
        [0.0, 0.348, 0.152, 0.391, 0.478, 0.946, 0.424],
        [0.34, 0.363, 0.244, 0.511, 0.585, 0.733, 0.858],
        [0.377, 0.428, 0.388, 0.688, 0.524, 0.811, 0.822],
        [0.238, 0.203, 0.111, 0.307, 0.908, 0.838, 0.55],
        [0.364, 0.483, 0.283, 0.52, 0.69, 0.69, 0.837],
        [0.405, 0.368, 0.416, 0.411, 0.796, 0.85, 0.861],
    ]
)
"""Two that lead by next to nothing, one with outliers: seen of a judged task whose scores begin below 0."""


def test_of_few_items_the_best_is_named_and_nothing_is_said_of_luck() -> None:
    found = best_checkpoint(common(FEW_ITEMS), "share")
    assert found is not None
    assert found.step == 700, "the largest mean, by 0.003"
    assert (found.corrected, found.ci95) == (None, None)


@pytest.mark.parametrize("times", [2, 5])
def test_next_to_no_lead_takes_no_more_off_than_luck_gives(times: int) -> None:
    scores = np.tile(FEW_ITEMS, (times, 1))
    found = best_checkpoint(common(scores), "share")
    assert found is not None
    assert found.corrected is not None
    assert found.ci95 is not None
    usual = clustered_mean(scores[:, 6], np.arange(len(scores)))
    assert usual.low is not None
    assert usual.high is not None
    band = simultaneous_bounds(scores)[6]
    assert found.step == 700
    assert band.low < found.corrected < found.mean
    assert found.ci95[0] < found.corrected < found.ci95[1]
    assert found.ci95[1] - found.ci95[0] > 0.9 * (usual.high - usual.low)


def test_a_band_ends_where_the_metric_does_though_items_lie_beyond() -> None:
    bands = conclude_curve(common(FEW_ITEMS, scale=Scale(-0.353, 1.0)), "share").bands
    assert bands[100][0] == 0
    assert all(0 <= low < high <= 1 for low, high in bands.values())


def test_a_trend_is_a_t_test_of_the_items_slopes() -> None:
    generator = np.random.default_rng(5)
    values = generator.normal(0, 1, (40, 1)) + generator.normal(np.linspace(0, 0.3, 5), 1, (40, 5))
    steps = (100, 150, 300, 600, 700)
    found = trend(values, steps)
    assert found is not None
    slopes = [np.polyfit(steps, item, 1)[0] for item in values]
    assert found.change == pytest.approx(np.mean(slopes) * 600)
    assert found.p_rising == pytest.approx(stats.ttest_1samp(slopes, 0, alternative="greater").pvalue)
    assert found.p_falling == pytest.approx(1 - found.p_rising)
    assert trend(values[:1], steps) is None


def test_alarms_need_both_halves_and_say_what_was_seen() -> None:
    rising, falling, flat = ([0.3, 0.5, 0.7], [0.7, 0.5, 0.3], [0.5, 0.5, 0.5])
    longer = np.random.default_rng(6).lognormal(5, 0.3, (300, 3)) * np.array([1, 1.2, 1.4])
    judged = WatchedTask("judged", "share", True, common(verdicts(rising), longer))
    rules = WatchedTask("rules", "share", False, common(verdicts(falling)))
    fall, grow = drift_alarms([judged, rules])
    assert (fall.kind, fall.task, fall.beside) == ("rules fall", "judged", "rules")
    assert fall.sentence.startswith("experimental alarm: judged, which is judged, rises by")
    assert "while rules, which is scored by rules, falls by" in fall.sentence
    assert (grow.kind, grow.beside) == ("answers grow", "judged")
    assert grow.other == pytest.approx(0.4, abs=0.07)
    unmoved = judged._replace(items=common(verdicts(flat), longer))
    assert drift_alarms([unmoved, rules]) == ()
    steady = judged._replace(items=common(verdicts(rising)))
    assert drift_alarms([steady, rules._replace(items=common(verdicts(flat)))]) == ()
    little = judged._replace(items=common(verdicts(rising), longer / np.array([1, 1.17, 1.33])))
    assert drift_alarms([little]) == ()


def column(values: dict[str, float], weights: dict[str, float] | None = None) -> ItemColumn:
    counts = np.array([(weights or {}).get(name, 1.0) for name in values])
    keys = tuple((name, 7) for name in values)
    return ItemColumn("m", "share", keys, np.array([*values.values()]), counts, np.full(len(values), 9.0))


def test_items_are_paired_by_id_and_question() -> None:
    requested_otherwise = column({"a": 1.0})._replace(keys=(("a", 8),))
    columns = [column({"a": 0.0, "b": 1.0}), column({"b": 0.5, "a": 1.0}), requested_otherwise]
    found = side_by_side(dict(enumerate(columns)))
    assert found.values[0].tolist()[:2] == [0.0, 1.0]
    assert np.isnan(found.values[0, 2])
    assert found.values[2, 2] == 1.0


def test_a_checkpoint_with_few_items_costs_the_others_none() -> None:
    many = {str(n): float(n % 2) for n in range(40)}
    few = {str(n): 1.0 for n in range(20)}
    nearly = {str(n): 1.0 for n in range(38)}
    found = common_items(side_by_side({1: column(many), 2: column(few), 3: column(nearly)}), (1, 2, 3))
    assert found.steps == (1, 3)
    assert found.scores.shape == (38, 2)
    assert found.notes == (
        "left out of the conclusions, with too few of 40 items: step 2 (20)",
        "conclusions rest on 38 items that all checkpoints have; 2 more are scored at some only",
    )


def test_unequal_items_keep_the_metric_as_their_mean() -> None:
    values, weights = {"a": 1.0, "b": 0.0, "c": 0.5}, {"a": 6.0, "b": 2.0, "c": 4.0}
    found = common_items(side_by_side({1: column(values, weights), 2: column(values)}), (1, 2))
    assert found.scores.mean(axis=0).tolist() == pytest.approx([8 / 12, 0.5])
    spread = float(np.sqrt(((found.scores[:, 0] - 8 / 12) ** 2).sum()) / 3)
    from_ratio = np.array([6 * (1 - 2 / 3), 2 * (0 - 2 / 3), 4 * (0.5 - 2 / 3)]) / 12
    assert spread == pytest.approx(float(np.sqrt((from_ratio**2).sum())))


def test_scores_beyond_the_scale_widen_it() -> None:
    scores = CheckpointScores(
        "m", "share", ("a", "b"), (1,), np.array([[-0.5], [1.0]]), np.ones((2, 1)), np.ones((2, 1))
    )
    assert scores.scale == Scale(-0.5, 1.0)
    assert common_items(scores, (1,)).scores[:, 0].tolist() == [0.0, 1.0]


# What `evidence.training_coverage` measures, on a few cells; and that its page is what it measures.

FEW, SOME = Design(100, 1), Design(300, 2)


@pytest.mark.system
def test_bands_and_the_corrected_best_hold_their_truths() -> None:
    held, won = [], []
    for scoring in (RULE, JUDGE):
        for shape in ("flat", "near the end, a step at 400"):
            runs = list(sweeps(scoring, shape, FEW, repeats=60))
            held.append(bands(runs).simultaneous)
            won.append(found := best(runs))
            assert abs(found.bias) < found.usual_bias, (scoring, shape)
    assert sum(held) / 4 >= 0.93
    assert sum(found.usual for found in won) / 4 < 0.95 <= sum(found.corrected for found in won) / 4
    assert all(found.width < 1.7 * found.usual_width for found in won)


@pytest.mark.process
@pytest.mark.parametrize("scoring", [RULE, JUDGE], ids=lambda scoring: scoring.said)
def test_the_first_better_step_is_seldom_too_early(scoring: Scoring) -> None:
    found = firsts(list(sweeps(scoring, "a step at 400", SOME, repeats=100)))
    assert found.ours.too_early <= 0.05
    assert found.ours.found >= found.holm.found
    assert found.ours.exact > (0.1 if scoring is RULE else 0.4)


@pytest.mark.process
def test_alarms_are_given_where_both_halves_are_there() -> None:
    rates = {training.said: alarms(training, SOME, repeats=40) for training in TRAININGS}
    assert rates["judged rises, rules fall"].rules_fall > 0.9
    assert rates["judged rises, answers grow by 30 %"].answers_grow > 0.9
    assert rates["judged rises, answers grow by 5 %"].answers_grow <= 0.1
    for said in ("nothing changes", "both get better", "judged flat, answers grow by 30 %"):
        assert max(rates[said]) <= 0.1, said


@pytest.mark.process
def test_the_page_is_what_is_measured() -> None:
    found = best(list(sweeps(JUDGE, "rising", DESIGNS[0], repeats=REPEATS)))
    row = f"| {JUDGE.said} | {DESIGNS[0]} | rising | {of_best(found)} |"
    assert row in PAGE.read_text(encoding="utf-8"), "write it again: python -m evidence.training_coverage"
