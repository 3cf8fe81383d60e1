"""The same experiment in process and through HTTP: nothing of what is recorded differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import PHASES, Lab, content, listen, model, over_http, quiz, served, task

from coeval.pipeline.config.schema import Phase

SAID = ("prompt", "reference_response", "response", "scores", "label_scores", "raw", "attempts", "status")


def experiment(folder: Path, name: str, *, structured: bool) -> Lab:
    """Models that fail and talk nonsense now and then, so that many questions are asked again."""
    models = [
        model(name, skill=skill, malformed_rate=0.25, failure_rate=0.05)
        for name, skill in (("ann", 0.9), ("ben", 0.3))
    ]
    tasks = [
        task(total=6),
        task("essay", total=4, evaluation_mode="per_factor", rubric="auto", target_attributes="auto"),
        quiz(total=4, output_description="Say what you see."),
    ]
    return Lab(folder, [entry | {"structured_output": structured} for entry in models], tasks, id=name)


@pytest.mark.slow
@pytest.mark.parametrize("structured", [True, False])
async def test_the_same_seeds_make_the_same_records_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, structured: bool
) -> None:
    inside = experiment(tmp_path, "inside", structured=structured)
    asked = listen(monkeypatch)
    here = await inside.arun()
    questions = sum(asked.phases())
    async with served(inside.models) as host:
        outside = experiment(tmp_path, "outside", structured=structured)
        outside.models = [over_http(entry, host) for entry in outside.models]
        there = await outside.arun()
    assert outside.counts() == inside.counts()
    for phase in PHASES:
        assert said(outside, phase) == said(inside, phase)
    assert there.exit_code == here.exit_code
    assert there.results().students == here.results().students
    assert len(host.bodies) == questions > sum(inside.counts()) + 10
    asking_for_json = [body for body in host.bodies if "JSON" in body["messages"][-1]["content"]]
    assert asking_for_json
    assert all(("response_format" in body) == structured for body in asking_for_json)


def said(lab: Lab, phase: Phase) -> dict[str, list[Any]]:
    return {key: [record.get(name) for name in SAID] for key, record in lab.records(phase).items()}


async def test_a_run_goes_on_over_http_where_it_stopped_in_process(tmp_path: Path) -> None:
    """The host is part of no recipe, so nothing is made again, and a new item is what it would have been."""
    lab = Lab(tmp_path, [model("ann", malformed_rate=0.2)], [task(total=2)])
    await lab.arun()
    whole = Lab(tmp_path, lab.models, [task(total=5)], id="whole")
    await whole.arun()
    async with served(lab.models) as host:
        lab.models = [lab.models[0] | {"parameters": lab.models[0]["parameters"] | {"base_url": host.url}}]
        lab.tasks = [task(total=5)]
        run = await lab.arun(continue_run=True)
    assert run.exit_code == 0
    assert content(lab) == content(whole)
    assert len(host.bodies) > 3 * 3
