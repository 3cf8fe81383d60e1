"""What is exported holds every score, mean and interval; what other tools' readers need is there."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task
from written_run import Run, append

from coeval import export_results, import_results, open_run
from coeval.analysis.breakdown import break_down_scores_and_labels
from coeval.analysis.load import open_reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.exchange.exporting import FORMATS

HOSTILE = 'a | b\n=cmd() \u202e <script>"x",\\textbf{y}'
STUDENTS = ("Qwen/Qwen2.5-72B-Instruct-Turbo", "gpt-4o-mini-2024-07-18")
LEVELS = ("Low", "Medium", "High")
RECIPES = ("aaaa", "bbbb")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two students, two judges, 9 items; a failed answer, a failed judgment, a factor without a score."""
    made = Run(tmp_path / "runs" / "own")
    for n in range(1, 10):
        made.datapoint(n, prompt=f"{HOSTILE} {n}", reference_response="a good one")
        for s, student in enumerate(STUDENTS):
            if (n, s) == (4, 1):
                made.response(
                    n, student, status="failed", response=None, error={"kind": "Timeout", "message": "late"}
                )
                continue
            made.response(n, student, response=f"{HOSTILE} answer {n}")
            for j, judge in enumerate(("gpt-4o", "claude")):
                level = LEVELS[(n * (s + 2) + j) % 3]
                scores = {"style": level, "form": LEVELS[(n + j + s) % 3]}
                if (n, s, j) == (5, 0, 1):
                    scores = {"style": level}
                made.evaluation(n, student, judge, scores=scores, recipe=RECIPES[j])
    return made.folder


def values(
    folder: Path, name: str = "concat_ws('/', judge, metric)"
) -> dict[tuple[str, str, str, int], float | None]:
    """Scores by model, item, metric with its judge, and sample."""
    with open_reader(folder) as reader:
        rows = reader.rows(
            f"SELECT model, item, {name}, sample, CASE WHEN NOT failed THEN value END FROM scores"  # noqa: S608
        )
    return {tuple(key): value for *key, value in rows}


@pytest.mark.process
def test_logs_of_inspect_come_back_as_they_went(run: Path, tmp_path: Path) -> None:
    paths = export_results(run, "inspect", tmp_path / "logs")
    assert len(paths) == 2
    log: dict[str, Any] = json.loads(paths[0].read_bytes())
    assert (log["version"], log["eval"]["model"], len(log["samples"])) == (2, STUDENTS[0], 9)
    shown = {figure["model"]: figure for figure in log["eval"]["metadata"]["figures"]}
    score = next(one for one in open_run(run).results().students if one.task and one.student == STUDENTS[0])
    figure = shown[STUDENTS[0]]
    assert [figure[name] for name in ("value", "low", "high", "n")] == [
        score.score,
        score.low,
        score.high,
        score.n,
    ]
    assert figure["judges"] == ["claude", "gpt-4o"]
    assert figure["recipes"] == ["bbbb", "aaaa"]
    back = import_results(*paths, out=tmp_path / "back")
    found = {
        key: value for folder in back.folders.values() for key, value in values(folder, "metric").items()
    }
    whole = {key: value for key, value in values(run).items() if value is not None}
    assert {key: value for key, value in found.items() if value is not None} == whole
    assert len(whole) == (9 + 8) * 2 * 2 - 1


@pytest.mark.parametrize("to", ["csv", "inspect"])
def test_the_passage_that_an_item_was_made_from_goes_with_it(to: str, tmp_path: Path) -> None:
    made = Run(tmp_path / "run")
    made.datapoint(1, passage_source="guide.md#120")
    made.datapoint(2)
    for n in (1, 2):
        made.response(n, STUDENTS[0])
        made.evaluation(n, STUDENTS[0], "gpt-4o", scores={"style": "High", "form": "Low"})
    paths = export_results(made.folder, to, tmp_path / "out")
    whole = "".join(path.read_text() for path in paths)
    assert whole.count("guide.md#120") == (2 if to == "csv" else 1), "once for each score, or each answer"


@pytest.mark.process
def test_tables_hold_hostile_texts_and_missing_scores(run: Path, tmp_path: Path) -> None:
    export_results(run, "csv", tmp_path / "csv")
    export_results(run, "parquet", tmp_path / "parquet")
    with (tmp_path / "csv/scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(values(run)) + 1
    given = {
        (row["model"], row["item"], f"{row['judge']}/{row['metric']}", int(row["sample"])): float(
            row["value"]
        )
        for row in rows
        if row["value"]
    }
    assert given == {key: value for key, value in values(run).items() if value is not None}
    assert {row["prompt"] for row in rows} == {f"{HOSTILE} {n}" for n in range(1, 10)}
    (lost,) = [row for row in rows if row["error"]]
    assert (lost["error"], lost["text"], lost["value"]) == ("late", "", "")
    with duckdb.connect() as database:
        path = str(tmp_path / "parquet/scores.parquet")
        ((count, total),) = database.execute(
            "SELECT count(*), sum(value) FROM read_parquet(?)", [path]
        ).fetchall()
    assert (count, total) == (len(rows), sum(given.values()))
    with (tmp_path / "csv/figures.csv").open(encoding="utf-8", newline="") as file:
        figures = {row["model"]: row for row in csv.DictReader(file) if row["metric"] == "score"}
    for score in open_run(run).results().students:
        if score.task == "haiku":
            row = figures[score.student]
            assert [float(row[name]) for name in ("value", "low", "high")] == [
                score.score,
                score.low,
                score.high,
            ]
            assert (int(row["n"]), int(row["failed"])) == (score.n, score.failed)


@pytest.mark.process
def test_figures_of_tables_are_those_of_tasks_factors_and_judges(run: Path, tmp_path: Path) -> None:
    made = Run(run, "sonnet")
    for n in range(1, 6):
        made.judged(n, STUDENTS[0], "human:ann", {"style": LEVELS[n % 3]})
    for to in ("csv", "parquet"):
        export_results(run, to, tmp_path / to)
    with (tmp_path / "csv/figures.csv").open(encoding="utf-8", newline="") as file:
        same = [tuple(row.values()) for row in csv.DictReader(file)]
    with duckdb.connect() as database:
        path = str(tmp_path / "parquet/figures.parquet")
        rows = database.execute("SELECT * FROM read_parquet(?)", [path]).fetchall()
    assert same == [tuple("" if cell is None else str(cell) for cell in row) for row in rows]
    figures = {(task, model, metric): rest for task, model, metric, *rest in rows}
    assert len(figures) == len(rows)
    for score in open_run(run).results().students:
        value, low, high, _, n, failed, *_ = figures[score.task or "", score.student, "score"]
        assert (value, low, high, n, failed) == (score.score, score.low, score.high, score.n, score.failed)
    with open_reader(run) as reader:
        assert isinstance(reader, RunReader)
        parts = [
            *break_down_scores_and_labels(reader, "factor").scores,
            *break_down_scores_and_labels(reader, "judge").scores,
        ]
    assert len(parts) > 8
    for part in parts:
        value, low, high, _, *counts = figures[part.task or "", part.student, f"{part.by} {part.part}"]
        assert (value, low, high) == (part.score, part.low, part.high)
        assert counts[:3] == [part.n, None, part.missing], "what is missing is not called failed"
    assert figures["", STUDENTS[0], "score"][-2:] == ["claude, gpt-4o, human:ann", "bbbb, aaaa"]
    assert figures["", STUDENTS[1], "judge claude"][-2:] == ["claude", "bbbb"]


@pytest.mark.process
@pytest.mark.parametrize("column", ["ticket", None])
def test_scores_join_to_the_table_that_items_come_from(tmp_path: Path, column: str | None) -> None:
    """By the id of the table, or a row's number; with what the task says of them."""
    rows = [f"T-{n:03},What is {n} + {n}?,{2 * n},{('de', 'en')[n % 2]},a{n}" for n in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(["ticket,q,a,lang,more text", *rows]))
    items = {
        "path": str(tmp_path / "t.csv"),
        "prompt": "q",
        "attributes": ["lang", "more text"],
    }
    own = {name: part for name, part in task("own").items() if name in ("name", "description", "rubric")}
    own["items"] = items | ({"id": column} if column else {})
    lab = Lab(tmp_path, [model("ann", "student"), model("joe", "judge")], [own])
    lab.run()
    export_results(lab.path, "csv", tmp_path / "out")
    with (tmp_path / "out/scores.csv").open(encoding="utf-8", newline="") as file:
        found = {
            (row["own_id"], row["prompt"], row["attribute_lang"], row["attribute_more text"])
            for row in csv.DictReader(file)
        }
    ids = [f"T-{n:03}" if column else f"{n + 1:05}" for n in range(4)]
    assert found == {(ids[n], f"What is {n} + {n}?", ("de", "en")[n % 2], f"a{n}") for n in range(4)}


def test_the_judge_of_a_benchmark_is_exported_with_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(
        "item,model,judge,score\n" + "".join(f"{n},m,gpt-4o,1\n" for n in range(3))
    )
    (folder,) = import_results(tmp_path / "s.csv", out=tmp_path / "one").folders.values()
    summary = json.loads(next(folder.glob("*/summary.json")).read_bytes())
    _, path = export_results(folder, "csv", tmp_path / "out")
    with path.open(encoding="utf-8", newline="") as file:
        (figure,) = csv.DictReader(file)
    assert (figure["judges"], figure["recipes"]) == ("gpt-4o", summary["judge"]["recipe"])


@pytest.mark.process
@pytest.mark.parametrize("to", FORMATS)
def test_an_output_folder_of_samples_and_a_sweep_can_be_exported(tmp_path: Path, to: str) -> None:
    lines = [
        "item,model,sample,score,answer",
        *(f"{n},m,{k},{(n + k) % 2},text {n}" for n in range(6) for k in (0, 1)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    import_results(tmp_path / "t.csv", out=tmp_path / "sweep/step_10")
    import_results(tmp_path / "t.csv", out=tmp_path / "sweep/step_20")
    alone = export_results(tmp_path / "sweep/step_10", to, tmp_path / "alone")
    both = export_results(tmp_path / "sweep", to, tmp_path / "both")
    assert len(both) == 2 * len(alone) > 0
    assert {path.relative_to(tmp_path / "both").parts[0] for path in both} == {"step_10", "step_20"}
    assert all(path.stat().st_size for path in both)
    if to == "inspect":
        back = import_results(*alone, out=tmp_path / "back")
        assert {key[1:2] + key[3:]: value for key, value in values(tmp_path / "back").items()} == {
            key[1:2] + key[3:]: value for key, value in values(tmp_path / "sweep/step_10").items()
        }
        assert back.answers == 12


def test_what_cannot_be_exported_is_told(run: Path, tmp_path: Path, coeval: Command) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/there").touch()
    ended = coeval("export", run, "--to", "csv", "--out", tmp_path / "full")
    assert (ended.code, "is not empty; give --out another folder" in ended.err.replace("\n", " ")) == (
        1,
        True,
    )
    assert coeval("export", tmp_path / "none", "--to", "csv", "--out", tmp_path / "out").code == 1
    assert coeval("export", run, "--to", "word", "--out", tmp_path / "out").code == 1
    ended = coeval("export", run, "--to", "csv", "--out", tmp_path / "out")
    assert (ended.code, ended.out.split()[:3]) == (0, ["2", "files", "written"])
    with pytest.raises(UsageError, match="word is not a format; there are csv"):
        export_results(run, "word", tmp_path / "other")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two students whose answers to 8 items two judges compared; two comparisons failed."""
    made = Run(tmp_path / "runs/pairs")
    for n in range(1, 9):
        made.datapoint(n)
        for student in STUDENTS:
            made.response(n, student, response=f"{HOSTILE} {n}")
        for judge in ("gpt-4o", "claude"):
            first, second = STUDENTS if n % 2 else STUDENTS[::-1]
            record = {
                "id": f"{made.datapoint_id(n)}__{first}:{second}__{judge}",
                "datapoint_id": made.datapoint_id(n),
                "task_id": "haiku",
                "teacher_model_id": "t.1",
                "first_model_id": first,
                "second_model_id": second,
                "judge_model_id": judge,
            }
            lost = {"status": "failed", "error": {"kind": "Timeout", "message": "late"}}
            winner = {"winner": ("first", "second", "tie")[(n + len(judge)) % 3]}
            path = made.evaluations(judge).with_name(f"haiku.t.1.{judge}.pairs.jsonl")
            append(path, record | (lost if n == 5 else winner))
    return made.folder


@pytest.mark.process
def test_comparisons_are_rows_of_both_answers_and_strengths_are_figures(pairs: Path, tmp_path: Path) -> None:
    export_results(pairs, "csv", tmp_path / "csv")
    with (tmp_path / "csv/scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 8 * 2
    assert sum(not row["value"] for row in rows) == 2 * 2
    given = Counter((row["model"], f"{row['judge']}/{row['metric']}", row["value"]) for row in rows)
    assert sum(float(row["value"]) for row in rows if row["value"]) == 14
    with (tmp_path / "csv/figures.csv").open(encoding="utf-8", newline="") as file:
        figures = {row["model"]: row for row in csv.DictReader(file) if row["metric"] == "pairwise strength"}
    for name, found in open_run(pairs).measures()["pairs"]["students"].items():
        told = [float(figures[name][part]) for part in ("value", "low", "high", "n")]
        assert told == [found["strength"], *found["ci95"]["strength"], found["n"]["strength"]]
        assert (figures[name]["failed"], figures[name]["judges"]) == ("2", "claude, gpt-4o")
    back = import_results(*export_results(pairs, "inspect", tmp_path / "logs"), out=tmp_path / "back")
    found = Counter[tuple[str, str, str]]()
    for folder in back.folders.values():
        with open_reader(folder) as reader:
            found.update(reader.rows("SELECT model, metric, value::VARCHAR FROM scores WHERE NOT failed"))
    assert found == Counter({key: count for key, count in given.items() if key[2]})
    assert export_results(pairs, "parquet", tmp_path / "parquet")


def test_labels_that_match_are_scores(tmp_path: Path) -> None:
    made = Run(tmp_path / "runs/labels")
    for n, said in enumerate(("billing", "sales", "billing"), 1):
        made.datapoint(n)
        made.response(n, STUDENTS[0], response=said)
        found = {"team": {"expected": "billing", "predicted": said, "match": said == "billing"}}
        made.evaluation(n, STUDENTS[0], "exact_match", scores={}, label_scores=found)
    export_results(made.folder, "csv", tmp_path / "csv")
    with (tmp_path / "csv/scores.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["metric"], row["value"]) for row in csv.DictReader(file)]
    assert rows == [("label team", "1.0"), ("label team", "0.0"), ("label team", "1.0")]
