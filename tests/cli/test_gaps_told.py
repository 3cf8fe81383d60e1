"""What a run lacks is told alike by every command that shows it, with a way on that can be taken."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command, Ended
from cli.terminal import on_terminal
from pipeline.experiments import Lab, listen, model, task

import coeval as api
from coeval.pipeline.config.schema import Phase
from coeval.store.rundir import RunDir

OWN = {"name": "exam", "roles": ["teacher"], "interface": "benchmark", "parameters": {"task": "story"}}


def said(shown: Ended) -> str:
    return " ".join((shown.out + shown.err).split())


@pytest.fixture
def lab(here: Path) -> Lab:
    made = Lab(here, [model("ann"), model("ben")], [task(total=3)])
    assert made.run().exit_code == 0
    return made


def missing(shown: Ended) -> list[str]:
    """The last column of `status`, the last of `repair`: what is owed of phases 3–5."""
    rows = [line.split() for line in shown.out.splitlines()]
    phases = ("data_generation", "response_collection", "evaluation")
    return [row[-1] for row in rows if row and row[0] in phases]


@pytest.mark.process
def test_a_good_record_without_a_value_is_none_for_any_command(
    lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no good one's place, and alone it is a failure: owed, and neither an answer nor a score."""
    before = coeval("results", "--run", lab.path).out
    path = lab.path / "phase4_responses" / "story.ben.responses.jsonl"
    good = path.read_text()
    first = json.loads(good.splitlines()[0])
    hollow = json.dumps({key: value for key, value in first.items() if key != "response"}) + "\n"
    path.write_text(good + hollow)
    assert coeval("results", "--run", lab.path).out == before
    assert "1 invalid record" in said(coeval("status", "--run", lab.path))
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []

    path.write_text(hollow + "".join(good.splitlines(keepends=True)[1:]))
    shown = said(coeval("results", "--run", lab.path))
    assert "missing from the plan: 1 answer" in shown
    assert "empty" not in shown
    [ben] = [s for s in api.open_run(lab.path).results().students if (s.student, s.task) == ("ben", "story")]
    assert (ben.answers, ben.failed, ben.empty) == (5, 1, 0)


@pytest.mark.process
def test_a_comparison_says_what_results_say_is_missing(lab: Lab, coeval: Command) -> None:
    for path in lab.path.glob("phase5_evaluations/*.ann.evaluations.jsonl"):
        path.unlink()
    [lacking] = api.open_run(lab.path).results().missing
    assert lacking.startswith("missing from the plan: 12 judgments")
    policy = lab.path.with_name("policy.yaml")
    policy.write_text("max_drop: 99")
    gate = coeval("gate", lab.path, "--students", "ann,ben", "--policy", policy, "--json")
    assert lacking in json.loads(gate.out)["notes"]
    assert lacking in json.loads(coeval("compare", lab.path, "--json").out)["notes"]


@pytest.mark.process
def test_status_repair_and_results_agree_on_a_damaged_run(lab: Lab, coeval: Command) -> None:
    judged = "story__ann__00001__ben__ann"
    lab.edit("evaluation", judged, scores={"plot": "Great", "style": "High"})
    lab.edit("evaluation", "story__ann__00002__ben__ann", scores={"plot": "High", "humour": "Low"})
    lab.edit("response_collection", "story__ben__00003__ann", status="failed", response=None)
    lab.lose("response_collection", "story__ben__00002__ann")
    status, repair = coeval("status", "--run", lab.path), coeval("repair", "--run", lab.path, "--dry-run")
    assert missing(status) == missing(repair) == ["0", "2", "4"]
    complete = {row[0]: row[1] for line in status.out.splitlines() if len(row := line.split()) > 4}
    assert complete["data_generation"] == "yes"
    assert (complete["response_collection"], complete["evaluation"]) == ("no", "no")
    assert status.out.startswith("exp: incomplete")
    assert f"4 invalid records; see coeval repair --run {lab.path} --dry-run" in said(status)
    go_on = f"Fill the gaps with: coeval run --config {lab.path}/config.yaml --continue"
    assert go_on in said(status)
    coeval("repair", "--run", lab.path)
    results = coeval("results", "--run", lab.path)
    assert results.code == 0
    [lacking] = api.open_run(lab.path).results().missing
    what, _, where = lacking.partition("; see ")
    assert what in said(results), "Python and the command line say the same"
    assert all(name in results.err for name in where.partition(" and ")[0].split(", "))
    assert json.loads(coeval("results", "--run", lab.path, "--json").out)["missing"] == [lacking]
    assert "warning: missing from the plan: 2 answers, 4 judgments" in said(results)
    assert go_on in results.err
    assert coeval(*go_on.partition("coeval ")[2].split()).code == 0
    for command in ("status", "results"):
        shown = said(coeval(command, "--run", lab.path))
        assert "not there" not in shown
        assert "Fill the gaps" not in shown


@pytest.mark.process
def test_files_that_lack_records_have_a_line_each(lab: Lab, here: Path, coeval: Command) -> None:
    """On a terminal only the first, those that lack most; a way on that can be taken is named by its file."""
    for n in range(5):
        lab.tasks.append(task(f"task-{n}", total=1))
    assert lab.run(continue_run=True).exit_code == 0
    for lost in lab.path.glob("phase5_evaluations/*"):
        lost.unlink()
    run = lab.path.relative_to(here)
    seen = on_terminal(["python", "-m", "coeval", "analyze", "--run", run], 80, cwd=here)
    at = seen.screen.index("missing  of file")
    files = seen.screen[at + 1 : at + 9]
    assert all(re.fullmatch(r" *\d+ +phase5_evaluations/\S+\.jsonl", line) for line in files), files
    assert [int(line.split()[0]) for line in files] == [6] * 4 + [2] * 4
    assert seen.screen[at + 9] == f"… and 16 more files; see coeval status --run {run}"
    assert seen.screen[at + 10] == f"Fill the gaps with: coeval run --config {run}/config.yaml --continue"
    piped = coeval("analyze", "--run", run)
    assert (seen.code, piped.code) == (3, 3)
    assert len(re.findall(r"^ *\d +phase5_evaluations/\S+\.jsonl$", piped.err, re.MULTILINE)) == 24


@pytest.mark.process
def test_a_copy_without_its_credentials_is_not_recommended(lab: Lab, coeval: Command) -> None:
    lab.lose("evaluation", "story__ann__00001__ben__ann")
    copy = lab.path / "config.yaml"
    copy.write_text(copy.read_text() + "# api_key: '***'\n")
    shown = said(coeval("analyze", "--run", lab.path))
    assert "coeval run --config FILE --continue (FILE: the experiment file that the run was started" in shown


FLAWS: dict[str, tuple[Phase, str, dict[str, Any]]] = {
    "an item without a value": ("data_generation", "story__ann__00001", {"prompt": None}),
    "an answer without a value": ("response_collection", "story__ann__00001__ben", {"response": None}),
    "a judgment without scores": ("evaluation", "story__ann__00001__ben__ann", {"scores": {}}),
    "a level that is none": ("evaluation", "story__ann__00001__ben__ann", {"scores": {"plot": "Great"}}),
    "an unknown factor": (
        "evaluation",
        "story__ann__00001__ben__ann",
        {"scores": {"plot": "High", "style": "High", "humour": "Low"}},
    ),
    "another's name": ("evaluation", "story__ann__00001__ben__ann", {"judge_model_id": "ben"}),
    "a field of another type": ("response_collection", "story__ann__00001__ben", {"attempts": "two"}),
}


@pytest.mark.process
@pytest.mark.parametrize("flaw", FLAWS)
def test_what_repair_finds_is_told_by_status_too(lab: Lab, coeval: Command, flaw: str) -> None:
    phase, key, changes = FLAWS[flaw]
    lab.edit(phase, key, **changes)
    status, repair = coeval("status", "--run", lab.path), coeval("repair", "--run", lab.path, "--dry-run")
    assert missing(status) == missing(repair) != ["0", "0", "0"]
    invalid = next(line for line in repair.out.splitlines() if "invalid record" in line).partition(".")[0]
    assert invalid in said(status)
    assert status.out.startswith("exp: incomplete")


@pytest.mark.parametrize("phase", ["data_generation", "response_collection"])
def test_what_follows_from_a_lost_record_is_told_by_status_and_repair_alike(
    lab: Lab, coeval: Command, phase: Phase
) -> None:
    lab.lose(phase, "story__ann__00001" if phase == "data_generation" else "story__ann__00001__ben")
    status, repair = coeval("status", "--run", lab.path), coeval("repair", "--run", lab.path, "--dry-run")
    assert missing(status) == missing(repair)
    assert "invalid records; see coeval repair" in said(status)


def test_a_torn_line_is_told_by_status_and_of_a_run_at_work_is_none(lab: Lab, coeval: Command) -> None:
    path = next((lab.path / "phase5_evaluations").glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-20])
    assert "1 invalid record; see coeval repair" in said(coeval("status", "--run", lab.path))
    with RunDir(lab.path).hold_lock():
        assert "invalid" not in said(coeval("status", "--run", lab.path))


def test_judgments_written_while_a_run_at_work_is_read_are_not_called_invalid(
    lab: Lab, coeval: Command
) -> None:
    """Their answers came after the file of answers had been read."""
    lab.lose("response_collection", "story__ann__00001__ben")
    with RunDir(lab.path).hold_lock():
        shown = coeval("status", "--run", lab.path)
    assert "invalid" not in said(shown)
    assert missing(shown)[1] == "1"


@pytest.mark.process
def test_tables_for_programs_hold_nothing_else(lab: Lab, coeval: Command) -> None:
    lab.lose("evaluation", "story__ann__00001__ben__ann")
    shown = coeval("results", "--run", lab.path, "--json")
    assert json.loads(shown.out)["students"]
    assert "1 judgment" in shown.err


def test_a_run_that_was_stopped_before_phase_3_is_not_called_whole(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")], [task(total=3)])
    lab.run()
    for path in lab.path.glob("phase[2345]*/*"):
        path.unlink()
    lab.tasks[0]["rubric"] = "auto"
    (lab.path / "config.yaml").write_text(lab.file.read_text())
    shown = coeval("status", "--run", lab.path)
    assert "phases 1–2 are not finished for story" in said(shown)
    assert missing(shown) == ["0", "0", "0"] or "0" not in missing(shown)


@pytest.mark.process
@pytest.mark.parametrize("command", ["run", "status", "repair", "results"])
def test_items_that_no_model_makes_are_to_be_added_or_asked_for_no_more(
    here: Path, coeval: Command, command: str
) -> None:
    lab = Lab(here, [OWN, model("ann", "student"), model("jo", "judge")], [task(total=5)])
    path = lab.path / "phase3_datapoints" / "story.exam.datapoints.jsonl"
    path.parent.mkdir(parents=True)

    def write(count: int) -> None:
        lines: list[dict[str, Any]] = [{"id": n, "prompt": f"Question {n}?"} for n in range(1, count + 1)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    write(3)
    assert lab.run().exit_code == 3
    flags = ("--config", lab.file, "--continue") if command == "run" else ("--run", lab.path)
    shown = said(coeval(command, *flags))
    assert (
        f"No model makes the items that are missing: add 2 lines to {path} (docs/items.md), "
        "or set sampling.total of story to 3."
    ) in shown
    assert "Fill the gaps with" not in shown, "that asks for nothing before there are items"
    assert "After that: coeval run --config" in shown

    lab.tasks[0]["sampling"]["total"] = 3
    assert lab.run(continue_run=True).exit_code == 0
    lab.tasks[0]["sampling"]["total"] = 5
    write(5)
    assert lab.run(continue_run=True).exit_code == 0
    assert lab.counts() == (5, 5, 5)


def test_a_budget_that_may_not_suffice_is_to_be_raised_first(here: Path, coeval: Command) -> None:
    """What is owed costs more than is left, by what requests have cost so far."""
    prices = {"overrides": {"simulated": {"ann": {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 4.0}}}}
    (here / "Config").mkdir(exist_ok=True)
    (here / "Config" / "provider_pricing.yaml").write_text(json.dumps(prices))
    lab = Lab(here, [model("ann", max_tokens=200)], [task(total=3)], {"budget_usd": 1.0})
    assert lab.run().exit_code == 0
    lab.lose("evaluation", "story__ann__00001__ann__ann")
    assert "Fill the gaps with: coeval run" in coeval("status", "--run", lab.path).out
    usage = json.loads((lab.path / "usage.json").read_text())
    usage["models"]["ann"]["cost_usd"] = 0.95
    (lab.path / "usage.json").write_text(json.dumps(usage))
    shown = coeval("status", "--run", lab.path).out
    assert "Raise these limits first: experiment.budget_usd.\nAfter that: coeval run" in shown
