"""``coeval generate``: what teachers propose becomes a file to edit, and the rest of the file stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

from coeval.core.records import Completion, Request
from coeval.pipeline.config.load_file import load_config
from coeval.simulation.simulated_model import SimulatedModel

KEY = "sk-" + "Zq9" * 12

DRAFT = f"""\
# What we try  (and why)
models:
  - name: ann   # the teacher
    interface: simulated
    roles: [teacher, student, judge]
    access_key: {KEY}
    parameters: {{skill: 0.9}}
  - {{name: ben, interface: simulated, roles: [teacher, student, judge]}}

tasks:
  - name: triage
    description: >
      Decide which team
      a message belongs to.
    output_description: 'One word.'
    target_attributes: auto      # theirs
    target_attributes_seed:
      team: [billing, "3.10"]    # ours
      mood:
        - calm
    label_attributes: [team]
    # a remark that stays
    nuanced_attributes: "auto"
    sampling:
      # of each teacher
      total: 3
    rubric: auto
  - {{name: walk, description: Go., target_attributes: complete, sampling: {{total: 2}}, rubric: {{ok: G}}}}

experiment:   # ours
  id: designed
  storage_folder: ./runs
"""


def drafted(here: Path, text: str = DRAFT) -> Path:
    file = here / "draft.yaml"
    file.write_text(text)
    return file


def proposed_in(run: Path) -> dict[str, Any]:
    """What phases 1–2 of a run settled, by file."""
    return {
        path.name: json.loads(path.read_text())
        for folder in ("phase1_attributes", "phase2_rubric")
        for path in sorted((run / folder).glob("*.json"))
    }


@pytest.mark.process
def test_proposals_take_their_places_and_comments_stay(here: Path, coeval: Command) -> None:
    file, out = drafted(here), here / "designed.yaml"
    ended = coeval("generate", "--config", file, "--out", out)
    assert ended.code == 0, ended.err
    assert f"coeval run --config {out}" in ended.err
    assert "a key of the model ann was left out" in ended.err
    text = out.read_text()
    for gone in (KEY, "access_key", "auto", "complete,", "_seed", "ours\n      mood"):
        assert gone not in text
    changed = ("access_key", "attributes", "rubric: auto", "team: [", "mood:", "- calm", "name: walk")
    kept = [line for line in DRAFT.splitlines() if not any(part in line for part in changed)]
    left = iter(text.splitlines())
    assert [line for line in kept if line not in left] == []
    assert "    # proposed by ann, ben\n    target_attributes:           # theirs\n" in text
    assert "      team: [billing, '3.10'" in text
    assert "sampling: {total: 2, target: all}" in text
    settled = load_config(out)
    assert settled.tasks[0].nuanced_attributes
    assert isinstance(settled.tasks[0].rubric, dict)
    assert proposed_in(here / "runs" / "designed") == {}

    # the run of the file settles what a run of the draft would have, and asks no teacher for it
    again = drafted(here, DRAFT.replace("id: designed", "id: drafted"))
    assert coeval("run", "--config", again).code == 0
    assert coeval("run", "--config", out).code == 0
    assert proposed_in(here / "runs" / "designed") == proposed_in(here / "runs" / "drafted")
    usage = [
        json.loads((here / "runs" / name / "usage.json").read_text()) for name in ("designed", "drafted")
    ]
    one, other = (sum(account["requests"] for account in each["models"].values()) for each in usage)
    probes = 2
    assert one == other + probes  # what was proposed counts once, in the run that it is for


def test_the_page_of_what_was_proposed_is_printed(here: Path, coeval: Command) -> None:
    lab = Lab(here, tasks=[task(rubric="auto", total=9)])
    page = here / "page.html"
    ended = coeval("generate", "--config", lab.file, "--out", here / "out.yaml", "--report", page)
    assert ended.code == 0, ended.err
    for factor in load_config(here / "out.yaml").tasks[0].rubric:
        assert f"story  {factor}" in ended.out
        assert factor in page.read_text()
    assert "every declared value (4)" in ended.out


@pytest.mark.process
def test_a_ceiling_holds_and_what_was_heard_is_not_asked_for_again(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    lab = Lab(
        here, [model("ann")], [task(target_attributes="auto", rubric="auto", nuanced_attributes="auto")]
    )
    lab.settings = {"quota": {"ann": {"max_calls": 2}}, "probe_mode": "disable"}
    out = here / "out.yaml"
    ended = coeval("generate", "--config", lab.file, "--out", out)
    assert (ended.code, out.exists()) == (3, False)
    assert "no proposal for story: rubric_mapping (rubric)" in ended.err
    assert f"coeval generate --config {lab.file} --out {out}" in ended.err
    assert len(requested.requests) == 2
    lab.settings["quota"] = {}
    assert coeval("generate", "--config", lab.file, "--out", out).code == 0
    assert [request.purpose for _, request in requested.requests[2:]] == ["rubric_mapping"]

    refused = coeval("generate", "--config", lab.file, "--out", out)
    assert (refused.code, len(requested.requests)) == (1, 3)
    assert "--overwrite" in refused.err
    assert coeval("generate", "--config", lab.file, "--out", out, "--overwrite").code == 0
    assert len(requested.requests) == 3
    lab.tasks[0]["description"] = "Tell a long story."  # another question: its answers are others
    assert coeval("generate", "--config", lab.file, "--out", out, "--overwrite").code == 0
    assert len(requested.requests) == 6
    before = out.read_text()
    assert coeval("generate", "--config", lab.file, "--out", out, "--overwrite", "--ask-again").code == 0
    assert len(requested.requests) == 9
    assert out.read_text() != before


def test_a_teacher_that_is_not_heard_is_told(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(here, tasks=[task(rubric="auto")], settings={"probe_mode": "disable", "generation_retries": 0})
    complete = SimulatedModel.complete

    async def mute(self: SimulatedModel, request: Request) -> Completion:
        found = await complete(self, request)
        return Completion(text="no") if self.name == "ben" else found

    monkeypatch.setattr(SimulatedModel, "complete", mute)
    ended = coeval("generate", "--config", lab.file, "--out", here / "out.yaml")
    assert ended.code == 3
    assert "story: rubric lacks proposals from ben" in ended.err
    assert "# proposed by ann\n" in (here / "out.yaml").read_text()


HOSTILE = {
    'a: "b" # c': 'He said: "no" # and {left}, [then]; it\'s 100 % | > & * ! @ `',
    "yes": "null",
    "3.10": "- x",
    "<script>": "</script> \u202e =1+1",
}


def test_what_teachers_say_is_text_in_the_file_and_nothing_else(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def say(self: SimulatedModel, request: Request) -> Completion:
        del self, request
        return Completion(text=json.dumps(HOSTILE))

    monkeypatch.setattr(SimulatedModel, "complete", say)
    lab = Lab(here, [model("ann")], [task(rubric="auto")], {"probe_mode": "disable"})
    assert coeval("generate", "--config", lab.file, "--out", here / "out.yaml").code == 0
    rubric = load_config(here / "out.yaml").tasks[0].rubric
    assert isinstance(rubric, dict)
    assert len(rubric) == len(HOSTILE)
    assert rubric["yes"] == "null"
    assert rubric["3.10"] == "- x"


def test_fewer_attributes_than_the_file_samples_make_a_file_that_runs(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def say(self: SimulatedModel, request: Request) -> Completion:
        del self, request
        return Completion(text='{"depth": ["low", "high"]}')

    monkeypatch.setattr(SimulatedModel, "complete", say)
    deep = task(target_attributes="auto", sampling={"target": [3, 4], "total": 2})
    lab = Lab(here, [model("ann")], [deep], {"probe_mode": "disable"})
    assert coeval("generate", "--config", lab.file, "--out", here / "out.yaml").code == 0
    assert load_config(here / "out.yaml").tasks[0].sampling.target == (1, 1)


def test_what_a_finished_run_was_made_from_is_written_without_asking(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(here, tasks=[task(rubric="auto", target_attributes="auto")])
    lab.run()
    requested = listen(monkeypatch)
    ended = coeval("generate", "--config", lab.file, "--out", here / "out.yaml")
    assert (ended.code, requested.requests) == (0, [])
    found = load_config(here / "out.yaml").tasks[0]
    made = proposed_in(lab.path)
    assert found.rubric == made["story.rubric.json"]
    assert found.target_attributes == made["story_target_attrs.json"]


@pytest.mark.parametrize(
    ("out", "reported"),
    [("folder", "is a folder"), ("draft.yaml", "already exists; name another file")],
)
def test_nothing_is_asked_where_the_file_cannot_be_written(
    out: str, reported: str, here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    (here / "folder").mkdir()
    ended = coeval("generate", "--config", drafted(here), "--out", here / out, "--overwrite")
    assert (ended.code, ended.out, requested.requests) == (1, "", [])
    assert reported in ended.err
    assert (here / "draft.yaml").read_text() == DRAFT


@pytest.mark.process
def test_a_model_that_does_not_answer_its_probe_ends_it(here: Path, coeval: Command) -> None:
    away = {"name": "away", "interface": "vllm", "roles": ["teacher"]}
    away["parameters"] = {"base_url": "http://127.0.0.1:9/v1"}  # type: ignore[assignment]
    lab = Lab(here, [model("ann"), away], [task(rubric="auto")])
    ended = coeval("generate", "--config", lab.file, "--out", here / "out.yaml")
    assert (ended.code, (here / "out.yaml").exists()) == (2, False)
    assert "away" in ended.err


@pytest.mark.system
async def test_ctrl_c_keeps_what_was_proposed(here: Path) -> None:
    models = [
        model("ann", "teacher"),
        model("sol", "teacher", latency_s=60),
        model("ben", "student", "judge"),
    ]
    lab = Lab(here, models, [task(rubric="auto")], {"probe_mode": "disable"})
    words = ["-m", "coeval", "generate", "--config", str(lab.file), "--out", str(here / "out.yaml")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=here, env={**os.environ}, stderr=asyncio.subprocess.PIPE
    )
    heard = lab.path / "proposed" / "phase2_rubric" / "proposals.jsonl"
    async with asyncio.timeout(60):
        while not (heard.exists() and b"ann" in heard.read_bytes()):  # noqa: ASYNC110  another process
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
    assert process.returncode == 130
    assert b"the proposals are kept" in said
    assert b"Traceback" not in said
    assert not (here / "out.yaml").exists()
