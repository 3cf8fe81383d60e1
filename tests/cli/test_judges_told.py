"""A run whose judge is kind to its family: `coeval analyze` names this judge and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

pytestmark = pytest.mark.slow


def test_the_judge_with_a_planted_bias_is_the_one_that_is_named(here: Path, coeval: Command) -> None:
    """Families as the file tells them: names do not show that kin-judge, ann and ben are related."""
    lab = Lab(
        here,
        [
            model("writer", "teacher"),
            model("ann", "student", skill=0.7, family="oak"),
            model("ben", "student", skill=0.45, family="oak"),
            model("cleo", "student", skill=0.6, family="elm"),
            model("dora", "student", skill=0.5, family="fir"),
            model("kind", "judge", severity=0.1, family="oak", family_bias=0.25),
            model("fair", "judge", severity=-0.1, family="ash"),
            model("even", "judge", family="yew"),
            model("kin", "judge", severity=0.05, family="elm"),
        ],
        [task(total=60)],
    )
    assert lab.run().exit_code == 0
    measures = json.loads(coeval("analyze", "all", "--run", lab.path, "--format", "json").out)
    family = {name: judge["bias"]["family"] for name, judge in measures["judges"].items()}
    assert family["kind"]["ci95"][0] > 0.05
    assert family["kin"]["ci95"][0] < 0 < family["kin"]["ci95"][1]
    nothing = {"value": None, "ci95": None, "p_adjusted": None}
    assert family["fair"] == nothing, "nobody of its family answered"
    severity = {name: judge["bias"]["severity"]["value"] for name, judge in measures["judges"].items()}
    assert severity["fair"] == min(severity.values())
    assert sum(measures["variance"][part] for part in ("items", "students_items", "judges", "residual")) == (
        pytest.approx(1)
    )
    assert [step["judges"] for step in measures["next"]] == [0, 0, 0, 0, 1, 2]
    told = " ".join(coeval("analyze", "--run", lab.path).out.split())
    assert "kind scores answers of its own family 0." in told
    assert "kin scores answers of its own family" not in told
    assert "The standard error of a difference between two students" in told
