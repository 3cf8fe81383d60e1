"""Strengths by comparisons: against choix, on planted strengths, and as results and reports show them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import choix
import numpy as np
import pytest
from cli.invoked import Command
from opened_evidence import run_evidence
from pipeline.experiments import Lab, model, task
from scipy.special import expit

from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.pairwise.rates import fit_bradley_terry, fit_strengths, share_bounds
from coeval.analysis.readers.run_reader import RunReader
from coeval.api import open_run
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.store.rundir import PAIRS, RunDir
from evidence.pairs import WORLDS, World, coverage


@pytest.mark.parametrize("students", [2, 3, 6, 10])
def test_strengths_are_those_of_choix(students: int) -> None:
    """Ties are half a win each, so choix is given every comparison twice. It has no ridge, which keeps ours
    finite where a student wins everything and moves others by less than 1e-6."""
    generator = np.random.default_rng(students)
    planted, wins, data = generator.normal(size=students), np.zeros((students, students)), []
    for _ in range(500):
        a, b = map(int, generator.choice(students, 2, replace=False))
        won = 0.5 if generator.random() < 0.15 else float(generator.random() < expit(planted[a] - planted[b]))
        wins[a, b] += won
        wins[b, a] += 1 - won
        data += {1.0: [(a, b)] * 2, 0.5: [(a, b), (b, a)], 0.0: [(b, a)] * 2}[won]
    ours = fit_strengths(wins[None])[0]
    theirs = choix.ilsr_pairwise(students, data, max_iter=1000, tol=1e-12)
    assert ours == pytest.approx(theirs - theirs.mean(), abs=1e-6)
    assert abs(ours.sum()) < 1e-9


def test_a_student_that_wins_everything_has_a_finite_strength_and_an_interval() -> None:
    wins = np.zeros((4, 2, 2))
    wins[:, 0, 1] = 2.0
    fitted = fit_bradley_terry(wins)
    expected, again = fitted.expected_win_rates()
    low, high = share_bounds(float(expected[0]), float(again[:, 0].std(ddof=1)), fitted.clusters)
    assert expected[0] == pytest.approx(1.0, abs=1e-3)
    assert 0.3 < low < 0.95 < high <= 1
    assert fitted.p_value(0, 1) > 1e-3  # four items prove little


@pytest.mark.process
def test_intervals_hold_planted_strengths_and_a_leaning_is_found() -> None:
    found = coverage(World(WORLDS["5 students"], 50), 100)
    assert 0.93 <= found.coverage <= 0.97
    assert found.any_wrong <= 0.05
    assert found.leaning == 1.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    students = [
        model(name, "student", skill=skill) for name, skill in (("ann", 0.9), ("ben", 0.5), ("cid", 0.2))
    ]
    judges = [model("joe", "judge", position_bias=0.25), model("sue", "judge")]
    made = Lab(
        tmp_path_factory.mktemp("lab"),
        [model("tea", "teacher"), *students, *judges],
        [task(total=20, judging="pairwise")],
    )
    assert made.run().exit_code == 0
    return made


def test_measures_find_the_order_and_the_judge_that_leans(lab: Lab) -> None:
    with RunReader(lab.path) as reader:
        found = compute_run_measures(reader).measures.pairs
    assert found is not None
    assert found.groups == (("ann", "ben", "cid"),)
    assert [one.ranks for one in found.students.values()] == [(1, 1), (2, 2), (3, 3)]
    assert {one.comparisons for one in found.students.values()} == {20 * 2 * 2 * 2}
    joe, sue = found.judges["joe"].first_place, found.judges["sue"].first_place
    assert joe.low is not None
    assert joe.low > 0.5
    assert sue.low is not None
    assert sue.high is not None
    assert sue.low <= 0.5 <= sue.high
    assert (found.judges["sue"].consistency.value or 0) > (found.judges["joe"].consistency.value or 1)
    wins = lab.lines("evaluation")
    shares = [
        {"first": 1.0, "tie": 0.5, "second": 0.0}[one["winner"]]
        for one in wins
        if (one["first_model_id"], one["second_model_id"]) == ("ann", "ben")
    ]
    shares += [
        {"first": 0.0, "tie": 0.5, "second": 1.0}[one["winner"]]
        for one in wins
        if (one["first_model_id"], one["second_model_id"]) == ("ben", "ann")
    ]
    assert found.rates["ann", "ben"].wins.value == pytest.approx(np.mean(shares))


def test_what_is_no_longer_planned_or_has_lost_its_answer_counts_nowhere(lab: Lab, tmp_path: Path) -> None:
    less = Lab(tmp_path, lab.models, lab.tasks)
    less.run()
    less.lose("response_collection", "story__tea__00001__ann")
    results = open_run(less.path).results()
    assert {one.student: one.comparisons for one in results.pairs} == {"ann": 152, "ben": 156, "cid": 156}


def test_comparisons_by_another_judge_than_the_requested_one_are_said(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(lab.path, folder)
    [file, *_] = RunDir(folder).files(PAIRS)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    [judge] = {one["judge_model_id"] for one in lines}
    file.write_text("".join(f"{json.dumps({**one, 'served_by': 'backup'})}\n" for one in lines))
    [served] = open_run(folder).results().served
    assert (served.role, served.model, served.others) == ("judge", judge, {"backup": len(lines)})


@pytest.mark.process
def test_results_analysis_and_page_lead_with_strengths(lab: Lab, coeval: Command) -> None:
    shown = coeval("results", "--run", lab.path).out
    assert shown.index("Students by comparisons") < shown.index("ann") < shown.index("ben")
    assert "no scores yet" not in shown
    found = json.loads(coeval("results", "--run", lab.path, "--json").out)
    assert [one["student"] for one in found["pairs"]] == ["ann", "ben", "cid"]
    measures = json.loads(coeval("analyze", "students", "--run", lab.path, "--format", "json").out)
    assert 0 < measures["pairs"]["students"]["cid"]["strength"] < 0.5
    assert measures["pairs"]["rates"]["ann|ben"]["ci95"]["wins"][0] > 0.5
    said = coeval("analyze", "--run", lab.path).out
    assert "ann leads by these judges: it wins" in said
    assert "joe favours the answer shown first" in said
    assert "Missing:" not in said
    with run_evidence(RunDir(lab.path)) as evidence:
        report = experiment_report(evidence)
    assert report.sections[0].anchor == "pairs"
    assert len(report.table("win-rates").rows) == 6
    assert report.table("strengths").rows[0][0] == "ann"


@pytest.mark.process
def test_the_terminal_shows_ranks_of_compared_students(lab: Lab, coeval: Command) -> None:
    said = coeval("analyze", "--run", lab.path).out
    rows = said[said.index("Students by comparisons") :].splitlines()
    for name, rank in (("ann", "1"), ("ben", "2"), ("cid", "3")):
        assert rank in next(line.split() for line in rows if name in line)
    assert "None" not in "\n".join(rows[: rows.index("Tasks")])


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Two tasks that share no student: nothing links ann and ben with dan, eve and fay."""
    skills = {"ann": 0.9, "ben": 0.2, "dan": 0.8, "eve": 0.5, "fay": 0.2}
    students = [model(name, "student", skill=skill) for name, skill in skills.items()]
    made = Lab(
        tmp_path_factory.mktemp("halves"),
        [model("tea", "teacher"), *students, model("joe", "judge")],
        [task(name, total=12, judging="pairwise") for name in ("story", "poem")],
    )
    assert made.run().exit_code == 0
    for name in skills:
        other = "poem" if name in ("ann", "ben") else "story"
        for answer in made.lines("response_collection"):
            if answer["student_model_id"] == name and answer["task_id"] == other:
                made.lose("response_collection", answer["id"])
    return made


@pytest.mark.process
def test_students_that_no_comparisons_link_are_not_ranked_together(halves: Lab, coeval: Command) -> None:
    with RunReader(halves.path) as reader:
        found = compute_run_measures(reader).measures.pairs
    assert found is not None
    assert found.groups == (("dan", "eve", "fay"), ("ann", "ben"))
    assert {len({pair[0] in "ann ben", pair[1] in "ann ben"}) for pair in found.rates} == {1}
    for group in found.groups:
        strengths = [found.students[name].strength.value or 0.0 for name in group]
        assert np.mean(strengths) == pytest.approx(0.5)  # against its own group alone
        assert all(found.students[name].ranks[1] <= len(group) for name in group)
    with run_evidence(RunDir(halves.path)) as evidence:
        page = " ".join(one.text for one in experiment_report(evidence).lead)
    shown = [coeval(*words, "--run", halves.path).out for words in (["results"], ["analyze", "--partial-ok"])]
    for text in (page, *(" ".join(one.split()) for one in shown)):
        assert "No chain of comparisons links these groups" in text
        assert "dan, eve, fay; ann, ben" in text
