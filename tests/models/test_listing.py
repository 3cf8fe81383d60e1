"""What a host says it serves, read over loopback as the hosts document it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import raw_server
from anthropic import AsyncAnthropic
from fakes import gemini
from fakes.anthropic_messages import anthropic_fake
from fakes.cohere_chat import cohere_fake

from coeval.core.errors import AccessDenied, NotFound, Unreadable
from coeval.models.catalog import HOSTS
from coeval.models.dialects.anthropic_messages import ANTHROPIC
from coeval.models.dialects.cohere import COHERE
from coeval.models.dialects.dialect import Dialect, ListedModel, ModelList, ModelPage
from coeval.models.dialects.gemini import GEMINI
from coeval.models.dialects.openai_chat import OPENAI_CHAT, OpenAIChat
from coeval.models.hosted import MOST_PAGES, list_models
from coeval.models.pacing.limits import Limiter
from coeval.models.signers import Signer
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http

KEY = "sk-test-0123456789abcdef"


def json_reply(content: Any, status: int = 200) -> bytes:
    return raw_server.reply(status, msgspec.json.encode(content))


async def listed(*replies: bytes, dialect: OpenAIChat = OPENAI_CHAT) -> tuple[list[ListedModel], list[str]]:
    """The list, and the request lines that it took."""
    async with raw_server.server(*replies) as server:
        http = Http()
        endpoint = Endpoint(server.url, Signer({"Authorization": f"Bearer {KEY}"}), Limiter())
        try:
            found = await list_models(http, endpoint, dialect)
        finally:
            await http.aclose()
        assert found is not None
        return found, [requested.line for requested in server.requested]


OPENAI = {"id": "gpt-4.1", "object": "model", "created": 1, "owned_by": "system"}
GROQ = {"id": "llama-3.3-70b-versatile", "object": "model", "active": True, "context_window": 131072}
MISTRAL = {
    "id": "mistral-small-latest",
    "capabilities": {"completion_chat": True},
    "max_context_length": 32768,
}
OPENROUTER = {
    "id": "openai/gpt-4.1",
    "context_length": 1047576,
    "pricing": {"prompt": "0.000002", "completion": "0.000008", "request": "0"},
}
VARYING = {
    "id": "openrouter/auto",
    "context_length": 2000000,
    "pricing": {"prompt": "-1", "completion": "-1"},
}
DEEPINFRA = {
    "id": "meta-llama/Llama-3.3-70B-Instruct",
    "metadata": {"context_length": 131072, "pricing": {"input_tokens": 0.23, "output_tokens": 0.4}},
}
VLLM = {"id": "Qwen/Qwen2.5-7B", "max_model_len": 32768, "root": "Qwen/Qwen2.5-7B", "permission": []}


async def test_each_host_tells_of_its_models_in_its_own_words() -> None:
    entries = [OPENAI, GROQ, MISTRAL, OPENROUTER, VARYING, DEEPINFRA, VLLM]
    found, requested = await listed(json_reply({"object": "list", "data": entries}))
    assert requested == ["GET /v1/models HTTP/1.1"]
    assert found == [
        ListedModel("gpt-4.1"),
        ListedModel("llama-3.3-70b-versatile", 131072),
        ListedModel("mistral-small-latest", 32768),
        ListedModel("openai/gpt-4.1", 1047576),
        ListedModel("openrouter/auto", 2000000),
        ListedModel("meta-llama/Llama-3.3-70B-Instruct", 131072),
        ListedModel("Qwen/Qwen2.5-7B", 32768),
    ]


async def test_what_is_not_served_or_makes_no_text_is_left_out() -> None:
    entries = [
        GROQ | {"active": False},
        MISTRAL | {"id": "mistral-embed", "capabilities": {"completion_chat": False}},
        OPENROUTER | {"id": "painter", "architecture": {"output_modalities": ["image"]}},
        OPENROUTER
        | {"id": "speaker", "architecture": {"output_modalities": ["text", "audio"]}, "pricing": 3},
        {"id": "odd", "capabilities": [], "architecture": "x", "active": "no"},
    ]
    found, _ = await listed(json_reply({"object": "list", "data": entries}))
    assert found == [
        ListedModel("speaker", 1047576),
        ListedModel("odd"),
    ]


async def test_a_bare_list_is_a_list_and_what_cannot_be_is_not_told() -> None:
    odd = {"id": "m", "created": [1], "context_length": -3, "pricing": {"prompt": "much", "completion": None}}
    odd["metadata"] = 7
    found, _ = await listed(json_reply([odd, {"id": "n", "context_window": True}, odd]))
    assert found == [ListedModel("m"), ListedModel("n")]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (json_reply({"error": {"message": "no key"}}, 401), AccessDenied),
        (json_reply({"detail": "Not Found"}, 404), NotFound),
        (json_reply({"models": "many"}), Unreadable),
        (raw_server.reply(200, b"<html>"), Unreadable),
    ],
)
async def test_a_list_that_cannot_be_had_is_an_error(reply: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"GET 127\.0\.0\.1:\d+/v1/models"):
        await listed(reply, reply)


async def test_the_name_of_a_model_holds_no_key_that_the_host_was_sent() -> None:
    found, _ = await listed(json_reply({"data": [{"id": f"tuned-for-{KEY}"}]}))
    assert KEY not in repr(found)


class Paged(OpenAIChat):
    """A list in pages: each names the next one."""

    model_list = ModelList(
        "/models",
        lambda body: ModelPage(*msgspec.json.decode(body, type=tuple[tuple[ListedModel, ...], str | None])),
        after="after",
    )


async def test_pages_are_asked_for_until_there_is_no_next() -> None:
    found, requested = await listed(
        json_reply([[["a"], ["b", 8]], "b"]), json_reply([[["b"], ["c"]], None]), dialect=Paged()
    )
    assert found == [ListedModel("a"), ListedModel("b", 8), ListedModel("c")]
    assert requested == ["GET /v1/models HTTP/1.1", "GET /v1/models?after=b HTTP/1.1"]


async def test_a_list_without_an_end_is_given_up() -> None:
    with pytest.raises(Unreadable, match="continues after 100 pages"):
        await listed(*[json_reply([[["a"]], "a"])] * MOST_PAGES, dialect=Paged())


async def listed_at(url: str, dialect: Dialect, **headers: str) -> list[ListedModel]:
    """The list of a fake of another dialect."""
    http = Http()
    try:
        endpoint = Endpoint(url, Signer(headers), Limiter(), headers=HOSTS["anthropic"].headers)
        return await list_models(http, endpoint, dialect) or []
    finally:
        await http.aclose()


async def test_anthropics_list_is_read_page_by_page_as_its_own_client_does() -> None:
    known = [f"claude-{number}" for number in range(5)]
    async with anthropic_fake(keys=[KEY], models=known) as server:
        found = await listed_at(server.url, ANTHROPIC, **{"x-api-key": KEY})
        assert found == [ListedModel(model, 200_000, bounds=False) for model in known]
        assert server.pages[:2] == ["/v1/models?limit=1000", f"/v1/models?limit=1000&after_id={known[1]}"]
        assert len(server.pages) == 3
        async with AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0) as official:
            assert [model.id async for model in official.models.list()] == known


async def test_googles_list_is_read_page_by_page_those_that_answer() -> None:
    methods = ["generateContent", "countTokens"]
    listed: list[dict[str, Any]] = [
        {
            "name": "models/gemini-2.5-flash",
            "inputTokenLimit": 1048576,
            "supportedGenerationMethods": methods,
        },
        {"name": "models/text-embedding-004", "supportedGenerationMethods": ["embedContent"]},
        {"name": "models/gemma-3-27b-it", "inputTokenLimit": "many", "supportedGenerationMethods": methods},
    ]
    async with gemini.fake(keys=[KEY], listed=listed) as host:
        found = await listed_at(f"{host.url}/v1beta", GEMINI, **{"x-goog-api-key": KEY})
    assert found == [
        ListedModel("gemini-2.5-flash", 1048576, bounds=False),
        ListedModel("gemma-3-27b-it", bounds=False),
    ]


async def test_coheres_list_is_read_page_by_page_those_that_chat() -> None:
    async with cohere_fake() as host:
        found = await listed_at(host.url, COHERE)
    assert [(model.id, model.context_window) for model in found] == [
        ("command-a", 256_000),
        ("command-r7b", 256_000),
    ]
