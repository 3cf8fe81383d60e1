"""The server answers any client of OpenAI's interface, and says what the model says in process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from coeval.cli.commands.simulate import simulate
from coeval.core.errors import UsageError
from coeval.core.records import Message, Request, Schema
from coeval.pipeline import prompts
from coeval.pipeline.plan.judge_form import JudgeForm
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

KEY = "test-key"
MODEL = SimulatedModel(parse_model_option("sim-odd:malformed_rate=0.2"))
FAILING = SimulatedModel(parse_model_option("sim-down:failure_rate=1"))
OTHERS = [SimulatedModel(parse_model_option(text)) for text in ("sim-large", "sim-slow:tokens_per_s=200")]
HELLO = {"model": "sim-odd", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with TestServer(make_app([MODEL, FAILING, *OTHERS], api_key=KEY)) as server:
        yield str(server.make_url("/v1"))


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as opened:
        yield opened


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as opened:
        yield opened


SCHEMAS = [
    None,
    prompts.TARGET_ATTRIBUTES,
    prompts.RUBRIC,
    prompts.BENCHMARK_ITEM,
    JudgeForm(dict.fromkeys(["accuracy", "tone"], "")).build_joint_question(("accuracy", "tone")).schema,
    JudgeForm({"tone": ""}).build_factor_question("tone").schema,
]


def response_format(schema: Schema | None) -> Any:
    if schema is None:
        return openai.omit
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.name, "schema": schema.body, "strict": True},
    }


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name if schema else "none")
async def test_the_text_is_that_of_the_process(client: openai.AsyncOpenAI, schema: Schema | None) -> None:
    for seed in range(12):
        said = await client.chat.completions.create(
            model="sim-odd",
            messages=[
                {"role": "system", "content": "Be brief – naïve, even."},
                {"role": "user", "content": "Hello"},
            ],
            seed=seed,
            temperature=0.7,
            response_format=response_format(schema),
        )
        request = Request(
            (Message("system", "Be brief – naïve, even."), Message("user", "Hello")), schema=schema, seed=seed
        )
        expected = await MODEL.complete(request)
        choice = said.choices[0]
        assert choice.message.content == expected.text
        assert choice.finish_reason == expected.finish_reason
        assert said.usage is not None
        assert said.usage.prompt_tokens == expected.usage.input_tokens
        assert said.usage.completion_tokens == expected.usage.output_tokens


async def test_a_stream_holds_the_same_text_and_log_probabilities(client: openai.AsyncOpenAI) -> None:
    requested: dict[str, Any] = {**HELLO, "seed": 3, "logprobs": True, "top_logprobs": 2, "max_tokens": 30}
    whole = await client.chat.completions.create(**requested)
    stream = await client.chat.completions.create(
        **requested, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    reported = [token for choice in choices if choice.logprobs for token in choice.logprobs.content or ()]
    assert "".join(choice.delta.content or "" for choice in choices) == whole.choices[0].message.content
    assert whole.choices[0].logprobs is not None
    assert reported == whole.choices[0].logprobs.content
    assert len(reported) == 30
    assert all(len(token.top_logprobs) == 2 for token in reported)
    assert choices[-1].finish_reason == whole.choices[0].finish_reason == "length"
    assert chunks[-1].usage == whole.usage


async def test_a_reply_has_exactly_the_fields_of_openai(url: str, session: ClientSession) -> None:
    async with session.post(f"{url}/chat/completions", json={**HELLO, "top_k": 5, "n": 1}) as response:
        body = await response.json()
    assert list(body) == ["id", "object", "created", "model", "system_fingerprint", "choices", "usage"]
    assert body["object"] == "chat.completion"
    assert list(body["choices"][0]) == ["index", "message", "logprobs", "finish_reason"]
    assert list(body["choices"][0]["message"]) == ["role", "content", "refusal"]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_content_may_come_in_parts(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(
        model="sim-odd", messages=[{"role": "user", "content": "Hello there"}], seed=1
    )
    parts = await client.chat.completions.create(
        model="sim-odd",
        messages=[
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there"}],
            }
        ],
        seed=1,
    )
    assert parts.choices[0].message.content == whole.choices[0].message.content


async def test_the_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [
        "sim-odd",
        "sim-down",
        "sim-large",
        "sim-slow",
    ]


async def test_health_needs_no_key(url: str) -> None:
    async with ClientSession() as session, session.get(url.removesuffix("/v1") + "/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})


async def test_an_unknown_model_is_not_found(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="the models are sim-odd, sim-down, sim-large") as caught:
        await client.chat.completions.create(model="sim", messages=[{"role": "user", "content": "Hello"}])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_a_wrong_key_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.AuthenticationError) as caught:
        await client.with_options(api_key="wrong").chat.completions.create(
            model="sim-odd", messages=[{"role": "user", "content": "Hello"}]
        )
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "the request body is wrong"),
        ("[]", "Expected `object`"),
        ('{"messages": [{"role": "user"}]}', "missing required field `model`"),
        ('{"model": "sim-odd"}', "missing required field `messages`"),
        ('{"model": "sim-odd", "messages": []}', "length >= 1"),
        ('{"model": "sim-odd", "messages": [{"role": "robot"}]}', "$.messages[0].role"),
        ('{"model": "sim-odd", "messages": [{"role": "user", "content": "x"}], "n": 2}', "$.n"),
        ('{"model": "sim-odd", "messages": [{"role": "user", "content": "x"}], "top_logprobs": 99}', "<= 20"),
        (
            '{"model": "sim-odd", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0}',
            "$.max_tokens",
        ),
        (b"\xff\xfe", "the request body is wrong"),
    ],
)
async def test_a_wrong_body_is_explained(
    url: str, session: ClientSession, body: str | bytes, said: str
) -> None:
    async with session.post(f"{url}/chat/completions", data=body) as response:
        error = (await response.json())["error"]
    assert response.status == 400
    assert error["type"] == "invalid_request_error"
    assert said in error["message"]


async def test_a_failing_model_advises_against_retries(url: str, session: ClientSession) -> None:
    async with session.post(f"{url}/chat/completions", json={**HELLO, "model": "sim-down"}) as response:
        assert response.status == 500
        assert response.headers["x-should-retry"] == "false"
        assert (await response.json())["error"]["message"] == "simulated failure"


@pytest.mark.parametrize(
    ("ordered", "status"), [("429", 429), ("503", 503), ("404", 404), ("200", 400), ("x", 400)]
)
async def test_a_status_can_be_ordered(url: str, session: ClientSession, ordered: str, status: int) -> None:
    headers = {"x-simulate-status": ordered}
    async with session.post(f"{url}/chat/completions", json=HELLO, headers=headers) as response:
        assert response.status == status
        assert response.headers.get("Retry-After") == ("1" if status == 429 else None)
        assert (await response.json())["error"]["message"]


async def test_each_nth_request_is_rate_limited(session: ClientSession) -> None:
    async with TestServer(make_app([MODEL], rate_limit_every=3)) as server:
        statuses = []
        for _ in range(7):
            async with session.post(server.make_url("/v1/chat/completions"), json=HELLO) as response:
                statuses.append(response.status)
    assert statuses == [200, 200, 429, 200, 200, 429, 200]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "192.168.0.1"])  # noqa: S104
def test_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(UsageError, match="served on this machine only; use"):
        simulate(model=["sim"], host=host)


def test_a_model_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="sim is given twice"):
        simulate(model=["sim:skill=0.1", "sim:skill=0.9"])


def test_a_taken_port_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=f"cannot listen on 127.0.0.1 port {port}.*choose another --port"
        ):
            simulate(model=["sim"], port=port)


@pytest.mark.process
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_end(ending: signal.Signals) -> None:
    program = "import typer; from coeval.cli.commands.simulate import simulate; typer.run(simulate)"
    arguments = ["--port", "0", "--model", "sim-a:skill=0.9", "--model", "sim-b", "--latency", "0.01"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("simulated models at http://127.0.0.1:"), line
            assert line.endswith("/v1: sim-a, sim-b\n")
            health = line.split()[3].removesuffix("/v1:") + "/health"
            with urllib.request.urlopen(health, timeout=30) as response:  # noqa: S310
                assert response.status == 200
            process.send_signal(ending)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")


TURNS: Any = [{"role": "user", "content": "Hello"}]


async def test_json_mode_gives_an_object(client: openai.AsyncOpenAI) -> None:
    said = await client.chat.completions.create(
        model="sim-large", messages=TURNS, response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(said.choices[0].message.content or ""), dict)


async def test_a_schema_of_others_is_refused(client: openai.AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    needed: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="no schema but those of coeval's own prompts"):
        await client.chat.completions.create(model="sim-large", messages=TURNS, response_format=needed)


async def test_stop_sequences_end_an_answer(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="sim-large", messages=TURNS, seed=1)
    text = whole.choices[0].message.content or ""
    for stop in (".", ["no such words", "quality"]):
        cut = await client.chat.completions.create(model="sim-large", messages=TURNS, seed=1, stop=stop)
        first = stop if isinstance(stop, str) else "quality"
        assert cut.choices[0].message.content == text.partition(first)[0] != text
        assert cut.choices[0].finish_reason == "stop"


async def test_a_function_cannot_be_demanded(client: openai.AsyncOpenAI) -> None:
    tool: Any = {"type": "function", "function": {"name": "weather"}}
    said = await client.chat.completions.create(model="sim-large", messages=TURNS, tools=[tool])
    assert said.choices[0].message.content
    for choice in ("required", tool):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(
                model="sim-large", messages=TURNS, tools=[tool], tool_choice=choice
            )
        assert caught.value.param == "tool_choice"


async def test_one_model_is_shown(client: openai.AsyncOpenAI) -> None:
    assert (await client.models.retrieve("sim-large")).id == "sim-large"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("sim-huge")
    assert caught.value.code == "model_not_found"


@pytest.mark.process
async def test_tokens_come_at_their_pace(client: openai.AsyncOpenAI) -> None:
    """200 tokens a second: 40 tokens take at least 0.2 s, and come one by one."""
    limits: dict[str, Any] = {"model": "sim-slow", "messages": TURNS, "max_completion_tokens": 40}
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


async def test_what_is_not_there_is_refused_in_their_shape(url: str, session: ClientSession) -> None:
    for method, path, status in (
        ("GET", "/v1/embeddings", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/audio/speech", 404),
    ):
        async with session.request(method, url.removesuffix("/v1") + path) as response:
            error = (await response.json())["error"]
        assert response.status == status
        assert error.keys() == {"message", "type", "param", "code"}
