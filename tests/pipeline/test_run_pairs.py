"""Pairwise judging: what is compared, asked, owed and redone, and that the dry run counts just that."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import PHASES, Lab, Requested, calls, content, listen, model, task

from coeval.api import load_config
from coeval.core.errors import ConfigError, UsageError
from coeval.pipeline.plan.estimate.recorded_lengths import read_recorded_lengths
from coeval.pipeline.plan.estimate.run_estimate import EstimateInputs, estimate_run
from coeval.pipeline.plan.preview import preview_run
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.pipeline.run_options import ChangePolicy, RunOptions
from coeval.pipeline.upkeep.repair import RepairOptions, repair_run
from coeval.pricing.price_book import PriceBook
from coeval.reports.items.item_rows import make_item_tables
from coeval.store.rundir import RunDir

TEA, JOE = model("tea", "teacher"), model("joe", "judge")
ITEM = "story__tea__00001"


def compared(**changes: Any) -> dict[str, Any]:
    return task(**{"total": 2, "judging": "pairwise", **changes})


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """2 items × 3 students × 1 judge."""
    students = [
        model(name, "student", skill=skill) for name, skill in (("ann", 0.9), ("ben", 0.5), ("cid", 0.2))
    ]
    return Lab(tmp_path, [TEA, *students, JOE], [compared()])


def again(lab: Lab, requested: Requested, **options: Any) -> tuple[int, ...]:
    """What a run asks, which is what its dry run counts; nothing is missing afterwards."""
    stance = ChangePolicy(options.pop("changed", "refuse"))
    counted = calls(lab, **options, change_policy=stance)
    requested.clear()
    assert lab.run(**options, changed=stance.value).exit_code == 0
    assert requested.phases() == counted
    return counted[2:]


def test_all_pairs_are_compared_in_both_orders(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = listen(monkeypatch)
    assert again(lab, requested) == (2, 6, 12)
    pairs = lab.records("evaluation")
    orders = {key.removeprefix(f"{ITEM}__").removesuffix("__joe") for key in pairs if key.startswith(ITEM)}
    assert orders == {"ann:ben", "ben:ann", "ann:cid", "cid:ann", "ben:cid", "cid:ben"}
    one = pairs[f"{ITEM}__cid:ann__joe"]
    assert (one["first_model_id"], one["second_model_id"], one["winner"]) == ("cid", "ann", "second")
    assert one["reason"]
    answers = {key: each["response"] for key, each in lab.records("response_collection").items()}
    asked = next(
        request.messages[-1].content
        for _, request in requested.requests
        if request.call is not None and request.call.key == f"{ITEM}__cid:ann__joe"
    )
    assert asked.index(answers[f"{ITEM}__cid"]) < asked.index(answers[f"{ITEM}__ann"])
    assert "- plot: Things happen for a reason." in asked
    assert again(lab, requested, continue_run=True) == (0, 0, 0)


@pytest.mark.process
def test_compare_names_what_shows_strengths_and_tables_name_what_scores_are_of(
    lab: Lab, coeval: Command
) -> None:
    lab.run()
    where = f"coeval analyze students --run {lab.path} shows strengths"
    ended = coeval("compare", lab.path)
    assert (ended.code, where in " ".join(ended.err.split())) == (1, True)
    assert "ann" in coeval("analyze", "students", "--run", lab.path).out
    assert "Scores" not in coeval("results", "--run", lab.path).out
    lab.id = "checked"
    lab.tasks = [compared(rubric={"plot": "It has one.", "short": {"check": "length", "most": 900}})]
    lab.run()
    shown = coeval("results", "--run", lab.path).out
    assert "Students by comparisons" in shown
    assert "Scores of checks in story" in shown
    said = " ".join(coeval("compare", lab.path).out.split())
    assert f"coeval analyze students --run {lab.path}" in said


def test_items_show_their_comparisons(lab: Lab) -> None:
    lab.run()
    records = lab.records("evaluation")
    with open_run_reader(RunDir(lab.path)) as (reader, _):
        make_item_tables(reader)
        detail = reader.items().read_item(ITEM, "story")
        assert detail is not None
        shown = {
            (one.what, one.verdict["winner"], one.reasons["reason"])
            for answer in detail.answers
            for one in answer.judgments
        }
        assert [len(answer.judgments) for answer in detail.answers] == [2, 2, 2]

    def named(one: dict[str, Any]) -> tuple[str, str]:
        pair = (one["first_model_id"], one["second_model_id"])
        return f"{pair[0]} before {pair[1]}", {"first": pair[0], "second": pair[1]}.get(one["winner"], "tie")

    needed = {(*named(one), one["reason"]) for one in records.values() if one["datapoint_id"] == ITEM}
    assert shown == needed


def test_comparisons_are_shown_below_the_answer_that_was_first(lab: Lab, coeval: Command) -> None:
    lab.run()
    shown = coeval("show", "--run", lab.path, "--id", f"{ITEM}__cid").out
    for other in ("ann", "ben"):
        record = lab.records("evaluation")[f"{ITEM}__cid:{other}__joe"]
        words = {"first": "better than", "tie": "as good as", "second": "worse than"}[record["winner"]]
        assert f"joe: {words} {other}\n  {record['reason']}\n" in shown
    (line,) = coeval("show", "--run", lab.path, "--id", f"{ITEM}__ann", "--json").out.splitlines()
    winners = {each["second_model_id"]: each["winner"] for each in json.loads(line)["comparisons"]}
    records = lab.records("evaluation")
    assert winners == {name: records[f"{ITEM}__ann:{name}__joe"]["winner"] for name in ("ben", "cid")}


def test_a_baseline_is_compared_with_each_other_student(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.tasks = [compared(baseline="ben")]
    requested = listen(monkeypatch)
    assert again(lab, requested) == (2, 6, 8)
    assert all("ben" in key for key in lab.records("evaluation"))
    lab.tasks = [compared()]
    assert again(lab, requested, continue_run=True) == (0, 0, 4)


@pytest.mark.process
def test_what_is_added_owes_its_pairs_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = listen(monkeypatch)
    again(lab, requested)
    before = content(lab)
    lab.models.append(model("dot", "student"))
    assert again(lab, requested, continue_run=True) == (0, 2, 12)
    lab.models.append(model("jim", "judge"))
    assert again(lab, requested, continue_run=True) == (0, 0, 24)
    lab.tasks = [compared(total=3)]
    assert again(lab, requested, continue_run=True) == (1, 4, 24)
    assert before.items() <= content(lab).items()


@pytest.mark.process
def test_a_changed_answer_owes_its_pairs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = listen(monkeypatch)
    again(lab, requested)
    lab.edit("response_collection", f"{ITEM}__ann", response="Another story.")
    with pytest.raises(UsageError, match="4 records of another configuration"):
        lab.run(continue_run=True)
    redo = "redo"
    assert again(lab, requested, continue_run=True, changed=redo) == (0, 0, 4)
    lab.lose("response_collection", f"{ITEM}__ben")
    assert again(lab, requested, continue_run=True) == (0, 1, 4)
    lab.models[1]["parameters"]["temperature"] = 0.3
    assert again(lab, requested, continue_run=True, changed=redo) == (0, 2, 8)


@pytest.mark.process
def test_other_criteria_owe_every_pair_and_the_names_of_models_choose(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    again(lab, requested)
    lab.tasks = [compared(rubric={"plot": "Something happens."})]
    assert again(lab, requested, continue_run=True, changed="redo") == (0, 0, 12)
    lab.models += [model("dot", "student"), model("eve", "student")]
    counted = calls(lab, continue_run=True, only_models=("dot",))
    requested.clear()
    lab.run(continue_run=True, only_models=("dot",))
    assert requested.phases()[2:] == counted[2:] == (0, 2, 12)
    assert again(lab, requested, continue_run=True) == (0, 2, 16)


def test_labels_are_compared_beside_pairs_and_barriers_change_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.tasks = [compared(label_attributes=["mood"], sampling={"target": [2, 2], "total": 2})]
    requested = listen(monkeypatch)
    assert again(lab, requested) == (2, 6, 12)
    assert sum(key.endswith("exact_match") for key in lab.records("evaluation")) == 6
    other = Lab(lab.folder, lab.models, lab.tasks, id="barred")
    other.run(phase_barriers=True)
    assert content(other) == content(lab)


def test_failures_are_owed_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.models[1]["parameters"]["failure_rate"] = 0.6
    lab.models[-1]["parameters"]["failure_rate"] = 0.3
    lab.settings = {"generation_retries": 0, "probe_mode": "disable"}
    lab.tasks = [compared(total=6)]
    first = lab.run()
    assert first.exit_code == 3
    assert first.summary is not None
    outcome = first.summary.phases["evaluation"]
    assert outcome.planned == 36
    made = sum(line.get("status", "ok") == "ok" for line in lab.records("evaluation").values())
    assert outcome.missing == 36 - made > 0
    for entry in lab.models:
        entry["parameters"].pop("failure_rate", None)
    requested = listen(monkeypatch)
    counted = calls(lab, continue_run=True, change_policy=ChangePolicy.KEEP)
    assert lab.run(continue_run=True, changed="keep").exit_code == 0
    assert requested.phases() == counted
    assert counted[4] == 36 - made


@pytest.mark.process
def test_the_run_asks_what_the_dry_run_counts_over_random_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    for number in range(25):
        draw = random.Random(number)
        names = [f"s{k}" for k in range(draw.randint(2, 5))]
        models = [TEA, *(model(name, "student") for name in names)]
        models += [model(f"j{k}", "judge") for k in range(draw.randint(1, 3))]
        baseline = {"baseline": draw.choice(names)} if draw.random() < 0.5 else {}
        lab = Lab(tmp_path, models, [compared(total=draw.randint(1, 4), **baseline)], id=f"r{number}")
        again(lab, requested)
        lab.models.append(model("new", draw.choice(["student", "judge"])))
        if draw.random() < 0.5:
            lab.lose("response_collection", f"{ITEM}__s1")
        again(lab, requested, continue_run=True)
        assert calls(lab, continue_run=True) == (0,) * 5


def test_a_comparison_of_answers_that_are_gone_is_set_aside(lab: Lab) -> None:
    lab.run()
    lab.lose("response_collection", f"{ITEM}__ann")
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert [reason for (_, reason), n in report.reasons.items() for _ in range(n)] == ["origin"] * 4
    assert report.count_owed("evaluation") == 4
    assert lab.run(continue_run=True).exit_code == 0


def test_pairs_have_a_price(lab: Lab) -> None:
    config = load_config(lab.file)
    preview = preview_run(config, RunOptions())
    estimate = estimate_run(
        config, preview, EstimateInputs(PriceBook(), read_recorded_lengths(config, preview))
    )
    assert estimate.by_phase["evaluation"].calls.central == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judging": "scores", "baseline": "ann"}, "is for `judging: pairwise`"),
        ({"baseline": "amn"}, "did you mean 'ann'"),
        ({"evaluation_mode": "per_factor"}, "compares whole answers"),
        ({"prompt_library": {"compare_pair": "Which is better? {answer_a}"}}, "answer_b"),
    ],
)
def test_what_does_not_go_together_is_refused(lab: Lab, changes: dict[str, Any], message: str) -> None:
    lab.tasks = [compared(**changes)]
    with pytest.raises(ConfigError, match=message):
        load_config(lab.file)


def test_one_student_cannot_be_compared(lab: Lab) -> None:
    del lab.models[2:4]
    with pytest.raises(ConfigError, match=r"V-40.*there is only ann"):
        load_config(lab.file)


def test_a_template_of_ones_own_is_used(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = "<answer_a>\n{answer_a}\n</answer_a>\n\n<answer_b>\n{answer_b}\n</answer_b>"
    own = f"Task: {{input}}\n{answers}\n{{answer_format}}"
    lab.tasks = [compared(prompt_library={"compare_pair": own}, rationale=False)]
    requested = listen(monkeypatch)
    lab.run()
    texts = [
        request.messages[-1].content for _, request in requested.requests if request.purpose == "evaluation"
    ]
    assert all(text.startswith("Task: ") and text.endswith('or "tie".') for text in texts)
    assert all("reason" not in json.loads(line["raw"]) for line in lab.records("evaluation").values())


def test_a_run_that_resumes_from_another_owes_the_pairs_of_what_it_adds(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run()
    phases = dict.fromkeys(PHASES, "Extend")
    more = Lab(lab.folder, lab.models, lab.tasks, {"resume_from": "exp", "phases": phases}, id="more")
    more.models.append(model("dot", "student"))
    requested = listen(monkeypatch)
    assert again(more, requested) == (0, 2, 12)
    assert content(lab).items() <= content(more).items()
    assert again(more, requested, overwrite=True) == (0, 0, 0)


def test_answers_that_exist_are_compared_without_being_asked_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lab.folder / "answers.csv"
    lab.run()
    rows = [f"{key},Once." for key in lab.records("data_generation")]
    table.write_text("\n".join(["id,answer", *rows[:1]]) + "\n")
    lab.students = [{"name": "old", "responses": {"path": str(table), "id": "id", "response": "answer"}}]
    requested = listen(monkeypatch)
    counted = calls(lab, continue_run=True)
    assert lab.run(continue_run=True).exit_code == 3  # an item has no answer of old
    assert requested.phases()[2:] == counted[2:] == (0, 0, 6)
    table.write_text("\n".join(["id,answer", *rows]) + "\n")
    assert again(lab, requested, continue_run=True) == (0, 0, 6)


def test_several_samples_are_compared_by_the_first(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.models[1]["samples"] = 3
    requested = listen(monkeypatch)
    assert again(lab, requested) == (2, 10, 12)
