"""Scales, checks and weights in the measures of a run, against other people's code and plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import krippendorff
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, cohen_kappa_score
from written_run import Run

from coeval.analysis.breakdown import break_down_scores_and_labels
from coeval.analysis.comparison.comparisons import compare_sides
from coeval.analysis.comparison.pairing import pair_sides
from coeval.analysis.comparison.side import read_sides
from coeval.analysis.judged_answers import AnswerChoice, read_chosen_answers
from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.measures.judge_measures import compare_judge_pairs, measure_judge_pairs, measure_panel
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.score_grid import (
    GridItems,
    ScoreGrid,
    TaskDesign,
    count_levels_by_judge,
    read_score_grid,
)
from coeval.analysis.planned_names import Planned, PlannedTask
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale, parse_scale
from coeval.reports.result_tables import read_results

Codes = NDArray[np.int8]
FIVE = parse_scale("1-5")


def grid_of(levels: Codes, scale: RubricScale = FIVE, values: tuple[float, ...] | None = None) -> ScoreGrid:
    """One factor on a scale, scored by two judges: (items, 2) places in ``values``, the scale's own ones."""
    items = len(levels)
    nothing = np.zeros(items, np.int64)
    return ScoreGrid(
        item=np.arange(items),
        student=nothing,
        factor=nothing,
        levels=levels,
        items=GridItems([str(n) for n in range(items)], nothing, nothing, {}),
        students=("ann",),
        judges=("j1", "j2"),
        factors=("tone",),
        tasks=("t",),
        teachers=("t.1",),
        designs=(TaskDesign({"j1", "j2"}, {"tone"}, scales={"tone": scale}),),
        scale=np.array(values or scale.values),
    )


def agreeing(random: np.random.Generator, items: int, kappa: float) -> Codes:
    """Two judges of one habit, of whom the second copies the first that often, else scores on its own: the
    weighted κ, whatever its weights, is just that share."""
    habit = [0.1, 0.15, 0.2, 0.3, 0.25]
    first, own = random.choice(5, (2, items), p=habit)
    second = np.where(random.random(items) < kappa, first, own)
    return np.stack([first, second], axis=1).astype(np.int8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_a_five_point_scale_is_measured_as_others_measure_it(seed: int, gaps: float) -> None:
    random = np.random.default_rng(seed)
    levels = agreeing(random, 300, seed / 6)
    levels[random.random(levels.shape) < gaps] = -1
    grid, reweighting = grid_of(levels), Reweighting(300)
    found = measure_judge_pairs(compare_judge_pairs(grid, reweighting))["j1", "j2"]
    panel = measure_panel(grid, reweighting)
    one, other = levels[(levels >= 0).all(axis=1)].T
    expected = cohen_kappa_score(one, other, weights="linear", labels=range(5))
    assert found.kappa.value == pytest.approx(expected, abs=1e-9)
    assert found.spa.value == pytest.approx(accuracy_score(one, other), abs=1e-9)
    assert found.wpa.value == pytest.approx(1 - np.abs(one - other).mean() / 4, abs=1e-9)
    alpha = krippendorff.alpha(np.stack([one, other]).astype(float), level_of_measurement="ordinal")
    assert panel.krippendorff_alpha.value == pytest.approx(alpha, abs=1e-9)
    assert panel.kappa_weights == "linear"


@pytest.mark.process
def test_the_intervals_of_a_planted_kappa_cover_it() -> None:
    """24 of 25 at 95%, give or take: of 60 runs 57, and in 999 of 1,000 such tests 51 or more."""
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(60):
        grid = grid_of(agreeing(random, 120, 0.6))
        kappa = measure_judge_pairs(compare_judge_pairs(grid, Reweighting(120)))["j1", "j2"].kappa
        covered += (kappa.low or 0.0) <= 0.6 <= (kappa.high or 1.0)
    assert covered >= 51


def test_two_levels_have_the_plain_kappa_and_uneven_ones_their_distances() -> None:
    random = np.random.default_rng(3)
    levels = random.choice(2, (200, 2)).astype(np.int8)
    two = grid_of(levels, parse_scale(["pass", "fail"]))
    found = measure_judge_pairs(compare_judge_pairs(two, Reweighting(200)))["j1", "j2"]
    assert found.kappa.value == pytest.approx(cohen_kappa_score(*levels.T), abs=1e-9)
    uneven = parse_scale({"bad": 0, "fair": 1, "good": 10})
    levels = random.choice(3, (200, 2), p=[0.2, 0.5, 0.3]).astype(np.int8)
    found = measure_judge_pairs(compare_judge_pairs(grid_of(levels, uneven), Reweighting(200)))["j1", "j2"]
    one, other = np.array(uneven.values)[levels].T
    by_chance = np.abs(np.subtract.outer(one, other)).mean()  # each with each
    assert found.wpa.value == pytest.approx(1 - np.abs(one - other).mean(), abs=1e-9)
    assert found.kappa.value == pytest.approx(1 - np.abs(one - other).mean() / by_chance, abs=1e-9)


def test_a_fifth_level_that_nobody_gives_changes_no_figure() -> None:
    levels = np.random.default_rng(4).choice(3, (150, 2)).astype(np.int8)
    narrow = parse_scale({"a": 0, "b": 1, "c": 2, "d": 4})
    found = measure_judge_pairs(compare_judge_pairs(grid_of(levels, narrow), Reweighting(150)))["j1", "j2"]
    one, other = np.array(narrow.values)[levels].T
    by_chance = np.abs(np.subtract.outer(one, other)).mean()
    assert found.kappa.value == pytest.approx(1 - np.abs(one - other).mean() / by_chance, abs=1e-9)


# --- A run with two scales, two checks and weights

WEIGHTS = {"depth": 3.0, "like": 0.5}
CHECKS = ("like", "says")
FACTORS = ("depth", "like", "says", "tone")
WORDS = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
Scores = dict[tuple[int, str, str, str], float]
"""By item, student, judge and factor."""


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Run, Scores]:
    """30 items of two students by two judges and checks, with gaps of all kinds."""
    run, random, known = Run(tmp_path / "run"), np.random.default_rng(11), Scores()
    for n in range(1, 31):
        run.datapoint(n, sampled_target_attributes={"form": "strict" if n % 3 else "loose"})
        for student in ("ann", "bob"):
            run.response(n, student)
            for judge in ("j1", "j2"):
                if random.random() < 0.1:
                    continue
                tone, depth = str(random.choice(list(WORDS))), float(random.choice(FIVE.values))
                known[n, student, judge, "tone"] = WORDS[tone]
                if random.random() < 0.1:
                    run.evaluation(n, student, judge, {"tone": tone}, missing=["depth"])
                else:
                    known[n, student, judge, "depth"] = depth
                    run.evaluation(n, student, judge, {"tone": tone}, values={"depth": depth})
            values = {"like": round(float(random.random()), 2), "says": float(random.random() < 0.7)}
            if random.random() < 0.1:
                del values["like"]
            run.evaluation(n, student, "check", {}, values=values)
            known |= {(n, student, "check", name): value for name, value in values.items()}
    return run, known


def planned(weights: Mapping[str, float] = WEIGHTS) -> Planned:
    everybody = frozenset({"j1", "j2", "check"})
    return Planned(
        None,
        {
            "haiku": PlannedTask(
                teachers=None,
                judges=everybody,
                factors=frozenset(FACTORS),
                labels=None,
                scales={"tone": HIGH_MEDIUM_LOW, "depth": FIVE},
                checks=frozenset(CHECKS),
                weights=dict(weights),
            )
        },
    )


def item_means(known: Scores, student: str, **weights: float) -> Iterator[tuple[int, float]]:
    """The mean of each item that has a score of each factor: each once, by its weight, as the mean over its
    judges."""
    for n in range(1, 31):
        of = {
            factor: [
                value
                for (at, who, _, what), value in known.items()
                if (at, who, what) == (n, student, factor)
            ]
            for factor in FACTORS
        }
        parts = [(weights.get(factor, 1.0), fmean(values)) for factor, values in of.items() if values]
        if len(parts) == len(FACTORS):
            yield n, sum(weight * mean for weight, mean in parts) / sum(weight for weight, _ in parts)


def measured(run: Run, plan: Planned | None) -> tuple[RunMeasures, Any, ScoreGrid]:
    with RunReader(run.folder, plan) as reader:
        return compute_run_measures(reader).measures, read_results(reader), read_score_grid(reader)


@pytest.mark.parametrize("plan", [planned(), planned({}), None])
def test_an_items_score_is_the_weighted_mean_of_its_factors(
    mixed: tuple[Run, Scores], plan: Planned | None
) -> None:
    run, known = mixed
    measures, scores, _ = measured(run, plan)
    weights = plan.tasks["haiku"].weights if plan is not None else {}
    for student in ("ann", "bob"):
        mean = fmean(value for _, value in item_means(known, student, **weights))
        found = measures.students[student]
        assert found.mean_recorded.value == pytest.approx(mean, abs=1e-12)
        [overall] = [one for one in scores.students if (one.student, one.task) == (student, None)]
        assert overall.mean_recorded == pytest.approx(mean, abs=1e-12)
        assert overall.score == pytest.approx(found.score.value, abs=1e-12)
        assert overall.valid_evals == found.valid_evals == sum(who == student for _, who, *_ in known)
        assert (overall.low, overall.high) == pytest.approx((found.score.low, found.score.high))
        assert found.bounds == pytest.approx((overall.least, overall.most), abs=1e-12)
        assert found.by_judge.keys() == {"j1", "j2"}
        of_checks = [value for (_, who, _, what), value in known.items() if (who, what) == (student, "like")]
        assert found.by_aspect["like"].value == pytest.approx(fmean(of_checks), abs=1e-12)
        assert found.by_aspect["like"].missing == 30 - len(of_checks)
        assert found.overall.missing == 30 * 6 - found.valid_evals
        by_judge = {
            n: [
                (weights.get(what, 1.0), value)
                for (at, who, judge, what), value in known.items()
                if (at, who, judge) == (n, student, "j1")
            ]
            for n in range(1, 31)
        }
        every = [one for found in by_judge.values() for one in found]
        expected = sum(weight * value for weight, value in every) / sum(weight for weight, _ in every)
        assert found.by_judge["j1"].value == pytest.approx(expected, abs=1e-12)


def test_differences_are_over_the_scores_that_both_students_have(mixed: tuple[Run, Scores]) -> None:
    run, known = mixed
    measures, _, _ = measured(run, planned())
    who = {"ann": "bob", "bob": "ann"}
    shared = {
        (n, student, judge, factor): value
        for (n, student, judge, factor), value in known.items()
        if (n, who[student], judge, factor) in known
    }
    ann, bob = (dict(item_means(shared, student, **WEIGHTS)) for student in ("ann", "bob"))
    expected = fmean(bob[n] - ann[n] for n in ann)
    assert measures.ranking.differences["ann", "bob"].difference == pytest.approx(expected, abs=1e-12)
    with RunReader(run.folder, planned()) as reader:
        pairs = pair_sides(*read_sides(reader, {"ann": "run:ann", "bob": "run:bob"}, {}).values())
    found = pairs.build_scored_pairs("haiku")
    assert found is not None
    assert fmean(found.pairs.b - found.pairs.a) == pytest.approx(expected, abs=1e-12)


def test_checks_are_no_part_of_what_is_said_of_judges(mixed: tuple[Run, Scores]) -> None:
    run, known = mixed
    measures, _, grid = measured(run, planned())
    assert list(measures.judges) == ["j1", "j2"]
    assert list(measures.agreement) == [("j1", "j2")]
    both = [
        (value, known[n, student, "j2", factor])
        for (n, student, judge, factor), value in known.items()
        if judge == "j1" and (n, student, "j2", factor) in known
    ]
    one, other = np.array(both).T
    by_chance = np.abs(np.subtract.outer(one, other)).mean()
    found = measures.agreement["j1", "j2"]
    assert found.count == len(both)
    assert found.kappa.value == pytest.approx(1 - np.abs(one - other).mean() / by_chance, abs=1e-9)
    counts = Counter(factor for _, _, judge, factor in known if judge == "j1")
    assert sum(measures.judges["j1"].levels.values()) == counts["tone"] + counts["depth"]
    assert list(measures.judges["j1"].levels) == ["Low", "Medium", "High", "1", "2", "3", "4", "5"]
    assert grid.scale.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert all(bias.family.value is None for bias in (one.bias for one in measures.judges.values()))


def test_a_check_that_the_rubric_has_lost_counts_no_more(mixed: tuple[Run, Scores]) -> None:
    """As a factor of judges it waits for their scores; those of the check are another thing's."""
    run, known = mixed
    plan = planned({})
    task = plan.tasks["haiku"]
    without = PlannedTask(
        teachers=None,
        judges=task.judges,
        factors=frozenset({"tone", "depth", "like"}),
        labels=None,
        scales={**task.scales, "like": FIVE},
        checks=frozenset(),
    )
    measures, scores, grid = measured(run, Planned(None, {"haiku": without}))
    assert grid.checked is None
    own = [value for (_, who, judge, _), value in known.items() if who == "ann" and judge != "check"]
    assert measures.students["ann"].overall.value == pytest.approx(fmean(own), abs=1e-12)
    assert [one.valid_evals for one in scores.students if (one.student, one.task) == ("ann", None)] == [
        len(own)
    ]


def test_names_of_levels_tell_scales_apart() -> None:
    scales = [parse_scale("1-5"), parse_scale("1-10")]
    levels = np.zeros((2, 2), np.int8)
    grid = grid_of(levels)._replace(
        factor=np.array([0, 1]),
        factors=("a", "b"),
        scale=np.array(sorted({*scales[0].values, *scales[1].values})),
        designs=(TaskDesign({"j1", "j2"}, {"a", "b"}, scales=dict(zip("ab", scales, strict=True))),),
    )
    found = count_levels_by_judge(grid)["j1"]
    assert {name: count for name, count in found.items() if count} == {"1 (1 to 5)": 1, "1 (1 to 10)": 1}
    assert all(one != other for one, other in pairwise(found))


@pytest.fixture
def failing(tmp_path: Path) -> Run:
    """A check that all 20 answers of two students pass, but two of ann's; the judge, who gives Low, fails on
    half of ann's and on all of bob's."""
    run = Run(tmp_path / "run")
    for n in range(1, 21):
        run.datapoint(n, sampled_target_attributes={"form": "strict" if n % 3 else "loose"})
        for student in ("ann", "bob"):
            run.response(n, student)
            values = {"says": 1.0} if n > 2 or student == "bob" else {}
            run.evaluation(n, student, "check", {}, values=values, missing=[] if values else ["says"])
            if student == "ann" and n % 2:
                run.evaluation(n, student, "j1", {"tone": "Low"})
            else:
                run.evaluation(n, student, "j1", {}, status="failed")
    return run


def test_an_item_that_lacks_a_factor_has_no_score(failing: Run) -> None:
    plan = planned({})
    task = msgspec.structs.replace(
        plan.tasks["haiku"],
        judges=frozenset({"j1", "check"}),
        factors=frozenset({"tone", "says"}),
        checks=frozenset({"says"}),
    )
    with RunReader(failing.folder, Planned(None, {"haiku": task})) as reader:
        measures, found = compute_run_measures(reader).measures, read_results(reader)
        by_factor = {
            (one.part, one.student): one for one in break_down_scores_and_labels(reader, "factor").scores
        }
        by_value = break_down_scores_and_labels(reader, "attribute").scores
        shown = {
            one.item.id: one.score for one in read_chosen_answers(reader, AnswerChoice(("ann",))).answers
        }
        report = compare_sides([[*read_sides(reader, {"ann": "ann", "bob": "bob"}, {}).values()]])
    ann, bob = (one for one in found.students if one.task is None)
    assert (ann.student, ann.score, ann.n) == ("ann", 0.5, 9)  # of ten that were judged, one lacks its check
    assert [ann.least, ann.most] == pytest.approx([18 / 40, (18 + 12) / 40])
    assert (bob.score, bob.n, bob.least) == (None, 0, None)
    note = "bob: no score in haiku, because no answer is scored in tone."
    assert note in found.notes
    assert note in measures.findings
    assert measures.students["ann"].score == measures.students["ann"].mean_recorded
    assert (measures.students["ann"].score.value, measures.students["ann"].score.n) == (0.5, 9)
    assert measures.students["ann"].overall.missing == 12
    assert measures.students["ann"].bounds == pytest.approx((18 / 40, 30 / 40))
    assert measures.students["bob"].score.value is None
    assert measures.students["bob"].bounds is None
    assert measures.ranking.order == ("ann",)
    assert [by_factor["says", name].n for name in ("ann", "bob")] == [18, 20]
    missing = {place: one.missing for place, one in by_factor.items()}
    assert missing == {("tone", "ann"): 10, ("tone", "bob"): 20, ("says", "ann"): 2, ("says", "bob"): 0}
    assert sum(one.n for one in by_value) == 9
    assert sum(score is not None for score in shown.values()) == 9
    assert [one.metric for one in report.comparisons] == ["says"]
    assert (
        "haiku: no item is scored in tone on both sides, so only single factors are compared" in report.notes
    )
