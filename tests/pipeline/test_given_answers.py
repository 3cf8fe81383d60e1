"""Answers that exist: `students:` and `items.responses`. Nobody is asked, and what is missing is counted."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

import coeval
from coeval.analysis.measures.leaders import leader_tie_and_judges_sentences
from coeval.analysis.measures.ranking import rank_students
from coeval.analysis.measures.score_grid import read_score_grid
from coeval.analysis.measures.student_measures import measure_students
from coeval.analysis.readers.run_reader import RunReader
from coeval.api import load_config, open_run
from coeval.core.errors import ConfigError, UsageError
from coeval.pipeline.plan.preview import forecast_start, preview_run
from coeval.pipeline.plan.what_counts import read_planned_names
from coeval.pipeline.run_options import ChangePolicy, RunOptions
from coeval.pipeline.upkeep.repair import RepairOptions, find_missing_records, repair_run
from coeval.store.rundir import RunDir

ROWS = [
    ("1", "Great!", "good"),
    ("2", "Awful.", "bad"),
    ("3", "Fine, really", "good"),
    ("4", "It broke", "bad"),
]


def table(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def answers(folder: Path, rows: Sequence[Sequence[str]]) -> Path:
    return table(folder / "answers.csv", ("q", "a"), rows)


def prod(**changes: Any) -> dict[str, Any]:
    return {
        "name": "prod-v7",
        "responses": {"path": "answers.csv", "prompt": "q", "response": "a", **changes},
    }


def sentiment(**changes: Any) -> dict[str, Any]:
    items = {"path": "reviews.csv", "prompt": "text", "id": "n", "label": "mood"}
    return {"name": "sentiment", "description": "Name the mood.", "items": items, **changes}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Four reviews, and somebody's answers to all of them: one is wrong."""
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "reviews.csv", ("n", "text", "mood"), ROWS)
    answers(tmp_path, [(text, "good") if n == "4" else (text, mood) for n, text, mood in ROWS])
    return Lab(tmp_path, [], [sentiment()], students=[prod()])


def judged(lab: Lab) -> Lab:
    lab.models, lab.tasks = (
        [model("cat", "judge")],
        [sentiment(rubric={"accuracy": "Agrees.", "tone": "Is kind."})],
    )
    return lab


def calls(lab: Lab, **how: Any) -> tuple[int, int]:
    total = forecast_start(load_config(lab.file), RunOptions(**how)).total
    return total.low, total.high


def warnings(lab: Lab, **how: Any) -> list[str]:
    return [*forecast_start(load_config(lab.file), RunOptions(**how)).warnings]


def gaps(lab: Lab) -> list[tuple[str, int]]:
    found = find_missing_records(RunDir(lab.path)).gaps
    assert found is not None
    return found.missing_by_file


def test_answers_and_labels_need_no_model(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls(lab) == (0, 0)
    assert not lab.path.exists()
    requested = listen(monkeypatch)
    run = lab.run()
    assert run.exit_code == 0
    assert sum(requested.phases()) == 0
    (found,) = run.results().labels
    assert (found.student, found.n, found.correct) == ("prod-v7", 4, 3)
    assert lab.counts() == (4, 4, 4)
    before = {path: path.read_bytes() for path in lab.path.rglob("*.jsonl")}
    assert lab.run(continue_run=True).exit_code == 0
    assert before == {path: path.read_bytes() for path in lab.path.rglob("*.jsonl")}
    assert not gaps(lab)


def test_judges_score_them_beside_a_student_that_is_asked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(lab).models.append(model("ann", "student"))
    assert calls(lab) == (12, 12)
    requested = listen(monkeypatch)
    run = lab.run()
    assert run.exit_code == 0
    assert requested.phases() == (0, 0, 0, 4, 8)
    assert {score.student for score in run.results().students} == {"ann", "prod-v7"}
    shown = [request.messages[-1].content for name, request in requested.requests if name == "cat"]
    assert any("Fine, really" in text for text in shown)
    assert calls(lab, continue_run=True) == (0, 0)


def test_what_has_no_answer_is_missing_and_told(lab: Lab) -> None:
    answers(lab.folder, [(text, mood) for _, text, mood in ROWS[:2]] + [("Fine, really", "  ")])
    judged(lab)
    assert calls(lab) == (2, 2)
    run = lab.run()
    assert run.exit_code == 3
    assert run.summary is not None
    outcome = run.summary.phases["response_collection"]
    assert (outcome.planned, outcome.missing, outcome.unsupplied) == (4, 2, 2)
    assert run.summary.phases["evaluation"].missing == 0
    (short,) = run.summary.short
    assert short.remedy == "add 2 answers of prod-v7 to answers.csv"
    assert gaps(lab) == [("phase4_responses/sentiment.prod-v7.responses.jsonl", 2)]
    assert "response_collection" not in lab.meta()["phases_completed"]
    answers(lab.folder, [(text, mood) for _, text, mood in ROWS])
    assert calls(lab, continue_run=True) == (2, 2)
    assert lab.run(continue_run=True).exit_code == 0
    assert lab.counts()[1:] == (4, 8)
    assert not (lab.path / "replaced").exists()


def test_a_changed_answer_owes_its_judgments_and_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(lab).run().exit_code == 0
    rows = [(text, mood) for _, text, mood in ROWS]
    answers(lab.folder, [*rows[:3], ("It broke", "bad, of course")])
    with pytest.raises(
        UsageError, match=r"answers of prod-v7 in answers\.csv, which have changed \(task sent"
    ):
        lab.run(continue_run=True)
    with pytest.raises(UsageError, match="prod-v7"):
        calls(lab, continue_run=True)
    assert calls(lab, continue_run=True, change_policy=ChangePolicy.REDO) == (1, 1)
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert requested.phases() == (0, 0, 0, 0, 1)
    assert lab.records("response_collection")["sentiment__items__4__prod-v7"]["response"] == "bad, of course"
    assert list((lab.path / "replaced").rglob("sentiment.prod-v7.responses.jsonl"))


def test_rows_of_no_item_and_rows_twice_are_told_by_line(lab: Lab) -> None:
    rows = [(text, mood) for _, text, mood in ROWS]
    answers(lab.folder, [*rows, ("Nobody asked", "x"), ("Great!", "bad"), ("Nor this", "y"), ("", "z")])
    found = "\n".join(warnings(lab))
    assert "answers.csv:6: no item has this prompt (also on line 8)" in found
    assert "answers.csv:7: the prompt is already on line 2; the first one counts" in found
    assert "answers.csv:9: its `q` is empty" in found
    run = lab.run()
    assert run.exit_code == 0
    assert run.summary is not None
    assert "answers.csv:6: no item has this prompt (also on line 8)" in run.summary.notes
    assert lab.records("response_collection")["sentiment__items__1__prod-v7"]["response"] == "good"


def test_rows_that_no_item_takes_are_named_when_the_run_ends(lab: Lab, coeval: Command) -> None:
    answers(lab.folder, [*((text, mood) for _, text, mood in ROWS), ("Nobody asked", "x")])
    ended = coeval("run", "--config", lab.file)
    assert ended.err.count("answers.csv:6: no item has this prompt") == 2  # before the first call, and last
    assert ended.code == 0


def test_judgments_of_answers_that_a_table_no_longer_gives_are_not_damaged(lab: Lab, coeval: Command) -> None:
    judged(lab).run()
    answers(lab.folder, [(text, "good" if n == "4" else mood) for n, text, mood in ROWS[1:]])
    assert lab.run(continue_run=True, changed="redo").exit_code == 3
    assert len(lab.lines("evaluation")) == 8
    found = repair_run(RunDir(lab.path), RepairOptions(dry_run=True))
    assert not found.reasons
    assert coeval("repair", "--run", lab.path, "--dry-run").code == 0
    assert "not counted: 2 judgments without a good answer" in open_run(lab.path).results().notes
    lab.edit("evaluation", "sentiment__items__2__prod-v7__cat", datapoint_id="sentiment__items__9")
    assert sum(repair_run(RunDir(lab.path), RepairOptions(dry_run=True)).reasons.values()) == 1


def test_blanks_in_a_prompt_do_not_matter(lab: Lab) -> None:
    answers(lab.folder, [(f"  {text} \r\n".replace(" ", "\n "), mood) for _, text, mood in ROWS])
    assert lab.run().exit_code == 0


def test_by_id(lab: Lab) -> None:
    table(
        lab.folder / "answers.csv", ("item", "a"), [("4", "bad"), ("2", "bad"), ("2", "good"), ("9", "bad")]
    )
    lab.students = [{"name": "prod-v7", "responses": {"path": "answers.csv", "id": "item", "response": "a"}}]
    found = "\n".join(warnings(lab))
    assert "answers.csv:4: the id 2 is on line 3 already" in found
    assert "answers.csv:5: no item has this id" in found
    assert lab.run().exit_code == 3
    assert set(lab.records("response_collection")) == {
        "sentiment__items__2__prod-v7",
        "sentiment__items__4__prod-v7",
    }
    del lab.tasks[0]["items"]["id"]
    found = "\n".join(warnings(lab))
    assert (
        "no item has this id; rows of sentiment are numbered: name their column of ids in items.id" in found
    )


def test_tables_list_who_is_to_do_some_tasks_last_and_without_ranks(lab: Lab, coeval: Command) -> None:
    rubric = {"right": {"check": "contains", "attribute": "mood"}}
    lab.tasks = [sentiment(rubric=rubric), {**sentiment(rubric=rubric), "name": "again"}]
    table(lab.folder / "all.csv", ("q", "a"), [(text, "good") for _, text, _ in ROWS])
    both = {**prod(path="all.csv"), "name": "both"}
    lab.students = [{**prod(), "tasks": ["sentiment"]}, both]
    lab.run()
    shown = coeval("analyze", "students", "--run", lab.path).out.splitlines()
    places: dict[str, tuple[int, str]] = {}
    for at, line in enumerate(shown):
        if line[:4] in ("both", "prod"):
            places.setdefault(line.split()[0], (at, line.split()[1]))
    assert places["both"] < places["prod-v7"]
    assert (places["both"][1], places["prod-v7"][1]) == ("1", "–")


@pytest.mark.parametrize("numbered", [False, True])
def test_the_table_of_the_items_holds_answers_too(lab: Lab, numbered: bool) -> None:
    rows = [(*row, row[2], "good" if row[0] != "1" else "") for row in ROWS]
    table(lab.folder / "reviews.csv", ("n", "text", "mood", "v7", "v8"), rows)
    responses = {"prod-v7": "v7", "prod-v8": "v8"}
    lab.students, lab.tasks = [], [sentiment()]
    lab.tasks[0]["items"] |= {"responses": responses, "where": "n != 3"}
    if numbered:
        del lab.tasks[0]["items"]["id"]
    assert calls(lab) == (0, 0)
    run = lab.run()
    assert run.exit_code == 3, "one cell is empty"
    assert run.summary is not None
    assert [s.remedy for s in run.summary.short] == ["add 1 answer of prod-v8 to reviews.csv"]
    found = {label.student: (label.correct, label.n) for label in run.results().labels}
    assert found == {"prod-v7": (3, 3), "prod-v8": (0, 2)}


def test_items_of_teachers_are_answered_once_they_exist(lab: Lab) -> None:
    """The prompts are known after the first start; their answers come from elsewhere."""
    answers(lab.folder, [("Nothing yet", "x")])
    lab.models, lab.tasks = [model("ann", "teacher", "judge")], [task(total=3)]
    assert calls(lab) == (3, 3)
    assert lab.run().exit_code == 3
    assert lab.counts() == (3, 0, 0)
    prompts = [item["prompt"] for item in lab.lines("data_generation")]
    answers(lab.folder, [(prompt, f"Story {n}.") for n, prompt in enumerate(prompts)])
    assert calls(lab, continue_run=True) == (3, 3)
    assert lab.run(continue_run=True).exit_code == 0
    assert lab.run(overwrite=True).exit_code == 3, "these items are others, until it is known what they ask"
    assert lab.counts() == (3, 0, 0)
    assert lab.run(continue_run=True).exit_code == 0


def test_only_its_tasks_are_answered_by_a_student(lab: Lab) -> None:
    lab.tasks.append(sentiment(name="other"))
    assert lab.run().exit_code == 0
    assert len(lab.lines("response_collection")) == 8
    lab.students[0]["tasks"] = ["other"]
    lab.id = "exp2"
    assert lab.run().exit_code == 0
    assert {line["task_id"] for line in lab.lines("response_collection")} == {"other"}


def test_a_table_that_is_gone_leaves_the_answers_that_are_there(lab: Lab) -> None:
    assert lab.run().exit_code == 0
    (lab.folder / "answers.csv").unlink()
    assert any("the earlier answers of" in said for said in warnings(lab, continue_run=True))
    assert lab.run(continue_run=True).exit_code == 0
    lab.id = "exp2"
    with pytest.raises(
        ConfigError, match=r"students\[0\]\.responses\.path  V-33  there is no file answers.csv"
    ):
        lab.run()


def test_a_start_that_failed_can_be_repeated_and_overwritten(lab: Lab) -> None:
    judged(lab).models[0] |= {"parameters": {"failure_rate": 1.0}}
    with pytest.raises(coeval.ModelUnavailable):
        lab.run()
    lab.models = [model("cat", "judge")]
    assert lab.run().exit_code == 0
    with pytest.raises(ConfigError, match="V-11"):
        lab.run()
    assert lab.run(overwrite=True).exit_code == 0
    assert lab.counts() == (4, 4, 8)


def test_another_run_takes_them_over(lab: Lab) -> None:
    assert judged(lab).run().exit_code == 0
    modes = dict.fromkeys(("data_generation", "response_collection", "evaluation"), "Extend")
    lab.settings, lab.id = {"resume_from": "exp", "phases": modes}, "exp2"
    assert calls(lab) == (0, 0)
    assert lab.run().exit_code == 0
    assert lab.counts() == (4, 4, 8)


@pytest.mark.parametrize(
    ("student", "said"),
    [
        ({"name": "prod-v7"}, "students[0].responses  V-20  the required key 'responses' is missing"),
        (
            prod(prompt="qq"),
            "students[0].responses.prompt  V-33  answers.csv has no column 'qq'; did you mean",
        ),
        (prod(response="zz"), "students[0].responses.response  V-33  answers.csv has no column 'zz'"),
        (
            {**prod(), "tasks": ["sentimet"]},
            "students[0].tasks[0]  V-07  no task is named 'sentimet'; did you",
        ),
        ({**prod(), "name": "cat"}, "students[0].name  V-02  'cat' is already the name of models[0]"),
        ({**prod(), "name": "a__b"}, "students[0].name  V-04"),
        ({**prod(), "name": "exact_match"}, "students[0].name  V-04  'exact_match' is reserved"),
        (
            {"name": "x", "responses": {"path": "answers.csv", "response": "a"}},
            "students[0].responses  V-20  has neither `prompt` nor `id`",
        ),
        (
            {**prod(), "respones": 1},
            "students[0].respones  V-18  the key 'respones' is unknown; did you mean",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(lab: Lab, student: dict[str, Any], said: str) -> None:
    judged(lab).students = [student]
    with pytest.raises(ConfigError) as error:
        lab.run()
    assert said in str(error.value)


def test_a_column_of_the_items_table_that_is_not_there(lab: Lab) -> None:
    lab.tasks[0]["items"]["responses"] = {"prod-v8": "v8"}
    with pytest.raises(ConfigError, match=r"tasks\[0\]\.items\.responses\.prod-v8  V-33  reviews.csv has no"):
        lab.run()


def test_only_models_leaves_answers_of_others_alone(lab: Lab) -> None:
    judged(lab).models.append(model("ann", "student"))
    answers(lab.folder, [("Great!", "good")])
    run = lab.run(only_models=["ann"])
    assert run.summary is not None
    assert run.summary.phases["response_collection"].unsupplied == 0


def test_only_models_names_a_student_whose_answers_exist(lab: Lab) -> None:
    judged(lab).models.append(model("ann", "student"))
    assert lab.run(only_models=["prod-v7"]).exit_code == 0
    assert {record["student_model_id"] for record in lab.lines("evaluation")} == {"prod-v7"}
    with pytest.raises(ConfigError, match="'prod-v8', which is not one of them; did you mean 'prod-v7'"):
        lab.run(only_models=["prod-v8"], continue_run=True)


def test_a_long_answer_is_cut_and_json_lines_are_read(lab: Lab) -> None:
    rows = [{"q": text, "a": mood} for _, text, mood in ROWS]
    rows[0]["a"] = "é" * (1 << 20)
    (lab.folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lab.students = [prod(path="answers.jsonl")]
    assert lab.run().exit_code == 0
    record = lab.records("response_collection")["sentiment__items__1__prod-v7"]
    assert record["truncated"]
    assert len(record["response"].encode()) <= 1 << 20


def test_the_preview_counts_what_the_run_finds(lab: Lab) -> None:
    answers(lab.folder, [("Great!", "good")])
    found = preview_run(load_config(lab.file), RunOptions()).plan_count
    assert found.unanswered == {("sentiment", "prod-v7"): 3}
    assert found.total("response_collection").planned == 1


@pytest.mark.process
def test_dry_run_and_run_agree_on_random_files(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the call: at first, and with answers that are added; no judgment is asked for twice."""
    chance = random.Random(24)
    for n in range(25):
        lab.id, per_factor = f"exp{n}", chance.random() < 0.5
        rubric = {f"factor {i}": "Is good." for i in range(chance.randint(1, 3))}
        mode = {"evaluation_mode": "per_factor" if per_factor else "single"}
        lab.tasks = [sentiment(rubric=rubric, **mode)]
        lab.models = [model(f"judge{i}", "judge") for i in range(chance.randint(1, 2))]
        lab.models += [model("ann", "student")] if chance.random() < 0.3 else []
        rows = [(text, mood) for _, text, mood in ROWS]
        there = chance.sample(rows, chance.randint(0, 4))
        for given in (there, rows):
            how = {"continue_run": given is rows}
            answers(lab.folder, given or [("Nobody asked", "x")])
            low, high = calls(lab, **how)
            requested = listen(monkeypatch)
            run = lab.run(**how)
            monkeypatch.undo()
            monkeypatch.chdir(lab.folder)
            assert low == high == sum(requested.phases()), (n, how)
            assert run.exit_code == (0 if len(given) == 4 else 3)
            if given is rows:
                judges = sum("judge" in each["roles"] for each in lab.models)
                assert requested.phases()[4] == (4 - len(there)) * judges * (len(rubric) if per_factor else 1)


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ({"check": "latency_ms", "most": 5}, "neither time nor cost"),
        ({"check": "cost_usd", "most": 5}, "neither time nor cost"),
        ({"check": "exact", "attribute": "city"}, "the items have no attribute 'city'"),
        ({"check": "exact"}, "the items have no reference"),
    ],
)
def test_a_check_that_no_answer_can_pass_or_fail_is_refused(
    lab: Lab, check: dict[str, Any], why: str
) -> None:
    lab.tasks = [sentiment(rubric={"odd": check})]
    with pytest.raises(ConfigError, match=f"rubric.odd  V-37  .*{why}"):
        load_config(lab.file)


def test_status_says_why_checks_have_no_score(lab: Lab, coeval: Command) -> None:
    """A reference that one item lacks: the way on is no repetition, and the count is of answers."""
    table(
        Path("reviews.csv"), ("n", "text", "mood", "ref"), [(*row, row[2] * (row[0] != "3")) for row in ROWS]
    )
    lab.tasks = [sentiment(rubric={"same": {"check": "exact"}})]
    lab.tasks[0]["items"] = {**lab.tasks[0]["items"], "reference": "ref"}
    ended = coeval("run", "--config", lab.file)
    said = " ".join(coeval("status", "--run", lab.path).out.split())
    assert ended.code == 3
    assert "sentiment, same 1 the item has no reference" in said
    for text in (" ".join(ended.err.split()), said):
        assert "why checks have no score: sentiment, same: the item has no reference (1). After that:" in text
        assert "Fill the gaps" not in text


def test_the_dry_run_counts_answers_that_are_missing(lab: Lab) -> None:
    answers(lab.folder, [(text, mood) for _, text, mood in ROWS[:2]])
    assert "sentiment: answers.csv lacks 2 answers of prod-v7" in warnings(lab)


@pytest.mark.parametrize("name", ["check", "exact_match"])
def test_a_column_of_answers_is_not_named_like_a_judge_of_ours(lab: Lab, name: str) -> None:
    lab.tasks = [sentiment()]
    lab.tasks[0]["items"] = {**lab.tasks[0]["items"], "responses": {name: "mood"}}
    with pytest.raises(ConfigError, match=f"V-04  '{name}' is reserved"):
        load_config(lab.file)


@pytest.mark.parametrize("cut", [{"limit": 1}, {"where": "mood = good"}])
def test_rows_of_items_that_are_left_out_are_no_strangers(lab: Lab, cut: dict[str, Any]) -> None:
    answers(lab.folder, [*((text, mood) for _, text, mood in ROWS), ("Whatever", "good")])
    lab.tasks[0]["items"] = {**lab.tasks[0]["items"], **cut}
    assert [said for said in warnings(lab) if "no item" in said] == ["answers.csv:6: no item has this prompt"]


@pytest.mark.process
def test_a_student_lacks_nothing_of_tasks_it_is_not_to_do(lab: Lab) -> None:
    """Nor does it lead over those who did more, whatever its mean over fewer tasks is."""
    rubric = {"right": {"check": "contains", "attribute": "mood"}}
    lab.tasks = [sentiment(rubric=rubric), {**sentiment(rubric=rubric), "name": "again"}]
    table(lab.folder / "all.csv", ("q", "a"), [(text, "good") for _, text, _ in ROWS])
    both = {**prod(path="all.csv"), "name": "both"}
    lab.students = [{**prod(), "tasks": ["sentiment"]}, both]
    run = coeval.run(lab.file)
    found = {score.student: score for score in run.results().students if score.task is None}
    one = found["prod-v7"]
    assert (one.score, one.least, one.most, one.partial) == (0.75, 0.75, 0.75, True)
    assert [score.student for score in run.results().students][:2] == ["both", "prod-v7"]
    grid = read_score_grid(reader := RunReader(run.path, read_planned_names(RunDir(run.path))))
    order, scores = rank_students(grid)
    measured = measure_students(grid, scores)
    mine = measured["prod-v7"]
    assert (mine.overall.missing, mine.by_task["again"].missing) == (0, 0)
    assert mine.bounds_by_task == {"sentiment": (0.75, 0.75)}
    assert (order.order, order.partial) == (("both", "prod-v7"), ("prod-v7",))
    [said, *_] = leader_tie_and_judges_sentences(measured, order)
    assert said.startswith("both (50.0) and prod-v7 (75.0) are tied")
    reader.close()
