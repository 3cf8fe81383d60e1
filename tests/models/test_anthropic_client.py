"""Anthropic's own client at the fake: it sends what we send, and reads there what we read.

So the fake is held to what the client of the API's makers does, and the dialect to both.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from fakes.anthropic_messages import AnthropicServer, Error, Spoken, anthropic_fake
from opened import answer

from coeval.core.errors import AccessDenied, BadRequest, ModelError, NotFound, RateLimited, ServerFault
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema

KEY = "sk-ant-test-0123456789abcdef"
OTHERWISE = {
    "Authorization": "the client shows the key as a bearer token since its version 2, we as `x-api-key`: "
    "the API takes either",
    "x-api-key": "the same",
    "anthropic-version": "the client asks for 2026-10-21, whose models take no temperature, top_p and top_k",
    "User-Agent": "who asks",
    "X-Stainless-": "what the client's makers want to know of its surroundings",
    "Accept": "we take what comes",
    "Accept-Encoding": "what each can unpack",
    "Connection": "how each keeps connections",
    "Content-Length": "the bodies differ in blanks",
    "Host": "the port of either's fake",
}
"""Headers that differ, or that one of both sends, and why; what ends in ``-`` is the start of a name. Of a
body no field is left out."""

SCHEMA = {
    "type": "object",
    "properties": {"tone": {"enum": ["High", "Low"]}},
    "required": ["tone"],
    "additionalProperties": False,
}
LONG = "A long article. " * 1200
ASKED = (Message("user", "Hello, as JSON"),)


def ask(*messages: Message, sampling: dict[str, Any] | None = None, **fields: Any) -> Request:
    return Request(messages or ASKED, sampling=SamplingParameters.of(sampling or {}), **fields)


def call(**changes: Any) -> dict[str, Any]:
    """What the client is called with."""
    messages = [{"role": message.role, "content": message.content} for message in ASKED]
    return {"model": "claude-haiku-4-5", "max_tokens": 8192, "messages": messages, **changes}


async def ours(server: AnthropicServer, request: Request, model: str = "claude-haiku-4-5") -> Completion:
    spec = ModelSpec(name="m", interface="anthropic", model=model, base_url=server.url, timeout_s=30.0)
    return await answer(spec, {"ANTHROPIC_API_KEY": KEY}, request)


def client(server: AnthropicServer, **headers: str) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=server.url, api_key=KEY, max_retries=0, default_headers=headers or None
    )


CALLS: dict[str, tuple[Request, dict[str, Any]]] = {
    "plain": (ask(), call()),
    "system and turns": (
        ask(Message("system", "Be brief."), *ASKED, Message("assistant", "Hello."), Message("user", "Why?")),
        call(
            system="Be brief.",
            messages=[
                {"role": "user", "content": "Hello, as JSON"},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "Why?"},
            ],
        ),
    ),
    "limits": (
        ask(sampling={"max_tokens": 100, "stop": ["END"]}),
        call(max_tokens=100, stop_sequences=["END"]),
    ),
    "drawing": (
        ask(sampling={"temperature": 0.5, "top_k": 5}),
        call(extra_body={"temperature": 0.5, "top_k": 5}),
    ),
    "budget": (
        ask(sampling={"thinking_budget": 2048, "max_tokens": 4096}),
        call(max_tokens=4096, thinking={"type": "enabled", "budget_tokens": 2048}),
    ),
    "effort": (
        ask(sampling={"reasoning_effort": "low"}),
        call(model="claude-sonnet-4-6", thinking={"type": "adaptive"}, output_config={"effort": "low"}),
    ),
    "schema": (
        ask(schema=Schema("scores", SCHEMA)),
        call(output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
    ),
    "cache": (
        ask(Message("user", f"{LONG}Who?"), shared=len(LONG)),
        call(
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}},
                        {"type": "text", "text": "Who?"},
                    ],
                }
            ]
        ),
    ),
}


@pytest.mark.parametrize(("request_", "theirs"), CALLS.values(), ids=CALLS)
async def test_the_client_sends_an_equal_request(request_: Request, theirs: dict[str, Any]) -> None:
    async with anthropic_fake(keys=[KEY]) as server:
        await ours(server, request_, theirs["model"])
        version = {"anthropic-version": "2023-06-01"} if "extra_body" in theirs else {}
        async with client(server, **version) as official:
            await official.messages.create(**theirs)
        mine, other = server.asked
    assert mine.body == other.body
    assert mine.path == other.path
    names = {name.lower() for name in (*mine.headers, *other.headers)}
    otherwise = tuple(name.lower() for name in OTHERWISE)
    compared = {name for name in names if not name.startswith(otherwise)}
    assert compared == {"content-type"}
    assert {name: mine.headers[name] for name in compared} == {name: other.headers[name] for name in compared}


ANSWERS = {
    "plain": Spoken("hello"),
    "empty": Spoken(""),
    "cut": Spoken("hel", "max_tokens"),
    "thought": Spoken("4", thinking=("2 and 2",), redacted=True),
    "cached": Spoken(usage={"cache_read_input_tokens": 70, "output_tokens_details": {"thinking_tokens": 1}}),
}


@pytest.mark.parametrize("spoken", ANSWERS.values(), ids=ANSWERS)
async def test_the_client_reads_the_fakes_answers_as_we_do(spoken: Spoken) -> None:
    async with anthropic_fake(spoken, spoken, keys=[KEY]) as server:
        mine = await ours(server, ask())
        async with client(server) as official:
            other = await official.messages.create(**call())
    assert mine.text == "".join(block.text for block in other.content if block.type == "text")
    thoughts = [block.thinking for block in other.content if block.type == "thinking"]
    assert (mine.reasoning is not None) == bool(thoughts)
    assert all(thought in (mine.reasoning or "") for thought in thoughts)
    assert mine.truncated == (other.stop_reason == "max_tokens")
    usage, told = mine.usage, other.usage
    read, written = told.cache_read_input_tokens, told.cache_creation_input_tokens
    assert read is not None
    assert written is not None
    assert usage.input_tokens == told.input_tokens + read + written
    assert (usage.output_tokens, usage.cached_tokens) == (told.output_tokens, read)
    if told.output_tokens_details is not None:
        assert usage.reasoning_tokens == told.output_tokens_details.thinking_tokens


async def test_the_client_reads_the_call_of_a_forced_tool_as_we_do() -> None:
    said = Spoken('{"tone": "High"}')
    async with anthropic_fake(said, said, keys=[KEY]) as server:
        mine = await ours(server, ask(schema=Schema("scores", SCHEMA)), "claude-opus-4-1")
        sent = server.asked[0].body
        async with client(server) as official:
            other = await official.messages.create(**sent)
        assert server.asked[1].body == sent
    [block] = other.content
    assert block.type == "tool_use"
    assert json.loads(mine.text) == block.input
    assert other.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("status", "mine", "theirs"),
    [
        (400, BadRequest, anthropic.BadRequestError),
        (401, AccessDenied, anthropic.AuthenticationError),
        (403, AccessDenied, anthropic.PermissionDeniedError),
        (404, NotFound, anthropic.NotFoundError),
        (413, BadRequest, anthropic.RequestTooLargeError),
        (429, RateLimited, anthropic.RateLimitError),
        (500, ServerFault, anthropic.InternalServerError),
        (529, ServerFault, anthropic.OverloadedError),
    ],
)
async def test_the_client_knows_the_fakes_errors(
    status: int, mine: type[ModelError], theirs: type[anthropic.APIStatusError]
) -> None:
    async with anthropic_fake(always=Error(status, "no, thank you"), keys=[KEY]) as server:
        with pytest.raises(mine, match="no, thank you"):
            await ours(server, ask())
        async with client(server) as official:
            with pytest.raises(theirs, match="no, thank you"):
                await official.messages.create(**call())


async def test_the_client_lists_the_fakes_models() -> None:
    known = ["claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"]
    async with anthropic_fake(keys=[KEY], models=known) as server, client(server) as official:
        assert [model.id async for model in official.models.list()] == known
        assert len(server.pages) == 2
