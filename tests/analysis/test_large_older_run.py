"""A large run in the older layout: the command's measures against loops over its records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import slow_measures as slow
from cli.invoked import Command
from older_run import JUDGES, SPACE, STUDENTS, TEACHERS, OlderRun, unlike

from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import compare_judge_pairs, mean_agreement_by_judge
from coeval.analysis.measures.measure_tree import part_to_json
from coeval.analysis.measures.robust_set import RobustOptions, measure_robust_set
from coeval.analysis.measures.score_grid import read_score_grid
from coeval.analysis.readers.run_reader import RunReader
from coeval.store.legacy import convert_run

pytestmark = pytest.mark.process


OPTIONS = {
    "judge_selection": "top_half",
    "agreement_metric": "wpa",
    "agreement_threshold": 0.5,
    "teacher_score_formula": "v1",
    "score_tolerance": 0.25,
}


def expected_of(of: slow.Counted, options: dict[str, Any]) -> dict[str, Any]:
    pairs, judges = slow.agreement(of.units)
    names = {item["teacher_model_id"] for item in of.items.values()}
    return {
        "units": len(of.units),
        "agreement": pairs,
        "judges": judges,
        "teachers": slow.teachers(of.units, names),
        "students": slow.students(of),
        "ranking": {name: part for name, part in slow.ranking(of).items() if name != "scores"},
        "robust": slow.robust(of, options),
        "coverage": slow.coverage(of, SPACE),
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return OlderRun(tmp_path_factory.mktemp("older") / "run").write()


def measured(coeval: Command, run: Path) -> dict[str, Any]:
    ended = coeval("analyze", "all", "--run", run, "--format", "json", "--partial-ok")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_without_a_configuration_all_that_is_on_record_counts(plain: Path, coeval: Command) -> None:
    of = slow.counted(plain)
    assert len(of.items) > 380
    assert len(of.units) > 10_000
    assert (of.students, sorted({unit.judge for unit in of.units})) == (sorted(STUDENTS), sorted(JUDGES))
    found = measured(coeval, plain)
    assert unlike(expected_of(of, OPTIONS), found) == []
    for part in ("agreement", "judges", "teachers", "students", "coverage"):
        assert found[part].keys() == expected_of(of, OPTIONS)[part].keys()
    assert all(found["robust"]["students"][name]["valid_evals"] > 300 for name in STUDENTS)


@pytest.mark.parametrize(
    "options",
    [
        {"judge_selection": "all", "agreement_threshold": 0.75},
        {"agreement_metric": "kappa", "teacher_score_formula": "r3", "score_tolerance": 0.0},
        {"agreement_metric": "spa", "teacher_score_formula": "s2", "agreement_threshold": 1.0},
    ],
)
def test_the_robust_set_follows_its_options(options: dict[str, Any], plain: Path) -> None:
    with RunReader(plain) as reader:
        grid = read_score_grid(reader)
    judges = mean_agreement_by_judge(grid, compare_judge_pairs(grid, Reweighting(len(grid.items.ids))))
    needed = RobustOptions(**options)
    found = measure_robust_set(grid, judges, needed)
    expected = slow.robust(slow.counted(plain), OPTIONS | options)
    assert 0 < expected["datapoints"] < 380
    assert unlike(expected, part_to_json(found)) == []


def test_a_configuration_that_names_all_changes_nothing(plain: Path, tmp_path: Path, coeval: Command) -> None:
    run = OlderRun(tmp_path / "run").write(config=True)
    for path in plain.rglob("*.jsonl"):
        assert (run / path.relative_to(plain)).read_bytes() == path.read_bytes(), "the same records"
    assert unlike(expected_of(slow.counted(run), OPTIONS), measured(coeval, run)) == []


def test_whom_the_configuration_has_lost_counts_nowhere(tmp_path: Path, coeval: Command) -> None:
    gone = ("delta", "x")  # a student and judge; a teacher and student
    run = OlderRun(tmp_path / "run").write(config=True, without=gone, lost="brevity")
    of = slow.counted(run, lost=gone, lost_factors=[("sum", "brevity")])
    assert of.students == sorted(set(STUDENTS) - set(gone))
    found = measured(coeval, run)
    assert unlike(expected_of(of, OPTIONS), found) == []
    assert found["teachers"].keys() == set(TEACHERS) - {"x"}
    assert not any(name in json.dumps(found["agreement"]) for name in gone[:1])


def test_converted_it_is_the_same(plain: Path, tmp_path: Path, coeval: Command) -> None:
    """What a run that resumes from it takes over has the same measures."""
    target = tmp_path / "converted"
    shutil.copytree(plain / "phase2_rubric", target / "phase2_rubric")
    convert_run(plain, target, ["attribute_mapping", "data_generation", "response_collection", "evaluation"])
    assert unlike(expected_of(slow.counted(plain), OPTIONS), measured(coeval, target)) == []
