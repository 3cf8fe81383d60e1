"""One error rate for a page of comparisons, and comparisons with judges as a sample."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from written_run import Run

import coeval as api
from coeval.analysis.comparison.family import (
    FactorPart,
    FamilyMember,
    adjust_family,
    find_factor_behind_lead,
    gatekeep_p_values,
    lead_verdict,
)
from coeval.analysis.comparison.paired_difference import Difference
from coeval.reports.folder_report import open_folder_report
from coeval.reports.site.page import make_page
from evidence.judge_sample import TASKS, World, leads, pages, picked_leaders


def p_of(
    p_values: Sequence[float | None], above: Sequence[int | None], branches: Sequence[bool] = ()
) -> list[float | None]:
    return [None if one is None else one.p for one in gatekeep_p_values(p_values, above, branches)]


def test_leaves_beside_each_other_are_adjusted_by_holm() -> None:
    p = [0.01, 0.2, 0.03, 0.004]
    assert p_of(p, [None] * 4) == pytest.approx(multipletests(p, method="holm")[1])


def test_what_is_below_shares_the_level_of_what_is_above() -> None:
    """overall, two tasks, of the first two factors."""
    p = [0.001, 0.01, 0.04, 0.004, 0.012]
    assert p_of(p, [None, 0, 0, 1, 1]) == pytest.approx([0.001, 0.02, 0.08, 0.02, 0.024])
    closed = p_of([0.2, 0.001, None], [None, 0, 1])
    assert closed == [pytest.approx(0.2), pytest.approx(0.2), None]


@pytest.mark.process
def test_any_false_claim_of_a_page_is_rarer_than_one_in_twenty() -> None:
    equal = np.zeros((2, TASKS, 4))
    found = pages(World("two equal sides", equal), 1500)
    assert max(found.false_overall, found.false_below) <= 0.062
    assert found.false_families > 0.08
    some = equal.copy()
    some[1, 0, 0] = 1.5
    assert pages(World("one factor differs", some), 1500).false_below <= 0.062


def test_a_leader_that_is_picked_from_the_data_is_tested_among_all_pairs() -> None:
    own_pairs, all_pairs = picked_leaders(8, 300)
    assert all_pairs <= 0.07 < 0.09 < own_pairs


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
        for name in ("p_adjusted", "ci95_adjusted", "p_over_judges_adjusted", "ci95_over_judges_adjusted"):
            assert getattr(one, name) == pytest.approx(gap[name]), name
        assert one.verdict == gap["verdict"]
        assert one.ci95_over_judges == pytest.approx(gap["ci95_over_judges"])
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
    assert "; allowing for other judges ± " in said
    table = api.compare(folder).table()
    assert table["low_over_judges"][0] == compared[0].ci95_over_judges[0]  # type: ignore[index]


@pytest.mark.process
def test_one_judge_says_nothing_of_others(tmp_path: Path) -> None:
    folder = judged(tmp_path / "run", ("j1",))
    one = next(each for each in api.compare(folder, students=["ann", "cem"]).comparisons)
    assert (one.ci95_over_judges, one.p_over_judges, one.judges) == (None, None, 1)
    assert one.sentence.startswith("ann leads by this judge on ")
    assert "other judges" not in one.sentence


def test_a_branch_has_a_level_of_its_own() -> None:
    """overall, a task and one of its factors; two labels: what is overall has the same p without labels."""
    p = [0.01, 0.002, 0.03, 0.001, 0.02]
    found = p_of(p, [None, 0, 1, None, None], [False, False, False, True, True])
    assert found == pytest.approx([0.01, 0.01, 0.03, 0.002, 0.02])
    assert found[:3] == p_of(p[:3], [None, 0, 1])


def test_overall_differences_are_adjusted_by_holm_whatever_is_below() -> None:
    """Three pairs, two tasks below the first: these share a third of the level."""
    p = [0.01, 0.02, 0.04, 0.004, 0.02]
    found = p_of(p, [None, None, None, 0, 0])
    assert found == pytest.approx([0.03, 0.04, 0.04, 0.03, 0.06])


@pytest.mark.parametrize("p", [0.0004, 0.01, 0.0166, 0.03, 0.9])
def test_an_adjusted_interval_leaves_zero_out_where_the_adjusted_p_is_below_5_percent(p: float) -> None:
    """Three pairs; the third has a test below it, which is tested where its own is significant."""
    members = [member(0.001), member(0.2), member(p), member(0.002, parent=2)]
    for one, tested in zip(members, adjust_family(members), strict=True):
        low, high = tested.ci95_adjusted
        assert low < one.difference.difference < high
        assert (low > 0) == tested.significant == (tested.verdict == "leads")


def member(p: float, parent: int | None = None) -> FamilyMember:
    """A difference of 0.1 on 59 degrees of freedom with this p-value."""
    error = 0.1 / float(stats.t.isf(p / 2, 59))
    half = float(stats.t.isf(0.025, 59)) * error
    difference = Difference(0.4, 0.5, 0.1, 0.1 - half, 0.1 + half, error, 59, p, 60, 0.1, "paired t")
    return FamilyMember(difference, parent=parent)


def test_a_verdict_is_one_of_four_words() -> None:
    assert lead_verdict(0.01, 0.02, 3) == lead_verdict(0.01, None, None) == "leads"
    assert lead_verdict(0.01, 0.2, 3) == lead_verdict(0.01, None, 2) == "leads by these judges"
    assert lead_verdict(0.01, 0.02, 2) == "leads by these judges", "two judges say little of others"
    assert lead_verdict(0.01, None, 1) == "leads by this judge"
    assert lead_verdict(0.05, 0.01, 3) == lead_verdict(None, None, None) == "tied"


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
    assert label.p_adjusted == pytest.approx(label.p)
    assert label.significant
    assert compared.sentences[1].startswith("ann leads on haiku (form): 66.0 ± ")


def lead_of(*parts: tuple[str, float, float, bool]) -> str | None:
    """What a lead comes from whose halves are these: factor, difference, p-value, whether it is a check."""
    found = [
        FactorPart(
            factor, is_check, 0.5, msgspec.structs.replace(member(p).difference, difference=difference)
        )
        for factor, difference, p, is_check in parts
    ]
    [lead] = adjust_family([member(0.001)])
    return find_factor_behind_lead(lead, found)


def test_a_lead_comes_from_the_one_factor_that_makes_up_most_of_it() -> None:
    assert lead_of(("tone", 0.2, 0.001, False), ("amount", 0.01, 0.6, False)) == "tone"
    assert lead_of(("tone", 0.0, 0.9, False), ("amount", 0.2, 0.001, True)) == "amount, a check"
    assert lead_of(("tone", 0.1, 0.01, False), ("amount", 0.1, 0.01, True)) is None, "two share it"
    assert lead_of(("tone", 0.2, 0.001, False), ("amount", 0.04, 0.01, False)) is None, "both lead"
    assert lead_of(("tone", 0.2, 0.001, False)) is None, "a score of one factor says so already"
    [tied] = adjust_family([member(0.3)])
    assert (
        find_factor_behind_lead(tied, [FactorPart("tone", False, 1.0, member(0.001).difference)]) is None
    ), "no lead"


@pytest.mark.process
def test_every_face_names_the_factor_of_a_lead(tmp_path: Path) -> None:
    run, drawn = Run(tmp_path / "run"), random.Random(5)
    for n in range(1, 61):
        alike = drawn.choice(("High", "Low"))
        for student, tone in (("ann", "High"), ("ben", drawn.choice(("High", "Medium", "Low")))):
            for judge in ("j1", "j2", "j3"):
                run.judged(n, student, judge, {"tone": tone, "amount": alike})
    source = "the lead comes from tone"
    with open_folder_report(run.folder) as found:
        assert any(source in sentence.text for sentence in found.report.lead)
        page = make_page(found.report).decode()
    compared = api.compare(run.folder)
    [one] = [one for one in compared.comparisons if one.metric == "score"]
    [gap] = api.open_run(run.folder).measures()["ranking"]["differences"].values()
    assert one.comes_from == gap["comes_from"] == "tone"
    assert source in one.sentence
    assert source in page
    for command in ("results", "analyze", "compare"):
        printed = subprocess.run(
            [sys.executable, "-m", "coeval", command, str(run.folder)],
            capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
        assert source in " ".join(printed.split()), command
