"""Any client of OpenAI's interface is served: the official one is the witness."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date
from enum import Enum
from typing import Any, Literal, Optional

import openai
import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from pydantic import BaseModel, Field

from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

KEY = "test-key"
HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    models = [SimulatedModel(parse_model_option(text)) for text in ("sim-large", "sim-slow:tokens_per_s=200")]
    async with TestServer(make_app(models, api_key=KEY)) as server:
        yield str(server.make_url("/v1"))


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as opened:
        yield opened


class Tone(Enum):
    WARM = "warm"
    COLD = "cold"


class Chapter(BaseModel):
    title: str = Field(min_length=3, max_length=40)
    parts: list[Chapter] = Field(max_length=2)


class Book(BaseModel):
    """About all that structured outputs can ask for."""

    title: str
    tone: Tone
    kind: Literal["novel", "essay"]
    pages: int = Field(ge=100, le=900, multiple_of=4)
    price: float = Field(gt=0, lt=1)
    sold: bool
    published: date
    editor: Optional[str]  # noqa: UP045  the schema of Optional is what is meant
    tags: list[str] = Field(min_length=2, max_length=5)
    number: int | str
    first: Chapter


async def test_parse_gives_what_the_schema_says(client: openai.AsyncOpenAI) -> None:
    books = []
    for seed in range(20):
        said = await client.chat.completions.parse(
            model="sim-large", messages=HELLO, response_format=Book, seed=seed
        )
        assert said.choices[0].message.parsed is not None
        books.append(said.choices[0].message.parsed)
    assert {book.tone for book in books} == set(Tone)
    assert {book.kind for book in books} == {"novel", "essay"}
    assert len({book.pages for book in books}) > 5


async def test_json_mode_gives_an_object(client: openai.AsyncOpenAI) -> None:
    said = await client.chat.completions.create(
        model="sim-large", messages=HELLO, response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(said.choices[0].message.content or ""), dict)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "properties": {"x": {"$ref": "#/$defs/gone"}}}, "leads nowhere"),
        ({"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}}, "points out of the schema"),
        ({"type": "object", "properties": {"x": {"type": "string", "pattern": "^a+$"}}}, "to a pattern"),
        ({"type": "object", "properties": {"x": {"type": "array", "minItems": 10**9}}}, "minItems"),
        ({"type": "array"}, "must be that of an object"),
        ({"$ref": "#"}, "in a circle"),
    ],
)
async def test_a_schema_that_cannot_be_followed_is_refused(
    client: openai.AsyncOpenAI, schema: dict[str, Any], reason: str
) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=reason):
        await client.chat.completions.create(model="sim-large", messages=HELLO, response_format=wanted)


async def test_a_value_that_holds_itself_ends(client: openai.AsyncOpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "all": {"items": {"$ref": "#"}}},
        "required": ["next", "all"],
    }
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    said = await client.chat.completions.create(model="sim-large", messages=HELLO, response_format=wanted)
    assert set(json.loads(said.choices[0].message.content or "")) == {"next", "all"}


async def test_stop_sequences_end_an_answer(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="sim-large", messages=HELLO, seed=1)
    text = whole.choices[0].message.content or ""
    for stop in (".", ["no such words", "quality"]):
        cut = await client.chat.completions.create(model="sim-large", messages=HELLO, seed=1, stop=stop)
        first = stop if isinstance(stop, str) else "quality"
        assert cut.choices[0].message.content == text.partition(first)[0] != text
        assert cut.choices[0].finish_reason == "stop"


async def test_n_answers_differ_and_can_be_had_again(client: openai.AsyncOpenAI) -> None:
    said = [
        await client.chat.completions.create(model="sim-large", messages=HELLO, n=3, seed=5) for _ in range(2)
    ]
    texts = [[choice.message.content for choice in one.choices] for one in said]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3
    assert [choice.index for choice in said[0].choices] == [0, 1, 2]
    alone = await client.chat.completions.create(model="sim-large", messages=HELLO, seed=5)
    assert alone.choices[0].message.content == texts[0][0]
    assert said[0].usage is not None
    assert alone.usage is not None
    assert said[0].usage.prompt_tokens == alone.usage.prompt_tokens
    assert said[0].usage.completion_tokens > 2 * alone.usage.completion_tokens / 3


WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "maximum": 7}},
            "required": ["place", "days"],
        },
    },
}


async def test_a_function_is_called_where_the_client_insists(client: openai.AsyncOpenAI) -> None:
    by_name: Any = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", by_name):
        said = await client.chat.completions.create(
            model="sim-large", messages=HELLO, tools=[WEATHER], tool_choice=choice
        )
        assert said.choices[0].finish_reason == "tool_calls"
        assert said.choices[0].message.content is None
        [call] = said.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments).keys() == {"place", "days"}
    talk = await client.chat.completions.create(model="sim-large", messages=HELLO, tools=[WEATHER])
    assert talk.choices[0].message.content
    history: Any = [
        *HELLO,
        said.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    assert (
        (await client.chat.completions.create(model="sim-large", messages=history)).choices[0].message.content
    )
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(
            model="sim-large",
            messages=HELLO,
            tools=[WEATHER],
            tool_choice={"type": "function", "function": {"name": "tide"}},
        )
    assert caught.value.param == "tool_choice"


async def test_a_function_call_streams(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        model="sim-large", messages=HELLO, tools=[WEATHER], tool_choice="required"
    ) as stream:
        final = await stream.get_final_completion()
    [call] = final.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments).keys() == {"place", "days"}


async def test_one_model_is_shown(client: openai.AsyncOpenAI) -> None:
    assert (await client.models.retrieve("sim-large")).id == "sim-large"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("sim-huge")
    assert caught.value.code == "model_not_found"


async def test_the_older_interface(client: openai.AsyncOpenAI) -> None:
    said = await client.completions.create(model="sim-large", prompt=["Hello", "Goodbye"], n=2, max_tokens=15)
    assert [choice.index for choice in said.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in said.choices}) == 4
    assert {choice.finish_reason for choice in said.choices} == {"length"}
    assert all(len(choice.text) == 60 for choice in said.choices)
    stream = await client.completions.create(
        model="sim-large", prompt=["Hello", "Goodbye"], n=2, max_tokens=15, stream=True
    )
    texts = [""] * 4
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in said.choices]
    with pytest.raises(openai.BadRequestError, match="no tokenizer"):
        await client.completions.create(model="sim-large", prompt=[1, 2, 3])


async def test_the_likelihood_of_a_prompt(client: openai.AsyncOpenAI) -> None:
    said = await client.completions.create(
        model="sim-large", prompt="Hello, world", echo=True, logprobs=2, max_tokens=0
    )
    choice = said.choices[0]
    assert choice.text == "Hello, world"
    told: Any = choice.logprobs  # the client's types do not know that the first token has none
    assert told.tokens == ["Hell", "o, w", "orld"]
    assert told.text_offset == [0, 4, 8]
    first, *others = told.token_logprobs
    assert first is None
    assert all(value < 0 for value in others)


async def test_tokens_come_at_their_pace(client: openai.AsyncOpenAI) -> None:
    """200 tokens a second: 40 tokens take at least 0.2 s, and come one by one."""
    limits: dict[str, Any] = {"model": "sim-slow", "messages": HELLO, "max_completion_tokens": 40}
    loop = asyncio.get_running_loop()
    began = loop.time()
    await client.chat.completions.create(**limits)
    assert loop.time() - began >= 0.19
    began = loop.time()
    chunks = await client.chat.completions.create(**limits, stream=True)
    arrived = [loop.time() - began async for chunk in chunks if chunk.choices[0].delta.content]
    assert len(arrived) == 40
    assert arrived[-1] >= 0.19
    assert arrived[0] < arrived[-1] - 0.1  # the first token does not wait for the last


async def test_what_is_not_there_is_refused_in_their_shape(url: str) -> None:
    async with ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        for method, path, status in (
            ("GET", "/v1/embeddings", 404),
            ("GET", "/v1/chat/completions", 405),
            ("POST", "/v1/audio/speech", 404),
        ):
            async with session.request(method, url.removesuffix("/v1") + path) as response:
                error = (await response.json())["error"]
            assert response.status == status
            assert error.keys() == {"message", "type", "param", "code"}
