"""``coeval results``: the scores of a run again, in every shape, without asking anybody."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.invoked import Command
from cli.terminal import on_terminal
from pipeline.experiments import Lab, listen, model, quiz, task
from written_run import Run as Written

import coeval as api
from coeval.core.figures import format_points


@pytest.fixture
def lab(here: Path) -> Lab:
    made = Lab(here, [model("ann"), model("ben", skill=0.3)], [task(total=4), quiz()])
    assert made.run().exit_code == 0
    return made


@pytest.mark.process
def test_the_table_is_that_of_the_run(lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    anew = coeval("run", "--config", lab.file, "--overwrite")
    requested = listen(monkeypatch)
    before = {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()}
    again = coeval("results", "--run", lab.path)
    assert (again.code, again.out, again.err) == (0, anew.out, "")
    assert requested.requests == []
    assert {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()} == before


@pytest.mark.process
def test_json_is_what_python_gives(lab: Lab, coeval: Command) -> None:
    found = json.loads(coeval("results", "--run", lab.path, "--json").out)
    assert found == json.loads(json.dumps(api.open_run(lab.path).results().as_dict()))
    assert {score["student"] for score in found["students"]} == {"ann", "ben"}


@pytest.mark.process
def test_csv_has_a_line_for_each_score_and_each_accuracy(lab: Lab, coeval: Command) -> None:
    rows = list(csv.DictReader(coeval("results", "--run", lab.path, "--csv").out.splitlines()))
    assert [(row["measure"], row["task"], row["student"]) for row in rows[-2:]] == [
        ("label accuracy", "quiz", "ann"),
        ("label accuracy", "quiz", "ben"),
    ]
    found = api.open_run(lab.path).results()
    assert len(rows) == len(found.students) + len(found.labels)
    assert float(rows[0]["score"]) == found.students[0].score
    assert rows[-1]["score"] == str(found.labels[-1].accuracy)


@pytest.mark.process
@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("factor", {"plot", "style"}),
        ("attribute", {"mood=glad", "mood=sad", "length=short", "length=long"}),
        ("judge", {"ann", "ben"}),
        ("teacher", {"ann", "ben"}),
    ],
)
def test_what_scores_are_made_of(lab: Lab, coeval: Command, by: str, names: set[str]) -> None:
    shown = coeval("results", "--run", lab.path, "--by", by)
    assert shown.code == 0
    assert f"Scores {'in story' if by == 'factor' else 'over all tasks'} by {by}" in shown.out
    rows = [line.split() for line in shown.out.splitlines() if line.partition(" ")[0] in names]
    assert {row[0] for row in rows} == names
    assert all(row[1] in ("ann", "ben") for row in rows), "every row names its student"
    parts = json.loads(coeval("results", "--run", lab.path, "--by", by, "--json").out)["by"]
    assert {part["part"] for part in parts} == names
    assert all(part["n"] > 0 and part["low"] <= part["score"] <= part["high"] for part in parts)
    table = list(csv.DictReader(coeval("results", "--run", lab.path, "--by", by, "--csv").out.splitlines()))
    scores = [float(row["score"]) for row in table if row["measure"] == "score"]
    assert scores == [part["score"] for part in parts]


def test_flags_that_exclude_each_other(lab: Lab, coeval: Command) -> None:
    assert "exclude each other" in coeval("results", "--run", lab.path, "--json", "--csv").err


@pytest.mark.process
def test_what_a_teacher_named_moves_no_cursor(lab: Lab, coeval: Command) -> None:
    """Names and values of attributes may be model-made."""
    value = {"=mood": "\x1b[2J\u202eglad"}
    lab.edit("data_generation", "story__ann__00001", sampled_target_attributes=value)
    for flags in ((), ("--json",), ("--csv",)):
        shown = coeval("results", "--run", lab.path, "--by", "attribute", *flags)
        assert shown.code == 0
        assert not {"\x1b", "\u202e"} & set(shown.out)
        formula = "\n=mood" in shown.out.replace(",", "\n")
        assert not formula or flags != ("--csv",), "no formula for a spreadsheet"
    [part] = [
        part
        for part in json.loads(coeval("results", "--run", lab.path, "--by", "attribute", "--json").out)["by"]
        if "\x1b" in part["part"] and part["student"] == "ann"
    ]
    assert part["part"] == "=mood=\x1b[2J\u202eglad"


@pytest.mark.process
def test_a_folder_that_is_no_run_is_told_with_the_runs_close_by(lab: Lab, coeval: Command) -> None:
    runs, other = lab.path.parent, lab.folder / "empty"
    other.mkdir()
    for command in (("results",), ("show",), ("status",), ("repair", "--dry-run")):
        ended = coeval(*command, "--run", runs)
        assert ended.code == 1
        assert f"{runs} is not a run folder" in ended.err
        assert f"there is: {lab.path}" in ended.err
        assert f"there is no folder {runs / 'epx'}" in coeval(*command, "--run", runs / "epx").err
        assert "is a file; a run is a folder" in coeval(*command, "--run", lab.file).err
        assert "there is: runs/exp" in coeval(*command, "--run", "exp").err, "an id is not a folder"
        assert coeval(*command, "--run", other).err.startswith(f"{other} is not a run folder: it holds no")


@pytest.mark.process
def test_what_eval_framework_left_in_a_folder_is_shown(here: Path, coeval: Command) -> None:
    folder = here / "outputs" / "ifeval"
    folder.mkdir(parents=True)
    metric = {"value": 0.625, "ci95": [0.31, 0.86], "n": 8, "unit": "share"}
    summary = {"task": "ifeval", "model": "=m", "metrics": {"prompt_level_strict_accuracy": metric}}
    counts = {"n_expected": 8, "n_failed": {"timeout": 2}, "counted": "prompts", "missing": {"timeout": 2}}
    (folder / "summary.json").write_text(json.dumps(summary | counts))
    for path in (here / "outputs", folder):
        shown = coeval("results", "--run", path)
        assert (shown.code, shown.err) == (0, "")
        assert re.search(
            r"ifeval +8 prompts +2\n +prompt_level_strict_accuracy +62.5 +\[31.0, 86.0\] +8", shown.out
        )
        assert "ifeval: records without a value: 2 timeout" in shown.out
    found = json.loads(coeval("results", "--run", here / "outputs", "--json").out)
    assert found == json.loads(json.dumps(api.open_run(here / "outputs").results().as_dict()))
    [row] = csv.DictReader(coeval("results", "--run", here / "outputs", "--csv").out.splitlines())
    assert (row["measure"], row["value"], row["model"]) == ("metric", "0.625", "'=m")
    by = coeval("results", "--run", here / "outputs", "--by", "judge")
    assert (by.code, by.out) == (1, "")
    assert "which have no scores by" in by.err
    other = coeval("show", "--run", here / "outputs")
    assert other.code == 1
    assert "results of eval-framework, which `coeval results` shows" in other.err


@pytest.mark.process
def test_items_of_ones_own_have_no_attributes(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("own", "teacher"), model("ann", "student", "judge")], [task(category="benchmark")])
    lab.models[0] = {"name": "own", "interface": "benchmark", "roles": ["teacher"]}
    items = lab.path / "phase3_datapoints" / "story.own.datapoints.jsonl"
    items.parent.mkdir(parents=True)
    items.write_text("".join(json.dumps({"id": n, "prompt": f"Tell {n}."}) + "\n" for n in range(3)))
    assert lab.run().exit_code == 0
    assert "without any" in coeval("results", "--run", lab.path, "--by", "attribute").err
    for given in ("story__own__2", "2"):
        shown = coeval("show", "--run", lab.path, "--id", given).out
        assert "Tell 2." in shown
        assert "Tell 1." not in shown


@pytest.mark.process
def test_a_run_without_any_score_says_so(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann", failure_rate=1)], settings={"probe_mode": "disable"})
    assert lab.run().exit_code == 3
    for flags in ((), ("--by", "judge")):
        shown = coeval("results", "--run", lab.path, *flags)
        assert shown.code == 0
        assert re.search("no answer has been scored", shown.err if flags else shown.out)


@pytest.mark.process
@pytest.mark.parametrize("by", ["attribute", "teacher", "factor", "judge"])
def test_labels_are_taken_apart_too_or_it_is_said_why_not(here: Path, coeval: Command, by: str) -> None:
    attributes = {"colour": ["red", "blue"], "size": ["big", "small"]}
    lab = Lab(here, [model("ann"), model("ben", skill=0.2)], [quiz(total=8, target_attributes=attributes)])
    lab.run()
    lab.edit("response_collection", "quiz__ann__00001__ben", status="failed", response=None)
    shown = {flag: coeval("results", "--run", lab.path, "--by", by, *flag) for flag in ((), ("--csv",))}
    found = json.loads(coeval("results", "--run", lab.path, "--by", by, "--json").out)
    assert {each.code for each in shown.values()} == {0}
    assert found["by"] == []
    if by in ("factor", "judge"):
        for each in shown.values():
            assert each.out == ""
            assert f"nothing to show by {by}: labels are compared without a judge" in each.err
        assert found["labels_by"] == []
        return
    parts = {"teacher": {"ann", "ben"}}.get(by, {"colour=red", "colour=blue", "size=big", "size=small"})
    assert {part["part"] for part in found["labels_by"]} == parts
    every = {part["student"]: 0 for part in found["labels_by"]}
    for part in found["labels_by"]:
        assert part["low"] <= part["accuracy"] == part["correct"] / part["n"] <= part["high"]
        every[part["student"]] += part["n"] if by == "teacher" or part["part"].startswith("colour") else 0
    assert every == {"ann": 16, "ben": 15}, "each answer belongs to one teacher, and to one colour"
    assert f"Label accuracy in quiz: colour by {by}" in shown[()].out
    rows = list(csv.DictReader(shown[("--csv",)].out.splitlines()))
    assert [float(row["score"]) for row in rows] == [part["accuracy"] for part in found["labels_by"]]


@pytest.mark.process
def test_a_run_of_labels_shows_them_in_its_name(here: Path) -> None:
    lab = Lab(here, [model("ann")], [quiz(total=4)])
    shown = repr(lab.run().results())
    [label] = api.open_run(lab.path).results().labels
    accuracy, low, high = (format_points(one or 0.0) for one in (label.accuracy, label.low, label.high))
    assert shown == f"Results('ann' quiz colour {accuracy} [{low}, {high}])"


# ``coeval show``: items, answers and judgments for reading; hostile text is text.

HOSTILE = "safe\r\nstart \x1b[2J\x9b31m[bold]:smile: \u202egnirts\u2028line\x00 tab\tend\nanswer of nobody"


@pytest.fixture
def judged(here: Path) -> Lab:
    made = Lab(here, [model("ann"), model("ben", skill=0.3)], [task(total=4), quiz(total=2)])
    assert made.run().exit_code == 0
    return made


def show(judged: Lab, coeval: Command, *arguments: object) -> str:
    ended = coeval("show", "--run", judged.path, *arguments)
    assert ended.code == 0, ended.err
    return ended.out


def answers(out: str) -> int:
    return sum(line.startswith("answer of ") for line in out.splitlines())


@pytest.mark.process
def test_an_item_with_its_answers_and_what_judges_said(judged: Lab, coeval: Command) -> None:
    key = "quiz__ann__00001"
    item = judged.records("data_generation")[key]
    raw = '{"plot": "Low", "why": "It ends where it began."}'
    out = show(judged, coeval, "--id", key).splitlines()
    assert out[0] == key
    assert f"  {item['prompt'].splitlines()[0]}" in out
    assert f"  {item['reference_response'].splitlines()[0]}" in out
    assert {f"{key}__ann", f"{key}__ben"} <= set(out)
    labels = judged.records("evaluation")[f"{key}__ben__exact_match"]["label_scores"]["colour"]
    verdict = "right" if labels["match"] else "wrong"
    assert any(
        line.startswith(f"exact_match: colour: expected {labels['expected']}, given ") and verdict in line
        for line in out
    )
    story = "story__ann__00001__ben"
    judged.edit("evaluation", f"{story}__ann", raw=raw)
    out = show(judged, coeval, "--id", story).splitlines()
    scores = judged.records("evaluation")[f"{story}__ann"]["scores"]
    assert f"ann: plot {scores['plot']}, style {scores['style']}" in out
    assert f"  {raw}" in out


@pytest.mark.process
def test_the_worst_answers_of_a_student(judged: Lab, coeval: Command) -> None:
    values = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
    scores: dict[str, list[float]] = {}
    for record in judged.records("evaluation").values():
        if record["task_id"] == "story" and record["student_model_id"] == "ben":
            scores.setdefault(record["response_id"], []).extend(values[v] for v in record["scores"].values())
    expected = sorted((sum(found) / len(found), key) for key, found in scores.items())
    lines = show(judged, coeval, "--worst", 3, "--student", "ben", "--task", "story", "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert [(each["score"], each["answer"]["id"]) for each in found] == expected[:3]
    assert all(len(each["judgments"]) == 2 for each in found)
    stored = judged.records("response_collection")[found[0]["answer"]["id"]]
    assert {name: found[0]["answer"][name] for name in stored} == stored


@pytest.mark.process
def test_few_are_shown_unless_more_are_asked_for(judged: Lab, coeval: Command) -> None:
    ended = coeval("show", "--run", judged.path)
    assert answers(ended.out) == 10
    assert "14 more answers; --limit 24 shows all of them" in ended.err
    assert answers(show(judged, coeval, "--limit", 24)) == 24
    assert len(show(judged, coeval, "--json").splitlines()) == 24


@pytest.mark.process
def test_long_texts_are_cut_unless_they_are_asked_for(judged: Lab, coeval: Command) -> None:
    key = "story__ann__00001__ann"
    judged.edit("response_collection", key, response="x" * 10_000)
    out = show(judged, coeval, "--id", key)
    assert "x" * 3_000 in out
    assert "… 7,000 more characters (--full shows them)" in out
    assert "x" * 10_000 in show(judged, coeval, "--id", key, "--full")
    assert json.loads(show(judged, coeval, "--id", key, "--json"))["answer"]["response"] == "x" * 10_000


@pytest.mark.process
def test_hostile_text_is_escaped_and_cannot_pass_for_a_heading(judged: Lab, coeval: Command) -> None:
    key = "story__ann__00001__ann"
    judged.edit("response_collection", key, response=HOSTILE)
    judged.edit("data_generation", "story__ann__00001", prompt=HOSTILE)
    judged.edit("evaluation", f"{key}__ben", raw=HOSTILE)
    lines = show(judged, coeval, "--id", key).splitlines()
    shown = r"  start \x1b[2J\x9b31m[bold]:smile: \u202egnirts\u2028line\x00 tab    end"
    assert lines.count(shown) == 3
    assert lines.count("  answer of nobody") == 3
    assert "answer of nobody" not in lines
    reported = show(judged, coeval, "--id", key, "--json")
    assert all(character.isprintable() for character in reported.rstrip("\n"))
    assert json.loads(reported)["item"]["prompt"].startswith("safe\r\nstart \x1b[2J")


def test_failed_records_say_why(here: Path, coeval: Command) -> None:
    judged = Lab(
        here, [model("tea", "teacher"), model("ann", "student", failure_rate=1), model("jud", "judge")]
    )
    judged.settings["probe_mode"] = "disable"
    assert judged.run().exit_code == 3
    assert "failed (server): simulated failure" in show(judged, coeval)


@pytest.mark.process
def test_names_that_are_not_there_are_pointed_out(judged: Lab, coeval: Command) -> None:
    for flags, reported in (
        (("--student", "bem"), "did you mean ben?"),
        (("--task", "haiku"), "there are quiz, story"),
        (("--id", "story__ann__99999"), "has this id"),
        (("--worst", 1, "--disagreement"), "--worst and --disagreement exclude each other"),
    ):
        ended = coeval("show", "--run", judged.path, *flags)
        assert (ended.code, ended.out) == (1, "")
        assert reported in ended.err


def test_nothing_that_judges_differ_about_is_no_error(here: Path, coeval: Command) -> None:
    judged = Lab(here, [model("ann")])
    judged.run()
    ended = coeval("show", "--run", judged.path, "--disagreement")
    assert (ended.code, ended.out) == (0, "")
    assert "no two judges disagree" in ended.err


@pytest.mark.process
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_text_is_folded_on_a_terminal_and_stays_in_one_piece_in_a_pipe(judged: Lab, columns: int) -> None:
    words = [sys.executable, "-m", "coeval", "show", "--run", "runs/exp", "--worst", "2"]
    seen = on_terminal(words, columns, cwd=judged.folder)
    assert seen.code == 0
    assert max(map(len, seen.screen)) <= columns
    piped = subprocess.run(words, cwd=judged.folder, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    assert " ".join(piped.split()) == " ".join(" ".join(seen.screen).split())
    prompts = [record["prompt"].splitlines()[0] for record in judged.records("data_generation").values()]
    assert any(f"  {prompt}" in piped.splitlines() for prompt in prompts)
    answers = [key for key in judged.records("response_collection") if key in piped]
    assert len(answers) >= 2


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_no_error(judged: Lab) -> None:
    """As `coeval show … | head -1`."""
    command = f"{sys.executable} -m coeval show --run runs/exp --json | head -c 10"
    done = subprocess.run(command, shell=True, cwd=judged.folder, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.stdout[:2], done.stderr) == ('{"', "")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "a scores 50.0, the only student: add another to compare."),
        ({"response": {"status": "failed"}}, "No scores: 6 answers failed."),
        ({"evaluation": {"status": "failed"}}, "No scores: 6 judgments failed."),
    ],
)
def test_a_run_of_one_student_or_without_a_score_says_so(
    here: Path, coeval: Command, status: dict[str, dict[str, str]], said: str
) -> None:
    run = Written(here / "made")
    for n in range(1, 7):
        run.datapoint(n)
        run.response(n, "a", **status.get("response", {}))
        if "response" not in status:
            of_judge = status.get("evaluation", {})
            run.evaluation(n, "a", "j", {} if of_judge else {"x": "High" if n % 2 else "Low"}, **of_judge)
    for command in ("results", "analyze"):
        assert said in coeval(command, "--run", run.folder).out
