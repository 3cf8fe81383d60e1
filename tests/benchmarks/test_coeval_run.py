"""A run of our own as a task: its datapoints asked with its templates, judged by its rubric."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Lab, model, quiz, task

from coeval.benchmarks.benchmark import Answer, Ask, Item, JudgeSettings, Judgment, TaskRecords, TaskSettings
from coeval.benchmarks.run.task_folder import AnswerWork
from coeval.benchmarks.tasks.coeval_run import CoevalRun
from coeval.core.errors import Unparsable, UsageError
from coeval.core.records import Completion
from coeval.engine.model_work import Asking, Recipe, RoleModel
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option
from coeval.store.record_index import NOT_TRIED


def run_of(folder: Path, *tasks: dict[str, Any]) -> Path:
    """A finished run with one teacher, student and judge."""
    lab = Lab(folder, models=[model("ann")], tasks=list(tasks))
    assert lab.run().exit_code == 0
    return lab.path


def as_task(path: Path, **changes: Any) -> CoevalRun:
    given: dict[str, Any] = {"model": "m", "judge": JudgeSettings("j"), "options": {"task": f"coeval:{path}"}}
    return CoevalRun(TaskSettings(**(given | changes)))


def judged(benchmark: CoevalRun, item: Item, ask: Ask, reply: str) -> Judgment:
    return Judgment(id=ask.id, item=item.id, judge="j", value=ask.parse(Completion(reply)))


def test_all_factors_in_one_judgment(tmp_path: Path) -> None:
    benchmark = as_task(run_of(tmp_path, task(total=2)))
    items = benchmark.items()
    assert [item.id for item in items] == ["story__ann__00001", "story__ann__00002"]
    answers = {item.id: Answer(id=item.id, response=f"Once upon {item.id}") for item in items}
    levels = iter(['{"plot": "High", "style": "Medium"}', '{"plot": "Low", "style": "Low"}'])
    judgments = {}
    for item in items:
        (ask,) = benchmark.asks(item, answers[item.id])
        shown = ask.request().messages[-1].content
        assert f"Once upon {item.id}" in shown
        assert "Things happen for a reason." in shown
        judgments[ask.id] = judged(benchmark, item, ask, next(levels))
    scored = benchmark.score(TaskRecords(items, answers, judgments))
    assert scored.metrics["mean_score"].value == pytest.approx(0.375)
    assert scored.metrics["mean_score"].standard_error == pytest.approx(0.375)
    assert scored.items[items[0].id] == {"mean_score": 0.75, "plot": 1.0, "style": 0.5}
    assert scored.tables["by_factor"]["story"]["plot"].value == 0.5
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (4, 4, {})
    assert any("the run's own scores are by" in reason for reason in scored.reasons)


def test_the_scores_of_all_judges_are_not_those_of_one_of_them(tmp_path: Path) -> None:
    lab = Lab(tmp_path, models=[model("ann"), model("ben", "judge")], tasks=[task(total=1)])
    assert lab.run().exit_code == 0
    names = [entry.get("parameters", {}).get("model", entry["name"]) for entry in lab.models]
    for judge in names:
        scored = as_task(lab.path, judge=JudgeSettings(judge)).score(TaskRecords([], {}, {}))
        assert f"judged by {judge}; the run's own scores are by {names[0]}, {names[1]}" in scored.reasons


def test_one_judgment_for_each_factor(tmp_path: Path) -> None:
    benchmark = as_task(run_of(tmp_path, task(total=1, evaluation_mode="per_factor")))
    (item,) = benchmark.items()
    answer = Answer(id=item.id, response="Once.")
    plot, style = benchmark.asks(item, answer)
    assert (plot.id, style.id) == (f"{item.id}__plot", f"{item.id}__style")
    scored = benchmark.score(
        TaskRecords([item], {item.id: answer}, {plot.id: judged(benchmark, item, plot, "High")})
    )
    assert scored.metrics["mean_score"].value == 1.0
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (2, 1, {"missing": 1})


def test_a_factor_left_out_is_asked_for_again(tmp_path: Path) -> None:
    benchmark = as_task(run_of(tmp_path, task(total=1)))
    (item,) = benchmark.items()
    (ask,) = benchmark.asks(item, Answer(id=item.id, response="Once."))
    with pytest.raises(Unparsable, match="style"):
        ask.parse(Completion('{"plot": "High"}'))


def test_what_was_removed_from_the_run_is_no_part_of_the_benchmark(tmp_path: Path) -> None:
    lab = Lab(tmp_path, models=[model("ann"), model("ben")], tasks=[task(total=2)])
    lab.run()
    lab.models.pop()
    del lab.tasks[0]["rubric"]["style"]
    assert lab.run(continue_run=True).exit_code == 0
    benchmark = as_task(lab.path)
    items = benchmark.items()
    assert [item.id for item in items] == ["story__ann__00001", "story__ann__00002"]
    (ask,) = benchmark.asks(items[0], Answer(id=items[0].id, response="Once."))
    assert "It reads well." not in ask.request().messages[-1].content


def test_items_beyond_a_lowered_total_are_no_part_of_the_benchmark(tmp_path: Path) -> None:
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=3)])
    lab.run()
    lab.tasks[0]["sampling"]["total"] = 2
    assert lab.run(continue_run=True).exit_code == 0
    assert [item.id for item in as_task(lab.path).items()] == ["story__ann__00001", "story__ann__00002"]
    lab.tasks[0]["sampling"]["total"] = 3
    assert lab.run(continue_run=True).exit_code == 0
    assert len(as_task(lab.path).items()) == 3


def test_an_interval_of_few_items_is_wide_and_stays_on_the_scale(tmp_path: Path) -> None:
    benchmark = as_task(run_of(tmp_path, task(total=3, rubric={"plot": "It has one."})))
    items = benchmark.items()
    answers = {item.id: Answer(id=item.id, response="Once.") for item in items}
    asks = [benchmark.asks(item, answers[item.id])[0] for item in items]
    levels = ("High", "High", "Low")
    judgments = {
        ask.id: judged(benchmark, item, ask, f'{{"plot": "{level}"}}')
        for item, ask, level in zip(items, asks, levels, strict=True)
    }
    scored = benchmark.score(TaskRecords(items, answers, judgments))
    for metric in (scored.metrics["mean_score"], scored.tables["by_task"]["story"]):
        assert metric.value == pytest.approx(2 / 3)
        assert metric.ci95 is not None
        assert 0 < metric.ci95[0] < 0.25
        assert 0.95 < metric.ci95[1] < 1


_MIXED = {
    "plot": "Things happen for a reason.",
    "style": {"criterion": "It reads well.", "scale": "1-5"},
    "short": {"check": "length", "most": 60, "unit": "words"},
    "told": {"check": "contains", "values": ["Once", "simulated"], "require": "share"},
}


def test_checks_scales_and_weights_count_as_in_the_run(tmp_path: Path) -> None:
    """The run's own answers and judgments, scored here, give the run's own score."""
    mixed = task(total=4, rubric=_MIXED, weights={"plot": 3, "short": 0.5})
    lab = Lab(tmp_path, models=[model("ann", noise=0.6)], tasks=[mixed])
    run = lab.run()
    benchmark = as_task(lab.path)
    items = benchmark.items()
    given = lab.records("response_collection")
    said = lab.records("evaluation")
    answers, judgments = {}, {}
    for item in items:
        answer = answers[item.id] = Answer(id=item.id, response=given[f"{item.id}__ann"]["response"])
        (ask,) = benchmark.asks(item, answer)
        judgments[ask.id] = judged(benchmark, item, ask, said[f"{item.id}__ann__ann"]["raw"])
    scored = benchmark.score(TaskRecords(items, answers, judgments))
    own = run.results().students[0].score
    assert own is not None
    assert 0 < own < 1
    assert scored.metrics["mean_score"].value == pytest.approx(own, abs=1e-12)
    assert set(scored.tables["by_factor"]["story"]) == set(_MIXED)
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (16, 16, {})
    del answers[items[0].id]
    lacking = benchmark.score(TaskRecords(items, answers, judgments))
    assert (lacking.n_scored, lacking.n_failed) == (14, {"missing": 2})


def test_a_run_of_checks_alone_is_scored_without_a_judge(tmp_path: Path) -> None:
    checks = {"short": _MIXED["short"], "quick": {"check": "latency_ms", "most": 100}}
    benchmark = as_task(run_of(tmp_path, task(total=2, rubric=checks)), judge=None)
    assert not benchmark.is_judged
    items = benchmark.items()
    answers = {item.id: Answer(id=item.id, response="Once.", latency_s=0.01) for item in items}
    scored = benchmark.score(TaskRecords(items, answers, {}))
    assert scored.metrics["mean_score"].value == 1.0
    answers[items[0].id] = Answer(id=items[0].id, response="Once.")  # by one check alone it has no score
    scored = benchmark.score(TaskRecords(items, answers, {}))
    assert (scored.metrics["mean_score"].value, scored.metrics["mean_score"].n) == (1.0, 1)
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (4, 3, {"check": 1})
    assert not scored.remarks


@pytest.mark.process
def test_checks_that_need_a_process_are_named_and_make_figures_incomparable(tmp_path: Path) -> None:
    shape = {"check": "json_schema", "schema": {"pattern": "a"}}
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=1, rubric={"shape": shape})])
    lab.run()
    with pytest.raises(UsageError, match="shape not scored"):
        as_task(lab.path)
    lab.tasks[0]["rubric"]["short"] = _MIXED["short"]
    assert lab.run(continue_run=True).exit_code == 0
    benchmark = as_task(lab.path)
    (reason,) = benchmark.score(TaskRecords(benchmark.items(), {}, {})).reasons
    assert reason.startswith("story: shape not scored")


def test_a_run_that_compares_pairs_is_refused(tmp_path: Path) -> None:
    models = [model("ann"), model("ben", "student")]
    lab = Lab(tmp_path, models, [task(), task("duel", total=1, judging="pairwise")])
    assert lab.run().exit_code == 0
    with pytest.raises(UsageError, match="compares answers two by two in duel"):
        as_task(lab.path)


def test_other_numbers_of_a_scale_are_another_judge(tmp_path: Path) -> None:
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=1, scale={"bad": 0, "ok": 1, "good": 2})])
    lab.run()
    before = as_task(lab.path).judge_template()
    lab.tasks[0]["scale"] = {"bad": 0, "ok": 3, "good": 4}
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert as_task(lab.path).judge_template() != before


def test_labels_are_compared_without_a_judge(tmp_path: Path) -> None:
    benchmark = as_task(run_of(tmp_path, quiz(total=2)))
    items = benchmark.items()
    right = items[0].fields["posed"].item.sampled_target_attributes["colour"]
    answers = {items[0].id: Answer(id=items[0].id, response=right)}
    answers[items[1].id] = Answer(id=items[1].id, response="green")
    assert [benchmark.asks(item, answers[item.id]) for item in items] == [(), ()]
    scored = benchmark.score(TaskRecords(items, answers, {}))
    assert scored.tables["label_accuracy"]["quiz"]["colour"].value == 0.5
    assert scored.tables["none_of_the_labels"] == {"quiz": {"colour": 1}}
    assert list(scored.metrics) == ["label_accuracy quiz/colour"]
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (2, 2, {})
    del answers[items[1].id]
    scored = benchmark.score(TaskRecords(items, answers, {}))
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (2, 1, {"missing": 1})


def test_an_item_of_labels_alone_lacks_no_score_beside_judged_ones(tmp_path: Path) -> None:
    """A null score is one that is missing: a gate would count it as lost."""
    benchmark = as_task(run_of(tmp_path, task(total=1), quiz(total=1)))
    asked, told = sorted(benchmark.items(), key=lambda item: item.id)
    answers = {item.id: Answer(id=item.id, response="red") for item in (told, asked)}
    scored = benchmark.score(TaskRecords((told, asked), answers, {}))
    assert scored.items[told.id] == {"mean_score": None}, "its judgment is missing"
    assert list(scored.items[asked.id]) == ["label_accuracy quiz/colour"]


def test_the_sampled_nuance_is_shown_though_no_item_stores_it(tmp_path: Path) -> None:
    prompts = {"test": "{nuanced_attributes}: {input}", "evaluate_single": "{nuanced_attributes}: {response}"}
    sampling = {"target": [1], "nuance": [1], "total": 2}
    nuanced = {"tone": ["dry", "warm"]}
    described = task(prompt_library=prompts, nuanced_attributes=nuanced, sampling=sampling)
    benchmark = as_task(run_of(tmp_path, described))
    items = benchmark.items()
    tones = [item.messages[0].content.partition(": ")[2].partition(":")[0] for item in items]
    assert sorted(tones) == ["dry", "warm"]
    (ask,) = benchmark.asks(items[0], Answer(id=items[0].id, response="Once."))
    assert ask.request().messages[-1].content == f"tone: {tones[0]}: Once."


def test_tasks_count_alike_and_failed_answers_lose_their_factors(tmp_path: Path) -> None:
    benchmark = as_task(run_of(tmp_path, task("a", total=1), task("b", total=2)))
    items = benchmark.items()
    answers = {item.id: Answer(id=item.id, response="x") for item in items[:2]}
    judgments = {}
    for item, level in zip(items[:2], ("High", "Low"), strict=True):
        (ask,) = benchmark.asks(item, answers[item.id])
        reply = f'{{"plot": "{level}", "style": "{level}"}}'
        judgments[ask.id] = judged(benchmark, item, ask, reply)
    scored = benchmark.score(TaskRecords(items, answers, judgments))
    assert scored.metrics["mean_score"].value == 0.5
    assert (scored.n_scored, scored.n_failed) == (4, {"missing": 2})


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.yaml"):
        as_task(tmp_path)


def test_a_simulated_model_knows_the_labels_here_as_in_the_run(tmp_path: Path) -> None:
    """Whatever the wording: the labels are part of what is asked."""
    benchmark = as_task(run_of(tmp_path, quiz(total=8, output_description="Say what you see.")))
    items = benchmark.items()
    assert [item.labels for item in items] == [{"colour": ["red", "blue"]}] * 8
    requested = SimulatedModel(parse_model_option("sure:skill=1"))
    answering = RoleModel(name="sure", model="sure", role="student", recipe=Recipe.of({}), seed=7)
    asking = Asking({"sure": requested}, retries=0)
    works = [AnswerWork(asking, answering, item.id, NOT_TRIED, "quiz", item, weight=1) for item in items]
    answers = {work.item.id: asyncio.run(work.do()) for work in works}
    accuracy = benchmark.score(TaskRecords(items, answers, {})).tables["label_accuracy"]["quiz"]["colour"]
    assert accuracy.value is not None
    assert accuracy.value > 0.6
