"""Google's generateContent at a strict fake: what the conformance suite does not ask of every interface."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.interface import LEVELS
from fakes.gemini import Answer, Blocked, Fault, fake, info, quota, retry_in
from fakes.openai_chat import Raw
from opened import answer, opened

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ContentFiltered,
    RateLimited,
    ServerFault,
    Unreadable,
)
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, TokenLogprob

KEY = "AIzaSyTest-0123456789abcdefghijklmnopqrs"
ENV = {"GEMINI_API_KEY": KEY}
TURNS = (
    Message("system", "Be brief."),
    Message("user", "Grüß Gott"),
    Message("assistant", "Servus"),
    Message("user", "Level, as JSON?"),
)
"""What Google's client sends otherwise, and why we do not."""


# Its client makes a subclass of aiohttp's session when it is first used.
def spec(url: str, model: str = "gemini-2.5-flash", **fields: Any) -> ModelSpec:
    return ModelSpec(name="m", interface="gemini", model=model, base_url=url, timeout_s=30.0, **fields)


def ask(sampling: dict[str, Any] | None = None, **fields: Any) -> Request:
    return Request(messages=TURNS, sampling=SamplingParameters.of(sampling or {}), **fields)


async def body_for(model: str, sampling: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The body that the fake took."""
    async with fake(keys=[KEY]) as host:
        await answer(spec(host.url, model, **fields), ENV, ask(sampling))
    return host.bodies[0]


# What is sent


async def test_parameters_that_only_google_knows_stand_where_google_reads_them() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    extra = {"generationConfig": {"candidateCount": 1}, "labels": {"team": "blue"}}
    body = await body_for(
        "gemini-2.5-flash",
        {"temperature": 0.5, "safetySettings": safety, "frequencyPenalty": 0.1},
        extra_body=extra,
    )
    assert body["safetySettings"] == safety
    assert body["labels"] == {"team": "blue"}
    assert body["generationConfig"] == {"temperature": 0.5, "frequencyPenalty": 0.1, "candidateCount": 1}


@pytest.mark.parametrize(
    ("model", "sampling", "thinking"),
    [
        ("gemini-2.5-flash", {"reasoning_effort": "none"}, {"thinkingBudget": 0}),
        ("gemini-2.5-flash", {"thinking_budget": 0}, {"thinkingBudget": 0}),
        ("my-tuned-model", {"reasoning_effort": "none"}, {"thinkingBudget": 0}),
        ("gemini-2.5-flash", {"thinking_budget": -1}, {"includeThoughts": True, "thinkingBudget": -1}),
        (
            "gemini-2.5-flash-lite",
            {"reasoning_effort": "low"},
            {"includeThoughts": True, "thinkingBudget": 1024},
        ),
        ("gemini-2.5-pro", {"reasoning_effort": "high"}, {"includeThoughts": True, "thinkingBudget": 24576}),
        (
            "models/gemini-3.8-flash",
            {"reasoning_effort": "high"},
            {"includeThoughts": True, "thinkingLevel": "HIGH"},
        ),
    ],
)
async def test_how_much_is_reasoned_is_said_in_the_words_of_the_models_family(
    model: str, sampling: dict[str, Any], thinking: dict[str, Any]
) -> None:
    body = await body_for(model, sampling)
    assert body["generationConfig"]["thinkingConfig"] == thinking


@pytest.mark.parametrize(
    ("model", "sampling", "said"),
    [
        ("gemini-2.0-flash", {"reasoning_effort": "low"}, "does not support reasoning_effort; leave it out"),
        ("gemma-3-27b-it", {"thinking_budget": 512}, "does not support thinking_budget; leave it out"),
        ("gemini-2.5-pro", {"thinking_budget": 0}, "always reasons; raise thinking_budget"),
        ("gemini-3-pro-preview", {"reasoning_effort": "none"}, "always reasons"),
        ("gemini-2.5-flash", {"reasoning_effort": "much"}, "may be none, minimal, low, medium, high"),
        ("gemini-2.5-flash", {"reasoning_effort": "low", "thinking_budget": 9}, "leave one out"),
        ("gemini-3.6-flash", {"temperature": 0.0}, "takes no temperature, and would ignore it"),
        ("gemini-3.5-flash-lite", {"top_k": 4}, "takes no top_k"),
    ],
)
async def test_what_a_family_has_nothing_for_is_refused_by_name_and_not_sent(
    model: str, sampling: dict[str, Any], said: str
) -> None:
    async with fake(keys=[KEY]) as host:
        with pytest.raises(BadRequest, match=said):
            await answer(spec(host.url, model), ENV, ask(sampling))
    assert not host.requested


async def test_a_family_without_system_prompts_is_told_in_its_first_turn_and_sent_no_schema() -> None:
    async with fake(keys=[KEY]) as host:
        await answer(spec(host.url, "gemma-3-27b-it"), ENV, ask(schema=LEVELS))
    [body] = host.bodies
    assert body["contents"][0] == {"role": "user", "parts": [{"text": "Be brief.\n\nGrüß Gott"}]}
    assert "systemInstruction" not in body
    assert "generationConfig" not in body


async def test_a_system_prompt_alone_is_what_is_asked() -> None:
    async with fake(keys=[KEY]) as host:
        await answer(spec(host.url), ENV, Request(messages=(Message("system", "Say hello."),)))
    assert host.bodies == [{"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]}]


async def test_what_a_family_passes_over_is_left_out_where_nobody_asked_for_it() -> None:
    async with fake(keys=[KEY]) as host:
        request = ask({"temperature": 0.0, "max_tokens": 9}, droppable=("temperature",))
        completion = await answer(spec(host.url, "gemini-3.8-flash"), ENV, request)
    assert completion.dropped == ("temperature",)
    assert host.bodies[0]["generationConfig"] == {"maxOutputTokens": 9}


# What comes back


async def said(*behaviour: Any, request: Request | None = None, **fields: Any) -> Completion:
    async with fake(*behaviour) as host:
        return await answer(spec(host.url, **fields), ENV, request or ask())


async def test_log_probabilities_are_those_of_the_chosen_tokens_with_the_likeliest_beside() -> None:
    likely = [("m", -0.1), ("M", -2.5), ("?", "-Infinity")]
    tops = [{"candidates": [{"token": token, "logProbability": value} for token, value in likely]}]
    result = {"chosenCandidates": [{"token": "M", "logProbability": -2.5}], "topCandidates": tops}
    completion = await said(Answer("M", candidate={"logprobsResult": result}), request=ask(top_logprobs=2))
    assert completion.logprobs == (TokenLogprob("M", -2.5, {"m": -0.1, "M": -2.5, "?": float("-inf")}),)


async def test_a_think_tag_of_an_open_model_is_reasoning_too() -> None:
    completion = await said(Answer("<think>hm</think>yes"), model="gemma-3-27b-it")
    assert (completion.text, completion.reasoning) == ("yes", "hm")


async def test_an_answer_without_parts_is_an_empty_one() -> None:
    completion = await said(Answer(None, finish_reason="MAX_TOKENS", thought_tokens=100))
    assert (completion.text, completion.finish_reason, completion.truncated) == ("", "length", True)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (Answer(None, finish_reason="PROHIBITED_CONTENT"), r"withheld the answer \(PROHIBITED_CONTENT\)"),
        (Answer("half", finish_reason="RECITATION"), r"withheld the answer \(RECITATION\)"),
        (Blocked("BLOCKLIST"), r"withheld the prompt \(BLOCKLIST\)"),
    ],
)
async def test_what_a_filter_withheld_is_told_with_its_reason_and_what_it_took(
    behaviour: Any, words: str
) -> None:
    with pytest.raises(ContentFiltered, match=words) as raised:
        await said(behaviour)
    assert raised.value.usage is not None
    assert raised.value.usage.input_tokens > 0


async def test_an_answer_that_the_host_broke_off_is_asked_for_once_more() -> None:
    broken = Answer(None, finish_reason="MALFORMED_FUNCTION_CALL", candidate={"finishMessage": "print(x)"})
    async with fake(broken, broken, broken) as host:
        with pytest.raises(Unreadable, match=r"finish reason MALFORMED_FUNCTION_CALL: print\(x\)"):
            await answer(spec(host.url), ENV, ask())
    assert len(host.requested) == 2


# What goes wrong


@pytest.mark.parametrize("key", ["AIzaSyAnother-key-of-another-account-0000", ""])
async def test_a_key_that_is_not_valid_is_no_access_though_google_calls_it_a_bad_request(key: str) -> None:
    async with fake(keys=[KEY]) as host:
        with pytest.raises(AccessDenied):
            await answer(spec(host.url), {"GEMINI_API_KEY": key}, ask())
    assert len(host.requested) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(400, "API key expired.", details=[info("API_KEY_INVALID")]), AccessDenied),
        (Fault(400, "User location is not supported for the API use.", "FAILED_PRECONDITION"), AccessDenied),
        (Fault(400, "The input token count (2000000) exceeds the maximum."), BadRequest),
    ],
)
async def test_an_error_is_what_it_means_whatever_its_status(fault: Fault, error: type[Exception]) -> None:
    async with fake(fault) as host:
        with pytest.raises(error, match=fault.message.partition("(")[0]):
            await answer(spec(host.url), ENV, ask())
    assert len(host.requested) == 1


@pytest.mark.system
async def test_a_busy_host_is_given_the_time_that_it_asks_for_in_the_error() -> None:
    waits: list[float] = []
    per_minute = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
    busy = Fault(429, "You exceeded your current quota.", details=[per_minute, retry_in("38.8s")])
    away = Fault(503, "The model is overloaded.", details=[retry_in("12s")])
    async with fake(busy, away) as host, opened(spec(host.url), ENV, waits) as model:
        assert (await model.complete(ask())).attempts == 3
    assert 38.8 <= waits[0] < 45
    assert 12 <= waits[1] < 15


@pytest.mark.parametrize(
    ("violation", "reason"),
    [
        (quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), "the daily quota is used up"),
        (quota("GenerateRequestsPerMinute-FreeTier", value="0"), "no quota for this model"),
    ],
)
async def test_a_quota_that_waiting_does_not_help_ends_at_once(violation: Any, reason: str) -> None:
    spent = Fault(429, "You exceeded your current quota.", details=[violation, retry_in("47s")])
    async with fake(spent, spent) as host:
        with pytest.raises(RateLimited, match=reason):
            await answer(spec(host.url), ENV, ask())
    assert len(host.requested) == 1


async def test_details_that_cannot_be_read_leave_the_message() -> None:
    odd = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": "many"}
    with pytest.raises(ServerFault, match="An internal error has occurred"):
        await said(*[Fault(500, "An internal error has occurred.", details=[odd])] * 8)


async def test_an_error_within_a_200_is_that_error() -> None:
    spent = Raw(b'{"error": {"code": 403, "message": "no", "status": "PERMISSION_DENIED"}}')
    with pytest.raises(AccessDenied, match="no"):
        await said(spent)
