"""The limiter in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.core.errors import Draining, QuotaExhausted
from coeval.models.pacing.limits import EndpointLimits, Lane, Limiter, refuse_nothing
from perf.virtual import in_virtual_time, now


def limits_of(ceiling: int, start: int | None = None, **rates: float) -> EndpointLimits:
    return EndpointLimits(ceiling, start, **rates)


def limiter(ceiling: int, **options: Any) -> Limiter:
    return Limiter(limits_of(ceiling, **options), clock=now)


async def call(limits: Limiter, seconds: float, priority: int = 0, tokens: int = 0) -> float:
    """One request that succeeds; when it was sent."""
    await limits.acquire(priority)
    sent_at = now()
    try:
        await asyncio.sleep(seconds)
        limits.record_answer(priority, seconds, tokens)
    finally:
        limits.release()
    return sent_at


def test_a_free_slot_is_taken_without_suspending() -> None:
    limits = Limiter(EndpointLimits(2))
    taking = limits.acquire(0)
    with pytest.raises(StopIteration):
        taking.send(None)
    assert limits.in_flight == 1


@pytest.mark.process
def test_the_number_in_flight_doubles_each_round_trip() -> None:
    async def work() -> float:
        limits = limiter(256)
        await asyncio.gather(*(call(limits, 0.2) for _ in range(1610)))
        assert limits.max_in_flight == 256
        return now()

    # 16 + 32 + 64 + 128 = 240 in four rounds, the other 1,370 in six of 256.
    assert in_virtual_time(work()) == pytest.approx(2.0, abs=0.21)


def test_the_start_is_the_ceiling_where_that_is_lower_or_asked_for() -> None:
    assert Limiter(EndpointLimits(4)).max_in_flight == 4
    assert Limiter(EndpointLimits(64)).max_in_flight == 16
    assert Limiter(EndpointLimits(64, 64)).max_in_flight == 64


def test_limits_of_several_are_the_largest_numbers_in_flight_and_the_smallest_rates() -> None:
    unset, few = EndpointLimits(), EndpointLimits(8, 4, 60.0, None)
    assert unset.merge(few) == few.merge(unset) == few
    assert few.merge(EndpointLimits(3, 9, 90.0, 500.0)) == (8, 9, 60.0, 500.0)
    assert Limiter(unset).max_in_flight == 16


def test_limits_that_change_hold_from_then_on_and_keep_what_the_host_has_taught() -> None:
    async def work() -> tuple[list[int], list[float]]:
        limits, found = limiter(256), []
        for ceiling, start in ((8, 4), (64, 64), (64, 16)):
            limits.set_limits(EndpointLimits(ceiling, start))
            found.append(limits.max_in_flight)
        await limits.acquire(0)
        limits.record_refusal(now())  # one fewer
        limits.release()
        limits.set_limits(EndpointLimits(128, 128, 30))
        found.append(limits.max_in_flight)
        await limits.acquire(0)
        limits.release()
        return found, [await call(limits, 0) for _ in range(3)]

    found, sent = in_virtual_time(work())
    assert found == [8, 64, 64, 63]
    assert [after - before for before, after in itertools.pairwise(sent)] == pytest.approx([2.0, 2.0])


def test_a_short_burst_of_refusals_is_one_cut_and_soon_made_up_for() -> None:
    async def work() -> list[int]:
        limits = limiter(256, start=139)

        async def ask() -> None:
            while True:
                await limits.acquire(0)
                sent_at = now()
                if 10.0 <= sent_at < 10.2:
                    await asyncio.sleep(0.03)
                    limits.record_refusal(sent_at)
                    limits.release()
                else:
                    await asyncio.sleep(10)
                    limits.record_answer(0, 10)
                    limits.release()
                    return

        asking = [asyncio.create_task(ask()) for _ in range(1000)]
        limit_at = []
        for moment in (9.9, 10.3, 15.0, 51.0):
            await asyncio.sleep(moment - now())
            limit_at.append(limits.max_in_flight)
        await asyncio.gather(*asking)
        return limit_at

    before, after, in_flight_still, later = in_virtual_time(work())
    assert before == 139
    assert after == in_flight_still >= before // 2
    assert later > before // 2


def test_a_host_that_refuses_everything_is_asked_once_a_second_and_then_at_once_as_before() -> None:
    async def work() -> tuple[int, float]:
        limits = limiter(64, start=64)
        refused, taken = 0, list[float]()

        async def ask() -> None:
            nonlocal refused
            while True:
                await limits.acquire(0)
                sent_at = now()
                if sent_at < 60:
                    await asyncio.sleep(0.05)
                    refused += 1
                    limits.record_refusal(sent_at)
                    limits.release()
                else:
                    taken.append(sent_at)
                    await asyncio.sleep(5)
                    limits.record_answer(0, 5)
                    limits.release()
                    return

        await asyncio.gather(*(ask() for _ in range(200)))
        return refused - 64, sorted(taken)[20]

    refused_later, twentieth = in_virtual_time(work())
    assert 50 <= refused_later <= 70
    assert twentieth < 63


def test_after_reopening_nothing_is_kept_apart() -> None:
    async def work() -> float:
        limits = limiter(64)
        for _ in range(10):
            await limits.acquire(0)
            limits.record_refusal(now())
            limits.release()
        limits.forget_refusals()
        began = now()
        await asyncio.gather(*(call(limits, 1) for _ in range(16)))
        return now() - began

    assert in_virtual_time(work()) == pytest.approx(1.0)


def test_growth_stops_while_latency_does_not_hold_and_resumes_when_it_recovers() -> None:
    async def work() -> None:
        limits = limiter(256)
        slowness = 1.0

        async def served() -> None:
            await limits.acquire(0)
            seconds = slowness * max(1.0, limits.in_flight / 32)
            await asyncio.sleep(seconds)
            limits.record_answer(0, seconds)
            limits.release()

        await asyncio.gather(*(served() for _ in range(600)))
        crowded = limits.max_in_flight
        assert 32 <= crowded < 128
        slowness = 0.2
        await asyncio.gather(*(served() for _ in range(1200)))
        assert limits.max_in_flight > crowded

    in_virtual_time(work())


def test_a_rank_of_longer_answers_does_not_stop_growth() -> None:
    async def work() -> int:
        limits = limiter(256)
        jobs = [call(limits, 10.0 if n % 2 else 0.5, priority=n % 2) for n in range(1500)]
        await asyncio.gather(*jobs)
        return limits.max_in_flight

    assert in_virtual_time(work()) == 256


def test_a_limit_that_is_not_used_is_not_raised() -> None:
    async def work() -> int:
        limits = limiter(256)
        for _ in range(100):
            await call(limits, 0.1)
        return limits.max_in_flight

    assert in_virtual_time(work()) == 16


@pytest.mark.process
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_higher_ranks_first_then_retries_then_first_come(waiters: list[tuple[int, bool]]) -> None:
    async def work() -> list[int]:
        limits = limiter(1)
        await limits.acquire(0)
        served: list[int] = []

        async def wait(number: int, priority: int, again: bool) -> None:
            await limits.acquire(priority, is_retry=again)
            served.append(number)
            limits.release()

        tasks = [asyncio.create_task(wait(number, *waiter)) for number, waiter in enumerate(waiters)]
        await asyncio.sleep(1)
        assert limits.waiting == len(waiters)
        limits.release()
        await asyncio.gather(*tasks)
        return served

    def place(number: int) -> tuple[int, bool, int]:
        priority, again = waiters[number]
        return -priority, not again, number

    assert in_virtual_time(work()) == sorted(range(len(waiters)), key=place)


def test_who_is_not_to_be_sent_any_more_waits_for_no_turn_and_takes_no_part_of_the_pace() -> None:
    async def work() -> tuple[list[str], float]:
        limits = limiter(256, requests_per_minute=1)
        sent, ended = list[str](), list[str]()

        def refusal() -> QuotaExhausted | None:
            return QuotaExhausted("no more") if sent else None

        async def ask(name: str, *, limited: bool) -> None:
            try:
                await limits.acquire(0, refusal=refusal if limited else refuse_nothing)
            except QuotaExhausted:
                ended.append(name)
                return
            sent.append(name)
            limits.release()

        names = [f"limited {n}" for n in range(50)]
        began = now()
        async with asyncio.TaskGroup() as asking:
            for name in [*names, "other"]:
                asking.create_task(ask(name, limited=name != "other"))
        assert ended == names[1:]
        assert (limits.in_flight, limits.waiting) == (0, 0)
        return sent, now() - began

    sent, seconds = in_virtual_time(work())
    assert sent == ["limited 0", "other"]
    assert seconds == pytest.approx(60.0)


@dataclass(frozen=True)
class Job:
    arrives: float
    priority: int
    seconds: float
    fate: str
    lane: int
    cancelled_after: float | None


JOBS = st.builds(
    Job,
    arrives=st.integers(0, 20).map(lambda n: n / 4),
    priority=st.integers(0, 2),
    seconds=st.integers(0, 8).map(lambda n: n / 4),
    fate=st.sampled_from(["ok", "ok", "refused", "late", "hold", "fault"]),
    lane=st.integers(0, 2),
    cancelled_after=st.none() | st.integers(0, 12).map(lambda n: n / 4),
)


@pytest.mark.process
@settings(max_examples=150)
@given(st.lists(JOBS, max_size=30), st.integers(1, 5), st.none() | st.sampled_from([60.0, 600.0]))
def test_never_over_the_limit_no_slot_or_wakeup_lost(
    jobs: list[Job], ceiling: int, per_minute: float | None
) -> None:
    async def work() -> None:
        limits = limiter(ceiling, requests_per_minute=per_minute)
        lanes = [None, Lane(), Lane()]
        running = 0

        async def do(job: Job) -> None:
            nonlocal running
            await asyncio.sleep(job.arrives)
            await limits.acquire(job.priority, lane=lanes[job.lane])
            sent_at = now()
            running += 1
            assert running <= ceiling
            try:
                await asyncio.sleep(job.seconds)
                if job.fate == "ok":
                    limits.record_answer(job.priority, job.seconds)
                elif job.fate == "refused":
                    limits.record_refusal(sent_at)
                elif job.fate == "late":
                    limits.record_timeout(sent_at, alone=job.priority == 0)
                elif job.fate == "hold":
                    limits.hold(0.5, lanes[job.lane])
            finally:
                running -= 1
                limits.release()

        tasks = [asyncio.create_task(do(job)) for job in jobs]
        for task, job in zip(tasks, jobs, strict=True):
            if job.cancelled_after is not None:
                asyncio.get_running_loop().call_later(job.cancelled_after, task.cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for job, result in zip(jobs, results, strict=True):
            if job.cancelled_after is None:
                assert result is None
            else:
                assert result is None or isinstance(result, asyncio.CancelledError)
        assert (limits.in_flight, limits.waiting) == (0, 0)
        # Every slot can still be had.
        await asyncio.gather(*(limits.acquire(0) for _ in range(limits.max_in_flight)))

    in_virtual_time(work())


def test_a_waiter_cancelled_in_the_turn_of_its_grant_gives_the_slot_on() -> None:
    async def work() -> None:
        limits = limiter(1)
        await limits.acquire(0)
        first, second = (asyncio.create_task(limits.acquire(0)) for _ in range(2))
        await asyncio.sleep(0)
        limits.release()
        first.cancel()
        await second
        assert first.cancelled() or (await asyncio.gather(first, return_exceptions=True))
        assert (limits.in_flight, limits.waiting) == (1, 0)

    in_virtual_time(work())


@pytest.mark.parametrize("per_minute", [6.0, 60.0, 600.0])
def test_requests_are_paced(per_minute: float) -> None:
    async def work() -> list[float]:
        limits = limiter(256, start=256, requests_per_minute=per_minute)
        return sorted(await asyncio.gather(*(call(limits, 0.01) for _ in range(int(per_minute * 3)))))

    sent = in_virtual_time(work())
    burst = max(1, per_minute / 60)
    assert sent[-1] == pytest.approx(180 - 60 * burst / per_minute, rel=0.02)
    for first, last in itertools.combinations(range(0, len(sent), 5), 2):
        assert last - first <= (sent[last] - sent[first]) * per_minute / 60 + burst


def test_tokens_are_paced_by_what_answers_took() -> None:
    async def work() -> float:
        limits = limiter(64, tokens_per_minute=60_000)
        await asyncio.gather(*(call(limits, 1, tokens=1000) for _ in range(300)))
        return now()

    # 300,000 tokens at 60,000 a minute: five minutes, less what may be spent ahead.
    assert 270 <= in_virtual_time(work()) <= 302


def test_long_requests_use_the_whole_pace_of_tokens() -> None:
    async def work() -> float:
        limits = limiter(256, tokens_per_minute=60_000)
        await asyncio.gather(*(call(limits, 60, tokens=1000) for _ in range(600)))
        return now()

    # One a second, sixty at a time: ten minutes, and some while those in flight grow to sixty.
    assert 600 <= in_virtual_time(work()) <= 780


def test_tokens_no_longer_expected_let_the_next_go_sooner() -> None:
    async def work(given_up: int) -> float:
        limits = limiter(64, tokens_per_minute=60_000)
        await call(limits, 1, tokens=1000)
        under_way = [asyncio.create_task(call(limits, 1000)) for _ in range(5)]
        await call(limits, 1, tokens=20_000)
        answered_at = now()
        last = asyncio.create_task(call(limits, 1))
        await asyncio.sleep(0.1)
        for task in under_way[:given_up]:
            task.cancel()
        return await last - answered_at

    # 20 s of debt and 5 s charged ahead, less the 6 s that may be.
    assert in_virtual_time(work(given_up=0)) == pytest.approx(19)
    assert in_virtual_time(work(given_up=4)) == pytest.approx(15)


def test_one_answer_larger_than_a_minutes_tokens_still_goes_out() -> None:
    async def work() -> list[float]:
        limits = limiter(1, tokens_per_minute=100)
        return [await call(limits, 1, tokens=200) for _ in range(3)]

    first, second, third = in_virtual_time(work())
    assert second - first == pytest.approx(115, abs=2)
    assert third - second == pytest.approx(120, abs=2)


def test_a_hold_keeps_new_requests_back_at_most_ten_minutes() -> None:
    async def work() -> tuple[float, float]:
        limits = limiter(4)
        limits.hold(360)
        limits.hold(1)  # the longer one stands
        first = await call(limits, 1)
        limits.hold(86_400)
        return first, await call(limits, 1)

    first, second = in_virtual_time(work())
    assert first == pytest.approx(360)
    assert second == pytest.approx(361 + 600)


def test_a_held_lane_waits_alone_and_takes_its_old_place_again() -> None:
    async def work() -> list[tuple[str, float]]:
        limits, held = limiter(2), Lane()
        sent: list[tuple[str, float]] = []

        async def ask(name: str, lane: Lane | None, priority: int = 0) -> None:
            await limits.acquire(priority, lane=lane)
            sent.append((name, now()))
            await asyncio.sleep(1)
            limits.release()

        limits.hold(10, held)
        limits.hold(3, held)  # the longer one stands
        async with asyncio.TaskGroup() as asking:
            for n in range(3):
                asking.create_task(ask(f"held {n}", held))
                asking.create_task(ask(f"free {n}", None))
            await asyncio.sleep(9.5)
            asking.create_task(ask("late and first", None, priority=1))
            asking.create_task(ask("late", None))
            asking.create_task(ask("later", None))
        assert (limits.in_flight, limits.waiting) == (0, 0)
        return sent

    assert in_virtual_time(work()) == [
        *[("free 0", 0.0), ("free 1", 0.0), ("free 2", 1.0)],
        *[("late and first", 9.5), ("late", 9.5)],
        *[("held 0", 10.5), ("held 1", 10.5), ("held 2", 11.5), ("later", 11.5)],
    ]


def test_those_in_a_held_lane_can_be_cancelled_and_are_closed_with_the_rest() -> None:
    async def work() -> None:
        limits, held = limiter(4), Lane()
        limits.hold(600, held)
        first, second = (asyncio.create_task(limits.acquire(0, lane=held)) for _ in range(2))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        assert limits.waiting == 1
        limits.reject_waiting(None, Draining("stop"))
        with pytest.raises(Draining):
            await second
        assert (limits.in_flight, limits.waiting) == (0, 0)

    in_virtual_time(work())


def test_turning_away_ends_waiting_and_lets_slots_come_back() -> None:
    async def work() -> None:
        limits = limiter(1)
        await limits.acquire(0)
        waiting = [asyncio.create_task(limits.acquire(0)) for _ in range(3)]
        await asyncio.sleep(0)
        limits.reject_waiting(None, Draining("stop"))
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [Draining] * 3
        limits.release()
        assert (limits.in_flight, limits.waiting) == (0, 0)

    in_virtual_time(work())
