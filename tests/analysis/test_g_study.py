"""Where scores scatter: by others' code, and on planted scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from statsmodels.formula.api import ols
from statsmodels.stats.anova import AnovaRM, anova_lm
from written_run import REFERENCE, WHY_SKIPPED

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import read_score_grid
from coeval.analysis.panel.g_study import estimate_g_study, select_well_covered_block
from coeval.analysis.panel.panel_findings import reliability_sentences
from coeval.analysis.readers.run_reader import RunReader
from evidence.g_study import DICE, PARTS, PERFECT, Design, components, drawn, grid_of, points, studied
from evidence.g_study import reliability as reliable


def scores(seed: int, *sizes: int) -> Floats:
    return drawn(np.random.default_rng(seed), Design(*sizes))


def by_statsmodels(frame: pd.DataFrame) -> dict[str, float]:
    """Variances by the mean squares of a table of other people's making, solved for them by hand."""
    table = anova_lm(ols("y ~ C(i) * C(s) * C(j) - C(i):C(s):C(j)", frame).fit())["mean_sq"]
    n, s, k = (frame[name].nunique() for name in "isj")
    rest, si, sj, ij = (table[name] for name in ("Residual", "C(i):C(s)", "C(s):C(j)", "C(i):C(j)"))
    return {
        "students": (table["C(s)"] - si - sj + rest) / (n * k),
        "items": (table["C(i)"] - si - ij + rest) / (s * k),
        "judges": (table["C(j)"] - sj - ij + rest) / (n * s),
        "students_items": (si - rest) / k,
        "students_judges": (sj - rest) / n,
        "items_judges": (ij - rest) / s,
        "residual": rest,
    }


def test_components_and_reliability_are_those_of_an_analysis_of_variance() -> None:
    y = scores(1, 12, 3, 4)
    item, student, judge = (place.ravel() for place in np.indices(y.shape))
    frame = pd.DataFrame({"y": y.ravel(), "i": item, "s": student, "j": judge})
    expected, found = by_statsmodels(frame), studied(y)
    for name, variance in expected.items():
        assert points(1.0) ** 2 * (found.components[name].variance.value or 0.0) == pytest.approx(
            variance, abs=0.05
        )
    error = expected["students_items"] / 12 + expected["students_judges"] / 4 + expected["residual"] / 48
    assert found.reliability.value == pytest.approx(
        expected["students"] / (expected["students"] + error), abs=1e-3
    )


@pytest.mark.skipif(not REFERENCE.is_dir(), reason=WHY_SKIPPED)
def test_those_of_a_real_run_are_within_two_points_of_an_analysis_done_apart() -> None:
    """By pandas, item by item; what some student or judge lacks is left out."""
    with RunReader(REFERENCE / "legacy_run") as reader:
        grid = read_score_grid(reader)
    found = estimate_g_study(grid.judge_scores)
    assert found is not None
    means, weights = [], []
    for task in range(len(grid.tasks)):
        rows = [
            (item, student, judge, grid.values[level])
            for item, student, levels, of in zip(grid.item, grid.student, grid.levels, grid.task, strict=True)
            for judge, level in enumerate(levels)
            if level >= 0 and of == task
        ]
        frame = (
            pd.DataFrame(rows, columns=["i", "s", "j", "y"])
            .groupby(["i", "s", "j"])
            .y.mean()
            .unstack(["s", "j"])
        )
        whole = frame.dropna()
        weights.append(len(whole))
        means.append(by_statsmodels(whole.stack(["s", "j"], future_stack=True).rename("y").reset_index()))
    assert found.items == sum(weights)
    for name, one in found.components.items():
        variance = np.average([of[name] for of in means], weights=weights)
        assert one.sd.value == pytest.approx(np.sqrt(max(variance, 0)), abs=0.02)
        assert one.variance.value == pytest.approx(variance, abs=1e-9)


@pytest.mark.process
def test_planted_components_are_found() -> None:
    """docs/evidence/g-study.md has those of a thousand runs."""
    found = components(200)
    assert len(found) == len(PARTS)
    for one in found:
        assert one.found == pytest.approx(one.planted, abs=2), one.part
    held = {one.part: one.held for one in found}
    assert all(
        0.9 <= held[part] <= 0.99 for part in ("items", "students × items", "items × judges", "residual")
    )


@pytest.mark.process
def test_dice_are_not_reliable_and_judges_of_one_mind_are() -> None:
    assert reliable(DICE, 0.0, 100, Design(judges=3)).median < 0.1
    assert reliable(PERFECT, 20.0, 20, Design(judges=3)).low > 0.95


def test_a_variance_below_zero_is_shown_and_its_sd_is_zero() -> None:
    generator = np.random.default_rng(2)
    parts = {**PARTS, "students_items": 0.0}
    found = [
        studied(drawn(generator, Design(20, 3, 3), parts)).components["students_items"] for _ in range(10)
    ]
    below = [one for one in found if (one.variance.value or 0.0) < 0]
    assert below
    for one in below:
        assert one.sd.value == 0
        assert one.sd.low is None or one.sd.low >= 0


def test_what_has_holes_is_left_out_and_counted() -> None:
    """A judge with few scores first, then items that lack one; the rest is the study of the rest alone."""
    y = scores(3, 30, 4, 4)
    grid = grid_of(y)
    grid.levels[(grid.item > 5), 3] = -1
    grid.levels[(grid.item == 2) & (grid.student == 1), 0] = -1
    found = estimate_g_study(grid)
    assert found is not None
    assert (found.items, found.left_out) == (29, 1)
    assert found.judges == ("judge-0", "judge-1", "judge-2")
    alone = studied(np.delete(y, 2, axis=0)[:, :, :3])
    for name, one in alone.components.items():
        assert found.components[name].variance.value == pytest.approx(one.variance.value, abs=1e-12)
    assert found.reliability.value == pytest.approx(alone.reliability.value)
    nobody = grid._replace(levels=np.full_like(grid.levels, -1))
    assert estimate_g_study(nobody) is None


def test_a_factor_without_weight_makes_no_item_count() -> None:
    """The first items have scores of such a factor alone."""
    y = scores(11, 30, 4, 3)
    grid = grid_of(y)
    factor = np.where(grid.item < 5, 1, 0)
    [design] = grid.designs
    weighed = design._replace(factors={"factor", "idle"}, weights={"factor": 2.0, "idle": 0.0})
    some = grid._replace(
        factor=factor,
        factors=("factor", "idle"),
        designs=(weighed,),
        items=grid.items._replace(alike=np.arange(30) // 2),
    )
    found, alone = select_well_covered_block(some, 0), select_well_covered_block(grid, 0)
    assert found.cells == pytest.approx(alone.cells[5:])
    assert found.cluster.tolist() == (np.arange(5, 30) // 2).tolist()
    assert found.left_out == 0


def test_a_judge_is_worth_what_reliability_loses_without_it() -> None:
    """One who sees it the other way round takes away from it, and is named; of two nobody can be left out."""
    y = scores(4, 100, 5, 4)
    y[:, :, 3] = 100 - y[:, :, 3]
    found, without = studied(y), studied(y[:, :, :3])
    worth = found.worth["judge-3"].worth
    assert worth.value == pytest.approx((found.reliability.value or 0) - (without.reliability.value or 0))
    assert (worth.high or 0.0) < 0
    said = list(reliability_sentences(found))
    assert said[0].startswith(
        "Reliability of the students' scores for other items and judges, from 0 to 1: Eρ² = 0."
    )
    assert said[1:] == [f"judge-3 lowers it by {-(worth.value or 0):.2f}."]
    assert {one.worth.value for one in studied(y[:, :, :2]).worth.values()} == {None}


def test_of_dice_nothing_is_said_to_be_reliable() -> None:
    generator = np.random.default_rng(12)
    said = [
        text
        for _ in range(20)
        for text in reliability_sentences(studied(drawn(generator, Design(judges=3), DICE, 0.0)))
    ]
    chance = [text for text in said if "an F test over items finds no difference" in text]
    assert len(chance) >= 17  # 19 of 20 at 5%
    assert all("would separate the students is open" in text for text in said if text not in chance)
    doubts = ("not distinguishable from no agreement.", "without an interval.", "estimated below 0.")
    assert all(text.endswith(doubts) for text in said)
    assert any(text.endswith(doubts[0]) for text in said)


@pytest.mark.parametrize(("students", "seed"), [(2, 1), (3, 4), (5, 9)])
def test_judges_who_contradict_each_other_make_no_chance_of_a_difference_over_items(
    students: int, seed: int
) -> None:
    """By these judges students differ, as an analysis of variance of their means has it; Eρ² and its bounds
    say that other judges might see anything."""
    generator = np.random.default_rng(seed)
    views = np.array([40.0, -32.0, 4.0])[:, None] * np.linspace(-1, 1, students)
    y = drawn(generator, Design(60, students, 3), {**DICE, "residual": 9.0}) + views.T
    found = studied(y)
    means = pd.DataFrame(
        [(item, s, y[item, s].mean()) for item in range(60) for s in range(students)], columns=["i", "s", "y"]
    )
    assert found.p == pytest.approx(
        AnovaRM(means, "y", "i", within=["s"]).fit().anova_table["Pr > F"].iloc[0]
    )
    assert found.p is not None
    assert found.p < 0.05
    assert (found.reliability.value or 0.0) < 0
    assert found.reliability.low is None or 0 <= found.reliability.low <= (found.reliability.high or 0.0) <= 1
    [said] = reliability_sentences(found)
    assert said.startswith("Whether other items and judges would separate the students is open: ")
    assert said.endswith("Eρ² is estimated below 0.")


def test_tasks_count_alike_and_a_judge_keeps_its_view_from_task_to_task() -> None:
    """Views that are the same in both tasks do not average out; chance does."""
    generator = np.random.default_rng(6)
    views = generator.normal(0, 8, (1, 5, 3))
    plain = {**DICE, "residual": 5.0}
    y = drawn(generator, Design(80, 5, 3), plain) + views
    one, two = estimate_g_study(grid_of(y)), estimate_g_study(grid_of(y, tasks=2))
    assert one is not None
    assert two is not None
    assert two.reliability.value == pytest.approx(one.reliability.value, abs=0.01)
    assert [*two.judges] == ["judge-0", "judge-1", "judge-2"]


def test_students_and_judges_with_few_scores_leave_a_block() -> None:
    grid = grid_of(scores(10, 20, 4, 3))
    grid.levels[(grid.student == 2) & (grid.item > 3)] = -1
    block = select_well_covered_block(grid, 0)
    assert block.cells.shape == (20, 3, 3)
    assert block.students.tolist() == [0, 1, 3]
    assert block.left_out == 0
