"""Students without the scores that they gave themselves, on a run so small that it can be told by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from written_run import Run

from coeval.analysis.measures.run_measures import measure_tree, plain_measures
from coeval.analysis.readers.run_reader import RunReader


def measures(run: Run) -> dict[str, Any]:
    with RunReader(run.folder) as reader:
        return plain_measures(measure_tree(reader))


def test_a_kind_and_strict_panel_is_no_difference_between_students(tmp_path: Path, coeval: Command) -> None:
    """kind gives everybody High and itself too, strict everybody Low, fair says that kind is worse."""
    run = Run(tmp_path / "run")
    for n in range(1, 13):
        for student in ("kind", "strict"):
            run.judged(n, student, "kind", {"f": "High"})
            run.judged(n, student, "strict", {"f": "Low"})
            run.judged(n, student, "fair", {"f": "Medium" if student == "kind" else "High"})
    found = measures(run)
    others = found["without_own"]
    assert others["applicable"]
    assert others["judges"] == ["kind", "strict"]
    scores = {name: others["students"][name]["headline"] for name in ("kind", "strict")}
    assert scores == pytest.approx({"kind": 0.375, "strict": 0.875}), "half apart, around 0.25 and 1.0"
    assert others["students"]["strict"]["headline_by_task"] == pytest.approx({"haiku": 0.875})
    pair = others["ranking"]["differences"]["kind|strict"]
    assert pair["difference"] == 0.5, (
        "by fair alone, who is neither: kind and strict are no panel for each other"
    )
    assert others["ranking"]["ranges"] == {"strict": [1, 1], "kind": [2, 2]}
    printed = coeval("analyze", "students", "--run", run.folder).out
    assert "Without the scores that students gave themselves" in printed
    assert found["students"]["kind"]["headline"] == 0.5
    assert found["students"]["kind"]["headline_by_task"] == {"haiku": 0.5}


def test_where_nobody_scored_itself_there_is_nothing_to_leave_out(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 5):
        run.judged(n, "a", "j", {"f": "High"})
        run.response(n, "j")
    assert not measures(run)["without_own"]["applicable"]
    assert "gave themselves" not in coeval("analyze", "--run", run.folder).out


def test_two_who_are_the_only_judges_have_no_order_without_own_scores(
    tmp_path: Path, coeval: Command
) -> None:
    """Each would be scored by the other: that compares the judges."""
    run = Run(tmp_path / "run")
    for n in range(1, 9):
        for student in ("kind", "strict"):
            run.judged(n, student, "kind", {"f": "High"})
            run.judged(n, student, "strict", {"f": "Low"})
    others = measures(run)["without_own"]
    assert (others["applicable"], others["judges"], others["students"]) == (False, ["kind", "strict"], {})
    assert "gave themselves" not in coeval("analyze", "--run", run.folder).out
