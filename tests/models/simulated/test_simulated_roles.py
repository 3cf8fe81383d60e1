"""Every built-in prompt is understood, with a schema and without, and users' own templates too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coeval.core.model import ModelSpec
from coeval.core.records import LEVELS, Completion, Message, Request, Schema
from coeval.core.text import fill
from coeval.pipeline import prompts
from coeval.simulation import SimulatedModel
from coeval.simulation.prose import (
    REFUSAL,
    AnswerMark,
    ItemMark,
    read_answer,
    read_item,
    write_answer,
    write_item,
)

ATTRIBUTES = {"sentiment": "positive", "product category": "food (fresh)"}
RUBRIC = {"accuracy": "It is right.", "tone": "It is kind: always."}
TASK = {
    "task_name": "reviews",
    "task_description": "Classify the sentiment of a product review.",
    "output_description": "A short explanation.",
    "target_attributes": prompts.render_attributes(ATTRIBUTES),
    "nuanced_attributes": prompts.render_attributes({"style": "formal"}),
    "rubric": prompts.render_rubric(RUBRIC),
    "factor": "tone",
    "criterion": RUBRIC["tone"],
    "reference": "[simulated reference for case 1] Fine.",
}
ITEM = f"Case 1. A text.\n{write_item(ItemMark(0.5, ATTRIBUTES))}"


def simulated(name: str = "sim-large", **options: Any) -> SimulatedModel:
    return SimulatedModel(ModelSpec(name=name, interface="simulated", model=name, options=options))


async def ask(
    text: str, schema: Schema | None = None, *, model: SimulatedModel | None = None, seed: int = 1
) -> Completion:
    asked = model or simulated()
    return await asked.complete(Request((Message("user", text),), schema=schema, seed=seed))


def filled(template_id: str, **values: str) -> str:
    return fill(prompts.builtin(template_id), {**TASK, "input": ITEM, "response": "", **values})


@pytest.mark.parametrize(
    ("template_id", "schema", "shape"),
    [
        ("map_target_attrs", prompts.TARGET_ATTRIBUTES, "attributes"),
        ("map_nuanced_attrs", prompts.NUANCED_ATTRIBUTES, "attributes"),
        ("autorubric", prompts.RUBRIC, "factors"),
    ],
)
async def test_proposals_have_the_shape_of_the_schema(template_id: str, schema: Schema, shape: str) -> None:
    with_schema = json.loads((await ask(filled(template_id), schema)).text)
    without = json.loads((await ask(filled(template_id))).text)
    assert list(with_schema) == [shape]
    assert [row["name"] for row in with_schema[shape]] == list(without)
    assert [next(v for k, v in row.items() if k != "name") for row in with_schema[shape]] == list(
        without.values()
    )


async def test_target_and_nuanced_attributes_are_told_apart() -> None:
    target = json.loads((await ask(filled("map_target_attrs"))).text)
    nuanced = json.loads((await ask(filled("map_nuanced_attrs"))).text)
    assert len(target) == len(nuanced) == 3
    assert not set(target) & set(nuanced)


@pytest.mark.parametrize("schema", [None, prompts.BENCHMARK_ITEM])
async def test_an_item_states_its_difficulty_and_attributes(schema: Schema | None) -> None:
    item = json.loads((await ask(filled("sample"), schema)).text)
    assert set(item) == {"prompt", "response"}
    mark = read_item(item["prompt"])
    assert mark is not None
    assert mark.attributes == ATTRIBUTES
    assert 0 <= mark.difficulty <= 1


@pytest.mark.parametrize(
    "template",
    [
        "Generate a benchmark datapoint for: {task_description}\nAttributes: {target_attributes}. "
        'Nuance: {nuanced_attributes}.\nReturn JSON with keys "prompt" and "response".',
        "Create a realistic {task_description} benchmark item with these attributes:\n{target_attributes} "
        'and naturalisation: {nuanced_attributes}.\nJSON only — keys "prompt" and "response".',
        "Create a scenario for a {task_description}.\nIssue context attributes: {target_attributes}\n"
        'Style variation: {nuanced_attributes}\nReturn JSON with keys:\n  "prompt": the complaint\n'
        '  "response": the ideal reply\nOutput only the JSON, no explanation.',
    ],
)
async def test_items_are_written_for_templates_of_users(template: str) -> None:
    item = json.loads((await ask(fill(template, TASK))).text)
    mark = read_item(item["prompt"])
    assert mark is not None
    assert mark.attributes == ATTRIBUTES


async def test_an_answer_states_who_gave_it_and_how_good_it_is() -> None:
    answer = await ask(filled("test"))
    mark = read_answer(answer.text)
    assert mark is not None
    assert (mark.model, mark.family) == ("sim-large", "sim")
    assert answer.text.startswith(write_answer(mark))
    assert answer.finish_reason == "stop"


async def test_verbosity_scales_answers() -> None:
    short, usual, long = [
        (await ask(filled("test"), model=simulated(verbosity=verbosity))).text for verbosity in (0, 1, 5)
    ]
    assert len(short) < len(usual) < len(long)


@pytest.mark.parametrize("mark", ["", "[simulated answer of sim-large, quality 0.731] Good."])
async def test_an_evaluation_scores_the_factors_asked_for(mark: str) -> None:
    prompt = filled("evaluate_single", response=f"- length: short\n- note: x\n{mark}")
    by_prompt = json.loads((await ask(prompt)).text)
    by_schema = json.loads((await ask(prompt, prompts.evaluation_schema(RUBRIC))).text)
    assert by_prompt == by_schema
    assert list(by_prompt) == list(RUBRIC)
    assert set(by_prompt.values()) <= set(LEVELS)


async def test_one_factor_is_scored_by_a_word_or_by_the_schema() -> None:
    prompt = filled("evaluate_per_factor", response="[simulated answer of sim-large, quality 0.999] Good.")
    judge = simulated(noise=0)
    assert (await ask(prompt, model=judge)).text == "High"
    scored = await ask(prompt, prompts.FACTOR_SCORE, model=judge)
    assert json.loads(scored.text) == {"score": "High"}


async def test_a_judge_gives_a_refusal_the_lowest_level() -> None:
    prompt = filled("evaluate_per_factor", response=REFUSAL)
    assert (await ask(prompt, model=simulated(noise=0))).text == "Low"


async def labelled(
    labels: dict[str, list[str]], *, model: SimulatedModel | None = None, seed: int = 1, **values: str
) -> dict[str, str]:
    request = Request((Message("user", filled("test", **values)),), labels=labels, seed=seed)
    answer: dict[str, str] = json.loads((await (model or simulated()).complete(request)).text)
    assert read_answer(answer.pop("note"))
    return answer


async def test_a_task_of_high_medium_low_is_answered_not_judged() -> None:
    wording = "High, Medium or Low: the criteria of a judge."
    levels = {"urgency": ["High", "Medium", "Low"]}
    assert (await labelled(levels, output_description=wording))["label"] in levels["urgency"]


@pytest.mark.parametrize(
    "output_description", ["A single word — Positive or Negative.", "Say how the customer feels.", "JSON."]
)
async def test_labels_are_right_as_often_as_skill_allows_whatever_the_wording(
    output_description: str,
) -> None:
    labels = {"sentiment": ["positive", "negative", "mixed"]}
    right: list[int] = []
    for skill in (0.1, 0.5, 0.9):
        model = simulated(skill=skill)
        answers = [
            await labelled(labels, model=model, seed=seed, output_description=output_description)
            for seed in range(300)
        ]
        assert {answer["label"] for answer in answers} <= set(labels["sentiment"])
        right.append(sum(answer == {"label": "positive"} for answer in answers))
    assert right == sorted(set(right))


async def test_several_labels_are_answered_by_name() -> None:
    labels = {"sentiment": ["positive", "negative"], "product category": ["toys", "food (fresh)"]}
    told = [await labelled(labels, model=simulated(skill=1), seed=seed) for seed in range(60)]
    assert all(answer.keys() == ATTRIBUTES.keys() for answer in told)
    assert sum(answer == ATTRIBUTES for answer in told) > 40


async def test_the_label_of_an_item_that_states_none_is_guessed() -> None:
    told = [
        await labelled({"team": ["red", "blue"]}, model=simulated(skill=1), seed=seed, input="Who?")
        for seed in range(40)
    ]
    assert {answer["label"] for answer in told} == {"red", "blue"}


@pytest.mark.parametrize("family", ["sim", "acme"])
def test_marks_are_read_as_they_were_written(family: str) -> None:
    answer = AnswerMark("sim-large", family, 0.731)
    assert read_answer(f"before {write_answer(answer)} after") == answer
    item = ItemMark(0.37, ATTRIBUTES)
    assert read_item(f'Question: "{write_item(item)}"\nAnswer:') == item
    assert read_answer("[simulated answer of nobody]") is None
    assert read_item("no mark") is None
