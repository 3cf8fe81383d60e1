"""The second interval of a run's differences and scores: with judges as a sample too."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t, ttest_rel
from statsmodels.stats.multitest import multipletests

from coeval.analysis.comparison.comparison_report import interval_over_judges_or_unknown
from coeval.analysis.measures.leaders import leader_tie_and_judges_sentences, significant_pair_count_sentences
from coeval.analysis.measures.ranking import Ranking, rank_excluding_self_judgments, rank_students
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.panel.mean_squares import judge_score_array, mean_squares
from coeval.core.figures import NOT_KNOWN

LEVELS = np.linspace(0, 1, 101)


def grid_of(scores: NDArray[np.float64]) -> ScoreGrid:
    """Of (n, S, k) scores, rounded to hundredths: one task, one factor."""
    n, students, judges = scores.shape
    item, student = (axis.ravel() for axis in np.indices((n, students)))
    names = tuple(f"j{at}" for at in range(judges))
    levels = np.clip(np.rint(100 * scores), 0, 100).astype(np.int8).reshape(-1, judges)
    return ScoreGrid(
        item,
        student,
        np.zeros(len(item), int),
        levels,
        GridItems([str(at) for at in range(n)], np.zeros(n, int), np.zeros(n, int), {}),
        tuple(f"s{at}" for at in range(students)),
        names,
        ("factor",),
        ("task",),
        ("teacher",),
        (TaskDesign(frozenset(names), frozenset({"factor"})),),
        scale=LEVELS,
    )


def drawn(
    seed: int, means: tuple[float, ...], judges: int, leaning: float = 0.05, items: int = 100
) -> ScoreGrid:
    random = np.random.default_rng(seed)
    scores = np.array(means)[:, None] + leaning * random.normal(size=(len(means), judges))
    scores = scores + 0.1 * random.normal(size=(items, len(means), 1))
    return grid_of(scores + 0.05 * random.normal(size=(items, len(means), judges)))


def ranked(grid: ScoreGrid) -> Ranking:
    return rank_students(grid).ranking


def said(grid: ScoreGrid) -> str:
    ranks, students = rank_students(grid)
    return " ".join(
        [*leader_tie_and_judges_sentences(students, ranks), *significant_pair_count_sentences(ranks)]
    )


def careful(squared: float, spent: float, of_judges: float, f: int) -> float:
    """Satterthwaite's degrees, judges' square taken (f + 2)/f times as long as that leaves theirs."""
    fewer = squared / (spent + of_judges * 2 / f**2)
    return min(squared / spent, max(fewer, f))


def test_intervals_of_pairs_are_those_of_the_formula_and_the_first_is_as_before() -> None:
    grid = drawn(1, (0.6, 0.55, 0.5), 4)
    cells = judge_score_array(grid, 0)
    table, found = mean_squares(cells), ranked(grid).differences
    n, k = 100, 4
    of_judges, residual = float(table.students_judges[0]), float(table.residual[0])
    more = max(of_judges - residual, 0) * 2 / (n * k)
    odds = []
    for a, b in combinations(range(3), 2):
        apart = cells[:, b].mean(axis=1) - cells[:, a].mean(axis=1)
        error = float(apart.var(ddof=1)) / n
        spent = error**2 / (n - 1) + (2 / (n * k)) ** 2 * (
            of_judges**2 / (2 * (k - 1)) + residual**2 / (2 * (n - 1) * (k - 1))
        )
        degrees = careful((error + more) ** 2, spent, (2 / (n * k) * of_judges) ** 2, 2 * (k - 1))
        half, pair = t.ppf(0.975, degrees) * (error + more) ** 0.5, found[f"s{a}", f"s{b}"]
        assert pair.ci95_over_judges == pytest.approx([apart.mean() - half, apart.mean() + half], abs=1e-12)
        first = t.ppf(0.975, n - 1) * error**0.5
        assert pair.ci95 == pytest.approx((apart.mean() - first, apart.mean() + first), abs=1e-12)
        assert pair.p == pytest.approx(ttest_rel(cells[:, b].mean(axis=1), cells[:, a].mean(axis=1)).pvalue)
        odds.append(2 * t.sf(abs(apart.mean()) / (error + more) ** 0.5, degrees))
        assert pair.p_over_judges == pytest.approx(odds[-1])
        own = (cells[:, b] - cells[:, a]).mean(axis=0) * np.sign(apart.mean())
        assert (pair.judges, pair.agreeing) == (k, int((own > 0).sum()))
    adjusted = [found[f"s{a}", f"s{b}"].p_over_judges_adjusted for a, b in combinations(range(3), 2)]
    assert adjusted == pytest.approx(multipletests(odds, method="holm")[1])


def test_a_score_over_judges_holds_their_severities() -> None:
    """v_items of the first interval, and the variance of judges' own means over their number."""
    grid = drawn(2, (0.6, 0.5), 5)
    grid = grid_of(judge_score_array(grid, 0) + np.array([0.1, -0.1, 0.05, 0.0, -0.05]))
    cells, n, k = judge_score_array(grid, 0), 100, 5
    between = cells.mean(axis=0).var(axis=1, ddof=1).mean()
    rest = cells - cells.mean(axis=2, keepdims=True) - cells.mean(axis=0) + cells.mean(axis=(0, 2))[:, None]
    within = (rest**2).sum() / (2 * (n - 1) * (k - 1)) / n
    for one in rank_students(grid).scores.values():
        low, high = one.score.low, one.score.high
        assert one.over_judges is not None
        assert low is not None
        assert high is not None
        error = ((high - low) / 2 / t.ppf(0.975, n - 1)) ** 2
        v = error + (between - within) / k
        spent = error**2 / (n - 1) + (between / k) ** 2 / (k - 1) + (within / k) ** 2 / ((n - 1) * (k - 1))
        half = t.ppf(0.975, careful(v**2, spent, (between / k) ** 2, k - 1)) * v**0.5
        assert one.over_judges.value == one.score.value
        assert one.over_judges.high == pytest.approx((one.score.value or 0) + half, abs=1e-9)


def test_a_sentence_is_about_other_judges() -> None:
    apart = said(drawn(3, (0.6, 0.5), 4, leaning=0.001))
    assert apart.startswith("s0 leads: ")
    assert (
        " points ahead of s1 on 100 shared items (p < 0.001). All 4 judges put s0 ahead; allowing for other "
        "judges, the lead is " in apart
    )
    cells = judge_score_array(drawn(4, (0.5, 0.5, 0.2), 4, leaning=0), 0)
    cells[:, 0] += np.array([0.15, 0.1, -0.05, -0.04])  # on average by 4 points
    leaning = grid_of(cells)
    open_ = said(leaning)
    assert " leads by these judges: " in open_
    assert "2 of 4 judges put s0 ahead; allowing for other judges, the lead is " in open_
    assert " points: more items cannot settle it, more judges can." in open_
    sure = sum(one.significant for one in ranked(leaning).differences.values())
    both = sum(one.verdict == "leads" for one in ranked(leaning).differences.values())
    assert both < sure == 3
    assert f"significant, {both or 'none'} of them also when judges are treated as a sample." in open_


def test_two_judges_are_a_guess_and_one_is_not_known() -> None:
    grid = drawn(5, (0.6, 0.5), 2, leaning=0.05)
    assert said(grid).endswith("; two judges give only a rough estimate.")
    one = grid.select_judges(["j0"])
    assert said(one).endswith("(p < 0.001). Only one judge was used, so agreement cannot be measured.")
    [gap] = ranked(one).differences.values()
    assert (gap.ci95_over_judges, gap.p_over_judges, gap.judges) == (None, None, 1)
    assert rank_students(one).scores["s0"].over_judges is not None


def test_where_no_judge_scored_there_is_no_second_interval() -> None:
    grid = drawn(6, (0.6, 0.5), 1)
    checks = TaskDesign(
        frozenset(), frozenset({"factor"}), checks=frozenset({"factor"}), weights={"factor": 1.0}
    )
    checked = grid._replace(
        levels=np.zeros((len(grid.item), 0), np.int8),
        judges=(),
        checked=LEVELS[grid.levels[:, 0]],
        designs=(checks,),
    )
    [gap] = ranked(checked).differences.values()
    assert gap.significant
    assert (gap.ci95_over_judges, gap.judges) == (None, None)
    assert rank_students(checked).scores["s0"].over_judges is None
    assert said(checked).startswith("s0 leads: ")
    assert "judges" not in said(checked)


def test_without_own_scores_a_pair_is_judged_by_those_who_are_neither() -> None:
    grid = drawn(7, (0.6, 0.5, 0.4), 5)._replace(judges=("s0", "j1", "j2", "j3", "s2"))
    found = rank_excluding_self_judgments(grid)
    assert [gap.judges for gap in found.ranking.differences.values()] == [4, 3, 4]
    [one, *_] = rank_students(grid).ranking.differences.values()
    assert one.judges == 5


def test_an_interval_as_wide_as_the_scale_is_not_known_in_sentences_and_tables() -> None:
    scores = np.zeros((8, 2, 2))
    scores[:, 0, 0], scores[:, 1, 0], scores[::2, 0, 1] = 0.7, 0.1, 0.2
    ranks, students = rank_students(grid_of(scores))
    gap = ranks.difference("s0", "s1")
    assert gap is not None
    assert gap.ci95_over_judges_adjusted == (-1.0, 1.0)
    assert interval_over_judges_or_unknown(gap) == NOT_KNOWN
    assert " is not known: more items " in " ".join(leader_tie_and_judges_sentences(students, ranks))
