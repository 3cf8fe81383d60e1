"""Scores by factor, attribute, judge and teacher: what is in each mean, and what is counted beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_run import Run

from coeval.analysis.breakdown import By, PartScore, breakdown
from coeval.analysis.planned_names import Planned, PlannedTask
from coeval.analysis.readers.run_reader import RunReader

ALL = PlannedTask(teachers=None, judges=None, factors=None, labels=None)


def parts(run: Run, by: By, planned: Planned | None = None) -> dict[tuple[str | None, str, str], PartScore]:
    with RunReader(run.folder, planned) as reader:
        scores = breakdown(reader, by)
    assert len({(s.task, s.part, s.student) for s in scores}) == len(scores)
    return {(score.task, score.part, score.student): score for score in scores}


def means(found: dict[tuple[str | None, str, str], PartScore]) -> dict[tuple[str | None, str, str], float]:
    return {place: round(score.mean, 4) for place, score in found.items() if score.mean is not None}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two items, two judges of the first; a second task by another teacher."""
    made = Run(tmp_path / "run")
    made.judged(1, "s", "j", {"a": "High", "b": "Low"})
    made.evaluation(1, "s", "k", {"a": "Medium", "b": "Low"})
    made.datapoint(2, sampled_target_attributes={"form": "free", "tone": "dry"})
    made.response(2, "s")
    made.evaluation(2, "s", "j", {"a": "Low", "b": "Low"})
    Run(made.folder, task="sum", teacher="t.2").judged(1, "s", "j", {"a": "High"})
    return made


def test_by_factor_within_each_task(run: Run) -> None:
    assert means(parts(run, "factor")) == {
        ("haiku", "a", "s"): 0.375,  # items count alike: (0.75 + 0) / 2
        ("haiku", "b", "s"): 0.0,
        ("sum", "a", "s"): 1.0,
    }
    score = parts(run, "factor")["haiku", "a", "s"]
    assert (score.n, score.units, score.failed) == (2, 3, 0)
    assert score.low is not None
    assert score.high is not None
    assert score.low < 0.375 < score.high


def test_by_judge_in_each_task_and_over_all(run: Run) -> None:
    assert means(parts(run, "judge")) == {
        ("haiku", "j", "s"): 0.25,
        ("haiku", "k", "s"): 0.25,
        ("sum", "j", "s"): 1.0,
        (None, "j", "s"): 0.625,  # tasks count alike
        (None, "k", "s"): 0.25,
    }
    assert parts(run, "judge")[None, "j", "s"].n == 3


def test_by_teacher_and_by_sampled_attribute(run: Run) -> None:
    assert means(parts(run, "teacher")) == {
        ("haiku", "t.1", "s"): 0.1875,
        ("sum", "t.2", "s"): 1.0,
        (None, "t.1", "s"): 0.1875,
        (None, "t.2", "s"): 1.0,
    }
    assert means(parts(run, "attribute")) == {
        ("haiku", "form=strict", "s"): 0.375,
        ("haiku", "form=free", "s"): 0.0,
        ("haiku", "tone=dry", "s"): 0.0,
        ("sum", "form=strict", "s"): 1.0,
    }


def test_what_has_no_score_is_counted_where_it_belongs(run: Run) -> None:
    run.datapoint(3)
    run.response(3, "s")
    run.evaluation(3, "s", "j", {"a": "High"}, missing=["b"])
    run.evaluation(3, "s", "k", {}, status="failed")
    run.datapoint(4)
    run.response(4, "s", status="failed")
    assert {part: s.failed for (task, part, _), s in parts(run, "factor").items() if task == "haiku"} == {
        "a": 1, "b": 2,
    }  # fmt: skip
    assert {part: s.failed for (task, part, _), s in parts(run, "judge").items() if task == "haiku"} == {
        "j": 1, "k": 1,
    }  # fmt: skip
    assert parts(run, "teacher")["haiku", "t.1", "s"].failed == 3
    attributes = parts(run, "attribute")
    assert attributes["haiku", "form=strict", "s"].failed == 3
    assert attributes["haiku", "form=free", "s"].failed == 0


def test_what_the_configuration_has_lost_is_marked_or_in_nothing_over_tasks(run: Run) -> None:
    planned = Planned(frozenset({"other"}), {"haiku": ALL})
    found = parts(run, "judge", planned)
    assert found["haiku", "j", "s"].removed == ("student",)
    assert found["sum", "j", "s"].removed == ("student", "task")
    assert not any(task is None for task, _, _ in found), "one task is left, and nothing is over tasks"


def test_a_run_without_scores_has_no_parts(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.datapoint(1)
    assert not any(parts(run, by) for by in ("factor", "attribute", "judge", "teacher"))
