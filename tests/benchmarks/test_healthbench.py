"""HealthBench on invented conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.judged_tasks import Panel, Shelf, hold_on_the_scale

from coeval.benchmarks.benchmark import Item
from coeval.benchmarks.run.task_folder import JudgmentWork
from coeval.benchmarks.tasks.healthbench import HealthBench, example_scores
from coeval.engine.model_work import Asking, Recipe, RoleModel
from coeval.store.record_index import NOT_TRIED


def rubric(points: float, *tags: str) -> dict[str, Any]:
    return {"criterion": f"Worth {points} <<conversation>>", "points": points, "tags": list(tags)}


EXAMPLES: list[dict[str, Any]] = [
    {
        "prompt_id": "p-1",
        "prompt": [{"role": "user", "content": "My arm hurts. <<rubric_item>>"},
         {"role": "assistant", "content": "Where?"}, {"role": "user", "content": "Left."}],
        "example_tags": ["theme:pain"],
        "rubrics": [rubric(7, "axis:accuracy", "level:example"), rubric(5, "axis:accuracy"),
         rubric(10, "axis:tone"), rubric(-6, "axis:harm")],
    },
    {
        "prompt_id": "p-2",
        "prompt": [{"role": "user", "content": "Hello"}],
        "example_tags": ["theme:pain", "physician_agreed_category:x"],
        "rubrics": [rubric(4, "axis:accuracy"), rubric(-8, "axis:tone")],
    },
]  # fmt: skip
MET = {"p-1": (True, False, True, True), "p-2": (False, True)}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    shelf = Shelf(tmp_path)
    shelf.lines("healthbench/examples", EXAMPLES)
    shelf.text("healthbench/grader", "Grade.\n<<conversation>>\nBy:\n<<rubric_item>>\nThat is all.")
    return shelf


def advice(item: Item) -> str:
    return f"Rest, {item.id}."


def graded(ask_id: str, _: object) -> str:
    item, number = ask_id.split("__item-")
    return json.dumps({"explanation": "so", "criteria_met": MET[item][int(number) - 1]})


def test_the_whole_conversation_is_graded_by_one_item_with_its_points(shelf: Shelf) -> None:
    panel = Panel(HealthBench(shelf.settings()), advice)
    requests = panel.requests()
    assert len(requests) == 6
    (user,) = requests["p-1__item-4"].messages
    schema = requests["p-1__item-4"].schema
    assert schema is not None, "hosts that take one are held to the form"
    assert list(schema.body["properties"]) == ["explanation", "criteria_met"]
    assert user.content == (
        "Grade.\nuser: My arm hurts. <<rubric_item>>\n\nassistant: Where?\n\nuser: Left.\n\n"
        "assistant: Rest, p-1.\nBy:\n[-6] Worth -6 <<conversation>>\nThat is all."
    )
    assert [message.role for message in panel.items[0].messages] == ["user", "assistant", "user"]
    assert panel.benchmark.judge_sampling().to_dict() == {"temperature": 0.5, "max_tokens": 2048}


def test_the_items_of_a_conversation_say_what_they_share_and_one_alone_shares_nothing(shelf: Shelf) -> None:
    panel = Panel(HealthBench(shelf.settings()), advice)
    requested = panel.requests()
    heads = {key: request.messages[0].content[: request.shared] for key, request in requested.items()}
    shared = "Grade.\nuser: My arm hurts. <<rubric_item>>\n\nassistant: Where?\n\nuser: Left.\n\n"
    of_first = {head for key, head in heads.items() if key.startswith("p-1")}
    assert of_first == {f"{shared}assistant: Rest, p-1.\nBy:\n"}
    assert len(set(heads.values())) == len(EXAMPLES)
    needed = panel.asks()[0][1]
    judge = RoleModel(name="j", model="j", role="judge", recipe=Recipe.of({}))
    for alone, length in ((False, needed.request().shared), (True, 0)):
        work = JudgmentWork(Asking({}, 0), judge, needed.id, NOT_TRIED, "judging", "p-1", needed, alone)
        assert work.question(0).shared == length
        assert work.question(0).messages == needed.request().messages


def test_points_met_as_a_share_of_those_that_can_be_gained() -> None:
    scores = example_scores(EXAMPLES[0], [True, False, True, True])
    assert scores == {
        "overall_score": 0.5,
        "theme:pain": 0.5,
        "axis:accuracy": pytest.approx(7 / 12),
        "level:example": 1.0,
        "axis:tone": 1.0,
        "axis:harm": None,
    }


def test_the_mean_is_clipped_by_theme_axis_and_tag(shelf: Shelf) -> None:
    scored = Panel(HealthBench(shelf.settings()), advice).judge(graded)
    overall = scored.metrics["overall_score"]
    assert overall.value == 0  # (0.5 − 2) / 2, clipped
    assert overall.standard_error is not None
    assert overall.n == 2
    assert {item: scores["overall_score"] for item, scores in scored.items.items()} == {"p-1": 0.5, "p-2": -2}
    tables = {
        name: {tag: (metric.value, metric.n) for tag, metric in table.items()}
        for name, table in scored.tables.items()
    }
    assert tables == {
        "theme": {"pain": (0, 2)},
        "axis": {"accuracy": (pytest.approx(7 / 24), 2), "tone": (1, 1)},
        "tags": {"level:example": (1, 1), "physician_agreed_category:x": (0, 1)},
    }
    assert scored.reasons == ("published scores are means over 5,000 examples, these over 2",)


@pytest.mark.parametrize("met", ["best", "worst", "all"])
def test_the_intervals_have_a_width_and_stay_between_0_and_1(shelf: Shelf, met: str) -> None:
    points = {
        f"{example['prompt_id']}__item-{number}": rubric_item["points"]
        for example in EXAMPLES
        for number, rubric_item in enumerate(example["rubrics"], 1)
    }

    def verdict(ask_id: str, _: object) -> str:
        is_met = met == "all" or (points[ask_id] > 0) == (met == "best")
        return json.dumps({"explanation": "so", "criteria_met": is_met})

    scored = Panel(HealthBench(shelf.settings()), advice).judge(verdict)
    assert scored.metrics["overall_score"].value == {"best": 1.0, "worst": 0.0, "all": 0.0}[met]
    tables = [metric for table in scored.tables.values() for metric in table.values()]
    assert hold_on_the_scale([*scored.metrics.values(), *tables], 0, 1)


def test_an_example_with_an_ungraded_item_is_left_out_and_counted(shelf: Shelf) -> None:
    def unsure(ask_id: str, request: object) -> str:
        return '{"criteria_met": "yes"}' if ask_id == "p-2__item-1" else graded(ask_id, request)

    scored = Panel(HealthBench(shelf.settings()), advice).judge(unsure)
    assert scored.metrics["overall_score"].value == 0.5
    assert scored.metrics["overall_score"].n == 1
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (6, 5, {"unparsable": 1})


def test_an_empty_answer_is_graded(shelf: Shelf) -> None:
    panel = Panel(HealthBench(shelf.settings()), lambda _: "")
    assert len(panel.requests()) == 6
    assert "assistant: \nBy:" in panel.requests()["p-2__item-1"].messages[0].content
