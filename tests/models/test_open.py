from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Broken, Fault, fake

from coeval.core.errors import (
    AccessDenied,
    Draining,
    ModelStopped,
    NotFound,
    QuotaExhausted,
    UsageError,
)
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Message, Request, Usage
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.metering.meter import Ledger
from coeval.models.open import Models
from coeval.models.pacing.admission import REFUSALS_TO_STOP
from coeval.models.transport.http import Http, SharedHosts

KEY = "sk-test-0123456789abcdef"
HELLO = Request(messages=(Message("user", "hello"),))


def keys(env: Mapping[str, str] | None = None) -> Keys:
    return Keys.load(None, env=env or {}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))


def spec(name: str = "m", interface: str = "openai", **fields: Any) -> ModelSpec:
    return ModelSpec(name=name, interface=interface, model=f"{name}-id", **fields)


async def test_a_model_at_a_base_url_is_asked_there_with_its_key() -> None:
    async with fake(keys=[KEY]) as server:
        models = Models([spec(base_url=server.url + "/")], keys({"OPENAI_API_KEY": KEY}))
        async with models:
            completion = await models["m"].complete(HELLO)
    assert completion.text == "ok"
    assert server.requested[0].path == "/v1/chat/completions"
    assert server.bodies == [{"model": "m-id", "messages": [{"role": "user", "content": "hello"}]}]


async def test_two_accounts_of_one_provider_ask_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("providers: {openai: own, team-b: {interface: openai, api_key: theirs}}")
    file.chmod(0o600)
    both = Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)
    async with fake(keys=["own", "theirs", "third"]) as server:
        specs = [
            spec("a", base_url=server.url),
            spec("b", base_url=server.url, account="team-b"),
            spec("c", base_url=server.url, access_key="third"),
        ]
        async with Models(specs, both) as models:
            for name in "abc":
                await models[name].complete(HELLO)
        shown = [requested.headers["Authorization"] for requested in server.requested]
        assert shown == ["Bearer own", "Bearer theirs", "Bearer third"]
        with pytest.raises(UsageError, match=r"\(model d\): the account `team-c` .* did you mean `team-b`"):
            async with Models([spec("d", base_url=server.url, account="team-c")], both):
                pass


async def test_a_spent_limit_of_one_model_holds_no_other_of_its_url_and_key() -> None:
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9m"}
    async with (
        fake(Answer(headers=spent)) as server,
        Models([spec(name, base_url=server.url) for name in "ab"], keys()) as models,
    ):
        await models["a"].complete(HELLO)
        held = asyncio.create_task(models["a"].complete(HELLO))
        for _ in range(3):
            assert (await models["b"].complete(HELLO)).text == "ok"
        assert not held.done()
        models.drain()
        with pytest.raises(Draining):
            await held
    assert [body["model"] for body in server.bodies] == ["a-id", "b-id", "b-id", "b-id"]


@pytest.mark.parametrize("interface", ["azure_openai", "huggingface", "vllm", "simulated"])
async def test_with_a_base_url_any_interface_is_asked_as_an_openai_shaped_host(interface: str) -> None:
    async with fake() as server:
        url = f"{server.url}/chat/completions"
        async with Models([spec("m", interface, base_url=url)], keys()) as models:
            assert (await models["m"].complete(HELLO)).text == "ok"
            assert models["m"].interface == interface
    assert "Authorization" not in server.requested[0].headers


async def test_every_model_that_cannot_be_asked_is_named_at_once() -> None:
    specs = [
        spec("claude", "bedrock", access_key=KEY),
        spec("gpt", "openai"),
        spec("local", "vllm", base_url="localhost:8000"),
        spec("proxied", "openai", base_url=f"https://user:{KEY}@example.invalid/v1"),
        spec("queried", "openai", base_url=f"https://example.invalid/v1?key={KEY}"),
        spec("fine", "simulated"),
    ]
    with pytest.raises(UsageError) as raised:
        async with Models(specs, keys()):
            pass
    lines = str(raised.value).splitlines()
    assert [line.partition(")")[0].rpartition(" ")[2] for line in lines] == [
        "claude",
        "gpt",
        "local",
        "proxied",
        "queried",
    ]
    assert 'interface "bedrock" (model claude) needs region and none was found' in lines[0]
    assert "OPENAI_API_KEY in the environment" in lines[1]
    assert "http://" in lines[2]
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.invalid/v1#usage", "a fragment (from #)"),
        ("https://example.invalid/v1#", "a fragment (from #)"),
        (" https://example.invalid/v1", "a blank or an invisible character (number 1 of 27)"),
        (
            "https://example.invalid/v1\n",
            "a blank or an invisible character (number 27 of 27)",
        ),
        ("https://exa mple.invalid/v1", "a blank"),
        ("https://example.invalid/v 1", "a blank"),
        ("https://example.invalid/\N{ZERO WIDTH SPACE}v1", "invisible character"),
        ("https://example.invalid/v1?", "no user name, password or query"),
        ("https://example.invalid:http/v1", "its port as a number"),
        ("https://example.invalid:99999/v1", "its port as a number"),
    ],
)
async def test_what_is_wrong_with_a_base_url_is_named(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words.removeprefix("a character"))) as raised:
        async with Models([spec("m", base_url=url)], keys()):
            pass
    assert "(model m): parameters.base_url" in str(raised.value)


@pytest.mark.parametrize("sessions", [1, 4])
async def test_models_of_one_url_and_key_share_one_limiter_in_one_session_or_several(sessions: int) -> None:
    """Sessions that share hosts keep each other's keys out of what is told, too."""
    one, other = "first-key-of-two", "other-key-of-two"
    async with fake(*[Broken.HANG] * 9) as server, SharedHosts() as hosts, AsyncExitStack() as opened:
        specs = [
            spec("a", base_url=server.url, access_key=one, max_concurrency=2),
            spec("b", base_url=server.url + "/", access_key=one, max_concurrency=3),
            spec("c", base_url=server.url, access_key=one),
            spec("d", base_url=server.url, access_key=other, max_concurrency=1),
        ]
        models: dict[str, Model] = {}
        for group in [specs] if sessions == 1 else [[each] for each in specs]:
            models |= await opened.enter_async_context(Models(group, keys(), http=Http(hosts=hosts)))
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(models[name].complete(HELLO)) for name in "aabbccdd"]
            await server.arrived(4)
            arrived = [requested.headers["Authorization"] for requested in server.requested]
            assert sorted(arrived) == [f"Bearer {one}"] * 3 + [f"Bearer {other}"]
            server.release()
        assert all(task.result().text == "ok" for task in made)
        assert len(server.requested) == 8
        server.script.append(Answer(f"{other} and {one}"))
        assert "of-two" not in (await models["a"].complete(HELLO)).text


async def test_a_model_refused_from_the_start_stops_alone() -> None:
    async with fake(models=["good-id"]) as server:
        specs = [spec(name, base_url=server.url) for name in ("good", "bad")]
        async with Models(specs, keys()) as models:
            for _ in range(REFUSALS_TO_STOP):
                with pytest.raises(NotFound):
                    await models["bad"].complete(HELLO)
            for _ in range(2):
                with pytest.raises(ModelStopped, match=r"model bad .* `bad-id` does not exist"):
                    await models["bad"].complete(HELLO)
            assert (await models["good"].complete(HELLO)).text == "ok"
    assert [body["model"] for body in server.bodies] == ["bad-id"] * REFUSALS_TO_STOP + ["good-id"]


async def test_requests_that_wait_when_their_model_stops_are_not_sent() -> None:
    async with fake(keys=["right"]) as server:
        wrong = spec(base_url=server.url, access_key="wrong", max_concurrency=1)
        async with Models([wrong], keys()) as models:
            outcomes = await asyncio.gather(
                *(models["m"].complete(HELLO) for _ in range(20)), return_exceptions=True
            )
    assert [type(outcome) for outcome in outcomes[:3]] == [AccessDenied] * 3
    assert {type(outcome) for outcome in outcomes[3:]} == {ModelStopped}
    assert len(server.requested) == REFUSALS_TO_STOP


async def test_a_model_that_has_answered_is_not_given_up() -> None:
    async with (
        fake(Answer(), *[Fault(403, "not this one")] * 5) as server,
        Models([spec(base_url=server.url)], keys()) as models,
    ):
        await models["m"].complete(HELLO)
        for _ in range(5):
            with pytest.raises(AccessDenied):
                await models["m"].complete(HELLO)
        assert (await models["m"].complete(HELLO)).text == "ok"


@pytest.mark.process
async def test_every_request_sent_counts_against_the_quota(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "usage.json", {"m": Terms(3), "s": Terms(1)})
    async with fake(Fault(500, headers={"Retry-After": "0"})) as server:
        specs = [spec("m", base_url=server.url), spec("s", "simulated")]
        async with Models(specs, keys(), ledger=ledger) as models:
            assert (await models["m"].complete(HELLO)).attempts == 2
            await models["m"].complete(HELLO)
            await models["s"].complete(HELLO)
            for name in ("m", "s"):
                with pytest.raises(QuotaExhausted):
                    await models[name].complete(HELLO)
    ledger.close()
    assert len(server.requested) == 3


async def test_every_kind_of_model_is_priced_by_its_terms(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    ledger = Ledger(path, {name: Terms(price=lambda usage: usage.tokens / 4) for name in ("m", "s", "held")})
    async with fake(Answer(usage=(11, 3))) as server:
        specs = [
            spec("m", base_url=server.url),
            spec("s", "simulated"),
            spec("held", "simulated", max_concurrency=2),
            spec("free", "simulated"),
        ]
        async with Models(specs, keys(), ledger=ledger) as models:
            usage = {name: (await models[name].complete(HELLO)).usage for name in models}
    ledger.close()
    assert usage["m"] == Usage(11, 3, 3.5)
    assert all(usage[name].cost_usd == usage[name].tokens / 4 for name in ("s", "held"))
    assert usage["free"].cost_usd is None
    booked = json.loads(path.read_text())["models"]
    for name, took in usage.items():
        row = booked[name]
        assert (row["requests"], Usage(row["input_tokens"], row["output_tokens"], row["cost_usd"])) == (
            1,
            took,
        )


async def test_simulated_models_need_nothing_and_benchmarks_are_not_opened() -> None:
    specs = [spec("s", "simulated"), spec("arc", "benchmark")]
    async with Models(specs, keys()) as models:
        assert list(models) == ["s"]
        assert (await models["s"].complete(HELLO)).text


async def test_what_two_models_ask_of_one_host_is_held_to_the_smaller_rate() -> None:
    async with fake() as server:
        specs = [
            spec("a", base_url=server.url, requests_per_minute=6000),
            spec("b", base_url=server.url, requests_per_minute=0.001),
        ]
        async with Models(specs, keys()) as models:
            await models["a"].complete(HELLO)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(models["a"].complete(HELLO), 0.1)
    assert len(server.requested) == 1


async def test_a_simulated_model_is_asked_no_more_at_once_than_it_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_flight, most = Counter[float](), Counter[float]()
    sleep = asyncio.sleep

    async def counted(latency_s: float) -> None:
        in_flight[latency_s] += 1
        most[latency_s] = max(most[latency_s], in_flight[latency_s])
        await sleep(0)
        in_flight[latency_s] -= 1

    specs = [
        spec("held", "simulated", options={"latency_s": 2.0}, max_concurrency=2),
        spec("free", "simulated", options={"latency_s": 1.0}),
    ]
    async with Models(specs, keys()) as models:
        monkeypatch.setattr("coeval.simulation.simulated_model.asyncio.sleep", counted)
        await asyncio.gather(*(models[name].complete(HELLO) for name in ("held", "free") for _ in range(100)))
    assert most == {2.0: 2, 1.0: 100}


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
async def test_a_simulated_model_keeps_its_own_pace_until_it_is_drained(limit: str) -> None:
    specs = [spec("held", "simulated", **{limit: 0.001}), spec("free", "simulated")]
    async with Models(specs, keys()) as models:
        await models["held"].complete(HELLO)
        waiting = asyncio.create_task(models["held"].complete(HELLO))
        await asyncio.gather(*(models["free"].complete(HELLO) for _ in range(20)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        models.drain()
        with pytest.raises(Draining):
            await waiting
