"""One reader for both programs' folders: what their views say is what the programs said themselves."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import finish, start, write_prompts
from fakes.openai_chat import Answer, Behaviour, Fault, fake
from pipeline.experiments import Lab, model, quiz, task

import coeval
from coeval.analysis.load import open_reader
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Damage, Reader
from coeval.core.errors import StoreError, UsageError
from coeval.core.records import EXACT_MATCH

MEANS = """
SELECT task, sample, metric, sum(value * weight) / sum(weight) FROM scores
WHERE value IS NOT NULL GROUP BY ALL
"""


def figures(output: Path, *of: str) -> dict[tuple[str, int, str], float]:
    """The metrics of all summaries below a folder."""
    found = {}
    for path in output.rglob("summary.json"):
        sample = int(path.parents[1].name.removeprefix("run_")) if "run_" in path.parents[1].name else 0
        for name, metric in json.loads(path.read_text())["metrics"].items():
            if not of or name in of:
                found[path.parent.name, sample, name] = metric["value"]
    return found


def means(reader: Reader) -> dict[tuple[str, int, str], float]:
    return {(task, sample, metric): mean for task, sample, metric, mean in reader.rows(MEANS)}


async def evaluate(folder: Path) -> Path:
    """Two samples of eight prompts, of which the host answers six, one of them with commas."""
    words = [f"Say {number} things." for number in range(8)]
    prompts = write_prompts(folder / "prompts.jsonl", "punctuation:no_comma", words)

    def reply(messages: list[dict[str, Any]]) -> Behaviour:
        said = messages[-1]["content"]
        if "6" in said or "7" in said:
            return Fault(400, "no such thing")
        return Answer("one, two" if "3" in said else "one")

    async with fake(reply=reply, extra_fields={"top_k"}) as host:
        how = ["--tasks", "ifeval", "--ifeval-input", prompts, "--num-runs", 2, "--model", "m.1"]
        ended = await finish(await start(folder, *how, "--base-url", host.url))
    assert ended.code == 3, ended
    return folder / "outputs"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(evaluate(tmp_path_factory.mktemp("evaluated")))


@pytest.fixture
def ifeval(evaluated: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(evaluated, tmp_path / "outputs"))


@pytest.mark.process
async def test_the_scores_of_an_output_folder_come_to_its_figures(ifeval: Path) -> None:
    with open_reader(ifeval) as reader:
        assert isinstance(reader, OutputReader)
        assert means(reader) == pytest.approx(figures(ifeval), abs=1e-9)
        assert reader.rows("SELECT DISTINCT task, teacher, model, judge FROM scores") == [
            ("ifeval", None, "m.1", None)
        ]
        assert reader.rows("SELECT sample, count(*), sum(failed::INT)::INT FROM answers GROUP BY ALL") == [
            (0, 8, 2),
            (1, 8, 2),
        ]
        assert reader.rows("SELECT count(*) FROM items") == [(8,)], "two samples have the same items"
        unanswered = reader.rows("SELECT DISTINCT item, value FROM scores WHERE failed ORDER BY ALL")
        assert unanswered == [("6", 0.0), ("7", 0.0)], "IFEval counts them as not followed"
        metric = reader.metrics[0]
        assert (metric.value, metric.expected, metric.counted, metric.failed) == (5 / 8, 8, "prompts", 2)
        assert any("2 " in note for note in reader.notes())


@pytest.mark.process
async def test_one_task_of_an_output_folder_can_be_read_alone(ifeval: Path) -> None:
    with open_reader(ifeval / "run_1" / "ifeval") as reader:
        assert means(reader) == pytest.approx(
            {key: value for key, value in figures(ifeval).items() if key[1] == 1}, abs=1e-9
        )


@pytest.mark.process
async def test_a_single_sample_beside_several_is_left_out_and_told(ifeval: Path) -> None:
    """They are the same prompts: under one name their answers would count twice."""
    shutil.copytree(ifeval / "run_1" / "ifeval", ifeval / "ifeval")
    with open_reader(ifeval) as reader:
        assert isinstance(reader, OutputReader)
        assert reader.rows("SELECT sample, count(*) FROM answers GROUP BY ALL ORDER BY ALL") == [
            (0, 8),
            (1, 8),
        ]
        assert any(note.startswith("ifeval is left out: it holds one sample") for note in reader.notes())
        assert {metric.sample for metric in reader.metrics} == {0, 1}
        assert len(reader.metrics) == 2 * len({metric.metric for metric in reader.metrics})
    with open_reader(ifeval / "ifeval") as reader:
        assert reader.rows("SELECT count(*) FROM answers") == [(8,)]


@pytest.mark.process
async def test_damaged_and_huge_lines_are_told_and_cost_only_themselves(ifeval: Path) -> None:
    responses = ifeval / "run_1" / "ifeval" / "responses.jsonl"
    scores = ifeval / "run_0" / "ifeval" / "scores.jsonl"
    with open_reader(ifeval) as reader:
        before = means(reader)
    huge = json.dumps({"id": "0", "model": "m.1", "response": "x" * (40 << 20)})
    responses.write_text(responses.read_text() + "[1, 2]\n" + huge + "\n" + '{"id": "1", "resp')
    nameless = '{"id": "8", "response": "of nobody"}'
    responses.write_text(f"{nameless}\n{responses.read_text()}")
    scores.write_text("not json\n" + scores.read_text())
    with open_reader(ifeval) as reader:
        assert means(reader) == before
        assert set(reader.damage) == {
            Damage("run_1/ifeval/responses.jsonl", torn=1, damaged=1),
            Damage("run_0/ifeval/scores.jsonl", torn=0, damaged=1),
        }
        assert "run_1/ifeval/responses.jsonl: skipped, as no whole record: 2 lines" in reader.notes()[0]
        assert reader.rows("SELECT failed, empty FROM answers WHERE item = '0' AND sample = 1") == [
            (False, False)
        ]
    (ifeval / "run_0" / "ifeval" / "summary.json").write_text("{")
    with open_reader(ifeval) as reader:
        assert isinstance(reader, OutputReader)
        assert {metric.sample for metric in reader.metrics} == {1}
        assert any("its figures are left out" in note for note in reader.notes())
        assert means(reader) == before


async def test_a_pipe_is_not_waited_for(ifeval: Path) -> None:
    os.mkfifo(ifeval / "run_0" / "ifeval" / "judgments.j-0.jsonl")
    with pytest.raises(StoreError, match="a pipe"):
        open_reader(ifeval)


@pytest.mark.process
async def test_answers_that_are_not_scored_yet_are_there(ifeval: Path) -> None:
    for name in ("summary.json", "scores.jsonl"):
        (ifeval / "run_0" / "ifeval" / name).unlink()
    with open_reader(ifeval) as reader:
        assert reader.rows("SELECT DISTINCT sample, model FROM answers ORDER BY ALL") == [
            (0, "m.1"),
            (1, "m.1"),
        ]
        assert {sample for _, sample, _ in means(reader)} == {1}
        assert any(note.startswith("run_0/ifeval: no figures yet") for note in reader.notes())


@pytest.mark.process
async def test_judged_by_another_recipe_the_last_one_counts(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [task(total=5), task("tale", total=2), quiz(total=4)])
    await lab.arun()

    def reply(messages: list[dict[str, Any]]) -> Answer:
        said = messages[-1]["content"]
        return Answer('{"plot": "High", "style": "Low"}' if "plot" in said else "A red story.")

    output = tmp_path / "outputs"
    how = ["--tasks", f"coeval:{lab.path}", "--model", "m", "--output-dir", output]
    async with fake(reply=reply, extra_fields={"top_k"}) as host:
        for sampling in ([], ["--judge-temperature", "0.5"]):
            ended = await finish(await start(tmp_path, *how, "--base-url", host.url, *sampling))
            assert ended.code == 0, ended
    assert len(list(output.glob("coeval-exp/judgments.*.jsonl"))) == 2
    with open_reader(output) as reader:
        found = means(reader)
        official = figures(output)
        assert {key: found[key] for key in official} == pytest.approx(official, abs=1e-9)
        assert {name for *_, name in official} == {"mean_score", "label_accuracy quiz/colour"}
        assert found["coeval-exp", 0, "plot"] == 1.0
        assert reader.rows("SELECT count(*), count(DISTINCT judgment) FROM judgments") == [(7, 7)]
        assert reader.rows("SELECT DISTINCT judge, model FROM scores") == [("m", "m")]


@pytest.mark.process
def test_the_scores_of_a_run_come_to_its_table(lab: Lab) -> None:
    run = lab.run()
    by_item = "SELECT task, model, item, avg(value) AS value FROM scores WHERE NOT failed GROUP BY ALL"
    with open_reader(run.path) as reader:
        found = reader.rows(f"SELECT model, task, avg(value) FROM ({by_item}) GROUP BY ALL")  # noqa: S608
    reported = [(score.student, score.task, score.score) for score in run.results().students]
    expected = {
        (student, task): mean for student, task, mean in reported if task is not None and mean is not None
    }
    assert {(student, task): mean for student, task, mean in found} == pytest.approx(expected, abs=1e-9)
    assert len(expected) == 2


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, [model("ann"), model("ben", skill=0.3)], [task(total=4), quiz()])


@pytest.mark.process
async def test_both_folders_have_the_same_columns(lab: Lab, ifeval: Path) -> None:
    await lab.arun()
    run, output = coeval.open_run(lab.path), coeval.open_run(ifeval)
    for name in ("items", "answers", "judgments", "scores"):
        columns = [column for column in run.table(name).columns if not column.startswith("attributes.")]
        assert columns == output.table(name).columns, name
    assert set(run.table("items").columns) > {"item", "task", "teacher", "attributes.mood"}
    assert set(run.table("labels").columns) > {"item", "model", "attribute", "match"}
    judges = [judge for judge in run.table("judgments").df()["judge"] if judge != EXACT_MATCH]
    assert len(run.table("scores")) == 2 * len(judges) > 0, "two factors each"
    responses = run.table("responses")
    assert len(responses.df()) == responses.arrow().read_all().num_rows == len(responses)
    assert responses.columns == run.table("answers").columns
    with pytest.raises(UsageError, match="there are items, answers, judgments, scores"):
        output.table("labels")


async def test_a_table_goes_to_polars_where_that_is_installed(ifeval: Path) -> None:
    pytest.importorskip("polars", reason="not among the dependencies: DuckDB hands tables to it")
    items = coeval.open_run(ifeval).table("items")
    assert len(items.pl()) == len(items) > 0


@pytest.mark.process
async def test_python_opens_an_output_folder(ifeval: Path) -> None:
    results = coeval.open_run(ifeval).results()
    by_metric: dict[str, list[float]] = {}
    for (_, _, name), value in figures(ifeval).items():
        by_metric.setdefault(name, []).append(value)
    means = {name: pytest.approx(sum(values) / 2) for name, values in by_metric.items()}
    assert {one.metric: one.value for one in results.metrics} == means
    assert {one.samples for one in results.metrics} == {2}
    assert (results.students, results.labels, results.missing) == ((), (), ())
    assert "ifeval prompt_level_strict_accuracy 62.5" in repr(results)
    assert "prompt_level_strict_accuracy" in results._repr_html_()
    with pytest.raises(UsageError, match=r'ask for table\("answers"\)'):
        coeval.open_run(ifeval).records("evaluation")
    assert len(results.as_dict()["metrics"]) == 4


def test_a_folder_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="is not a run"):
            open_reader(folder)


@pytest.mark.process
async def test_the_measures_of_an_output_folder_are_its_metrics(ifeval: Path) -> None:
    """Over both samples; the figures of each stand beside them, by sample."""
    found = coeval.open_run(ifeval).measures()
    [of_model] = found["metrics"].values()
    [samples] = found["samples"].values()
    metric = "prompt_level_strict_accuracy"
    each = [figures(ifeval)["ifeval", sample, metric] for sample in (0, 1)]
    reported = samples["ifeval"][metric]
    assert (reported["per_run"], reported["n_runs"], of_model["n"]["ifeval"][metric]) == (each, 2, 8)
    assert of_model["ifeval"][metric] == pytest.approx(sum(each) / 2)
    low, high = of_model["ci95"]["ifeval"][metric]
    assert low < of_model["ifeval"][metric] < high
