"""The robust filter, on runs so small that who stays can be told by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from written_run import Run

import coeval as api
from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.measures.run_measures import measure_tree, plain_measures
from coeval.analysis.readers.run_reader import RunReader
from perf.planted import robust_false

JUDGES = ("a", "b", "c", "d")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Forty datapoints. Judges a and b always agree, c is a level off on every second datapoint, d says the
    opposite. On the last datapoint a and b say the opposite of each other."""
    made = Run(tmp_path / "run")
    for n in range(1, 41):
        for student, level in (("good", "High" if n % 4 else "Low"), ("bad", "Low" if n % 3 else "High")):
            opposite = "Low" if level == "High" else "High"
            said = {"a": level, "b": level, "c": "Medium" if n % 2 else level, "d": opposite}
            if n == 40:
                said["b"] = opposite
            for judge, score in said.items():
                made.judged(n, student, judge, {"f": score})
    return made


def robust(run: Run, **options: Any) -> dict[str, Any]:
    with RunReader(run.folder) as reader:
        found: dict[str, Any] = plain_measures(measure_tree(reader, RobustOptions(**options)))["robust"]
    return found


def test_the_judges_who_agree_best_keep_the_datapoints_they_agree_on(run: Run) -> None:
    found = robust(run)
    assert found["applicable"]
    assert found["judges"] == ["a", "b"]
    assert found["teachers"] == ["t.1"]
    assert (found["datapoints"], found["of_datapoints"]) == (39, 40)
    assert found["students"]["good"]["valid_evals"] == 2 * 39
    assert found["students"]["good"]["n"]["overall"] == 39
    assert found == api.open_run(run.folder).measures()["robust"]


def test_a_set_that_its_own_scores_chose_tests_nothing(run: Run) -> None:
    """Teachers are chosen by how far their items happen to tell students apart, and tests on these would call
    students different who are not: see `robust_false`."""
    ranks = robust(run)["ranking"]
    assert (ranks["order"], ranks["ranges"], ranks["differences"]) == (["good", "bad"], {}, {})
    of = robust_false(40)
    assert of.everything <= 0.06 < of.robust


def test_the_options_are_heeded(run: Run) -> None:
    everybody = robust(run, judge_selection="all")
    assert sorted(everybody["judges"]) == list(JUDGES)
    assert everybody["datapoints"] < 40
    assert robust(run, judge_selection="all", score_tolerance=1.0)["datapoints"] == 40
    assert robust(run, agreement_threshold=0.0)["datapoints"] == 40
    assert robust(run, agreement_metric="spa")["options"]["agreement_metric"] == "spa"


def test_fewer_than_two_ranked_judges_have_no_robust_set(tmp_path: Path) -> None:
    small = Run(tmp_path / "small")
    for n in range(1, 15):
        for judge in ("a", "b"):
            small.judged(n, "s", judge, {"f": "High" if n % 2 else "Low"})
    found = robust(small)
    assert not found["applicable"]
    assert "30 scores or more in common" in found["reason"]
    measures = api.open_run(small.folder).measures()
    assert measures["judges"]["a"]["degenerate"]
    assert measures["panel"]["krippendorff_alpha"] is None
    assert measures["agreement"]["a|b"]["spa"] == 1.0


def test_of_three_teachers_the_two_that_tell_most_apart_stay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    apart = {"sharp": ("High", "Low"), "fair": ("High", "Medium"), "blunt": ("High", "High")}
    for teacher, (good, bad) in apart.items():
        made = Run(folder, teacher=teacher)
        for n in range(1, 21):
            for judge in ("a", "b"):
                made.judged(n, "good", judge, {"f": good})
                made.judged(n, "bad", judge, {"f": bad})
    found = robust(Run(folder))
    assert found["teachers"] == ["sharp", "fair"]
    assert found["datapoints"] == 40
    assert found["options"] == msgspec.to_builtins(RobustOptions())
