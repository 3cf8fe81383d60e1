"""Simulated models: their traits, and what they say."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.core.errors import ServerFault, UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import LEVEL_VALUE, LEVELS, Completion, Message, Request, SamplingParameters
from coeval.pipeline import prompts
from coeval.pipeline.plan.judge_form import JudgeForm
from coeval.simulation.prose import REFUSAL, Draws, read_answer_mark
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import Traits, name_family, parse_model_option, parse_traits

JUDGE_PROMPT = "Judge the answer by the rubric. [simulated answer of {model}, quality {quality}] Text."

GOLDEN = (
    "[simulated answer of sim-large, quality 0.619] One of the authors overlooks the figures in"
    " the table, which matters here. The annual review depends on the reason for the choice, as"
    " expected. A careful reader explains the main result, though not at once. The usual method"
    " simplifies a point that both sides accept for the sake of clarity. One of the authors "
    "questions the reason for the choice, as expected."
)


def simulated(model: str = "sim-large", **options: Any) -> SimulatedModel:
    return SimulatedModel(ModelSpec(name=f"my {model}", interface="simulated", model=model, options=options))


def asking(text: str, *, sampling: dict[str, Any] | None = None, **changes: Any) -> Request:
    how = SamplingParameters.of(sampling or {})
    return msgspec.structs.replace(Request((Message("user", text),), how, seed=1), **changes)


async def test_the_answer_to_one_question_is_the_same_in_every_process() -> None:
    answer = await simulated().complete(asking("What is the plan?"))
    assert answer.text == GOLDEN


messages = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), st.text(max_size=60)), max_size=4
).map(tuple)
_JUDGED = JudgeForm({"a": "", "b": ""}, rationale=False).build_joint_question(("a", "b")).schema
requests = st.builds(
    Request,
    messages,
    schema=st.sampled_from([None, prompts.BENCHMARK_ITEM, _JUDGED]),
    seed=st.none() | st.integers(0, 2**63),
)


@settings(max_examples=40)
@given(requests, st.floats(0, 2), st.integers(0, 5))
async def test_sampling_and_purpose_change_nothing(
    request: Request, temperature: float, priority: int
) -> None:
    first = await simulated(malformed_rate=0.3).complete(request)
    changed = msgspec.structs.replace(
        request, sampling=SamplingParameters(temperature=temperature), purpose="evaluation", priority=priority
    )
    assert await simulated(malformed_rate=0.3).complete(changed) == first
    assert first.usage.input_tokens > 0
    assert first.usage.output_tokens > 0


@given(requests, requests)
def test_different_requests_have_different_draws(one: Request, other: Request) -> None:
    same = (one.messages, one.seed) == (other.messages, other.seed)
    assert (Draws("sim", one).bits("x") == Draws("sim", other).bits("x")) == same


def test_draws_are_spread_as_they_say() -> None:
    draws = Draws("sim", asking("x"))
    normal = [draws.normal(str(number)) for number in range(4000)]
    uniform = [draws.uniform(str(number)) for number in range(4000)]
    assert abs(mean(normal)) < 0.06
    assert abs(mean(value**2 for value in normal) - 1) < 0.06
    assert abs(mean(uniform) - 0.5) < 0.02
    assert min(uniform) >= 0
    assert max(uniform) < 1
    assert sorted(draws.some("all", range(9), 20)) == list(range(9))


async def test_seeds_and_models_differ() -> None:
    texts = {(await simulated().complete(asking("Hello", seed=seed))).text for seed in (None, 0, 1, 2)}
    texts.add((await simulated("sim-small").complete(asking("Hello"))).text)
    assert len(texts) == 5


async def scores(judge: SimulatedModel, answers: list[str]) -> float:
    schema = _JUDGED
    total: list[float] = []
    for answer in answers:
        completion = await judge.complete(asking(f"Judge this answer: {answer}", schema=schema))
        total += [LEVEL_VALUE[level] for level in json.loads(completion.text).values()]
    return mean(total)


async def test_every_judge_finds_the_order_of_skill() -> None:
    """The measured ranking is the true one, also with difficulty, severity and noise in between."""
    teacher = simulated("sim-teacher", difficulty_spread=0.3)
    items = [
        json.loads((await teacher.complete(asking("Go", schema=prompts.BENCHMARK_ITEM, seed=seed))).text)
        for seed in range(120)
    ]
    answers = {
        skill: [
            (await simulated(f"student-{skill}", skill=skill).complete(asking(item["prompt"]))).text
            for item in items
        ]
        for skill in (0.3, 0.5, 0.7, 0.9)
    }
    for severity, noise in ((0, 0), (0.15, 0.1), (-0.15, 0.1), (0, 0.4)):
        judge = simulated("judge", severity=severity, noise=noise)
        measured = [await scores(judge, answers[skill]) for skill in sorted(answers)]
        assert measured == sorted(set(measured)), (severity, noise)


async def test_a_severe_judge_gives_less_and_a_kind_one_more_to_its_family() -> None:
    answers = [
        f"[simulated answer of sim-small, quality {quality / 100:.3f}]" for quality in range(0, 100, 2)
    ]
    fair, severe, related, stranger = [
        await scores(simulated("sim-judge", noise=0, **options), answers)
        for options in ({}, {"severity": 0.2}, {"family_bias": 0.2}, {"family_bias": 0.2, "family": "acme"})
    ]
    assert severe < fair < related
    assert stranger == fair


async def test_mean_quality_is_the_skill() -> None:
    model = simulated(skill=0.6)
    reported = [
        read_answer_mark((await model.complete(asking("Hello", seed=seed))).text) for seed in range(400)
    ]
    assert abs(mean(mark.quality for mark in reported if mark) - 0.6) < 0.02


async def test_a_call_fails_as_often_as_it_should() -> None:
    async def failed(seed: int) -> bool:
        try:
            await simulated(failure_rate=0.3).complete(asking("Hello", seed=seed))
        except ServerFault:
            return True
        return False

    assert 80 < sum([await failed(seed) for seed in range(400)]) < 160
    with pytest.raises(ServerFault, match="simulated failure") as caught:
        await simulated(failure_rate=1).complete(asking("Hello"))
    assert caught.value.status == 500
    assert caught.value.retry_advised, "with another seed it may answer, over HTTP as in process"


async def spoiled(request: Request) -> list[Completion]:
    model = simulated(malformed_rate=1)
    return [await model.complete(msgspec.structs.replace(request, seed=seed)) for seed in range(80)]


async def test_an_evaluation_goes_wrong_in_many_ways() -> None:
    schema = _JUDGED
    prompt = JUDGE_PROMPT.format(model="sim-small", quality=0.9)
    texts = {completion.text for completion in await spoiled(asking(prompt, schema=schema))}
    assert REFUSAL in texts
    assert any(text.startswith("Here is the JSON:\n```json\n") for text in texts)
    assert {'{"a":"high","b":"high"}', '{"a":"8/10","b":"High"}', '{"a":"High"}', '{"a":"High","b"'} <= texts


async def test_a_bare_level_goes_wrong_too() -> None:
    prompt = f"The factor is tone. Answer {', '.join(LEVELS)}. " + JUDGE_PROMPT.format(
        model="sim-small", quality=0.9
    )
    texts = {completion.text for completion in await spoiled(asking(prompt))}
    assert {"high", "8/10", REFUSAL} < texts
    assert not texts & set(LEVELS)


async def test_items_and_answers_go_wrong_as_often_as_they_should() -> None:
    model = simulated(malformed_rate=0.3)
    wrong = 0
    for seed in range(400):
        text = (await model.complete(asking("Go", schema=prompts.BENCHMARK_ITEM, seed=seed))).text
        try:
            json.loads(text)
        except json.JSONDecodeError:
            wrong += 1
    assert 80 < wrong < 160
    assert REFUSAL in {completion.text for completion in await spoiled(asking("Hello"))}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_new_tokens"])
async def test_a_token_limit_cuts_the_answer(name: str) -> None:
    whole = await simulated().complete(asking("Hello"))
    cut = await simulated().complete(asking("Hello", sampling={name: 5}))
    assert (cut.text, cut.finish_reason, cut.truncated) == (whole.text[:20], "length", True)
    assert cut.usage.output_tokens == 5
    fits = await simulated().complete(asking("Hello", sampling={name: whole.usage.output_tokens}))
    assert fits == whole


async def test_log_probabilities_are_told_when_asked_for() -> None:
    assert (await simulated().complete(asking("Hello"))).logprobs == ()
    reported = await simulated().complete(asking("Hello", top_logprobs=20))
    assert "".join(token.token for token in reported.logprobs) == reported.text
    for token in reported.logprobs:
        assert len(token.top) == 20
        assert max(token.top, key=lambda other: token.top[other]) == token.token
        assert sum(2.718281828**logprob for logprob in token.top.values()) <= 1.0
    none = await simulated().complete(asking("Hello", top_logprobs=0))
    assert [token.top for token in none.logprobs] == [{}] * len(reported.logprobs)
    assert [token.logprob for token in none.logprobs] == [token.logprob for token in reported.logprobs]


@pytest.mark.timeout(20)
async def test_hostile_text_does_not_hang_a_model() -> None:
    hostile = "\n".join(
        [
            "(simulated item, difficulty 0.5; attributes: " + "(" * 50_000,
            "[simulated answer of " * 5_000,
            "JSON attribute " * 5_000 + "High Medium Low a single word " * 2_000,
            "- a" * 20_000,
        ]
    )
    completion = await simulated().complete(asking(hostile))
    assert completion.text


def test_a_bare_name_has_the_default_traits() -> None:
    spec = parse_model_option("sim-large")
    assert (spec.name, spec.model, spec.interface) == ("sim-large", "sim-large", "simulated")
    assert parse_traits(spec) == Traits(family="sim")


def test_options_are_read_with_spaces_around_them() -> None:
    spec = parse_model_option(" sim-a : skill = 0.8, noise=0 ,family=acme ")
    assert spec.name == "sim-a"
    assert parse_traits(spec) == Traits(skill=0.8, noise=0.0, family="acme")


def test_defaults_give_way_to_options() -> None:
    defaults = {"latency_s": 0.5}
    assert parse_traits(parse_model_option("sim", defaults)).latency_s == 0.5
    assert parse_traits(parse_model_option("sim:latency_s=0", defaults)).latency_s == 0.0


def test_a_name_may_hold_a_colon() -> None:
    assert parse_model_option("llama3:8b").name == "llama3:8b"
    spec = parse_model_option("llama3:8b:skill=0.2")
    assert (spec.name, spec.options) == ("llama3:8b", {"skill": 0.2})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no model"),
        (":skill=1", "names no model"),
        ("sim:skil=0.8", "did you mean skill?"),
        ("sim:temperature_of_the_room=1", "the options are skill, severity"),
        ("sim:skill", "an option needs a value"),
        ("sim:", "an option needs a value"),
        ("sim:skill=", "is not OPTION=VALUE"),
        ("sim:skill=0.8,,noise=0", "is not OPTION=VALUE"),
        ("sim:skill=0.8,noise", "is not OPTION=VALUE"),
        ("sim:skill=0.8,skill=0.9", "given twice"),
        ("sim:skill=high", "from 0 to 1; it is 'high'"),
        ("sim:skill=1.5", "from 0 to 1; it is 1.5"),
        ("sim:skill=nan", "from 0 to 1; it is nan"),
        ("sim:latency_s=-1", "from 0 to 3600"),
    ],
)
def test_what_cannot_be_read_is_explained(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model_option(text)
    assert said in str(caught.value)


def test_options_of_an_experiment_file_are_checked_too() -> None:
    spec = ModelSpec(name="judge-a", interface="simulated", model="sim", options={"skill": True})
    with pytest.raises(UsageError, match="judge-a: skill must be a number"):
        parse_traits(spec)


@pytest.mark.parametrize(
    ("model", "family"),
    [("sim-large", "sim"), ("llama3.1", "llama"), ("qwen:7b", "qwen"), ("7b", "7b"), ("solo", "solo")],
)
def test_family_is_the_first_word_of_the_name(model: str, family: str) -> None:
    assert name_family(model) == family
