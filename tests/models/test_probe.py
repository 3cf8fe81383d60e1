from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import raw_server
import uvloop
from fakes.openai_chat import Answer, Broken, Fault, fake

from coeval.core.errors import AccessDenied, CoevalError, Draining, QuotaExhausted, RateLimited
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Failure, Request
from coeval.engine.probing import ProbeResult, probe_all
from coeval.models import hosted as hosted_module
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.metering.meter import Ledger
from coeval.models.open import Models
from coeval.models.pacing.limits import Limiter
from coeval.models.transport import endpoint as reach_module
from coeval.models.transport import faults as faults_module
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http, SharedHosts
from coeval.models.transport.pool import RequestRoute

KEY = "sk-test-0123456789abcdef"
NO_KEYS = Keys.load(None, env={}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))


class Failing(Model):
    """Raises what it was given."""

    def __init__(self, error: CoevalError) -> None:
        self.name, self.interface = "failing", "simulated"
        self._error = error

    async def complete(self, request: Request) -> Completion:
        raise self._error


async def test_each_model_is_asked_once_and_any_answer_will_do() -> None:
    async with fake(Answer("", finish_reason="length"), keys=[KEY]) as server:
        specs = [
            ModelSpec(name=name, interface="openai", model="o4-mini", base_url=server.url, access_key=key)
            for name, key in (("reasons", KEY), ("stranger", "sk-wrong-0123456789"))
        ]
        async with Models(specs[:1], NO_KEYS) as models:
            good = await probe_all(models)
        async with Models(specs[1:], NO_KEYS) as models:
            bad = await probe_all(models)
    assert [(result.name, result.ok, result.error) for result in good] == [("reasons", True, None)]
    assert good[0].latency_s > 0
    assert bad[0].error is not None
    assert (bad[0].ok, bad[0].error.kind) == (False, "access_denied")
    assert len(server.requested) == 2
    written = msgspec.json.encode(good + bad)
    assert b"sk-wrong" not in written
    assert msgspec.json.decode(written, type=list[ProbeResult]) == good + bad


def at_openai(url: str, *models: str, interface: str = "openai", key: str = KEY) -> Models:
    specs = [
        ModelSpec(name=f"m{n}", interface=interface, model=model, base_url=url, access_key=key)
        for n, model in enumerate(models)
    ]
    return Models(specs, NO_KEYS)


async def test_what_a_host_lists_is_not_asked_and_the_list_is_had_once() -> None:
    listed = [{"id": "gpt-4.1"}, {"id": "gpt-4.1-mini"}]
    async with fake(keys=[KEY], listed=listed) as server:
        async with at_openai(server.url, "gpt-4.1", "gpt-4.1-mini", "gpt-4.1") as models:
            results = await probe_all(models)
        assert [(result.ok, result.listed) for result in results] == [(True, True)] * 3
        assert (server.requested, server.lists) == ([], 1)


@pytest.mark.parametrize(
    ("listed", "ok"),
    [
        ([{"id": "gpt-4.1", "created": 1_677_610_602}, {"id": "dead", "created": 1_677_610_602}], False),
        ([{"id": "openai/*"}, {"id": "gpt-4.1"}, {"id": "dead"}], False),
        ([{"id": "gpt-4.1", "created": 1_677_610_602}, {"id": "dead", "created": 1_700_000_001}], True),
    ],
)
async def test_what_a_gateway_lists_is_asked_for_a_token(listed: list[dict[str, Any]], ok: bool) -> None:
    async with fake(models=["gpt-4.1"], listed=listed) as server:
        async with at_openai(server.url, "gpt-4.1", "dead") as models:
            results = await probe_all(models)
        assert [result.ok for result in results] == [True, ok]
        assert [body["max_tokens"] for body in server.bodies] == ([] if ok else [1, 1])


async def test_every_model_is_asked_where_an_answer_is_to_prove_it() -> None:
    async with fake(models=["gpt-4.1"], listed=[{"id": "gpt-4.1"}, {"id": "dead"}]) as server:
        async with at_openai(server.url, "gpt-4.1", "dead") as models:
            results = await probe_all(models, by_list=False)
        assert [(result.ok, result.listed) for result in results] == [(True, False), (False, False)]


async def test_what_no_list_names_is_asked_for_one_token_before_it_is_called_bad() -> None:
    """Aliases and deployments stand in no list."""
    async with fake(models=["gpt-4.1", "an-alias"], listed=[{"id": "gpt-4.1"}]) as server:
        async with at_openai(server.url, "gpt-4.1", "an-alias", "gpt-4.9") as models:
            results = await probe_all(models)
        assert [(result.ok, result.listed) for result in results] == [
            (True, True),
            (True, False),
            (False, False),
        ]
        assert [(body["model"], body["max_tokens"]) for body in server.bodies] == [
            ("an-alias", 1),
            ("gpt-4.9", 1),
        ]
    assert results[2].error is not None
    assert results[2].error.kind == "not_found"


async def test_a_model_that_takes_no_single_token_is_given_more() -> None:
    refusal = Fault(400, "Could not finish the message because max_tokens or model output limit was reached.")
    async with fake(refusal) as server:
        async with at_openai(server.url, "reasons") as models:
            (result,) = await probe_all(models)
        assert (result.ok, [body["max_tokens"] for body in server.bodies]) == (True, [1, 256])


async def test_a_list_that_anybody_sees_proves_no_key_good() -> None:
    async with fake(keys=[KEY], listed=[{"id": "openai/gpt-4.1"}]) as server:
        wrong = "sk-wrong-0123456789"
        async with at_openai(server.url, "openai/gpt-4.1", interface="openrouter", key=wrong) as models:
            (result,) = await probe_all(models)
        assert (result.ok, server.lists, len(server.requested)) == (False, 0, 1)


class Anybody:
    """A wire to a host that lists its models for everybody and knows no key."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    async def send(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply:
        self.urls.append(str(route.url))
        if body is None:
            return HttpReply(200, {}, b'{"data": [{"id": "openai/gpt-4.1"}]}')
        return HttpReply(401, {}, b'{"error": {"message": "No auth credentials found", "code": 401}}')

    async def aclose(self) -> None:
        """There is nothing to close."""


async def test_nor_does_one_that_a_base_url_of_another_interface_leads_to() -> None:
    wire, url = Anybody(), "https://openrouter.ai/api/v1"
    spec = ModelSpec(name="m", interface="openai", model="openai/gpt-4.1", base_url=url, access_key=KEY)
    async with Models([spec], NO_KEYS, http=Http(hosts=SharedHosts(wire))) as models:
        assert not await models["m"].is_listed()
        with pytest.raises(AccessDenied):
            await models["m"].complete(Request(()))
    assert wire.urls == [f"{url}/chat/completions"]


async def test_a_list_is_no_request_of_a_models_ceiling(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "usage.json", {"m0": Terms(1)})
    async with fake(listed=[{"id": "gpt-4.1"}]) as server:
        specs = [ModelSpec(name="m0", interface="openai", model="gpt-4.1", base_url=server.url)]
        async with Models(specs, NO_KEYS, ledger=ledger) as models:
            (result,) = await probe_all(models)
        assert (result.ok, server.lists, ledger.meter("m0").requests) == (True, 1, 0)


async def test_all_models_are_asked_at_the_same_time_and_told_in_their_order() -> None:
    async with fake(Broken.HANG, Broken.HANG, Broken.HANG) as server:
        specs = [
            ModelSpec(name=name, interface="vllm", model=name, base_url=server.url)
            for name in ("c", "a", "b")
        ]
        async with Models(specs, NO_KEYS) as models:
            running = asyncio.create_task(probe_all(models))
            await server.arrived(3)
            server.release()
            results = await running
    assert [(result.name, result.ok) for result in results] == [("c", True), ("a", True), ("b", True)]


@pytest.mark.process
async def test_a_host_that_hangs_is_given_up_after_a_minute_not_after_the_models_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (hosted_module, faults_module):
        monkeypatch.setattr(module, "PROBE_TIMEOUT_S", 0.3)
    async with fake(Broken.HANG, Broken.HANG) as server:
        async with at_openai(server.url, "m", interface="vllm") as models, asyncio.timeout(30):
            (result,) = await probe_all(models)
            assert len(server.requested) == 1
        server.release()
    assert result.error is not None
    assert (result.ok, result.error.kind) == (False, "timeout")
    assert "no answer within 0.3 s; if it needs longer" in result.error.message
    assert "start without a probe: probe_mode: disable" in result.error.message


@pytest.mark.process
async def test_a_probe_waits_no_longer_than_the_models_own_time_out() -> None:
    async with fake(Broken.HANG, Broken.HANG) as server:
        spec = ModelSpec(name="m", interface="vllm", model="m", base_url=server.url, timeout_s=0.3)
        async with Models([spec], NO_KEYS) as models, asyncio.timeout(30):
            (result,) = await probe_all(models)
            assert len(server.requested) == 1
        server.release()
    assert result.error is not None
    assert "no answer within 0.3 s; raise parameters.timeout_s" in result.error.message


@pytest.mark.parametrize("error", [RateLimited("slow\n  down"), QuotaExhausted("3 of 3\ncalls")])
async def test_a_failure_is_told_in_one_line(error: CoevalError) -> None:
    ticks = iter([10.0, 12.5])
    (result,) = await probe_all({"x": Failing(error)}, clock=lambda: next(ticks))
    expected = Failure(error.kind, " ".join(str(error).split()))
    assert result == ProbeResult("x", ok=False, latency_s=2.5, error=expected)


async def test_an_interruption_is_not_a_models_failure() -> None:
    with pytest.raises(Draining):
        await probe_all({"x": Failing(Draining("stop"))})


# A host that is away


def at(url: str) -> Models:
    return Models([ModelSpec(name="m", interface="vllm", model="m", base_url=url)], NO_KEYS)


async def reported(url: str) -> str:
    """What is said of a model there, which was not asked for want of a connection."""
    async with at(url) as models:
        (result,) = await probe_all(models)
    assert result.error is not None
    assert (result.ok, result.error.kind) == (False, "connection")
    return result.error.message


@contextmanager
def nobody_listening() -> Iterator[tuple[str, socket.socket]]:
    """A host and port that refuse connections, and that nobody else can get: the socket is bound to them."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}", bound


@pytest.mark.process
async def test_a_host_that_refuses_is_told_in_seconds() -> None:
    async with asyncio.timeout(15):  # a request would be sent eight times, over 40 s
        with nobody_listening() as (host, _):
            message = await reported(f"http://{host}/v1")
            assert message == f"POST {host}/v1/chat/completions: no connection (Connection refused)"


@pytest.mark.system
async def test_so_is_one_whose_name_cannot_be_resolved() -> None:
    async with asyncio.timeout(15):
        assert "the host name cannot be resolved" in await reported("http://nowhere.invalid/v1")
        assert "cannot be resolved (no host can have this name)" in await reported(
            f"http://{'x' * 64}.invalid"
        )


async def test_one_that_the_user_waits_for_may_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_module, "_AGAIN_AFTER_S", 0.01)
    with nobody_listening() as (host, bound):
        spec = ModelSpec(name="m", interface="vllm", model="m", base_url=f"http://{host}/v1", wait_s=60.0)
        async with Models([spec], NO_KEYS) as models:
            reached = asyncio.create_task(models["m"].check_connection())
            while not models.http.describe_outages():  # noqa: ASYNC110  it is read as a session reads it
                await asyncio.sleep(0.01)
            [said] = models.http.describe_outages().values()
            assert "trying again for" in said
            bound.listen()
            await reached
            assert not models.http.describe_outages()


@pytest.mark.process
async def test_so_is_one_that_does_not_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_module, "REACH_S", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        callers = [socket.socket() for _ in range(8)]  # more than its backlog holds
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        host = f"127.0.0.1:{full.getsockname()[1]}"
        assert "no connection within 0.3 s" in await reported(f"http://{host}/v1")
        for caller in callers:
            caller.close()


@pytest.mark.process
async def test_so_is_a_name_service_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_module, "REACH_S", 0.3)
    back = threading.Event()

    def wait(*_: Any, **__: Any) -> list[Any]:
        back.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    assert "cannot be resolved (no answer from the name service)" in await reported("http://slow.invalid/v1")
    back.set()


@pytest.mark.system
async def test_so_is_a_proxy_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "other.invalid")
    async with asyncio.timeout(30):
        with nobody_listening() as (host, _):
            monkeypatch.setenv("http_proxy", f"http://{host}")
            message = await reported("http://api.invalid/v1")
            assert "no connection to the proxy (Connection refused); check HTTP_PROXY" in message
        monkeypatch.setenv("http_proxy", "http://nowhere.invalid:3128")
        assert "no connection to the proxy (Name or service not known)" in await reported(
            "http://api.invalid/v1"
        )


@pytest.mark.process
async def test_a_host_that_comes_up_in_the_meantime_is_asked() -> None:
    with nobody_listening() as (host, bound):
        async with at(f"http://{host}/v1") as models:
            probing = asyncio.create_task(probe_all(models))
            await asyncio.sleep(0.2)
            async with raw_server.server(raw_server.reply(400), on=bound) as server:
                (result,) = await probing
                assert [requested.line.split()[0] for requested in server.requested] == [
                    "GET",
                    "POST",
                    "POST",
                ]
    assert result.error is not None
    assert result.error.kind == "bad_request"


async def test_a_model_that_may_not_be_asked_is_not_looked_for(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "usage.json", {"m": Terms(0)})
    with nobody_listening() as (host, _):
        spec = ModelSpec(name="m", interface="vllm", model="m", base_url=f"http://{host}/v1")
        async with Models([spec], NO_KEYS, ledger=ledger) as models:
            (result,) = await probe_all(models)
    assert result.error is not None
    assert result.error.kind == "quota"


@pytest.mark.process
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_host_that_was_reached_leaves_no_socket_behind(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """What uvloop closes before it owns it is closed twice, and so is what has its number by then."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}", None, Limiter())

        async def reach_often() -> None:
            for _ in range(20):
                await reach_module.check_reachable(endpoint, "/v1/models")

        with warnings.catch_warnings(record=True) as seen, asyncio.Runner(loop_factory=loop) as runner:
            warnings.simplefilter("always", ResourceWarning)
            runner.run(reach_often())
            gc.collect()
    assert [str(warning.message) for warning in seen] == []
