"""The Messages dialect against the fake: what the conformance suite does not ask of every interface."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance.interface import LEVELS
from fakes.anthropic_messages import VERSIONS, AnthropicServer, Error, Spoken, anthropic_fake, misfit_of
from fakes.openai_chat import Raw
from opened import opened as open_model

from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    BadRequest,
    ContentFiltered,
    ModelError,
    NotFound,
    RateLimited,
    ServerFault,
)
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema, Usage
from coeval.core.redaction import Redactor
from coeval.models.catalog import HOSTS
from coeval.models.dialects.anthropic_messages import ANTHROPIC, ANTHROPIC_MODELS, find_claude_family
from coeval.models.dialects.dialect import FieldRejected, ListedModel
from coeval.models.metering.account_file import Terms
from coeval.models.metering.meter import Ledger

KEY = "sk-ant-test-0123456789abcdef"
HELLO = (Message("user", "Hello, as JSON"),)
CLAUDES = (
    *("claude-3-haiku-20240307", "claude-3-5-haiku-20241022", "claude-3-7-sonnet-latest"),
    *("claude-opus-4-20250514", "claude-sonnet-4-0", "claude-opus-4-1", "claude-sonnet-4-5-20250929"),
    *("claude-haiku-4-5", "claude-opus-4-5", "claude-opus-4-6", "claude-sonnet-4-6", "claude-opus-4-7"),
    *("claude-opus-4-8", "claude-mythos-preview", "claude-opus-5", "claude-sonnet-5", "claude-fable-5"),
    *("claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2"),
)


def ask(messages: tuple[Message, ...] = HELLO, *, sampling: Any = None, **fields: Any) -> Request:
    return Request(messages=messages, sampling=SamplingParameters.of(sampling or {}), **fields)


def spec(model: str = "claude-haiku-4-5", **fields: Any) -> ModelSpec:
    return ModelSpec(name="m", interface="anthropic", model=model, **{"timeout_s": 30.0, **fields})


def sent(request: Request, model: str = "claude-haiku-4-5", **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(ANTHROPIC.encode(request, spec(model, **fields), HOSTS["anthropic"]))
    return body


def opened(server: AnthropicServer, **fields: Any) -> AbstractAsyncContextManager[Model]:
    ledger = fields.pop("ledger", None)
    requested = spec(**{"base_url": server.url, **fields})
    return open_model(requested, {"ANTHROPIC_API_KEY": KEY}, ledger=ledger)


async def complete(server: AnthropicServer, request: Request, **fields: Any) -> Completion:
    async with opened(server, **fields) as model:
        return await model.complete(request)


# What is sent


@pytest.mark.parametrize("model", CLAUDES)
def test_whatever_is_asked_of_a_model_it_takes_or_the_parameter_is_named(model: str) -> None:
    """Every two parameters together, and the schema with each."""
    drawn: list[dict[str, Any]] = [
        {},
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"top_p": 0.5},
        {"top_p": 0.96},
        {"top_k": 5},
        {"max_tokens": 4000},
        {"stop": ["END"]},
        {"reasoning_effort": "low"},
        {"thinking_budget": 0},
        {"thinking_budget": 2048},
        {"thinking_budget": 100},
        {"thinking_budget": 9000},
    ]
    for one, other, schema in itertools.product(drawn, drawn, (None, LEVELS)):
        named = {**one, **other}
        refused = ""
        try:
            body = sent(ask(sampling=named, schema=schema), model)
        except BadRequest as error:
            refused = str(error)
        if refused:
            assert any(name in refused for name in named), (named, refused)
        else:
            assert misfit_of(body, VERSIONS[0]) is None, (named, body)


@pytest.mark.parametrize(
    ("model", "sampling", "kept"),
    [
        ("claude-haiku-4-5", {"temperature": 0.0}, {"temperature": 0.0}),
        ("claude-sonnet-4-6", {"top_p": 0.9, "top_k": 3}, {"top_p": 0.9, "top_k": 3}),
        ("claude-sonnet-4-0", {"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2, "top_p": 0.9}),
        ("claude-opus-4-8", {"temperature": 1.0, "top_p": 1}, {}),
        ("claude-haiku-4-5", {"temperature": 1.0, "top_p": 0.95}, {"top_p": 0.95}),
        ("claude-haiku-4-5", {"temperature": 1.0}, {"temperature": 1.0}),
        ("MiniMax-M2", {"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2, "top_p": 0.9}),
    ],
)
def test_what_a_family_takes_goes_as_it_is_and_what_holds_anyway_is_not_sent(
    model: str, sampling: dict[str, Any], kept: dict[str, Any]
) -> None:
    body = sent(ask(sampling=sampling), model)
    assert {name: body[name] for name in ("temperature", "top_p", "top_k") if name in body} == kept


@pytest.mark.parametrize(
    ("model", "sampling", "field"),
    [
        ("claude-opus-5", {"temperature": 0.0}, "temperature"),
        ("claude-haiku-4-5", {"temperature": 0.0, "thinking_budget": 2048}, "temperature"),
        ("claude-sonnet-4-6", {"temperature": 0.0, "top_p": 0.9}, "top_p"),
        ("claude-haiku-4-5", {"seed": 3}, "seed"),
    ],
)
async def test_a_parameter_that_nobody_asked_for_is_left_out_where_the_model_takes_none(
    model: str, sampling: dict[str, Any], field: str
) -> None:
    async with anthropic_fake(keys=[KEY]) as server, opened(server, model=model) as claude:
        with pytest.raises(BadRequest, match=field):
            await claude.complete(ask(sampling=sampling))
        assert not server.requested
        completion = await claude.complete(ask(sampling=sampling, droppable=(field,)))
    assert completion.dropped == (field,)
    assert field not in server.requested[0].body


def test_of_two_that_go_not_together_the_one_goes_that_nobody_asked_for() -> None:
    with pytest.raises(FieldRejected) as raised:
        sent(ask(sampling={"temperature": 0.0, "top_p": 0.9}, droppable=("temperature",)))
    assert raised.value.field == "temperature"


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-3-haiku-20240307", 4096),
        ("claude-haiku-4-5", 8192),
        ("claude-opus-4-8", 16_384),
        ("claude-haiku-5-5", 16_384),
        ("MiniMax-M2", 8192),
    ],
)
def test_an_answer_without_a_limit_gets_the_familys(model: str, limit: int) -> None:
    assert sent(ask(), model)["max_tokens"] == limit
    assert sent(ask(sampling={"max_tokens": 7}), model)["max_tokens"] == 7


def test_a_budget_for_thinking_comes_beside_the_answers_tokens_and_has_to_fit_into_a_limit() -> None:
    body = sent(ask(sampling={"thinking_budget": 5000}))
    assert (body["max_tokens"], body["thinking"]) == (13_192, {"type": "enabled", "budget_tokens": 5000})
    with pytest.raises(BadRequest, match=r"thinking_budget.*less than max_tokens"):
        sent(ask(sampling={"thinking_budget": 5000, "max_tokens": 5000}))


@pytest.mark.parametrize(
    ("model", "sampling", "thinking"),
    [
        ("claude-sonnet-4-6", {"reasoning_effort": "low"}, {"type": "adaptive"}),
        ("claude-opus-4-5", {"reasoning_effort": "low"}, None),
        ("claude-opus-5", {"reasoning_effort": "max"}, {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-5", {}, None),
        ("claude-opus-5", {"thinking_budget": 0}, {"type": "disabled"}),
        ("claude-sonnet-5-5", {"thinking_budget": 0}, {"type": "between_tools"}),
        ("claude-opus-4-6", {"thinking_budget": 4096}, {"type": "enabled", "budget_tokens": 4096}),
    ],
)
def test_thinking_is_asked_for_in_the_way_of_the_family(
    model: str, sampling: dict[str, Any], thinking: dict[str, Any] | None
) -> None:
    body = sent(ask(sampling=sampling), model)
    assert body.get("thinking") == thinking
    effort = sampling.get("reasoning_effort")
    assert body.get("output_config") == (None if effort is None else {"effort": effort})


def test_system_prompts_stand_apart_and_turns_without_words_are_no_turns() -> None:
    messages = (
        Message("system", "Be brief."),
        Message("user", "One?"),
        Message("assistant", " "),
        Message("user", "Two?"),
        Message("system", "Be kind."),
        Message("assistant", "It is \n"),
    )
    body = sent(ask(messages))
    assert body["system"] == "Be brief.\n\nBe kind."
    assert [(turn["role"], turn["content"]) for turn in body["messages"]] == [
        ("user", "One?"),
        ("user", "Two?"),
        ("assistant", "It is"),
    ]
    assert misfit_of(body, VERSIONS[0]) is None


@pytest.mark.parametrize("messages", [(), (Message("system", "x"),), (*HELLO, Message("user", " \n"))])
def test_what_holds_nothing_to_answer_is_refused_in_words(messages: tuple[Message, ...]) -> None:
    with pytest.raises(BadRequest, match="message"):
        sent(ask(messages))


def test_a_stop_of_blanks_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="stop"):
        sent(ask(sampling={"stop": ["END", "\n\n"]}))


def test_what_is_named_as_the_provider_names_it_goes_over_what_is_ours() -> None:
    request = ask(sampling={"max_tokens": 5, "service_tier": "auto", "metadata": {"user_id": "a"}})
    body = sent(request, extra_body={"max_tokens": 9, "service_tier": "standard_only"})
    assert (body["max_tokens"], body["service_tier"]) == (9, "standard_only")
    assert body["metadata"] == {"user_id": "a"}


# What comes back


async def test_a_model_without_schemas_is_made_to_call_a_tool_of_that_form() -> None:
    async with anthropic_fake(Spoken('{"tone": "High"}'), keys=[KEY]) as server:
        completion = await complete(server, ask(schema=LEVELS), model="claude-sonnet-4-0")
    body = server.requested[0].body
    assert body["tools"][0]["input_schema"] == LEVELS.body
    assert (body["tool_choice"]["name"], "output_config" in body) == ("scores", False)
    assert json.loads(completion.text) == {"tone": "High"}
    assert (completion.finish_reason, completion.truncated) == ("tool_calls", False)


def test_what_is_said_beside_the_call_of_a_tool_is_no_part_of_the_answer() -> None:
    call = {"type": "tool_use", "id": "t", "name": "scores", "input": {"tone": "High"}}
    body = {"content": [{"type": "text", "text": "I score it."}, call], "stop_reason": "tool_use"}
    assert json.loads(ANTHROPIC.decode(json.dumps(body).encode(), Redactor()).text) == {"tone": "High"}


def test_a_tool_is_not_forced_on_who_thinks_nor_where_the_form_is_no_object() -> None:
    thinking = ask(sampling={"thinking_budget": 2048}, schema=LEVELS)
    listed = ask(schema=Schema("list", {"type": "array", "items": {"type": "string"}}))
    for request in (thinking, listed):
        body = sent(request, "claude-sonnet-4-0")
        assert not {"tools", "tool_choice", "output_config"} & body.keys()


async def test_reasoning_is_all_thinking_and_what_is_withheld_of_it_is_said() -> None:
    said = Spoken("4", thinking=("two and", "two"), redacted=True)
    hidden = Spoken("4", thinking=("",))
    async with anthropic_fake(said, hidden, keys=[KEY]) as server, opened(server) as claude:
        first, second = [await claude.complete(ask()) for _ in range(2)]
    assert first.reasoning == "two and\ntwo\n[a part of the reasoning is withheld by the provider]"
    assert (second.text, second.reasoning) == ("4", None)


def test_a_turn_that_is_paused_is_cut_off() -> None:
    body = {"content": [{"type": "text", "text": "x"}], "stop_reason": "pause_turn"}
    completion = ANTHROPIC.decode(json.dumps(body).encode(), Redactor())
    assert (completion.finish_reason, completion.truncated) == ("pause_turn", True)


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        (
            {
                "input_tokens": 5,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 0,
                "output_tokens": 2,
                "output_tokens_details": {"thinking_tokens": 1},
            },
            Usage(105, 2, cached_tokens=100, cache_write_tokens=0, reasoning_tokens=1),
        ),
        (
            {"input_tokens": -5, "output_tokens": 1e99, "cache_read_input_tokens": "many"},
            Usage(0, 0, cached_tokens=0, uncounted=True),
        ),
        (
            {"input_tokens": 5, "output_tokens": 2, "output_tokens_details": "none"},
            Usage(5, 2, uncounted=True),
        ),
        (None, Usage(uncounted=True)),
        ([], Usage(uncounted=True)),
    ],
)
def test_tokens_are_those_of_the_whole_prompt_and_no_answer_is_lost_for_them(
    reported: Any, usage: Usage
) -> None:
    body = {"content": [{"type": "text", "text": "x"}], "usage": reported}
    assert ANTHROPIC.decode(json.dumps(body).encode(), Redactor()).usage == usage


@pytest.mark.parametrize("details", [None, "refusal", {"category": 1}, {"category": None}])
def test_what_was_withheld_is_so_whatever_is_said_of_it(details: Any) -> None:
    body = {"content": [{"type": "text", "text": None}], "stop_reason": "refusal", "stop_details": details}
    with pytest.raises(ContentFiltered, match=r"withheld the answer$"):
        ANTHROPIC.decode(json.dumps(body).encode(), Redactor())


async def test_what_was_withheld_has_been_paid_for(tmp_path: Path) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": f"Not so, {KEY}."}
    withheld = Spoken("As", "refusal", usage={"output_tokens": 9}, body={"stop_details": details})
    ledger = Ledger(tmp_path / "usage.json", {"m": Terms(price=lambda usage: usage.output_tokens / 2)})
    async with anthropic_fake(withheld, keys=[KEY]) as server:
        with pytest.raises(ContentFiltered, match="cyber: Not so") as raised:
            await complete(server, ask(), ledger=ledger)
    ledger.close()
    assert KEY not in str(raised.value)
    assert raised.value.usage is not None
    assert raised.value.usage.cost_usd == 4.5


# What goes wrong


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Error(400, "Your credit balance is too low to access the Anthropic API."), AccessDenied),
        (Error(400, "You have reached your specified API usage limits."), AccessDenied),
        (Error(402, "Payment is overdue."), AccessDenied),
        (Error(429, "Enough.", code="enforced_spend_limit_reached"), AccountSpent),
        (Error(400, "prompt is too long: 200001 tokens > 200000 maximum"), BadRequest),
        (Error(413, "Request exceeds the maximum allowed number of bytes"), BadRequest),
        (Error(403, "Your API key does not have permission."), AccessDenied),
    ],
    ids=lambda value: getattr(value, "message", ""),
)
async def test_an_error_that_asking_again_cannot_mend_is_asked_once(
    error: Error, kind: type[ModelError]
) -> None:
    async with anthropic_fake(*[error] * 8, keys=[KEY]) as server:
        with pytest.raises(kind, match=error.message[:20]) as raised:
            await complete(server, ask())
    assert len(server.requested) == 1
    assert raised.value.status == error.status


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("overloaded_error", ServerFault), ("not_heard_of", ServerFault), ("rate_limit_error", RateLimited)],
)
async def test_an_error_behind_a_200_is_what_its_type_says(kind: str, expected: type[ModelError]) -> None:
    body = {"type": "error", "error": {"type": kind, "message": "Overloaded"}}
    async with anthropic_fake(always=Raw(json.dumps(body).encode()), keys=[KEY]) as server:
        with pytest.raises(expected, match="Overloaded"):
            await complete(server, ask())
        assert len(server.requested) > 1


@pytest.mark.parametrize("limit", ["requests", "tokens", "input-tokens", "output-tokens"])
async def test_a_limit_that_is_used_up_holds_the_model_back(limit: str) -> None:
    prefix = f"anthropic-ratelimit-{limit}"
    soon = (datetime.now(UTC) + timedelta(minutes=9)).isoformat()
    spent = Spoken(headers={f"{prefix}-remaining": "0", f"{prefix}-reset": soon})
    async with anthropic_fake(spent, keys=[KEY]) as server, opened(server) as claude:
        await claude.complete(ask())
        held = asyncio.create_task(claude.complete(ask()))
        await asyncio.sleep(0.05)
        assert len(server.requested) == 1
        held.cancel()


async def test_an_address_of_something_else_is_told_with_what_the_api_has_there() -> None:
    async with anthropic_fake(keys=[KEY]) as server:
        with pytest.raises(NotFound, match=r"has /v1/messages below .*/elsewhere"):
            await complete(server, ask(), base_url=f"{server.url}/elsewhere")


# The list of models


def test_a_retired_model_is_not_listed_and_an_id_may_hold_anything() -> None:
    models = [{"id": "a b&c"}, {"id": "old", "lifecycle": "retired"}, {"id": "new", "max_input_tokens": None}]
    page = ANTHROPIC_MODELS.decode(
        json.dumps({"data": models, "has_more": True, "last_id": "a b&c"}).encode()
    )
    assert page.models == (ListedModel("a b&c", bounds=False), ListedModel("new", bounds=False))
    assert ANTHROPIC_MODELS.page_path(page.next) == "/v1/models?limit=1000&after_id=a%20b%26c"


# The table of families


def test_a_family_is_known_however_a_host_spells_the_model() -> None:
    spelled = ("claude-opus-4-1", "claude-opus-4-1@20250805", "anthropic.claude-opus-4-1-20250805-v1:0")
    assert len({find_claude_family(model) for model in spelled}) == 1
    assert find_claude_family("claude-3-7-sonnet-latest").budgets
    assert find_claude_family("us.anthropic.claude-sonnet-4-6") == find_claude_family("claude-sonnet-4-6")
    assert find_claude_family("claude-brand-7") == find_claude_family("claude-haiku-5-5")
