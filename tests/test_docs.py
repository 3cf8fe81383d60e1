"""What the hand-written pages of ``docs`` show is what happens."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import pytest
from pipeline.experiments import Lab, listen, model, task
from ruamel.yaml import YAML

import coeval
from coeval.core.errors import UsageError
from coeval.judging.checks.check_options import KINDS, find_check_problems, read_check
from coeval.judging.checks.rubric_check import CheckedAnswer, PythonCheck
from coeval.judging.labels import score_labels
from coeval.pipeline.config.items_section import Documents as DocumentSettings
from coeval.pipeline.phases.document_items import Filter

DOCS = Path(__file__).resolve().parents[1] / "docs"
TASKS = (DOCS / "tasks.md").read_text(encoding="utf-8")


def test_answers_become_the_labels_that_the_page_says() -> None:
    declaration = YAML(typ="safe").load(re.findall(r"```yaml\n(.*?)```", TASKS, re.DOTALL)[0])
    declared = declaration["target_attributes"]
    rows = re.findall(r"^\| `(.+)` \| ([\w ]+) \|$", TASKS, re.MULTILINE)
    assert len(rows) == 11
    for answer, value in rows:
        predicted = score_labels(answer, {"kind": "crash"}, declared)["kind"].predicted
        assert (predicted or "none of the labels") == value, answer


FACTORS = json.loads(re.findall(r"```json\n(.*?)```", TASKS, re.DOTALL)[0])
OWN = {"brevity": FACTORS["brevity"]}


@pytest.fixture
def proposed(tmp_path: Path) -> Lab:
    """A run whose rubric a teacher wrote."""
    lab = Lab(tmp_path, [model("ann")], [task(rubric="auto", evaluation_mode="per_factor")])
    assert lab.run().exit_code == 0
    return lab


def rubric(lab: Lab) -> Path:
    return lab.path / "phase2_rubric" / "story.rubric.json"


@pytest.mark.parametrize("where", ["artifact", "file"])
def test_a_factor_added_to_a_proposed_rubric_is_all_that_is_asked_for(
    proposed: Lab, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    factors = json.loads(rubric(proposed).read_text()) | OWN
    if where == "artifact":
        rubric(proposed).write_text(json.dumps(factors))
    else:
        proposed.tasks[0]["rubric"] = factors
    requested = listen(monkeypatch)
    assert proposed.run(continue_run=True).exit_code == 0
    assert requested.phases() == (0, 0, 0, 0, 3)
    assert all(OWN["brevity"] in request.messages[-1].content for _, request in requested.requests)
    assert all(line["scores"].keys() == factors.keys() for line in proposed.records("evaluation").values())
    del factors["brevity"]
    requested.clear()
    if where == "artifact":
        rubric(proposed).write_text(json.dumps(factors))
    else:
        proposed.tasks[0]["rubric"] = factors
    assert proposed.run(continue_run=True).exit_code == 0
    assert requested.requests == []


def test_a_reworded_factor_is_named_and_scored_again_when_told_so(
    proposed: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = json.loads(rubric(proposed).read_text())
    name = next(iter(factors))
    rubric(proposed).write_text(json.dumps(factors | {name: "Something else altogether."}))
    with pytest.raises(UsageError, match=rf"tasks\.story\.rubric\.{name}"):
        proposed.run(continue_run=True)
    requested = listen(monkeypatch)
    assert proposed.run(continue_run=True, changed="redo").exit_code == 0
    assert requested.phases() == (0, 0, 0, 0, 3)


def test_the_scales_of_the_page_score_answers(tmp_path: Path) -> None:
    shown = YAML(typ="safe").load(re.findall(r"```yaml\n(.*?)```", TASKS, re.DOTALL)[1])["tasks"][0]
    lab = Lab(tmp_path, [model("ann")], [task() | shown | {"name": "story"}])
    assert lab.run().exit_code == 0
    scored = [set(line["values"]) for line in lab.lines("evaluation")]
    assert scored == [{"helpful", "solved", "grade"}] * 3
    changed = [{**lab.tasks[0], "rationale": False}]
    with pytest.raises(UsageError, match=r"story\.rationale"):
        Lab(tmp_path, lab.models, changed).run(continue_run=True)


def test_teachers_add_to_a_rubric_in_a_run_that_extends_it(proposed: Lab, tmp_path: Path) -> None:
    shown = YAML(typ="safe").load(re.findall(r"```yaml\n(.*?)```", TASKS, re.DOTALL)[-1])
    settings = {"resume_from": "exp", "phases": shown["experiment"]["phases"]}
    tasks = [proposed.tasks[0] | {"rubric": shown["tasks"][0]["rubric"]}]
    lab = Lab(tmp_path, [model("ann"), model("ben", "teacher")], tasks, settings, id="exp-v2")
    assert lab.run().exit_code == 0
    before, after = (list(json.loads(rubric(run).read_text())) for run in (proposed, lab))
    assert after[: len(before)] == before
    assert len(after) > len(before)


def test_the_documents_of_the_page_become_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "documents.md").read_text(encoding="utf-8")
    (config,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "handbook").mkdir()
    for name in ("returns", "postage", "refunds", "gifts"):
        text = f"The rules for {name} hold from the first of May on, for members and for guests alike."
        (tmp_path / "handbook" / f"{name}.md").write_text(text)
    (tmp_path / "handbook.yaml").write_text(config)
    assert coeval.run("handbook.yaml").exit_code == 0
    (path,) = (tmp_path / "runs" / "handbook" / "phase3_datapoints").iterdir()
    sources = [json.loads(line)["passage_source"] for line in path.read_text().splitlines()]
    assert sorted(sources) == ["gifts.md#0", "postage.md#0", "refunds.md#0", "returns.md#0"]
    declared = YAML(typ="safe").load(config)["tasks"][0]["documents"]
    keys = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(keys) == set(DocumentSettings.model_fields) >= set(declared)
    reasons = set(re.findall(r"^\| ([a-z]+ ?[a-z]* ?[a-z]*) \| a|^\| ([a-z ]+) \| the", page, re.MULTILINE))
    assert {one or other for one, other in reasons} - {"reason"} == set(get_args(Filter))


@pytest.mark.process
def test_the_items_of_the_page_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "items.md").read_text(encoding="utf-8")
    (table, answered, config), [items] = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("yaml", "json")
    )
    Path("reviews.yaml").write_text(table)
    Path("reviews.csv").write_text("text,label\nGreat!,positive\nAwful.,negative\n")
    taken = coeval.run("reviews.yaml")
    assert [(found.attribute, found.n) for found in taken.results().labels] == [("label", 2)]
    Path("answered.yaml").write_text(table.replace("id: reviews", "id: answered") + answered)
    Path("answers.csv").write_text("q,a\nGreat!,positive\nAwful.,positive\n")
    found = {label.student: label.correct for label in coeval.run("answered.yaml").results().labels}
    assert found["prod-v7"] == 1
    Path("own.yaml").write_text(config)
    path = Path(re.findall(r"`(runs/\S+\.jsonl)`", page)[0])
    path.parent.mkdir(parents=True)
    path.write_text(items)
    run = coeval.run("own.yaml")
    assert run.exit_code == 0
    assert "support__handbook__q-2" in {record.id for record in run.records("data_generation")}
    assert [score.n for score in run.results().students if score.task] == [3]


@pytest.mark.parametrize(("name", "least"), [("design.md", 60), ("extending.md", 20)])
def test_the_pages_for_maintainers_name_what_exists(name: str, least: int) -> None:
    page, root = (DOCS / name).read_text(encoding="utf-8"), DOCS.parent
    named = set(re.findall(r"`([\w/.-]+(?:/|\.(?:py|js|yaml|toml|md)))`", page))
    assert len(named) > least
    assert [
        path for path in named if not any((at / path).exists() for at in (root / "src" / "coeval", root))
    ] == []
    assert page.count("\n") <= 210


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "file", "made"),
    [
        ("tutorial.md", "support.yaml", "report/report.html"),
        ("two-prompts.md", "prompts.yaml", "runs/prompts/meta.json"),
        ("own-data.md", "tickets.yaml", "report/report.html"),
    ],
)
def test_the_page_leads_to_its_decision(tmp_path: Path, name: str, file: str, made: str) -> None:
    """All of its commands in one folder, in order; what it shows of their output is there. A server runs in a
    second terminal; a later block of YAML that begins with a list's entry goes to the models; a block of
    Python is the file that its first line names."""
    page = (DOCS / name).read_text(encoding="utf-8").replace("8000", str(_free_port()))
    config = tmp_path / file
    (tmp_path / "coeval").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coeval "$@"\n', encoding="utf-8")
    (tmp_path / "coeval").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    said, blocks = "", re.findall(r"^```(yaml|bash|text|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with ExitStack() as second_terminal:
        for language, block in blocks:
            words = ["bash", "-euc", block]
            if language == "yaml" and not config.exists():
                config.write_text(block, encoding="utf-8")
            elif language == "yaml" and block.startswith("  - "):
                before = config.read_text(encoding="utf-8")
                config.write_text(before.replace("models:\n", f"models:\n{block}", 1), encoding="utf-8")
            elif block.startswith("coeval simulate"):
                words[-1] = f"exec {block}"
                server = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
                second_terminal.enter_context(server)
                second_terminal.callback(server.terminate)
                assert server.stdout is not None
                assert b"simulated models at" in server.stdout.readline()
            elif language == "python":
                (tmp_path / block.split()[1]).write_text(block, encoding="utf-8")
            elif language == "bash":
                ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
                gaps = "--no-wait" in block or "missing" in ended.stderr
                assert ended.returncode == (3 if gaps else 0), (block, ended.stderr)
                said = ended.stdout + ended.stderr
            elif language == "text":
                assert {*map(str.strip, block.splitlines())} <= {*map(str.strip, said.splitlines())}, block
    assert (tmp_path / made).exists()


CHECKS = (DOCS / "checks.md").read_text(encoding="utf-8")


def test_the_page_of_checks_names_every_kind_and_option() -> None:
    table = dict(
        re.findall(
            r"^\| `(\w+)` \| (.+) \|$", CHECKS.partition("## All checks")[2].partition("## ")[0], re.MULTILINE
        )
    )
    assert table.keys() == KINDS.keys()
    for kind, struct in KINDS.items():
        for option in struct.__struct_fields__:
            assert f"`{option}" in CHECKS, (kind, option)


def test_the_checks_that_the_page_shows_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [YAML(typ="safe").load(block) for block in re.findall(r"```yaml\n(.*?)```", CHECKS, re.DOTALL)]
    rubric = shown[0]["rubric"]
    checks = [options for options in (*rubric.values(), *shown[1].values()) if isinstance(options, dict)]
    assert len(checks) == 6
    assert [find_check_problems(options) for options in checks] == [[]] * 6
    monkeypatch.chdir(tmp_path)
    (function,) = re.findall(r"```python\n(.*?)```", CHECKS, re.DOTALL)
    (tmp_path / "graders.py").write_text(function)
    check = read_check(rubric["refund_rule"])
    assert isinstance(check, PythonCheck)
    assert check.find_problem_in_source() is None
    answer = CheckedAnswer("", "You have 30 days.", None, {"kind": "refund"})
    assert check.score(answer) == (0.0, "does not state the 14 days")
    sys.path.remove(str(tmp_path))


@pytest.mark.process
def test_the_policy_of_the_page_decides_the_quickstart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python block says what its file does; a task of another name is missing, and so never GO."""
    page = (DOCS / "gate.md").read_text(encoding="utf-8")
    [policy] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gate.yaml").write_text(policy)
    coeval.run(DOCS.parent / "examples" / "quickstart.yaml", overwrite=True)
    namespace: dict[str, Any] = {"coeval": coeval}
    exec(code, namespace)  # noqa: S102  that it runs is what is promised
    assert namespace["verdict"].exit_code == 4
    by_file = coeval.gate("runs/quickstart", policy="gate.yaml", students=["sim-large", "sim-medium"])
    assert (by_file.verdict, by_file.exit_code) == ("NO-GO", 4)
    [one] = by_file.candidates
    assert {(task.task, task.tier, task.metric) for task in one.tasks} >= {
        ("explain_concept", "critical", "accuracy"),
        ("ticket_triage", "supporting", "score"),
    }
    back = coeval.gate("runs/quickstart", policy="gate.yaml", students=["sim-medium", "sim-large"])
    assert back.verdict == "GO"
