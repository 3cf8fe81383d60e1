"""Ranges of ranks, and the sentences that a run comes to."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from cli.invoked import Command
from scipy.stats import ttest_rel
from statsmodels.stats.multitest import multipletests
from written_run import Run

import coeval as api
from coeval.analysis.measures.ranking import ranking
from coeval.analysis.measures.student_measures import item_scores, student_measures
from perf.measure_coverage import World, drawn_grid

NEAR = World("two alike, one behind", (0.5, 0.5, 0.35, -0.6))


def test_ranges_come_of_all_paired_differences_after_holm() -> None:
    grid = drawn_grid(NEAR, 300, np.random.default_rng(7))
    found = ranking(grid, student_measures(grid))
    scores = item_scores(grid).mean
    names = list(grid.students)
    pairs = sorted(found.differences)
    p = [ttest_rel(scores[names.index(b)], scores[names.index(a)]).pvalue for a, b in pairs]
    adjusted = multipletests(p, method="holm")[1]
    for pair, one, expected in zip(pairs, p, adjusted, strict=True):
        told = found.differences[pair]
        assert told.found.p == pytest.approx(one, rel=1e-9)
        assert told.p_adjusted == pytest.approx(expected, rel=1e-9)
    for name in names:
        worse_than = sum(
            told.sure and name in pair and (told.found.difference > 0) == (pair[0] == name)
            for pair, told in found.differences.items()
        )
        assert found.range_of(name)[0] == 1 + worse_than
    assert found.range_of("student-3") == (4, 4)


def write(run: Run, students: dict[str, float], items: int = 60, seed: int = 1) -> None:
    drawn = random.Random(seed)
    for n in range(1, items + 1):
        hard = drawn.random()
        for student, skill in students.items():
            good = skill + 0.2 * (0.5 - hard) > drawn.random()
            for judge in ("j1", "j2"):
                seen = good if drawn.random() < 0.99 else not good
                run.judged(n, student, judge, {"a": "High" if seen else "Low"})


def test_a_clear_leader_is_named_with_the_difference(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    write(run, {"best": 0.95, "mid": 0.5, "also-mid": 0.5})
    ended = coeval("analyze", "--run", run.folder)
    assert "best leads with 0." in ended.out
    assert "p < 0.001" in ended.out
    assert "cannot be told apart: places 2 to 3" in ended.out
    assert "The judges agree very well" in ended.out
    assert "Missing" not in ended.out
    measures = api.open_run(run.folder).measures()
    assert measures["ranking"]["ranges"] == {"best": [1, 1], "mid": [2, 3], "also-mid": [2, 3]}
    assert measures["findings"][0] in ended.out


def test_what_is_not_sure_is_called_so_with_what_could_have_been_found(
    tmp_path: Path, coeval: Command
) -> None:
    run = Run(tmp_path / "run")
    write(run, {"one": 0.6, "two": 0.58}, items=30)
    out = coeval("analyze", "--run", run.folder).out
    assert "not surely better" in out
    assert "The smallest difference between them that this run could have found is 0." in out


def test_what_is_missing_is_told_with_the_common_set(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    write(run, {"whole": 0.7})
    for n in range(1, 11):
        for judge in ("j1", "j2"):
            run.judged(n, "part", judge, {"a": "High" if n % 3 else "Low"})
    out = coeval("analyze", "students", "--run", run.folder, "--format", "json").out
    assert '"headline_common"' in out
    found = api.open_run(run.folder).measures()
    assert found["students"]["part"]["missing"]["overall"] == 100
    assert found["students"]["whole"]["n"]["headline_common"] == 10
    assert any("Missing: 100 of 240 scores (part 100)" in said for said in found["findings"])
    assert any("not covered alike" in said for said in found["findings"])


def test_a_single_judge_and_nobody_scored(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "one")
    for n in range(1, 4):
        run.judged(n, "only", "j", {"a": "High"})
    out = coeval("analyze", "--run", run.folder).out
    assert "only is the only student" in out
    assert "A single judge" in out
    run.response(1, "lost", status="failed", error={"kind": "server", "message": "down"})
    first = api.open_run(run.folder).measures()["findings"][0]
    assert first.startswith("only is the only student with a score, 1.00")
    assert first.endswith("none yet: lost.")
    empty = Run(tmp_path / "none")
    empty.datapoint(1)
    ended = coeval("analyze", "--run", empty.folder)
    assert ended.code == 0
    assert "Nobody has a score yet." in ended.out
