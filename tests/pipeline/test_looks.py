"""Looks at the results of a run that grows: recorded where they are shown, and told in what they show."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from pathlib import Path

import pytest
from cli.invoked import Command
from cli.warm_process import WarmProcess
from pipeline.experiments import PHASES, Lab, model, task

import coeval as api
from coeval.analysis.intervals import Looks
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.reports.view.viewed_folder import ViewedFolder
from coeval.store.rundir import RunDir

pytestmark = pytest.mark.process


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    models = [model("tea", "teacher", "judge"), model("ann", "student", skill=0.9)]
    models += [model("ben", "student", skill=0.1)]
    return Lab(tmp_path, models, [task(total=20)])


def grown(lab: Lab, total: int) -> Path:
    """The run with so many items, its end as of a run that was interrupted."""
    lab.tasks = [task(total=total)]
    lab.run(continue_run=(lab.path / "meta.json").exists())
    folder = RunDir(lab.path)
    meta = folder.read_meta()
    meta.status = "interrupted"
    folder.write_meta(meta)
    return lab.path


def looks(folder: Path) -> list[dict[str, int]]:
    lines = (folder / "looks.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "at"} for line in lines]


def looks_that_parse(folder: Path) -> list[dict[str, int]]:
    lines = (folder / "looks.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line != "no look"]


def test_readers_of_a_finished_run_leave_no_trace(lab: Lab, coeval: Command) -> None:
    lab.run()
    before = {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()}
    for command in ("results", "analyze"):
        assert coeval(command, "--run", lab.path).code == 0
    found = api.compare(lab.path, students=["ben", "ann"])
    assert found.comparisons[0].look == ""
    assert {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()} == before


def test_each_look_at_more_than_before_is_one_line(lab: Lab, coeval: Command) -> None:
    folder = grown(lab, 6)
    for command in ("results", "analyze"):
        assert coeval(command, "--run", folder).code == 0
    assert looks(folder) == [{"scores": 24, "items": 6, "planned": 6}]
    grown(lab, 12)
    ended = coeval("compare", folder, "--students", "ben,ann")
    assert [one["items"] for one in looks(folder)] == [6, 12]
    assert re.search(r"\(p = 0\.\d+ at any look\)", ended.out)
    assert "Second look at a run as it grows (after 6 items): a difference is called significant" in ended.out
    one = api.compare(folder, students=["ben", "ann"]).comparisons[0]
    assert one.ci95_adjusted[0] < one.ci95[0] < one.ci95[1] <= one.ci95_adjusted[1] <= 1
    assert one.p is not None
    meta = RunDir(folder).read_meta()
    meta.status = "completed"
    RunDir(folder).write_meta(meta)
    assert api.compare(folder, students=["ben", "ann"]).comparisons[0].p == one.p, "it was looked at before"
    (folder / "looks.jsonl").unlink()
    alone = api.compare(folder, students=["ben", "ann"]).comparisons[0]
    assert alone.p is not None
    assert alone.p < one.p
    assert not (folder / "looks.jsonl").exists()


def test_two_who_look_at_once_take_one_look(lab: Lab, coeval: Command) -> None:
    folder = grown(lab, 6)
    assert coeval("results", "--run", folder).code == 0
    file = folder / "looks.jsonl"
    file.write_bytes(2 * file.read_bytes())
    grown(lab, 12)
    assert "Second look at a run as it grows (after 6 items)" in coeval("results", "--run", folder).out


def test_a_finished_run_that_is_extended_was_looked_at(lab: Lab, coeval: Command) -> None:
    lab.tasks = [task(total=6)]
    lab.run()
    assert coeval("results", "--run", lab.path).code == 0
    lab.run(continue_run=True)
    assert not (lab.path / "looks.jsonl").exists(), "nothing was to be done"
    lab.tasks = [task(total=12)]
    lab.run(continue_run=True)
    assert looks(lab.path) == [{"scores": 24, "items": 6, "planned": 12, "finished": True}]
    one = api.compare(lab.path, students=["ben", "ann"])
    assert one.comparisons[0].look == "second look"
    assert any("Second look at a run as it grows (after 6 items)" in note for note in one.notes)
    assert len(looks(lab.path)) == 1, "it is finished again"
    lab.tasks = [task(total=20)]
    lab.run(continue_run=True)
    assert [one["planned"] for one in looks(lab.path)] == [12, 20]
    with open_run_reader(RunDir(lab.path)) as (reader, _):
        assert reader.looks == Looks(3, 20 / 12), "tuned to the plan that the first look was followed by"


def test_a_run_that_takes_over_scores_takes_over_their_looks(lab: Lab) -> None:
    lab.tasks = [task(total=6)]
    lab.run()
    lab.settings = {"resume_from": lab.id, "phases": dict.fromkeys(PHASES, "Extend")}
    for lab.id, total, seen in (("same", 6, []), ("more", 9, [(6, 9)])):
        lab.tasks = [task(total=total)]
        lab.run()
        found = looks(lab.path) if (lab.path / "looks.jsonl").exists() else []
        assert [(one["items"], one["planned"]) for one in found] == seen
    lab.settings["resume_from"] = "more"
    lab.id, lab.tasks = "again", [task(total=12)]
    lab.run()
    assert [(one["items"], one["planned"]) for one in looks(lab.path)] == [(6, 9), (9, 12)]
    lab.id, lab.settings["phases"] = "other", {"data_generation": "Extend"}
    lab.tasks = [task(total=20)]
    lab.run()
    assert not (lab.path / "looks.jsonl").exists(), "none of its scores were seen"


def test_scores_that_give_way_take_their_looks_along(lab: Lab, coeval: Command) -> None:
    folder = grown(lab, 6)
    assert coeval("results", "--run", folder).code == 0
    lab.run(overwrite=True)
    assert not (folder / "looks.jsonl").exists()
    assert api.compare(folder, students=["ben", "ann"]).comparisons[0].look == ""


def test_what_failed_and_is_asked_again_is_no_extension(lab: Lab) -> None:
    lab.tasks = [task(total=6)]
    lab.run()
    lab.lose("evaluation", lab.lines("evaluation")[0]["id"])
    lab.run(continue_run=True)
    assert not (lab.path / "looks.jsonl").exists()


def test_a_student_more_is_no_second_look(lab: Lab) -> None:
    lab.run()
    alone = api.compare(lab.path, students=["ben", "ann"]).comparisons[0]
    lab.models.append(model("cleo", "student", skill=0.5))
    lab.run(continue_run=True)
    again = api.compare(lab.path, students=["ben", "ann"]).comparisons[0]
    assert (again.look, again.p) == ("", alone.p)


def test_measures_test_as_the_comparison_does(lab: Lab, coeval: Command) -> None:
    folder = grown(lab, 8)
    measured = json.loads(coeval("analyze", "--run", folder, "--format", "json").out)
    [gap] = measured["ranking"]["differences"].values()
    one = api.compare(folder, students=["ann", "ben"]).comparisons[0]
    assert gap["p"] == pytest.approx(one.p)
    assert any("First look at a run as it grows" in note for note in api.open_run(folder).results().notes)


def test_whatever_shows_results_is_a_look(lab: Lab, coeval: Command, tmp_path: Path) -> None:
    def seen() -> int:
        return len(looks(lab.path)) if (lab.path / "looks.jsonl").exists() else 0

    grown(lab, 5)
    api.open_run(lab.path).measures()
    assert seen() == 1
    for total, form in ((6, "excel"), (7, "html")):
        grown(lab, total)
        ended = coeval("analyze", "--run", lab.path, "--format", form, "--out", tmp_path / form)
        assert (ended.code, seen()) == (0, total - 4), ended.err
    grown(lab, 8)
    assert coeval("analyze", "--run", lab.path, "--figures", tmp_path / "figures").code == 0
    assert seen() == 4
    grown(lab, 9)
    viewed = ViewedFolder(lab.path, lambda _: {})
    viewed.read_changed_records_if_needed()
    assert seen() == 4, "nobody has opened its page"
    viewed.needed = True
    viewed.read_changed_records_if_needed()
    viewed.close()
    assert seen() == 5


def test_judges_and_sentences_allow_for_looks(lab: Lab) -> None:
    lab.models[0]["roles"] = ["teacher"]
    lab.models += [model(f"j{n}", "judge", severity=n / 20) for n in range(3)]
    folder = grown(lab, 8)
    growing = api.compare(folder, students=["ben", "ann"]).comparisons[0]
    (folder / "looks.jsonl").unlink()
    meta = RunDir(folder).read_meta()
    meta.status = "completed"
    RunDir(folder).write_meta(meta)
    once = api.compare(folder, students=["ben", "ann"]).comparisons[0]
    for many, one in ((growing.ci95_over_judges_adjusted, once.ci95_over_judges_adjusted),):
        assert many is not None
        assert one is not None
        assert many[0] < one[0] < one[1] <= many[1]
    assert growing.ci95 == once.ci95
    assert growing.minimum_detectable is not None
    assert once.minimum_detectable is not None
    assert growing.minimum_detectable > once.minimum_detectable


def judged(lab: Lab) -> int:
    return sum(path.stat().st_size for path in lab.path.glob("phase5_evaluations/*.jsonl"))


def wait_for_judgments(lab: Lab, before: int = 0) -> None:
    until = time.monotonic() + 60
    while judged(lab) == before and time.monotonic() < until:
        time.sleep(0.02)


def stopped(lab: Lab, number: signal.Signals, *flags: str) -> tuple[int, str, str]:
    """Start the run, and end it by a signal once it has made a judgment: exit code and what it printed."""
    before = judged(lab)
    process = WarmProcess("run", "--config", lab.file, *flags, cwd=lab.folder)
    wait_for_judgments(lab, before)
    process.send_signal(number)
    return process.wait(), *process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_a_signal_stopped_ends_with_the_verdict_of_one_that_was_not(
    lab: Lab, number: signal.Signals, tmp_path: Path
) -> None:
    """Stopped twice and continued: no look was taken, so no test allows for any."""
    for each in (lab, whole := Lab(tmp_path, lab.models, lab.tasks, id="whole")):
        each.tasks = [task(total=30)]
        each.settings["report"] = True
    assert whole.run().exit_code == 0
    for entry in lab.models:
        entry["parameters"] |= {"latency_s": 0.15, "max_concurrency": 2}
    for flags in ((), ("--continue",)):
        code, out, err = stopped(lab, number, *flags)
        assert (code, out) == (130, ""), "no scores"
        assert "missing" in err
        assert f"Fill the gaps with: coeval run --config {lab.file} --continue" in err
        assert not (lab.path / "report.html").exists()
        assert not (lab.path / "looks.jsonl").exists()
        assert lab.meta()["status"] == "interrupted"
    for entry in lab.models:
        del entry["parameters"]["latency_s"]
    ended = lab.run(continue_run=True)
    assert ended.exit_code == 0
    assert "look at a run as it grows" not in (lab.path / "report.html").read_text()
    one, other = (api.compare(each.path, students=["ben", "ann"]).comparisons[0] for each in (lab, whole))
    assert (one.look, one.p, one.ci95) == ("", other.p, other.ci95)
    assert ended.results().notes == api.open_run(whole.path).results().notes


def test_a_stopped_run_shows_no_scores_in_a_notebook(lab: Lab) -> None:
    for each in lab.models:
        each["parameters"] |= {"latency_s": 0.1, "max_concurrency": 2}

    async def run_until_judged() -> api.Run:
        interrupt = asyncio.Event()
        running = asyncio.create_task(lab.arun(interrupt=interrupt))
        await asyncio.to_thread(wait_for_judgments, lab)
        interrupt.set()
        return await running

    shown = asyncio.run(run_until_judged())._repr_html_()
    assert "Interrupted" in shown
    assert "Its scores are partial" in shown
    assert not (lab.path / "looks.jsonl").exists()


def test_who_may_only_read_may_look(lab: Lab, coeval: Command) -> None:
    folder = grown(lab, 6)
    (folder / "looks.jsonl").mkdir()
    ended = coeval("results", "--run", folder)
    assert ended.code == 1, "a folder in its place is damage"
    (folder / "looks.jsonl").rmdir()
    (folder / "looks.jsonl").write_text('{"at": "x", "scores": 1, "items": 1, "planned": 6}\nno look\n{"at')
    assert "second look at a run as it grows" in coeval("results", "--run", folder).out.lower()
    *_, recorded = looks_that_parse(folder)
    assert recorded["items"] == 6, "a line torn before does not swallow this one"
