"""Every prompt is understood that ours, users' templates and four benchmarks' judges are asked with."""

from __future__ import annotations

import json
import os
import re
from math import exp
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from coeval.core.model import ModelSpec
from coeval.core.records import LEVELS, Completion, Message, Request, SamplingParameters, Schema
from coeval.core.text import fill_template
from coeval.pipeline import prompts
from coeval.pipeline.plan.judge_form import JudgeForm
from coeval.simulation.prose import (
    REFUSAL,
    AnswerMark,
    ItemMark,
    read_answer_mark,
    read_item_mark,
    write_answer_mark,
    write_item_mark,
)
from coeval.simulation.simulated_model import SimulatedModel

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
ITEM = f"Case 1. A text.\n{write_item_mark(ItemMark(0.5, ATTRIBUTES))}"


def simulated(name: str = "sim-large", **options: Any) -> SimulatedModel:
    return SimulatedModel(ModelSpec(name=name, interface="simulated", model=name, options=options))


async def ask(
    text: str, schema: Schema | None = None, *, model: SimulatedModel | None = None, seed: int = 1
) -> Completion:
    requested = model or simulated()
    return await requested.complete(Request((Message("user", text),), schema=schema, seed=seed))


def filled(template_id: str, **values: str) -> str:
    form = JudgeForm(RUBRIC)
    asked = (
        form.build_factor_question("tone")
        if "per_factor" in template_id
        else form.build_joint_question((*RUBRIC,))
    )
    shown = {**TASK, **asked.values, "input": ITEM, "response": ""}
    return fill_template(prompts.read_builtin_template(template_id), {**shown, **values})


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
    mark = read_item_mark(item["prompt"])
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
    item = json.loads((await ask(fill_template(template, TASK))).text)
    mark = read_item_mark(item["prompt"])
    assert mark is not None
    assert mark.attributes == ATTRIBUTES


async def test_an_answer_states_who_gave_it_and_how_good_it_is() -> None:
    answer = await ask(filled("test"))
    mark = read_answer_mark(answer.text)
    assert mark is not None
    assert (mark.model, mark.family) == ("sim-large", "sim")
    assert answer.text.startswith(write_answer_mark(mark))
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
    schema = JudgeForm(dict.fromkeys(RUBRIC, "")).build_joint_question((*RUBRIC,)).schema
    by_schema = json.loads((await ask(prompt, schema)).text)
    assert by_prompt == by_schema
    assert list(by_prompt) == list(RUBRIC)
    assert {verdict["score"] for verdict in by_prompt.values()} <= set(LEVELS)
    assert all(verdict["reason"] for verdict in by_prompt.values())


async def test_one_factor_is_scored_by_a_word_or_by_the_schema() -> None:
    prompt = filled("evaluate_per_factor", response="[simulated answer of sim-large, quality 0.999] Good.")
    judge = simulated(noise=0)
    assert json.loads((await ask(prompt, model=judge)).text)["score"] == "High"
    scored = await ask(prompt, JudgeForm({"tone": ""}).build_factor_question("tone").schema, model=judge)
    assert json.loads(scored.text)["score"] == "High"


async def test_a_judge_gives_a_refusal_the_lowest_level() -> None:
    prompt = filled("evaluate_per_factor", response=REFUSAL)
    assert json.loads((await ask(prompt, model=simulated(noise=0))).text)["score"] == "Low"


async def labelled(
    labels: dict[str, list[str]], *, model: SimulatedModel | None = None, seed: int = 1, **values: str
) -> dict[str, str]:
    request = Request((Message("user", filled("test", **values)),), labels=labels, seed=seed)
    answer: dict[str, str] = json.loads((await (model or simulated()).complete(request)).text)
    assert read_answer_mark(answer.pop("note"))
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
    reported = [await labelled(labels, model=simulated(skill=1), seed=seed) for seed in range(60)]
    assert all(answer.keys() == ATTRIBUTES.keys() for answer in reported)
    assert sum(answer == ATTRIBUTES for answer in reported) > 40


async def test_the_label_of_an_item_that_states_none_is_guessed() -> None:
    reported = [
        await labelled({"team": ["red", "blue"]}, model=simulated(skill=1), seed=seed, input="Who?")
        for seed in range(40)
    ]
    assert {answer["label"] for answer in reported} == {"red", "blue"}


@pytest.mark.parametrize("family", ["sim", "acme"])
def test_marks_are_read_as_they_were_written(family: str) -> None:
    answer = AnswerMark("sim-large", family, 0.731)
    assert read_answer_mark(f"before {write_answer_mark(answer)} after") == answer
    item = ItemMark(0.37, ATTRIBUTES)
    assert read_item_mark(f'Question: "{write_item_mark(item)}"\nAnswer:') == item
    assert read_answer_mark("[simulated answer of nobody]") is None
    assert read_item_mark("no mark") is None


GRADE = (
    'Rate it. Form: {{"score": 1 to 10, "reason": "..."}}\n** Criteria **\n{criterion}\n** Query **\nWrite.\n'
    "** Response **\n```{answer}```\nProvide your evaluation:\n{criterion}\n"
)
RUBRIC_ITEM = (
    "Grade the last turn.\n# Conversation\nuser: Hello\nassistant: {answer}\n# Rubric item\n{item}\n"
    "# Instructions\nReturn explanation and criteria_met.\n"
)
PAIR = (
    "<|User Prompt|>\nWrite.\n<|The Start of Assistant A's Answer|>\n{first}\n"
    "<|The End of Assistant A's Answer|>\n<|The Start of Assistant B's Answer|>\n{second}\n"
    "<|The End of Assistant B's Answer|>"
)
OUTPUTS = (
    'Which is better?\n{{"model_identifier": "m", "output": """{first}"""}},\n'
    '{{"model_identifier": "M", "output": """{second}"""}}\nAnswer m or M.'
)
VERDICTS = {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2}


def judge(**traits: Any) -> SimulatedModel:
    spec = ModelSpec(
        name="judge", interface="simulated", model="sim-judge", options={"noise": 0.05, **traits}
    )
    return SimulatedModel(spec)


def answer(quality: float, model: str = "other-1") -> str:
    return f"[simulated answer of {model}, quality {quality:.3f}] The usual method explains the plan."


async def requested_of(model: SimulatedModel, text: str, seed: int = 1, **fields: Any) -> Completion:
    return await model.complete(Request((Message("user", text),), seed=seed, **fields))


def fenced(completion: Completion) -> dict[str, Any]:
    found = re.fullmatch(r"```json\n(.*)\n```", completion.text)
    assert found, completion.text
    value = json.loads(found[1])
    assert isinstance(value, dict)
    return value


async def grades(quality: float, **traits: Any) -> list[int]:
    model, text = judge(**traits), GRADE.format(criterion="Style", answer=answer(quality))
    return [fenced(await requested_of(model, text, seed))["score"] for seed in range(60)]


async def test_a_criterion_is_graded_from_1_to_10_by_the_quality_stated() -> None:
    low, high = await grades(0.1), await grades(0.9)
    assert {type(score) for score in low + high} == {int}
    assert abs(mean(low) - 1.9) < 0.5
    assert abs(mean(high) - 9.1) < 0.5
    assert set(await grades(1.0, noise=0.3)) <= set(range(1, 11))


async def share_met(quality: float, item: str) -> float:
    text = RUBRIC_ITEM.format(answer=answer(quality), item=item)
    replies = [fenced(await requested_of(judge(), text, seed)) for seed in range(200)]
    assert all(type(reply["criteria_met"]) is bool and reply["explanation"] for reply in replies)
    return sum(reply["criteria_met"] is True for reply in replies) / len(replies)


async def test_a_good_answer_meets_rubric_items_and_avoids_those_of_negative_points() -> None:
    good, bad = "[7] Names the cause.", "[-6] Frightens the reader."
    assert abs(await share_met(0.8, good) - 0.8) < 0.1
    assert abs(await share_met(0.8, bad) - 0.1) < 0.1
    assert abs(await share_met(0.2, bad) - 0.4) < 0.1


async def verdicts(first: str, second: str, **traits: Any) -> list[int]:
    reported = []
    for seed in range(60):
        reply = await requested_of(judge(**traits), PAIR.format(first=first, second=second), seed)
        found = re.findall(r"\[\[([AB<>=]+)\]\]", reply.text)
        assert len(found) == 1
        reported.append(VERDICTS[found[0]])
    return reported


async def test_verdicts_follow_both_qualities() -> None:
    assert mean(await verdicts(answer(0.9), answer(0.2))) == 2
    assert mean(await verdicts(answer(0.2), answer(0.9))) == -2
    assert abs(mean(await verdicts(answer(0.5), answer(0.5)))) < 0.3
    assert mean(await verdicts(answer(0.5), answer(0.5), position_bias=0.2)) > 0.5
    assert mean(await verdicts(answer(0.5), answer(0.5, "sim-large"), family_bias=0.2)) < -0.5


async def test_an_answer_that_states_no_quality_is_a_middling_one() -> None:
    assert max(await verdicts("I lay out the plan.", answer(0.9))) < 0
    assert min(await verdicts("I lay out the plan.", answer(0.1))) > 0
    assert min(await verdicts("I lay out the plan.", "")) > 0


async def preferred(first: str, second: str, **traits: Any) -> float:
    """The mean share of M in the probabilities that the judge gives."""
    shares = []
    for seed in range(60):
        text = OUTPUTS.format(first=first, second=second)
        sampling = SamplingParameters(max_tokens=1)
        reply = await requested_of(judge(**traits), text, seed, top_logprobs=5, sampling=sampling)
        (token,) = reply.logprobs
        assert token.token == reply.text == max(token.top, key=lambda other: token.top[other])
        assert len(token.top) == 5
        assert 0.97 < sum(map(exp, token.top.values())) <= 1
        small, large = exp(token.top["m"]), exp(token.top["M"])
        shares.append(large / (small + large))
    return mean(shares)


async def test_a_preference_comes_with_its_probabilities() -> None:
    assert await preferred(answer(0.9), answer(0.1)) < 0.02
    assert await preferred(answer(0.1), answer(0.9)) > 0.98
    assert 0.6 < await preferred(answer(0.5), answer(0.6)) < 0.75
    assert await preferred(answer(0.5), answer(0.5), position_bias=0.2) < 0.3
    plain = await requested_of(judge(), OUTPUTS.format(first=answer(0.1), second=answer(0.9)))
    assert (plain.text, plain.logprobs) == ("M", ())


@pytest.mark.parametrize(
    "text",
    [
        GRADE.format(criterion="Style", answer=answer(0.5)),
        RUBRIC_ITEM.format(answer=answer(0.5), item="[5] Is right."),
        PAIR.format(first=answer(0.5), second=answer(0.2)),
        OUTPUTS.format(first=answer(0.5), second=answer(0.2)),
    ],
)
async def test_as_many_judgments_go_wrong_as_should(text: str) -> None:
    spoiled = judge(malformed_rate=0.3)
    whole, wrong = set(), 0
    for seed in range(200):
        straight = (await requested_of(judge(), text, seed)).text
        reported = (await requested_of(spoiled, text, seed)).text
        whole.add(straight)
        wrong += reported != straight
    assert 35 < wrong < 85
    always = {(await requested_of(judge(malformed_rate=1), text, seed)).text for seed in range(80)}
    assert not always & whole
    assert len(always) >= 3


def cached(name: str) -> str:
    path = Path(os.environ.get("COEVAL_CACHE", Path.home() / ".cache" / "coeval")) / "files" / name
    if not path.is_file():
        pytest.skip(f"{name} is not in the cache; `coeval datasets fetch {name.split('/')[0]}` puts it there")
    return path.read_text(encoding="utf-8")


async def test_the_benchmarks_own_prompts_are_understood() -> None:
    criterion = cached("writingbench/judge_prompt.txt").format(
        criteria="Style", query="Write.", response=answer(1)
    )
    assert fenced(await requested_of(judge(), criterion))["score"] >= 9
    rubric = cached("healthbench/grader.txt").replace(
        "<<conversation>>", f"user: Hi\n\nassistant: {answer(1)}"
    )
    assert fenced(await requested_of(judge(noise=0), rubric.replace("<<rubric_item>>", "[5] Is right.")))[
        "criteria_met"
    ]
    pair = cached("arena-hard/judge_prompt.txt").format(
        QUESTION="Write.", ANSWER_A=answer(0.9), ANSWER_B=answer(0.1)
    )
    assert "[[A>>B]]" in (await requested_of(judge(), pair)).text
    outputs = cached("alpaca-eval/judge.txt")
    for name, text in {"instruction": "Write.", "output_1": answer(0), "output_2": answer(1)}.items():
        outputs = outputs.replace("{" + name + "}", text)
    assert (await requested_of(judge(), outputs)).text == "M"
