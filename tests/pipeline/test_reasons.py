"""Reasons of judges: given where the limit that the user set leaves room, which is what is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Lab, listen, model, task

from coeval.core.model import find_answer_limits
from coeval.core.records import Request

SIX = {f"factor-{number}": "It is met." for number in range(6)}


def judged(folder: Path, parameters: dict[str, Any], **changes: Any) -> Lab:
    judge = model("joe", "judge") | {"role_parameters": {"judge": parameters}}
    return Lab(folder, [model("ann", "teacher", "student"), judge], [task(total=1, **changes)])


def has_reasons(request: Request) -> bool:
    return '"reason"' in request.messages[-1].content


@pytest.mark.parametrize(
    ("parameters", "changes", "given"),
    [
        ({"max_tokens": 119}, {}, False),
        ({"max_tokens": 120}, {}, True),
        ({"max_new_tokens": 100}, {}, False),
        ({"max_completion_tokens": 50}, {}, False),
        ({"max_tokens": 300}, {"rubric": SIX}, False),
        ({"max_tokens": 360}, {"rubric": SIX}, True),
        ({"max_tokens": 60}, {"rubric": SIX, "evaluation_mode": "per_factor"}, True),
        ({"max_tokens": 59}, {"rubric": SIX, "evaluation_mode": "per_factor"}, False),
        ({"max_tokens": -1}, {}, True),
        ({}, {"rubric": SIX}, True),
        ({"max_tokens": 119}, {"rationale": True}, True),
        ({"max_tokens": 5000}, {"rationale": False}, False),
    ],
)
def test_reasons_are_asked_for_where_they_fit_and_no_limit_is_raised(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parameters: dict[str, Any],
    changes: dict[str, Any],
    given: bool,
) -> None:
    requested, lab = listen(monkeypatch), judged(tmp_path, parameters, **changes)
    lab.run()
    asked = [request for name, request in requested.requests if name == "joe"]
    assert asked
    assert {has_reasons(request) for request in asked} == {given}
    sent = [limit for request in asked for _, limit in find_answer_limits(request.sampling.to_dict())]
    assert set(sent) == set(parameters.values())
