"""Several samples of an answer: planned, asked with seeds of their own, judged, pooled within their item."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import FOLDERS, PHASES, Lab, calls, content, listen, model, quiz, task

from coeval.analysis.intervals import wilson_interval
from coeval.analysis.readers.run_reader import RunReader
from coeval.api import load_config, open_run
from coeval.core.errors import ConfigError
from coeval.pipeline.config.doubtful_settings import find_doubtful_settings
from coeval.pipeline.plan.estimate.recorded_lengths import read_recorded_lengths
from coeval.pipeline.plan.estimate.run_estimate import EstimateInputs, estimate_run
from coeval.pipeline.plan.preview import preview_run
from coeval.pipeline.run_options import RunOptions
from coeval.pricing.price_book import PriceBook
from coeval.reports.folder_report import open_folder_report
from coeval.reports.items.item_rows import make_item_tables

TEA, JOE = model("tea", "teacher"), model("joe", "judge")


def student(name: str = "ann", samples: int = 3, **parameters: Any) -> dict[str, Any]:
    return model(name, "student", **parameters) | {"samples": samples}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """2 items × (3 answers of ann + 1 of ben) × 1 judge."""
    return Lab(tmp_path, [TEA, student(), model("ben", "student"), JOE], [task(total=2)])


def test_each_sample_is_answered_with_a_seed_of_its_own_and_judged(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, requested = calls(lab), listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert requested.phases() == counted == (0, 0, 2, 8, 8)
    answers = lab.records("response_collection")
    item = "story__tea__00001"
    assert {key for key in answers if key.startswith(item)} == {
        f"{item}__{name}" for name in ("ann", "ann#2", "ann#3", "ben")
    }
    assert [answers[f"{item}__ann{end}"].get("sample", 0) for end in ("", "#2", "#3")] == [0, 1, 2]
    assert len({answers[f"{item}__ann{end}"]["response"] for end in ("", "#2", "#3")}) == 3
    seeds = [request.seed for _, request in requested.requests if request.purpose == "response_collection"]
    assert len(set(seeds)) == 8
    judged = lab.records("evaluation")
    assert judged[f"{item}__ann#2__joe"]["response_id"] == f"{item}__ann#2"
    assert judged[f"{item}__ann#2__joe"]["sample"] == 1
    estimate = estimate_run(
        load_config(lab.file),
        preview := preview_run(load_config(lab.file), RunOptions(overwrite=True)),
        EstimateInputs(PriceBook(), read_recorded_lengths(load_config(lab.file), preview)),
    )
    assert estimate.by_phase["response_collection"].calls.central == 8


def seeds_of(lab: Lab, monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[int | None]:
    requested = listen(monkeypatch)
    assert lab.run(**how).exit_code == 0
    mine = (request for name, request in requested.requests if name == "ann")
    return [request.seed for request in mine if request.purpose == "response_collection"]


def test_a_seed_of_the_users_seeds_the_samples(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.models[1] = student(seed=11)
    seeds = seeds_of(lab, monkeypatch)
    assert seeds.count(11) == 2, "the first answer to each item"
    assert len(set(seeds)) == 5
    assert seeds_of(lab, monkeypatch, overwrite=True) == seeds
    answers = lab.records("response_collection")
    assert len({answers[f"story__tea__00001__ann{end}"]["response"] for end in ("", "#2", "#3")}) == 3


@pytest.mark.parametrize("where", ["model", "role", "experiment"])
def test_no_seed_is_sent_where_it_is_null(lab: Lab, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "model":
        lab.models[1] = student(seed=None)
    elif where == "role":
        lab.models[1] = student() | {"role_parameters": {"student": {"seed": None}}}
    else:
        lab.settings["seed"] = None
    assert set(seeds_of(lab, monkeypatch)) == {None}


def test_the_first_sample_is_the_answer_of_a_run_without_samples(lab: Lab) -> None:
    lab.run()
    once = Lab(lab.folder, [TEA, model("ann", "student"), model("ben", "student"), JOE], lab.tasks, id="once")
    once.run()
    whole = content(lab)
    assert content(once).items() <= whole.items()
    assert all("#" in key for key in whole.keys() - content(once).keys())


def test_more_samples_owe_exactly_the_new_ones(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.models[1] = student(samples=1)
    lab.run()
    before = content(lab)
    lab.models[1]["samples"] = 3
    counted, requested = calls(lab, continue_run=True), listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases() == counted == (0, 0, 0, 4, 4)
    after = content(lab)
    assert all(after[key] == record for key, record in before.items())
    assert all("#2" in key or "#3" in key for key in after.keys() - before.keys())


def test_fewer_samples_leave_the_others_out_of_the_plan_and_the_scores(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run()
    lab.models[1]["samples"] = 1
    requested = listen(monkeypatch)
    run = lab.run(continue_run=True)
    assert (run.exit_code, requested.requests) == (0, [])
    assert len(lab.records("response_collection")) == 8, "they stay on disk"
    results = run.results()
    assert [(s.answers, s.n) for s in results.students if s.task and s.student == "ann"] == [(2, 2)]
    assert any("4 of ann" in note and "samples" in note for note in results.notes)


def test_samples_of_an_item_are_pooled_within_it(lab: Lab) -> None:
    lab.models[2:] = [JOE, model("jim", "judge", noise=0.3)]
    results = lab.run().results()
    value = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
    by_item: dict[str, list[float]] = {}
    for record in lab.records("evaluation").values():
        by_item.setdefault(record["datapoint_id"], []).extend(value[s] for s in record["scores"].values())
    [score] = [score for score in results.students if score.task]
    assert score.score == pytest.approx(fmean(map(fmean, by_item.values())))
    assert (score.n, score.answers, score.valid_evals) == (2, 6, 24)
    assert [score.least, score.most] == pytest.approx([score.score] * 2), "no answer is missing"


def test_labels_of_samples_are_one_cluster(tmp_path: Path) -> None:
    """Ten answers to an item are no ten items: the interval is wider than that of sixty."""
    often = Lab(tmp_path, [TEA, student(samples=10, skill=0.5)], [quiz(total=6)])
    [label] = often.run().results().labels
    apart = wilson_interval(label.correct, 60)
    assert label.n == 60
    assert (label.high or 0) - (label.low or 0) > 1.2 * ((apart.high or 0) - (apart.low or 0))


@pytest.mark.parametrize("variants", [None, {"plain": {}, "kind": {"system_prompt": "Be kind."}}])
def test_a_killed_run_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, variants: dict[str, Any] | None
) -> None:
    if variants is not None:
        lab.models[1]["variants"] = variants
    whole = Lab(lab.folder, lab.models, lab.tasks, id="whole")
    whole.run()
    lab.settings["quota"] = {"ann": {"max_calls": 4}}
    assert lab.run().exit_code == 3
    lab.settings = {}
    counted, requested = calls(lab, continue_run=True), listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases() == counted
    assert lab.records("evaluation").keys() == whole.records("evaluation").keys()
    requested.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []


def test_variants_inherit_samples(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [TEA, student(samples=2) | {"variants": {"a": {}, "b": {}}}, JOE], [task(total=1)])
    lab.run()
    assert {key.split("__", 3)[3] for key in lab.records("response_collection")} == {
        "ann@a", "ann@a#2", "ann@b", "ann@b#2"
    }  # fmt: skip


def test_mode_model_leaves_a_student_with_any_sample(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run()
    lab.models[1]["samples"] = 5
    lab.settings |= {"resume_from": "exp", "phases": dict.fromkeys(PHASES, "Model")}
    lab.id = "next"
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert requested.requests == []


def test_repair_finds_nothing_in_a_run_with_samples_and_a_renamed_one_is_damage(lab: Lab) -> None:
    lab.run()
    run = open_run(lab.path)
    assert not run.results().notes
    path = lab.path / FOLDERS["response_collection"] / "story.ann.responses.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["id"].endswith("#2"):
            line["sample"] = 2  # the id says otherwise
        if line["id"].endswith("#3"):
            line["sample"] = 1 << 40
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = open_run(lab.path).results()
    assert any("4 lines" in note for note in results.notes)
    [score] = [score for score in results.students if score.task and score.student == "ann"]
    assert score.answers == 2


def test_only_students_have_samples(lab: Lab) -> None:
    lab.models[-1]["samples"] = 2
    with pytest.raises(ConfigError, match=r"models\[3\]\.samples  V-05  are answers of a student"):
        load_config(lab.file)


def test_samples_at_temperature_0_are_doubted(lab: Lab) -> None:
    lab.models[1]["parameters"]["temperature"] = 0
    [doubt] = find_doubtful_settings(load_config(lab.file))
    assert "ann gives 3 samples at temperature 0" in doubt


def test_an_item_page_and_show_tell_samples_apart(lab: Lab, coeval: Command) -> None:
    lab.run()
    with RunReader(lab.path) as reader:
        make_item_tables(reader)
        detail = reader.items().read_item("story__tea__00001", "story")
    assert detail is not None
    found = {(answer.student, answer.sample): answer for answer in detail.answers}
    assert list(found) == [("ann", 0), ("ann", 1), ("ann", 2), ("ben", 0)]
    value = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
    for (name, sample), answer in found.items():
        key = f"story__tea__00001__{name}{f'#{sample + 1}' if sample else ''}__joe"
        scores = lab.records("evaluation")[key]["scores"].values()
        assert answer.score == pytest.approx(fmean(value[level] for level in scores))
    shown = coeval("show", "--run", lab.path, "--id", "story__tea__00001__ann#2")
    assert "answer of ann (sample 2)" in shown.out


@pytest.mark.process
def test_samples_are_chosen_with_their_items(lab: Lab) -> None:
    lab.run()
    with open_folder_report(lab.path) as report:
        assert report.choices is not None
        chosen = report.choices.report_choice([("task", "story")]).table("students").to_flat_dicts()
        assert [row["score"] for row in chosen] == [
            row["score"] for row in report.report.table("students").to_flat_dicts()
        ]


@pytest.mark.process
def test_samples_that_do_not_differ_are_doubted_once(lab: Lab) -> None:
    lab.tasks = [task(total=6)]
    lab.run()
    doubt = "the samples of ann do not differ (6 of 6 items): its host may ignore the temperature"
    assert not any("do not differ" in note for note in open_run(lab.path).results().notes)
    for key, record in lab.records("response_collection").items():
        if record["student_model_id"] == "ann":
            lab.edit("response_collection", key, response="The same.")
    [said] = [note for note in open_run(lab.path).results().notes if "do not differ" in note]
    assert said.startswith(doubt)
    with open_folder_report(lab.path) as report:
        assert sum("do not differ" in note for note in report.notes) == 1
