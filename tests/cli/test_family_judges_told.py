"""A judge of the leader's own family that makes the winner is told right after the leader's sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

pytestmark = pytest.mark.slow

KIN = model("red-j", "judge", family="red", family_bias=0.2)
OTHERS = [model("hard-j", "judge", severity=0.1), model("soft-j", "judge", severity=-0.1)]


def findings(here: Path, coeval: Command, judges: list[dict[str, object]]) -> list[str]:
    students = [model(f"{name}-s", "student", skill=0.6, family=name) for name in ("red", "blue")]
    lab = Lab(here, [model("writer", "teacher"), *students, *judges], [task(total=80)])
    assert lab.run().exit_code == 0
    measured = coeval("analyze", "all", "--run", lab.path, "--format", "json").out
    found: list[str] = json.loads(measured)["findings"]
    return found


def test_a_named_judge_of_the_leader_s_family_is_told_with_the_lead_without_it(
    here: Path, coeval: Command
) -> None:
    leader, related, *_ = findings(here, coeval, [KIN, *OTHERS])
    assert leader.startswith("red-s leads with")
    assert related.startswith("red-j is of red-s's family and favours it by 0.")
    assert "; without its scores the difference is " in related
    difference = float(related.split("difference is ")[1].split()[0].replace("−", "-"))
    lead = float(leader.split("the next, by ")[1].split()[0])
    assert abs(difference) < lead


@pytest.mark.parametrize(
    ("judges", "begins"),
    [([KIN], "Its only judge, red-j,"), ([KIN, OTHERS[0]], "One of its two judges, red-j,")],
    ids=["one", "two"],
)
def test_where_it_cannot_be_told_that_is_said(
    judges: list[dict[str, object]], begins: str, here: Path, coeval: Command
) -> None:
    found = findings(here, coeval, judges)
    expected = (
        f"{begins} is of red-s's family: whether it favours it cannot be tested here; "
        "add a judge of another family."
    )
    assert expected in found[1:3]
    assert not any(one.startswith("red-j scores answers") for one in found), "laid to one of two"


@pytest.mark.parametrize(
    ("judges", "begins"),
    [
        ([], "Its only judge, red-s, judges its own answers: whether it favours them cannot be tested here"),
        (OTHERS, "red-s favours its own answers by 0."),
    ],
    ids=["one", "three"],
)
def test_a_student_who_judges_itself_favours_its_own_answers(
    judges: list[dict[str, object]], begins: str, here: Path, coeval: Command
) -> None:
    """Nothing "is red-s itself"."""
    both = model("red-s", "student", "judge", skill=0.6, family="red", family_bias=0.3)
    lab = Lab(
        here,
        [model("writer", "teacher"), both, model("blue-s", "student", skill=0.6, family="blue"), *judges],
        [task(total=80)],
    )
    assert lab.run().exit_code == 0
    found = json.loads(coeval("analyze", "all", "--run", lab.path, "--format", "json").out)["findings"]
    assert any(one.startswith(begins) for one in found), found
    assert not any("itself and" in one or "is red-s itself" in one for one in found)


def test_judges_who_are_family_to_neither_are_not_mentioned(here: Path, coeval: Command) -> None:
    assert not any("family" in one for one in findings(here, coeval, OTHERS))
