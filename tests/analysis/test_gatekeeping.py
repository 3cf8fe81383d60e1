"""One error rate for a page of comparisons, and comparisons with judges as a sample."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests
from written_run import Run

import coeval as api
from coeval.analysis.comparison.comparisons import gatekept
from evidence.judge_sample import TASKS, World, leads, pages


def test_leaves_beside_each_other_are_adjusted_by_holm() -> None:
    p = [0.01, 0.2, 0.03, 0.004]
    assert gatekept(p, [None] * 4) == pytest.approx(multipletests(p, method="holm")[1])


def test_what_is_below_shares_the_level_of_what_is_above() -> None:
    """overall, two tasks, of the first two factors."""
    p = [0.001, 0.01, 0.04, 0.004, 0.012]
    assert gatekept(p, [None, 0, 0, 1, 1]) == pytest.approx([0.001, 0.02, 0.08, 0.02, 0.024])
    closed = gatekept([0.2, 0.001, None], [None, 0, 1])
    assert closed == [pytest.approx(0.2), pytest.approx(0.2), None]


@pytest.mark.process
def test_any_false_claim_of_a_page_is_rarer_than_one_in_twenty() -> None:
    equal = np.zeros((2, TASKS, 4))
    found = pages(World("two equal sides", equal), 1500)
    assert found.false_gatekept <= 0.062
    assert found.false_families > 0.08
    some = equal.copy()
    some[1, 0, 0] = 1.5
    assert pages(World("one factor differs", some), 1500).false_gatekept <= 0.062


@pytest.mark.process
def test_a_lead_that_holds_for_other_judges_is_seldom_false() -> None:
    found = leads(3, 3, 0.07, 600)
    assert found.false_judges <= 0.03 < 0.1 < found.false_items
    assert found.holds_judges >= 0.91
    assert found.holds_items < 0.75


def judged(folder: Path, judges: tuple[str, ...]) -> Path:
    """Three students, each judge with a leaning of its own to each."""
    run, drawn = Run(folder), random.Random(3)
    skills = {"ann": 0.75, "ben": 0.6, "cem": 0.2}
    leaning = {(judge, name): drawn.gauss(0, 0.1) for judge in judges for name in skills}
    for n in range(1, 61):
        for name, skill in skills.items():
            seen = skill + drawn.gauss(0, 0.2)
            for judge in judges:
                own = seen + leaning[judge, name] + drawn.gauss(0, 0.1)
                run.judged(n, name, judge, {"a": "High" if own > 0.67 else "Medium" if own > 0.33 else "Low"})
    return run.folder


@pytest.mark.process
def test_a_comparison_of_students_has_the_second_interval_of_their_run(tmp_path: Path) -> None:
    folder = judged(tmp_path / "run", ("j1", "j2", "j3"))
    gaps = api.open_run(folder).measures()["ranking"]["differences"]
    compared = [one for one in api.compare(folder).comparisons if one.family == "task"]
    assert len(compared) == 3
    for one in compared:
        gap = gaps["|".join(sorted((one.a, one.b)))]
        assert one.difference == pytest.approx(gap["difference"])
        assert one.ci95_over_judges == pytest.approx(gap["ci95"]["over_judges"])
        assert one.p_over_judges == pytest.approx(gap["p_over_judges"])
        assert (one.judges, one.agreeing) == (3, gap["agreeing"])
        assert one.ci95_over_judges is not None
        assert one.ci95_over_judges[0] <= one.ci95[0] < one.ci95[1] <= one.ci95_over_judges[1]
    two = next(one for one in api.compare(folder, students=["ben", "ann"]).comparisons)
    whole = next(one for one in compared if {one.a, one.b} == {"ann", "ben"})
    assert (two.p, two.p_over_judges) == (whole.p, whole.p_over_judges)  # of judges the third says something
    assert two.ci95_over_judges is not None
    assert whole.ci95_over_judges in (two.ci95_over_judges, tuple(-end for end in two.ci95_over_judges[::-1]))
    said = " ".join(one.sentence for one in compared)
    assert "points over items, ± " in said
    table = api.compare(folder).table()
    assert table["low_over_judges"][0] == compared[0].ci95_over_judges[0]  # type: ignore[index]


@pytest.mark.process
def test_one_judge_says_nothing_of_others(tmp_path: Path) -> None:
    folder = judged(tmp_path / "run", ("j1",))
    one = next(each for each in api.compare(folder, students=["ann", "cem"]).comparisons)
    assert (one.ci95_over_judges, one.p_over_judges, one.judges) == (None, None, 1)
    assert one.sentence.startswith("ann is better than cem on ")
    assert "; agreement of other judges is unknown: one judge scored both. " in one.sentence


def test_branches_share_the_level_evenly() -> None:
    """overall, a task and one of its factors; two labels."""
    p = [0.01, 0.002, 0.03, 0.001, 0.02]
    found = gatekept(p, [None, 0, 1, None, None], [False, False, False, True, True])
    assert found == pytest.approx([0.02, 0.02, 0.06, 0.004, 0.04])
    assert gatekept(p[3:], [None] * 2, [True] * 2) == pytest.approx([0.002, 0.02])


def test_pages_with_labels_have_one_error_rate() -> None:
    """Where no two sides differ: an overall difference, two tasks, four labels, all independent."""
    drawn = np.random.default_rng(7).random((4000, 7))
    above, branches = [None, 0, 0, *[None] * 4], [False] * 3 + [True] * 4
    false = np.mean([min(one or 0.0 for one in gatekept(p, above, branches)) < 0.05 for p in drawn.tolist()])
    assert 0.04 <= false <= 0.06


def labelled(folder: Path, n: int = 100, lost: int = 66) -> Path:
    """Two students with the same scores, of whom ben has lost some labels."""
    run = Run(folder)
    for at in range(1, n + 1):
        for student in ("ann", "ben"):
            run.judged(at, student, "j", {"a": "High" if at % 2 else "Low"})
            match = student == "ann" or at > lost
            said = {"expected": "strict", "predicted": "strict" if match else "loose", "match": match}
            run.evaluation(at, student, "exact_match", {}, label_scores={"form": said})
    return run.folder


@pytest.mark.process
def test_a_label_is_tested_beside_scores_that_do_not_differ(tmp_path: Path) -> None:
    compared = api.compare(labelled(tmp_path / "run"))
    score, label = compared.comparisons
    assert (score.family, label.family) == ("task", "label")
    assert (score.p_adjusted, label.place, label.gate) == (1.0, "haiku: form", None)
    assert label.p is not None
    assert label.p_adjusted == pytest.approx(2 * label.p)
    assert label.significant
    assert compared.sentences[1].startswith("ann is better than ben on haiku (form) by 66.0 ± ")
