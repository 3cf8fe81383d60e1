"""The judges of four benchmarks, asked as those ask: with prompts of the same structure, in our words.

The last test uses the benchmarks' own prompts where their assets have been fetched.
"""

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
from coeval.core.records import Completion, Message, Request, SamplingParameters
from coeval.simulation import SimulatedModel

GRADE = (
    'Rate it. Form: {{"score": 1 to 10, "reason": "..."}}\n** Criteria **\n{criterion}\n** Query **\nWrite.\n'
    "** Response **\n```{answer}```\nProvide your evaluation:\n{criterion}\n"
)
ITEM = (
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


async def ask(model: SimulatedModel, text: str, seed: int = 1, **fields: Any) -> Completion:
    return await model.complete(Request((Message("user", text),), seed=seed, **fields))


def fenced(completion: Completion) -> dict[str, Any]:
    found = re.fullmatch(r"```json\n(.*)\n```", completion.text)
    assert found, completion.text
    value = json.loads(found[1])
    assert isinstance(value, dict)
    return value


async def grades(quality: float, **traits: Any) -> list[int]:
    model, text = judge(**traits), GRADE.format(criterion="Style", answer=answer(quality))
    return [fenced(await ask(model, text, seed))["score"] for seed in range(60)]


async def test_a_criterion_is_graded_from_1_to_10_by_the_quality_stated() -> None:
    low, high = await grades(0.1), await grades(0.9)
    assert {type(score) for score in low + high} == {int}
    assert abs(mean(low) - 1.9) < 0.5
    assert abs(mean(high) - 9.1) < 0.5
    assert set(await grades(1.0, noise=0.3)) <= set(range(1, 11))


async def share_met(quality: float, item: str) -> float:
    text = ITEM.format(answer=answer(quality), item=item)
    replies = [fenced(await ask(judge(), text, seed)) for seed in range(200)]
    assert all(type(reply["criteria_met"]) is bool and reply["explanation"] for reply in replies)
    return sum(reply["criteria_met"] is True for reply in replies) / len(replies)


async def test_a_good_answer_meets_rubric_items_and_avoids_those_of_negative_points() -> None:
    good, bad = "[7] Names the cause.", "[-6] Frightens the reader."
    assert abs(await share_met(0.8, good) - 0.8) < 0.1
    assert abs(await share_met(0.8, bad) - 0.1) < 0.1
    assert abs(await share_met(0.2, bad) - 0.4) < 0.1


async def verdicts(first: str, second: str, **traits: Any) -> list[int]:
    told = []
    for seed in range(60):
        reply = await ask(judge(**traits), PAIR.format(first=first, second=second), seed)
        found = re.findall(r"\[\[([AB<>=]+)\]\]", reply.text)
        assert len(found) == 1
        told.append(VERDICTS[found[0]])
    return told


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
        reply = await ask(judge(**traits), text, seed, top_logprobs=5, sampling=sampling)
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
    plain = await ask(judge(), OUTPUTS.format(first=answer(0.1), second=answer(0.9)))
    assert (plain.text, plain.logprobs) == ("M", ())


@pytest.mark.parametrize(
    "text",
    [
        GRADE.format(criterion="Style", answer=answer(0.5)),
        ITEM.format(answer=answer(0.5), item="[5] Is right."),
        PAIR.format(first=answer(0.5), second=answer(0.2)),
        OUTPUTS.format(first=answer(0.5), second=answer(0.2)),
    ],
)
async def test_as_many_judgments_go_wrong_as_should(text: str) -> None:
    spoiled = judge(malformed_rate=0.3)
    whole, wrong = set(), 0
    for seed in range(200):
        straight = (await ask(judge(), text, seed)).text
        told = (await ask(spoiled, text, seed)).text
        whole.add(straight)
        wrong += told != straight
    assert 35 < wrong < 85
    always = {(await ask(judge(malformed_rate=1), text, seed)).text for seed in range(80)}
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
    assert fenced(await ask(judge(), criterion))["score"] >= 9
    rubric = cached("healthbench/grader.txt").replace(
        "<<conversation>>", f"user: Hi\n\nassistant: {answer(1)}"
    )
    assert fenced(await ask(judge(noise=0), rubric.replace("<<rubric_item>>", "[5] Is right.")))[
        "criteria_met"
    ]
    pair = cached("arena-hard/judge_prompt.txt").format(
        QUESTION="Write.", ANSWER_A=answer(0.9), ANSWER_B=answer(0.1)
    )
    assert "[[A>>B]]" in (await ask(judge(), pair)).text
    outputs = cached("alpaca-eval/judge.txt")
    for name, text in {"instruction": "Write.", "output_1": answer(0), "output_2": answer(1)}.items():
        outputs = outputs.replace("{" + name + "}", text)
    assert (await ask(judge(), outputs)).text == "M"
