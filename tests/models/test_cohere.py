"""Cohere's chat: what the conformance suite does not ask of every interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.cohere_chat import Replied, cohere_fake

from coeval.core.errors import BadRequest
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters, TokenLogprob, Usage
from coeval.core.redaction import Redactor
from coeval.models.address import resolve_address
from coeval.models.catalog import HOSTS
from coeval.models.dialects.cohere import COHERE
from coeval.models.keys import Keys
from coeval.models.open import Models

HELLO = (Message("user", "Say hello."),)
NOWHERE = Keys.load(None, env={}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))
SPEC = ModelSpec(name="m", interface="cohere", model="command-a")


def sent(sampling: dict[str, Any], **fields: Any) -> dict[str, Any]:
    request = Request(messages=HELLO, sampling=SamplingParameters.of(sampling), **fields)
    body: dict[str, Any] = json.loads(COHERE.encode(request, SPEC, HOSTS["cohere"]))
    return body


@pytest.mark.parametrize(
    ("sampling", "thinking"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, {"type": "disabled"}),
        ({"reasoning_effort": "high"}, {"type": "enabled"}),
        ({"thinking_budget": 0}, {"type": "disabled"}),
        ({"thinking_budget": 500}, {"type": "enabled", "token_budget": 500}),
        ({"thinking_budget": 500, "reasoning_effort": "high"}, {"type": "enabled", "token_budget": 500}),
    ],
)
def test_thinking_is_switched_as_cohere_has_it(sampling: dict[str, Any], thinking: Any) -> None:
    assert sent(sampling).get("thinking") == thinking


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"reasoning_effort": "medium"}, "reasoning_effort of none or high"),
        ({"reasoning_effort": "none", "thinking_budget": 5}, "thinking_budget at reasoning_effort none"),
        ({"stop": list("abcdef")}, "at most 5 texts in stop"),
        ({"top_p": 1.0}, "top_p from 0.01 to 0.99"),
        ({"top_k": 501}, "top_k from 0 to 500"),
    ],
)
def test_what_cohere_does_not_take_is_refused_by_name(sampling: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=f"cohere .*{words}"):
        sent(sampling)


async def test_what_was_chosen_comes_with_its_log_probability() -> None:
    chunk = {"text": " New York", "token_ids": [1, 2], "logprobs": [-0.25, -0.5]}
    answer = Replied("a New York", body={"logprobs": [chunk, {"token_ids": [3]}]})
    spec = ModelSpec(name="m", interface="cohere", model="command-a", access_key="key")
    async with cohere_fake(answer) as host:
        at = ModelSpec(name="m", interface="cohere", model="command-a", access_key="k", base_url=host.url)
        async with Models([at], NOWHERE) as models:
            completion = await models["m"].complete(Request(messages=HELLO, top_logprobs=1))
    assert completion.logprobs[0] == TokenLogprob(" New York", -0.75, {" New York": -0.75})
    assert host.bodies[0]["logprobs"] is True
    assert resolve_address(spec, HOSTS["cohere"], NOWHERE).path == "/v2/chat"


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({"tokens": {"input_tokens": 7.0, "output_tokens": 2.0}}, Usage(7, 2)),
        (
            {"billed_units": {"input_tokens": 5}, "tokens": {"input_tokens": 7, "output_tokens": 2}},
            Usage(5, 2),
        ),
        ({"billed_units": {"input_tokens": -5, "output_tokens": 1.5}}, Usage(uncounted=True)),
        ({"billed_units": "many", "tokens": None}, Usage(uncounted=True)),
        (None, Usage(uncounted=True)),
        (
            {
                "billed_units": {"input_tokens": None, "output_tokens": None},
                "tokens": {"input_tokens": 12, "output_tokens": 4},
            },
            Usage(12, 4),
        ),
    ],
)
def test_tokens_are_those_that_are_billed_where_that_is_told(reported: Any, usage: Usage) -> None:
    body = {
        "message": {"content": [{"type": "text", "text": "x"}]},
        "finish_reason": "COMPLETE",
        "usage": reported,
    }
    assert COHERE.decode(json.dumps(body).encode(), Redactor()).usage == usage
