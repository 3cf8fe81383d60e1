"""When a request is sent again, held back, given up or let finish."""

from __future__ import annotations

import asyncio
import random
import re
import socket

import pytest
from raw_server import (
    OK,
    Client,
    Script,
    call,
    client,
    hang,
    reply,
    reset,
    server,
    until,
)

from coeval.core.errors import (
    ConnectionFailed,
    Draining,
    ModelError,
    QuotaExhausted,
    RateLimited,
    RequestTimeout,
    ServerFault,
)
from coeval.core.records import Usage
from coeval.models.transport.call import ATTEMPTS, BACKOFF_S, TURNED_AWAY, Answered, Fault, Tries
from coeval.models.transport.http import Http


async def test_eight_attempts_and_at_most_a_minute_of_waiting() -> None:
    assert (ATTEMPTS, sum(BACKOFF_S)) == (8, 59.5)
    async with server(reply(429)) as fake, client(fake) as asking:
        error = await asking.error()
        assert isinstance(error, RateLimited)
        assert (error.attempts, error.status, error.retry_advised) == (8, 429, True)
        assert len(fake.requested) == asking.permits == 8
        assert sum(asking.time.slept) <= 60


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry_After": "7"}, 7, 7.7),
        ({"retry_after_ms": "2500"}, 2.5, 2.75),
        ({"Retry_After": "Wed, 21 Oct 2015 07:30:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 150, 151),
        ({"Retry_After": "600"}, 600, 601),
        ({"Retry_After": "soon"}, 0.25, 0.5),
    ],
)
async def test_retry_after_is_obeyed(headers: dict[str, str], least: float, most: float) -> None:
    async with server(reply(429, **headers), OK) as fake, client(fake) as asking:
        assert (await asking.post()).attempts == 2
        assert len(asking.time.slept) == 1
        assert least <= asking.time.slept[0] <= most


async def test_a_retry_after_of_more_than_ten_minutes_fails_at_once() -> None:
    async with server(reply(429, Retry_After="3600")) as fake, client(fake) as asking:
        error = await asking.error()
        assert (error.attempts, error.retry_after_s, error.retry_advised) == (1, 3600.0, False)
        assert "asks to wait 3600 s" in str(error)
        assert asking.time.slept == []


@pytest.mark.parametrize(
    "headers",
    [
        {"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "25200"},
        {"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "25200", "Retry_After": "60"},
        {"x_ratelimit_remaining_requests_day": "0", "x_ratelimit_reset_requests_day": "7h0m0s"},
        {"RateLimit": '"day";r=0;t=25200'},
        {"llm_provider_retry_after": "25200"},
    ],
)
async def test_a_quota_of_the_day_ends_at_once_naming_the_time(headers: dict[str, str]) -> None:
    async with server(reply(429, **headers)) as fake, client(fake) as asking:
        lane = asking.endpoint.lane("m")
        for _ in range(2):  # the next one is not held for ten minutes, either
            error = await asking.error(lane=lane)
            assert (error.attempts, error.retry_advised) == (1, False)
            asking.time.now += 1  # a host that refused is not sent the next request at once
        assert re.search(r"asks to wait 25200 s, until \d{4}-\d\d-\d\d \d\d:\d\d UTC", str(error))
        assert (asking.time.slept, asking.time.now) == ([], 2.0)


async def test_an_answer_that_uses_up_the_quota_of_the_day_is_followed_by_one_refusal() -> None:
    spent = {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "25200"}
    last = reply(200, {"text": "last"}, **spent)
    async with server(last, reply(429, **spent)) as fake, client(fake) as asking:
        lane = asking.endpoint.lane("m")
        assert (await asking.post(lane=lane)).value == "last"
        assert (await asking.error(lane=lane)).attempts == 1
        assert len(fake.requested) == 2


async def refused(asking: Client, model: str = "m") -> ModelError:
    """Ask a host that refuses, slowly enough for it to be sent each request at once."""
    asking.time.drag = 1.0
    asking.time.now += 1.0
    return await asking.error(lane=asking.endpoint.lane(model))


async def refusals_for(asking: Client, seconds: float) -> ModelError:
    """Ask until so much time has passed, or the model is given up."""
    error = await refused(asking)
    while asking.time.now < seconds and error.retry_advised:
        error = await refused(asking)
    return error


async def test_a_429_without_a_time_ends_as_an_outage_does_after_ten_minutes() -> None:
    async with server(reply(429)) as fake, client(fake) as asking:
        assert (await refusals_for(asking, 500)).retry_advised
        last = await refusals_for(asking, 900)
        assert re.search(
            r"only this for 6\d\d s and names no time to retry: .* credit may be used up", str(last)
        )
        rest = await refused(asking)
        assert (rest.attempts, rest.retry_advised) == (1, False)
        assert (await refused(asking, "another model")).attempts == ATTEMPTS


@pytest.mark.parametrize("between", ["an answer", "a pause"])
async def test_a_busy_host_that_answers_now_and_then_is_not_given_up(between: str) -> None:
    async with server(reply(429)) as fake, client(fake) as asking:
        await refusals_for(asking, 500)
        if between == "an answer":
            asking.time.now += 2
            fake.answers = [OK, reply(429)]
            await asking.post(lane=asking.endpoint.lane("m"))
        else:
            asking.time.now += 300
        error = await refusals_for(asking, asking.time.now + 150)
        assert (error.attempts, error.retry_advised) == (ATTEMPTS, True)


@pytest.mark.parametrize("status", [408, 504])
async def test_a_gateway_that_waited_no_longer_is_asked_twice(status: int) -> None:
    """What is behind it may have been at work each time, and be paid."""
    late = reply(status, {"error": {"message": "litellm.Timeout: Timeout Error"}})
    async with server(late) as fake, client(fake) as asking:
        error = await asking.error()
        assert isinstance(error, RequestTimeout)
        assert (error.attempts, error.retry_advised, len(fake.requested)) == (2, False, 2)
        fake.answers = [late, OK]
        assert (await asking.post()).attempts == 2


async def test_time_outs_of_a_gateway_count_towards_an_outage() -> None:
    async with server(reply(504)) as fake, client(fake) as asking:
        assert "only errors for" in str(await fail_for(asking, 31))


async def test_the_providers_word_on_retrying_is_taken() -> None:
    async with server(reply(503, x_should_retry="false")) as fake, client(fake) as asking:
        error = await asking.error()
        assert (error.attempts, error.retry_advised) == (1, True)
    async with server(reply(400, x_should_retry="true"), OK) as fake, client(fake) as asking:
        assert (await asking.post()).attempts == 2


async def test_overload_news_cut_concurrency_and_successes_raise_it() -> None:
    async with server(OK) as fake, client(fake, max_concurrency=64, start_concurrency=8) as asking:
        await asyncio.gather(*(asking.post() for _ in range(40)))
        assert asking.limiter.max_in_flight > 16
        grown = asking.limiter.max_in_flight
        fake.answers = [reply(429), OK]
        asking.time.now = 1.0
        await asking.post()
        assert asking.limiter.max_in_flight == grown - 1
        assert (asking.limiter.in_flight, asking.limiter.waiting) == (0, 0)


@pytest.mark.parametrize("status", [200, 429])
async def test_a_spent_limit_of_one_model_holds_that_model_and_no_other(status: int) -> None:
    headers = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "20ms"}
    async with server(reply(status, {"text": "a"}, **headers), OK) as fake, client(fake) as asking:
        spent, other = (asking.endpoint.lane(model) for model in ("spent", "other"))
        asking.time.gate.clear()
        first = asyncio.create_task(asking.post(lane=spent))
        await until(lambda: len(fake.requested) == 1 and asking.limiter.in_flight == 0)
        held = asyncio.create_task(asking.post(lane=spent))
        await until(lambda: asking.limiter.waiting == 1)
        asking.time.now += 0.015  # a host that refused is not sent the next request at once
        assert (await asking.post(lane=other)).value == "fine"
        assert not held.done()
        asking.time.gate.set()
        await asking.while_time_passes(first, held)
        assert asking.time.now >= 0.02


async def test_a_server_away_for_a_while_is_left_alone_by_all() -> None:
    async with server(reply(503, Retry_After="120"), OK) as fake, client(fake) as asking:
        asking.time.gate.clear()
        first = asyncio.create_task(asking.post())
        await until(lambda: len(fake.requested) == 1 and asking.limiter.in_flight == 0)
        second = asyncio.create_task(asking.post(lane=asking.endpoint.lane("another model")))
        await until(lambda: asking.limiter.waiting == 1)
        asking.time.now = 121.0
        asking.time.gate.set()
        await asking.while_time_passes(first, second)
        assert len(fake.requested) == 3


async def test_tokens_of_answers_are_counted_against_the_pace() -> None:
    async with server(OK) as fake, client(fake, tokens_per_minute=600) as asking:
        await asking.post(tokens=lambda text: 600)
        waiting = asyncio.create_task(asking.post())
        await until(lambda: asking.limiter.waiting == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(fake.requested) == 1


async def fail_for(asking: Client, seconds: float) -> ModelError:
    """Ask a failing server twice, so long apart."""
    await asking.error()
    asking.time.now += seconds
    return await asking.error()


async def test_time_outs_count_towards_an_outage_and_any_answer_ends_it() -> None:
    async with server(hang) as fake, client(fake) as asking:
        first = await asking.error(timeout_s=0.02)
        asking.time.now += 30
        last = await asking.error(timeout_s=0.02)
        assert (first.attempts, last.attempts) == (2, 1)
        assert "no answer within 0.02 s" in str(last)
        assert "only errors for" in str(last)
        fake.answers = [OK, hang]
        assert (await asking.post()).value == "fine"
        assert (await asking.error(timeout_s=0.02)).attempts == 2


async def test_a_time_out_while_others_succeed_is_no_outage_and_lowers_concurrency() -> None:
    async with server(OK) as fake, client(fake) as asking:
        for _ in range(3):
            fake.answers = [OK, hang, OK]
            await asking.post()
            asking.time.now += 0.5
            limit = asking.limiter.max_in_flight
            assert (await asking.post(timeout_s=0.02)).attempts == 2
            assert asking.limiter.max_in_flight == limit // 2
            asking.time.now += 31
        assert asking.endpoint.down_s == 0


async def test_a_request_that_breaks_connections_itself_fails_while_others_succeed() -> None:
    async def by_what_is_requested(writer: asyncio.StreamWriter) -> None:
        if fake.requested[-1].body == b"poison":
            await reset(writer)
        else:
            writer.write(OK)

    async with server(by_what_is_requested) as fake, client(fake) as asking:
        poison = asyncio.create_task(asking.post(b"poison"))
        while not poison.done():
            await asking.while_time_passes(asyncio.create_task(asking.post()))
        with pytest.raises(ConnectionFailed) as caught:
            await poison
        assert caught.value.attempts <= ATTEMPTS + TURNED_AWAY


@pytest.mark.parametrize("fault", [reply(502), reset])
async def test_after_30_s_of_nothing_but_faults_one_attempt_each_until_one_succeeds(
    fault: bytes | Script,
) -> None:
    async with server(fault) as fake, client(fake) as asking:
        last = await fail_for(asking, 30)
        assert (last.attempts, last.retry_advised) == (1, False)
        assert "only errors for" in str(last)
        before = len(fake.requested)
        results = await asyncio.gather(*(asking.post() for _ in range(5)), return_exceptions=True)
        assert [getattr(result, "attempts", None) for result in results] == [1] * 5
        assert len(fake.requested) == before + 5
        fake.answers = [OK, fault]
        assert (await asking.post()).value == "fine"
        assert (await asking.error()).attempts > 1


@pytest.mark.parametrize("between", [OK, reply(429, x_should_retry="false"), reply(400)])
async def test_a_host_that_answers_otherwise_is_not_down(between: bytes) -> None:
    async with server(reply(500, x_should_retry="false")) as fake, client(fake) as asking:
        await asking.error()
        asking.time.now += 29
        fake.answers = [between, reply(500, x_should_retry="false")]
        await asyncio.gather(asking.post(), return_exceptions=True)
        asking.time.now += 29
        assert (await asking.error()).retry_advised is True


async def test_an_outage_wakes_waiting_retries_to_their_last_attempt() -> None:
    async with server(reply(500)) as fake, client(fake) as asking:
        asking.time.gate.clear()
        waiting = [asyncio.create_task(asking.post()) for _ in range(3)]
        await until(lambda: len(fake.requested) == 3 and asking.limiter.in_flight == 0)
        asking.time.now = 31.0
        assert (await asking.error()).attempts == 1
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [(result.attempts, result.retry_advised) for result in results] == [(2, False)] * 3  # type: ignore[union-attr]
        assert len(fake.requested) == 7


async def test_draining_and_closing_one_session_leaves_another_at_the_same_host_its_turn() -> None:
    answer = asyncio.Event()

    async def when_reported(writer: asyncio.StreamWriter) -> None:
        await answer.wait()
        writer.write(OK)

    async with (
        server(reply(500), reply(500), when_reported, OK) as fake,
        client(fake, max_concurrency=1) as asking,
    ):
        time, hosts = asking.time, asking.http.hosts
        other = Http(clock=time.clock, rng=random.Random(0), sleep=time.sleep, hosts=hosts)

        async def post(http: Http) -> Answered[str]:
            return await http.post(asking.endpoint, "/chat", b"{}", call())

        time.gate.clear()
        retrying = [asyncio.create_task(post(http)) for http in (other, asking.http)]
        await until(lambda: len(time.slept) == 2)
        on_the_wire = asyncio.create_task(post(other))
        await until(lambda: len(fake.requested) == 3)
        waiting = [asyncio.create_task(post(http)) for http in (other, asking.http)]
        await until(lambda: asking.limiter.waiting == 2)
        other.drain()
        for gone in (retrying[0], waiting[0]):
            with pytest.raises(Draining):
                await gone
        assert (len(time.slept), asking.limiter.waiting) == (2, 1)
        assert not retrying[1].done(), "its wait before another attempt goes on"
        await other.aclose()
        answer.set()
        time.gate.set()
        ended = await asyncio.gather(on_the_wire, retrying[1], waiting[1])
        assert [each.attempts for each in ended] == [1, 2, 1]
        with pytest.raises(Draining, match="interrupted"):
            await post(other)
        assert len(fake.requested) == 5


@pytest.mark.parametrize("proxied", [False, True], ids=["straight", "by proxy"])
async def test_closing_is_for_good_and_nothing_is_sent_again(
    proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(reply(500), hang) as fake:
        if proxied:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{fake.port}")
            monkeypatch.setenv("no_proxy", "other.invalid")
        asking = Client("http://api.invalid/v1" if proxied else fake.url, max_concurrency=3)
        asking.time.gate.clear()
        retrying = asyncio.create_task(asking.post())
        await until(lambda: len(fake.requested) == 1 and asking.limiter.in_flight == 0)
        on_the_wire = [asyncio.create_task(asking.post()) for _ in range(3)]
        await until(lambda: len(fake.requested) == 4)
        waiting = asyncio.create_task(asking.post())
        await until(lambda: asking.limiter.waiting == 1)
        await asking.http.aclose()
        for sent in on_the_wire:
            with pytest.raises(ConnectionFailed, match="because the run ends") as caught:
                await sent
            assert caught.value.attempts == 1
        for unsent in (retrying, waiting):
            with pytest.raises(Draining, match="the models are closed"):
                await unsent
        with pytest.raises(Draining):
            await asking.post()
        await asking.http.aclose()
        assert len(fake.requested) == asking.permits == 4


async def test_a_slot_granted_in_the_turn_of_the_drain_sends_nothing() -> None:
    async with server(OK) as fake, client(fake, max_concurrency=1) as asking:
        await asking.limiter.acquire(0)
        waiting = asyncio.create_task(asking.post())
        await until(lambda: asking.limiter.waiting == 1)
        asking.limiter.release()
        asking.http.drain()
        with pytest.raises(Draining):
            await waiting
        assert (fake.requested, asking.permits, asking.limiter.in_flight) == ([], 0, 0)


async def test_a_permit_whose_request_was_not_sent_comes_back() -> None:
    async with server(OK) as fake:
        pass  # nobody listens there any more
    async with client(fake) as asking:
        unsent = 0

        def came_back() -> None:
            nonlocal unsent
            unsent += 1

        attempts = (await asking.error(unsent=came_back)).attempts
        assert asking.permits == unsent == attempts > 8
    async with server(reset) as fake, client(fake) as asking:
        await asking.error(unsent=came_back)
        assert (asking.permits, unsent) == (8, attempts), "what was cut off was sent"


@pytest.mark.parametrize(
    ("away_s", "wait_s", "comes_back"), [(200, 300, True), (40, 35, False), (900, 1000, True)]
)
async def test_a_server_that_takes_no_connection_is_waited_for(
    away_s: float, wait_s: float, comes_back: bool
) -> None:
    """An engine loads its weights for minutes; what broke its connection is asked again, one at a time."""
    async with server(OK) as fake:
        pass
    async with client(fake) as asking:
        asking.endpoint.wait_s = wait_s
        again: list[asyncio.Task[None]] = []
        ended = asyncio.Event()

        async def start_again() -> None:
            async with server(OK, on=socket.create_server(("127.0.0.1", fake.port))):
                await ended.wait()

        def came_back() -> None:
            if sum(asking.time.slept) > away_s and not again:
                again.append(asyncio.create_task(start_again()))

        if comes_back:
            assert (await asking.post(unsent=came_back)).value == "fine"
        else:
            assert "only errors" in str(await asking.error(unsent=came_back))
        ended.set()
        await asyncio.gather(*again)


async def test_a_refused_permit_sends_nothing_and_keeps_no_slot() -> None:
    def exhausted() -> None:
        raise QuotaExhausted("no more")

    async with server(OK) as fake, client(fake) as asking:
        with pytest.raises(QuotaExhausted):
            await asking.post(permit=exhausted)
        assert (fake.requested, asking.limiter.in_flight) == ([], 0)


async def test_cancelling_a_caller_frees_its_slot_and_socket() -> None:
    async with server(hang) as fake, client(fake, max_concurrency=1) as asking:
        hanging = asyncio.create_task(asking.post())
        await until(lambda: len(fake.requested) == 1)
        waiting = asyncio.create_task(asking.post())
        await until(lambda: asking.limiter.waiting == 1)
        fake.answers = [OK]
        hanging.cancel()
        assert (await waiting).value == "fine"
        assert asking.limiter.in_flight == 0


async def test_every_request_sent_took_a_permit_even_on_a_connection_gone_stale() -> None:
    async with server(OK, reset, OK) as fake, client(fake) as asking:
        await asking.get()
        assert (await asking.get()).attempts == 2  # aiohttp by itself would have sent it again unseen
        assert len(fake.requested) == asking.permits == 3


async def test_a_thousand_at_once_all_come_back_and_leave_nothing_behind() -> None:
    async with server(OK) as fake:
        async with client(fake, max_concurrency=128) as asking:
            answers = await asyncio.gather(*(asking.post() for _ in range(1000)))
            assert {answer.value for answer in answers} == {"fine"}
            assert (asking.limiter.in_flight, asking.limiter.waiting) == (0, 0)
            assert fake.connections <= 128
        await until(lambda: not fake.serving)
        assert len(fake.requested) == 1000


PASSING = Fault(RateLimited("429"), again=True)
CROWDED = Fault(ConnectionFailed("reset"), again=True, crowded=True)


def attempts(*faults: Fault) -> int:
    """How many attempts a request gets that meets with these, and then with the last one for ever."""
    tries, made = Tries(), 1
    while tries.count_failure(faults[min(made, len(faults)) - 1]):
        made += 1
    return made


def test_what_may_not_be_sent_again_is_not() -> None:
    assert attempts(Fault(ConnectionFailed("certificate"), again=False)) == 1
    assert attempts(PASSING, Fault(ConnectionFailed("certificate"), again=False, crowded=True)) == 2


def test_a_mixture_has_eight_attempts_and_two_time_outs() -> None:
    late = Fault(RequestTimeout("late"), again=True)
    assert attempts(late, *[PASSING] * 20) == ATTEMPTS
    assert attempts(PASSING, late, PASSING, late, PASSING) == 4


def test_replies_that_are_billed_and_broken_off_are_not_bought_eight_times() -> None:
    broken = Fault(ServerFault("broken off", usage=Usage(20, 500)), again=True)
    assert attempts(broken) == 2
    assert broken.error.retry_advised is False
    assert attempts(broken, *[PASSING] * 3, broken, PASSING) == 5
    assert attempts(Fault(ServerFault("away", usage=Usage(0, 0)), again=True)) == ATTEMPTS


def test_being_turned_away_is_no_attempt_but_has_an_end() -> None:
    assert attempts(*[CROWDED] * 40, PASSING) == 40 + ATTEMPTS
    assert attempts(CROWDED) == TURNED_AWAY


def test_who_is_turned_away_comes_back_soon_and_obeys_the_host_all_the_same() -> None:
    tries, rng = Tries(), random.Random(0)
    waits = []
    for _ in range(20):
        tries.count_failure(CROWDED)
        waits.append(tries.wait_s(CROWDED, rng))
    assert 0.25 <= waits[0] <= 0.5
    assert max(waits) <= 4.0
    tries.count_failure(PASSING)
    assert tries.wait_s(PASSING, rng) <= 0.5, "the first that counts"
    requested = Fault(RateLimited("429", retry_after_s=30.0), again=True)
    tries.count_failure(requested)
    assert 30 <= tries.wait_s(requested, rng) <= 31
