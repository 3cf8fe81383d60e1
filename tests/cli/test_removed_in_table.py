"""What a configuration no longer names, in the table of ``coeval run --continue`` and in the results."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import openpyxl
import pytest
from cli.invoked import Command
from pipeline.experiments import PHASES, Lab, model, quiz, task
from reports.workbook_tables import summary_lines

import coeval as package
from coeval.analysis.planned_names import ItemsBeyondTotal, LeftOut
from coeval.core.html_table import MeasureRow
from coeval.reports.result_tables import Results

pytestmark = pytest.mark.process


@pytest.fixture
def lab(here: Path) -> Lab:
    models = [
        model("tea", "teacher"),
        model("ann", "student", "judge", skill=0.9),
        model("ben", "student", skill=0.4),
        model("old", "student", skill=0.6),
        model("jud", "judge", severity=0.9),
    ]
    return Lab(here, models, [task(total=12), quiz(total=4)])


def remove(lab: Lab, *names: str) -> None:
    lab.models = [entry for entry in lab.models if entry["name"] not in names]


def results(lab: Lab) -> Results:
    return package.open_run(lab.path).results()


def score(lab: Lab, student: str, task: str | None = None) -> MeasureRow:
    [found] = [s for s in results(lab).students if (s.student, s.task) == (student, task)]
    return found


def test_a_removed_student_judge_and_factor(lab: Lab, coeval: Command) -> None:
    first = coeval("run", "--config", lab.file)
    assert first.code == 0
    assert "(removed)" not in first.out
    assert "in no mean:" not in first.out
    assert score(lab, "ann").valid_evals == 12 * 2 * 2
    before, models = results(lab), list(lab.models)
    remove(lab, "old", "jud")
    style = lab.tasks[0]["rubric"].pop("style")
    counts = lab.counts()
    again = coeval("run", "--config", lab.file, "--continue")
    assert again.code == 0
    assert lab.counts() == counts, "all stays on disk"

    rows = [line.split() for line in again.out.splitlines() if re.match(r"(ann|ben|old) .*\[", line)]
    assert [row[0] for row in rows] == ["ann", "ben", "old"]
    assert [row[1] == "(removed)" for row in rows] == [False, False, True]
    assert "in no mean: judge jud, factor style of story." in again.out
    kept = [
        record["scores"]["plot"]
        for record in lab.records("evaluation").values()
        if (record["student_model_id"], record["judge_model_id"]) == ("ben", "ann") and record["scores"]
    ]
    value = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
    for of in ("story", None):
        ben = score(lab, "ben", of)
        assert ben.score == pytest.approx(sum(value[level] for level in kept) / 12)
        assert (ben.n, ben.valid_evals, ben.removed) == (12, 12, ())
    assert score(lab, "old").removed == ("student",)
    assert results(lab).left_out == (LeftOut("judge", "story", "jud"), LeftOut("factor", "story", "style"))
    lab.models = models
    lab.tasks[0]["rubric"]["style"] = style
    assert lab.run(continue_run=True).results() == before, "what comes back counts again"


def test_a_removed_task_and_label(lab: Lab, coeval: Command) -> None:
    lab.tasks.append(task("poem"))
    assert coeval("run", "--config", lab.file).code == 0
    whole = score(lab, "ann")
    lab.tasks = [entry for entry in lab.tasks if entry["name"] != "poem"]
    lab.tasks[1] |= {"label_attributes": [], "rubric": {"tone": "It is kind."}}
    ended = coeval("run", "--config", lab.file, "--continue", "--keep-changed")
    assert ended.code == 0
    assert "poem (removed)" in ended.out
    assert "colour (removed)" in ended.out
    assert "(removed): no longer in the configuration" in ended.out
    assert "Without a score in some task" not in ended.out, "a removed task is missed by nobody"
    poem = score(lab, "ann", "poem")
    assert (poem.valid_evals, poem.removed) == (3 * 2 * 2, ("task",)), "shown as it was"
    assert whole.n == 12 + 3
    assert score(lab, "ann").n == 12 + 4


def test_a_removed_teacher_takes_its_items_along(lab: Lab, coeval: Command) -> None:
    lab.models.append(model("tom", "teacher"))
    assert coeval("run", "--config", lab.file).code == 0
    assert (score(lab, "ann").n, score(lab, "ann").answers) == (24, 32)
    remove(lab, "tom")
    ended = coeval("run", "--config", lab.file, "--continue")
    assert ended.code == 0
    assert "in no mean: teacher tom." in ended.out
    assert (score(lab, "ann").n, score(lab, "ann").answers) == (12, 16)
    assert {label.n for label in results(lab).labels} == {4}


def test_a_factor_that_teachers_wrote_or_a_source_supplied_is_no_removed_one(lab: Lab) -> None:
    lab.tasks = [task(rubric="auto")]
    made = lab.run().results()
    assert made.left_out == ()
    assert made.students[0].valid_evals > 0
    stored = lab.path / "phase2_rubric" / "story.rubric.json"
    heir = Lab(lab.folder, lab.models, [task()], id="heir", settings={"resume_from": "exp"})
    taken_over = heir.run().results()
    assert stored.read_text() == (heir.path / "phase2_rubric" / "story.rubric.json").read_text()
    assert taken_over.left_out == ()
    assert taken_over.students[0].valid_evals > 0


def test_a_phase_that_keeps_what_is_there_removes_nobody(lab: Lab) -> None:
    lab.run()
    phases = {"data_generation": "Keep", "response_collection": "Keep", "evaluation": "Keep"}
    heir = Lab(lab.folder, lab.models, lab.tasks, {"resume_from": "exp", "phases": phases}, "heir")
    remove(heir, "tea", "old", "jud")
    heir.models.append(model("new", "teacher"))
    found = heir.run().results()
    assert found.left_out == ()
    assert {s.student for s in found.students if not s.removed} == {"ann", "ben", "old"}


def test_an_heir_that_goes_on_without_a_factor_leaves_it_out(lab: Lab) -> None:
    lab.run()
    heir = Lab(lab.folder, lab.models, lab.tasks, {"resume_from": "exp"}, "heir")
    assert heir.run().results().left_out == ()
    del heir.tasks[0]["rubric"]["style"]
    assert heir.run(continue_run=True).results().left_out == (LeftOut("factor", "story", "style"),)
    assert score(heir, "ann", "story").valid_evals == 12 * 2


@pytest.mark.parametrize("mode", ["Model", "Extend"])
def test_what_was_taken_over_counts_and_what_the_heir_itself_removes_is_marked(lab: Lab, mode: str) -> None:
    lab.run()
    phases = dict.fromkeys(PHASES, mode) | {"rubric_mapping": "Keep"}
    heir = Lab(lab.folder, lab.models, lab.tasks, {"resume_from": "exp", "phases": phases}, "heir")
    remove(heir, "old", "jud")
    del heir.tasks[0]["rubric"]["style"]
    heir.models += [model("new", "student", skill=0.7), model("eva", "judge")]
    started = heir.run().results()
    assert (started.left_out, [s for s in started.students if s.removed]) == ((), [])
    assert heir.run(continue_run=True).results() == started
    remove(heir, "new", "eva")
    went_on = heir.run(continue_run=True).results()
    assert {s.student for s in went_on.students if s.removed} == {"new"}
    assert went_on.left_out == (LeftOut("judge", "story", "eva"),)
    (heir.path / "meta.json").write_text("{}")
    without = results(heir)
    assert (without.students, without.left_out) == (went_on.students, went_on.left_out)


def test_a_file_that_keeps_everything_marks_what_it_lacks_all_the_same(lab: Lab) -> None:
    """What is kept was made here, not taken over: it counts by its name alone."""
    lab.run()
    lab.settings["phases"] = dict.fromkeys(PHASES, "Keep") | {
        "attribute_mapping": "Keep",
        "rubric_mapping": "Keep",
    }
    remove(lab, "old", "jud")
    del lab.tasks[0]["rubric"]["style"]
    kept = lab.run().results()
    assert kept.left_out == (LeftOut("judge", "story", "jud"), LeftOut("factor", "story", "style"))
    assert {s.student for s in kept.students if s.removed} == {"old"}
    assert lab.run(continue_run=True).results() == kept


def test_what_the_source_had_removed_is_not_brought_back(lab: Lab) -> None:
    lab.run()
    remove(lab, "old", "jud")
    removed = lab.run(continue_run=True).results()
    phases = dict.fromkeys(PHASES, "Extend")
    heir = Lab(lab.folder, lab.models, lab.tasks, {"resume_from": "exp", "phases": phases}, "heir")
    remove(heir, "ben")
    found = heir.run().results()
    assert found.left_out == removed.left_out == (LeftOut("judge", "story", "jud"),)
    assert {s.student for s in found.students if s.removed} == {"old"}


def test_a_task_that_was_taken_over_counts_though_the_file_lacks_it(lab: Lab) -> None:
    before = lab.run().results()
    phases = dict.fromkeys(PHASES, "Extend")
    heir = Lab(lab.folder, lab.models, lab.tasks[:1], {"resume_from": "exp", "phases": phases}, "heir")
    for found in (heir.run().results(), heir.run(continue_run=True).results()):
        assert found.costs == () != before.costs, "what was taken over was paid for elsewhere"
        assert msgspec.structs.replace(found, costs=before.costs) == before


def test_what_counts_stays_when_the_source_is_gone(lab: Lab) -> None:
    """The source is of an older layout, which says nothing of what it planned."""
    lab.run()
    (lab.path / "config.yaml").unlink()
    phases = dict.fromkeys(PHASES, "Extend")
    heir = Lab(lab.folder, lab.models, lab.tasks, {"resume_from": "exp", "phases": phases}, "heir")
    remove(heir, "old", "jud")
    started = heir.run().results()
    assert not any(s.removed for s in started.students)
    shutil.rmtree(lab.path)
    assert results(heir) == started


def test_items_beyond_a_lowered_total_count_nowhere_until_it_is_raised_again(
    lab: Lab, coeval: Command
) -> None:
    before = lab.run().results()
    assert before.beyond_total == ()
    lab.tasks[0]["sampling"]["total"] = 4
    lab.tasks[1]["sampling"]["total"] = 3
    counts = lab.counts()
    ended = coeval("run", "--config", lab.file, "--continue")
    assert ended.code == 0
    assert "Beyond sampling.total and in no mean: 1 item of quiz, 8 items of story." in ended.out
    assert lab.counts() == counts, "all stays on disk"
    assert results(lab).beyond_total == (ItemsBeyondTotal("quiz", 1), ItemsBeyondTotal("story", 8))
    [said] = results(lab).notes  # and nothing of orphans: what is left out is none
    assert said == "Scores are over 4 of 7 items; the other 3 (quiz) have labels, reported as accuracy."
    value = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
    levels = [
        value[level]
        for key, record in lab.records("evaluation").items()
        if re.match("story__tea__0000[1-4]__ben__", key)
        for level in record["scores"].values()
    ]
    ben = score(lab, "ben", "story")
    assert (ben.n, ben.valid_evals, ben.answers) == (4, 16, 4)
    assert ben.score == pytest.approx(sum(levels) / 16)
    assert {label.n for label in results(lab).labels} == {3}
    lab.tasks[0]["sampling"]["total"], lab.tasks[1]["sampling"]["total"] = 12, 4
    assert lab.run(continue_run=True).results() == before
    assert lab.counts() == counts


def test_a_phase_that_keeps_its_items_has_none_beyond_the_total(lab: Lab) -> None:
    lab.run()
    keep = dict.fromkeys(PHASES, "Keep")
    heir = Lab(lab.folder, lab.models, [task(total=4)], {"resume_from": "exp", "phases": keep}, "heir")
    for how in ({}, {"continue_run": True}):
        assert (heir.run(**how).results().beyond_total, score(heir, "ann", "story").n) == ((), 12)


def test_without_a_snapshot_all_counts_and_a_broken_one_is_told(lab: Lab) -> None:
    lab.run()
    remove(lab, "old", "jud")
    marked = lab.run(continue_run=True).results()
    assert any(s.removed for s in marked.students)
    snapshot = lab.path / "config.yaml"
    snapshot.write_text("models: 5\n")
    broken = results(lab)
    assert not any(s.removed for s in broken.students)
    [*_, note] = broken.notes
    assert "counts in full" in note
    assert str(snapshot) in note
    snapshot.unlink()
    older = results(lab)
    [*_, note] = older.notes
    assert note.endswith("config.yaml is not there")
    assert not any(s.removed for s in older.students)
    assert older.students == broken.students


def test_a_student_without_any_record_has_a_row(lab: Lab, coeval: Command) -> None:
    lab.settings["quota"] = {"old": {"max_calls": 0}}
    ended = coeval("run", "--config", lab.file)
    assert ended.code == 3
    assert re.search(r"^old( +–)+ +0 +0( +–)*$", ended.out, re.MULTILINE)
    assert score(lab, "old").score is None


# Whoever shows the scores of a run says so where records of another configuration are among them.

KEPT = "of another configuration, but counted: 3 responses, 6 evaluations; --redo-changed regenerates them"


def words(*texts: str) -> str:
    return " ".join(" ".join(texts).split())


def test_kept_records_are_told_wherever_scores_are_shown(here: Path, coeval: Command) -> None:
    models = [
        model("tea", "teacher"),
        model("ann", "student"),
        model("ben", "student"),
        model("jud", "judge"),
    ]
    lab = Lab(here, models, [task()])
    assert coeval("run", "--config", lab.file).code == 0
    run = ("--run", str(lab.path))
    shows = [("results", *run), ("analyze", *run), ("status", *run), ("compare", str(lab.path))]
    for command in shows:
        assert "another configuration" not in words(*coeval(*command)[1:3]), command
    lab.models[1]["role_parameters"] = {"student": {"temperature": 0.9}}
    lab.models[3]["role_parameters"] = {"judge": {"temperature": 0.1}}
    started = coeval("run", "--config", lab.file, "--continue", "--keep-changed")
    assert KEPT in words(started.out, started.err)
    for command in (*shows, ("results", *run, "--json"), ("status", *run, "--json")):
        shown = coeval(*command)
        assert (shown.code, words(shown.out, shown.err).count(KEPT)) == (0, 1), command
    assert coeval("analyze", *run, "--format", "html", "--out", "page").code == 0
    page = re.sub(r"<[^>]+>", "", (here / "page" / "report.html").read_text())
    assert page.count(KEPT.removeprefix("of")) == 1, "under the title"

    reported = KEPT.removeprefix("of")
    for name in ("all", "complete-report", "judge-report"):
        shown = coeval("analyze", name, *run, "--format", "excel", "--out", "book")
        assert (shown.code, words(shown.err).count(KEPT)) == (0, 1), name
        stem = "report" if name == "all" else name
        assert any(reported in line for line in summary(here / "book" / f"{stem}.xlsx")), name
    assert coeval("compare", str(lab.path), "--excel", "both.xlsx").code == 0
    assert any(reported in line for line in summary(here / "both.xlsx"))

    lost = next((lab.path / "phase5_evaluations").glob("*.jsonl"))
    lost.write_text("".join(lost.read_text().splitlines(keepends=True)[:-1]))
    shown = coeval("analyze", "judge-report", *run, "--format", "excel", "--out", "book")
    assert shown.code == 3
    [missing] = [
        line for line in summary(here / "book" / "judge-report.xlsx") if "issing from the plan" in line
    ]
    reported = missing.partition(";")[0]  # the files stand on lines of their own
    assert reported.casefold() in words(shown.err).casefold()


def summary(path: Path) -> list[str]:
    return summary_lines(openpyxl.load_workbook(path))


def test_labels_compared_by_earlier_rules_are_not_missing(here: Path, coeval: Command) -> None:
    lab = Lab(here, tasks=[quiz()])
    assert coeval("run", "--config", lab.file).code == 0
    for compared in (lab.path / "phase5_evaluations").iterdir():
        text = compared.read_text()
        assert "labels-3." in text
        compared.write_text(text.replace("labels-3.", "labels-1."))
    status = coeval("status", "--run", lab.path)
    assert status.code == 0
    assert "Files that lack records" not in status.out
