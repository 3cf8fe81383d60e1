"""Ranges of ranks, and the sentences that a run comes to."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from cli.invoked import Command
from scipy.stats import ttest_rel
from statsmodels.stats.multitest import multipletests
from written_run import Run

import coeval as api
from coeval.analysis.comparison.comparison_report import format_difference
from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.measures.leaders import (
    items_needed_sentence,
    leader_tie_and_judges_sentences,
    significant_pair_count_sentences,
)
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.ranking import StudentMean, rank_by_shared_scores, rank_students
from coeval.analysis.measures.student_measures import StudentScores, sum_student_item_scores
from coeval.core.figures import format_points
from evidence.measure_coverage import World, drawn_grid
from evidence.planted import judge_missing, judging_themselves

NEAR = World("two alike, one behind", (0.5, 0.5, 0.35, -0.6))


@pytest.mark.process
def test_ranges_come_of_all_paired_differences_after_holm() -> None:
    grid = drawn_grid(NEAR, 300, np.random.default_rng(7))
    found = rank_students(grid).ranking
    scores = sum_student_item_scores(grid).mean
    names = list(grid.students)
    pairs = sorted(found.differences)
    p = [ttest_rel(scores[names.index(b)], scores[names.index(a)]).pvalue for a, b in pairs]
    adjusted = multipletests(p, method="holm")[1]
    for pair, one, expected in zip(pairs, p, adjusted, strict=True):
        reported = found.differences[pair]
        assert reported.p == pytest.approx(one, rel=1e-9)
        assert reported.p_adjusted == pytest.approx(expected, rel=1e-9)
    for name in names:
        worse_than = sum(
            reported.significant and name in pair and (reported.difference > 0) == (pair[0] == name)
            for pair, reported in found.differences.items()
        )
        assert found.ranges[name][0] == 1 + worse_than
    assert found.ranges["student-3"] == (4, 4)


@pytest.mark.process
@pytest.mark.parametrize("students", [2, 3])
def test_a_strict_judge_who_is_missing_for_some_makes_nobody_better(students: int) -> None:
    found = judge_missing(100, repeats=200, students=students)
    assert found.false <= 0.08, "of three students, or two, any pair"
    assert found.first == pytest.approx([1 / students] * students, abs=0.11)


@pytest.mark.process
def test_of_equal_students_who_judge_themselves_each_is_first_as_often() -> None:
    assert judging_themselves(50, repeats=200).first == pytest.approx([1 / 3] * 3, abs=0.11)


@pytest.mark.process
def test_who_lacks_a_strict_judge_is_ranked_by_the_scores_that_others_share(
    tmp_path: Path, coeval: Command
) -> None:
    """part is worse by both judges; where only the kind one scored it, its mean is higher all the same."""
    run = Run(tmp_path / "run")
    for n in range(1, 21):
        for student in ("part", "whole"):
            run.judged(n, student, "kind", {"a": "Medium" if student == "part" and n % 4 == 0 else "High"})
            if student == "whole" or n <= 4:
                run.judged(n, student, "strict", {"a": "Low"})
    measures = api.open_run(run.folder).measures()
    students = {name: measures["students"][name] for name in ("part", "whole")}
    raw = {name: one["mean_recorded"] for name, one in students.items()}
    ranks = measures["ranking"]
    assert raw["part"] > raw["whole"]
    assert ranks["order"] == ["whole", "part"]
    assert ranks["adjusted"]
    scores = {name: one["score"] for name, one in students.items()}
    assert scores["whole"] == raw["whole"], "nothing is missing of it"
    gap = ranks["differences"]["part|whole"]["difference"]
    assert scores["whole"] - scores["part"] == pytest.approx(gap)
    [compared] = api.compare(run.folder).comparisons
    assert compared.difference == pytest.approx(gap), "one pairing for all"
    assert compared.p == pytest.approx(ranks["differences"]["part|whole"]["p"])
    assert [one.student for one in api.open_run(run.folder).results().students if one.task is None] == [
        "whole",
        "part",
    ]
    out = coeval("results", "--run", run.folder).out
    assert f"{format_points(scores['part'])} [" in out
    assert out.index("whole") < out.index("part")


@pytest.mark.process
def test_results_are_adjusted_as_measures_are_whatever_the_number_of_factors(tmp_path: Path) -> None:
    """part lacks items with all their scores, by two judges in two factors."""
    run = Run(tmp_path / "run")
    for n in range(1, 21):
        for student in ("part", "whole"):
            if student == "whole" or n <= 10:
                for judge in ("kind", "strict"):
                    run.judged(n, student, judge, {"a": "High" if n <= 10 else "Low", "b": "Medium"})
    folder = api.open_run(run.folder)
    scores = folder.measures()["students"]
    found = {one.student: one.score for one in folder.results().students if one.task is None}
    assert found == {name: pytest.approx(of["score"]) for name, of in scores.items()}
    assert found["part"] == pytest.approx(found["whole"]), "they are alike on what they share"


def write(run: Run, students: dict[str, float], items: int = 60, seed: int = 1) -> None:
    drawn = random.Random(seed)
    for n in range(1, items + 1):
        hard = drawn.random()
        for student, skill in students.items():
            good = skill + 0.2 * (0.5 - hard) > drawn.random()
            for judge in ("j1", "j2"):
                seen = good if drawn.random() < 0.99 else not good
                run.judged(n, student, judge, {"a": "High" if seen else "Low"})


@pytest.mark.process
def test_a_clear_leader_is_named_with_the_difference(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    write(run, {"best": 0.95, "mid": 0.5, "also-mid": 0.5})
    ended = coeval("analyze", "--run", run.folder)
    out = " ".join(ended.out.split())
    assert "best leads by these judges: " in out
    assert " on 60 shared items (p < 0.001)." in out
    assert "Both judges put best ahead; allowing for other judges, the lead is " in out
    assert "; two judges give only a rough estimate." in out
    assert "2 of 3 pairwise differences between students are significant." in out
    assert "Agreement between the judges is almost perfect" in ended.out
    assert "Missing" not in ended.out
    measures = api.open_run(run.folder).measures()
    assert measures["ranking"]["ranges"] == {"best": [1, 1], "mid": [2, 3], "also-mid": [2, 3]}
    assert measures["findings"][0] in ended.out


@pytest.mark.process
def test_what_is_not_sure_is_called_so_with_what_could_have_been_found(
    tmp_path: Path, coeval: Command
) -> None:
    run = Run(tmp_path / "run")
    write(run, {"one": 0.6, "two": 0.58}, items=30)
    out = coeval("analyze", "--run", run.folder).out
    assert "tied" in " ".join(out.split())
    assert "If the gap is real, about " in out or "too small to settle with more items" in out


@pytest.mark.process
def test_verdicts_sentences_and_what_could_have_been_found_allow_for_all_pairs(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    write(run, {f"s{n:02d}": 0.95 - 0.07 * n for n in range(10)}, items=40)
    ranking = api.open_run(run.folder).measures()["ranking"]
    pairs = ranking["differences"]
    assert len(pairs) == 45
    found = [one for one in pairs.values() if abs(one["difference"]) >= one["minimum_detectable"]]
    assert found
    assert all(one["p_adjusted"] < 0.05 for one in found), "what could have been found is sure where seen"
    sure = {name for name, one in pairs.items() if one["p_adjusted"] < 0.05}
    said = " ".join(api.open_run(run.folder).measures()["findings"])
    assert f"{len(sure)} of 45 pairwise differences between students are significant." in said
    leader, *others = ranking["order"]
    near = [n for n, name in enumerate(others, 2) if "|".join(sorted((leader, name))) not in sure]
    reported = said.partition(f"Not significantly behind {leader}: places ")[2].partition(".")[0]
    assert near[0] == 2 < near[-1]
    assert reported.startswith("2 to ")
    assert int(reported.replace(",", " ").split()[-1]) == near[-1]


def scored(score: float, items: int) -> StudentScores:
    measured = Measured(score, 0.0, 1.0, items, 0)
    return StudentScores(measured, {}, measured, {})


def test_an_interval_without_zero_beside_an_unsure_lead_is_explained() -> None:
    item = np.arange(28)
    right = {"s0": item < 24, "s1": (item >= 6) & (item < 24), "s2": item % 2 == 0, "s3": item % 3 == 0}
    right["s4"] = item % 4 == 0
    scores = {name: float(values.mean()) for name, values in right.items()}
    common = {
        (one, other): {"": PairedScores(right[one] * 1.0, right[other] * 1.0, np.ones(28))}
        for one, other in combinations(sorted(right), 2)
    }
    ranks = rank_by_shared_scores({name: StudentMean(score, 28) for name, score in scores.items()}, common)
    first, second = ranks.order[:2]
    reported = ranks.difference(first, second)
    students = {name: scored(score, 28) for name, score in scores.items()}
    said = " ".join(leader_tie_and_judges_sentences(students, ranks))
    assert reported is not None
    assert not reported.significant
    low, high = reported.ci95
    assert low * high > 0, "its own interval leaves zero out, that of ten pairs does not"
    assert reported.ci95_adjusted[0] <= 0 <= reported.ci95_adjusted[1]
    assert (
        f" are tied: the gap is {format_difference(reported.with_leader_as_b)} points on 28 shared items."
        in said
    )


def test_a_pair_that_contradicts_the_order_is_told_as_it_is() -> None:
    """b is ahead of a where both were scored; what c shares with either puts a first all the same."""
    item = np.arange(36)
    right = {"a": item % 9 > 0, "b": (item >= 2) & (item < 26), "c": (item % 3 == 0) | (item > 25)}
    there = {"a": item < 26, "b": item >= 0, "c": item >= 0}
    common = {}
    for one, other in combinations(sorted(right), 2):
        both = there[one] & there[other]
        common[one, other] = {
            "": PairedScores(right[one][both] * 1.0, right[other][both] * 1.0, np.ones(both.sum()))
        }
    scores = {name: float(values[there[name]].mean()) for name, values in right.items()}
    ranks = rank_by_shared_scores(
        {name: StudentMean(score, int(there[name].sum())) for name, score in scores.items()}, common
    )
    reported = ranks.difference("a", "b")
    assert ranks.order[:2] == ("a", "b")
    assert reported is not None
    assert reported.difference > 0, "b is ahead where both were scored"
    students = {name: scored(score, 36) for name, score in scores.items()}
    said = " ".join(leader_tie_and_judges_sentences(students, ranks))
    assert f"are tied: on 26 shared items, b is ahead by {100 * reported.difference:.1f} " in said


@pytest.mark.parametrize(("judges", "by"), [(None, ""), (3, " with these judges")])
def test_items_that_settle_a_gap_name_judges_only_if_there_are_any(judges: int | None, by: str) -> None:
    gap = PairDifference(
        difference=0.05,
        ci95=(-0.02, 0.12),
        ci95_adjusted=(-0.02, 0.12),
        p=0.2,
        p_adjusted=0.2,
        n=60,
        minimum_detectable=0.1,
        judges=judges,
    )
    assert items_needed_sentence(gap) == f"If the gap is real, about 240 items would show it{by} (now 60)."


def test_students_who_share_no_score_are_not_called_apart() -> None:
    """a and b answered other items each; c answered all, and is far behind both."""
    good, bad = np.ones(20), np.tile([0.0, 0.1], 10)
    common = {pair: {"": PairedScores(good, bad, good)} for pair in (("a", "c"), ("b", "c"))}
    levels = {"a": StudentMean(1.0, 20), "b": StudentMean(1.0, 20), "c": StudentMean(0.05, 40)}
    ranks = rank_by_shared_scores(levels, common)
    assert all(reported.significant for reported in ranks.differences.values())
    assert list(significant_pair_count_sentences(ranks)) == [
        "2 of 3 pairwise differences between students are significant."
    ]


@pytest.mark.process
def test_who_is_ahead_in_a_task_is_told_with_both_scores_and_whether_surely(tmp_path: Path) -> None:
    for name, sure in (("poem", True), ("haiku", False)):
        folder = tmp_path / name
        for task, skills in (("essay", {"ann": 0.95, "ben": 0.02}), (name, {"ann": 0.5, "ben": 0.55})):
            part = Run(folder, task)
            if task == name and sure:
                skills = {"ann": 0.5, "ben": 0.95}
            write(part, skills, items=40)
        [said] = [one for one in api.open_run(folder).measures()["findings"] if "in some tasks" in one]
        scores = api.open_run(folder).measures()["students"]
        ben, ann = (scores[who]["score_by_task"][name] for who in ("ben", "ann"))
        verdict = "leads by these judges" if sure else "tied"
        assert said.endswith(f"ben in {name} ({100 * ben:.1f}, ann {100 * ann:.1f}: {verdict}).")


@pytest.mark.process
def test_what_is_missing_is_told_with_what_is_done_about_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    write(run, {"whole": 0.7})
    for n in range(1, 11):
        for judge in ("j1", "j2"):
            run.judged(n, "part", judge, {"a": "High" if n % 3 else "Low"})
    found = api.open_run(run.folder).measures()
    assert found["students"]["part"]["missing"]["overall"] == 100
    assert any("Missing: 100 of 240 scores (part 100)" in said for said in found["findings"])
    assert any("different items or judges" in said for said in found["findings"])


@pytest.mark.process
def test_a_single_judge_and_nobody_scored(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "one")
    for n in range(1, 4):
        run.judged(n, "only", "j", {"a": "High"})
    out = coeval("analyze", "--run", run.folder).out
    assert "the only student: add another to compare." in " ".join(out.split())
    assert "Only one judge was used" in out
    run.response(1, "lost", status="failed", error={"kind": "server", "message": "down"})
    first = api.open_run(run.folder).measures()["findings"][0]
    assert first == "only scores 100.0, the only student with a score so far."
    empty = Run(tmp_path / "none")
    empty.datapoint(1)
    ended = coeval("analyze", "--run", empty.folder)
    assert ended.code == 0
    assert "No student has a score yet." in ended.out


@pytest.mark.process
def test_what_is_not_shown_is_not_explained(tmp_path: Path, coeval: Command) -> None:
    """The other judge's judgments all failed."""
    run = Run(tmp_path / "run")
    for n in range(1, 5):
        for student in ("ann", "ben"):
            run.judged(n, student, "j", {"a": "High" if n % 2 else "Low"})
            run.evaluation(n, student, "k", {}, status="failed")
    shown = coeval("analyze", "--run", run.folder).out
    assert "Only one judge was used, so agreement cannot be measured." in " ".join(shown.split())
    for said in ("Agreement between", "kappa:", "over items, judges"):
        assert said not in shown
    assert "judges: the interval" not in coeval("compare", run.folder).out


@pytest.mark.process
def test_a_single_item_is_one(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 5):
        for student in ("ann", "ben"):
            run.judged(n, student, "j", {"a": "High" if n == 1 else "Medium"})
    assert "Of 4 items, all students pass 1" in coeval("analyze", "--run", run.folder).out
