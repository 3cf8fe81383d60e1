"""What a running flow tells: totals, an honest time left, and why it waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from coeval.core.errors import Draining, ModelStopped
from coeval.engine.progress import Board, Calls, phase_figures, phase_sentence
from coeval.engine.session import AGAIN_AFTER_S, await_unless_interrupted, report_host_problems
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.call import Call
from coeval.models.transport.endpoint import SILENT_AFTER_S, TOLD_AFTER_S, Endpoint
from coeval.models.transport.http import Http


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    made = Board(["items", "answers"], {"answers": "items"}, clock=clock)
    made.expect("items", recorded=20, owed=100, calls=Calls(100, 100))
    made.expect("answers", recorded=0, owed=600, calls=Calls(600, 1800))
    return made


def come(board: Board, phase: str, records: int) -> None:
    for _ in range(records):
        board.count_outcome(phase, 1, None, None)


def test_the_first_answers_come_together_and_are_no_pace(board: Board, clock: Clock) -> None:
    """Sixteen requests of ten seconds end at one moment: the pace is theirs since they were asked."""
    board.note_phase_begun("items")
    clock.now += 10
    come(board, "items", 16)
    assert board.remaining_s("items") == pytest.approx((100 - 16) * 10 / 16)
    assert board.phases["items"].calls_per_s == pytest.approx(1.6)


def test_no_time_is_told_from_next_to_nothing(board: Board, clock: Clock) -> None:
    board.note_phase_begun("items")
    clock.now += 10
    come(board, "items", 2)
    assert board.remaining_s("items") is None
    assert board.remaining_s("answers") is None


def test_the_pace_is_that_of_the_last_minute(board: Board, clock: Clock) -> None:
    board.note_phase_begun("answers")
    for _ in range(100):
        clock.now += 10  # slow at first
        come(board, "answers", 1)
    for _ in range(61):
        clock.now += 1  # then five a second
        come(board, "answers", 5)
    assert board.remaining_s("answers") == pytest.approx((600 - 405) / 5, rel=0.05)


def test_while_nothing_comes_the_time_left_grows(board: Board, clock: Clock) -> None:
    board.note_phase_begun("answers")
    for _ in range(10):
        clock.now += 1
        come(board, "answers", 10)
    before = board.remaining_s("answers")
    clock.now += 50
    after = board.remaining_s("answers")
    assert before is not None
    assert after is not None
    assert after == pytest.approx(before * 6, rel=0.1)


def test_no_phase_ends_before_the_one_that_feeds_it(board: Board, clock: Clock) -> None:
    for phase in ("items", "answers"):
        board.note_phase_begun(phase)
    for _ in range(10):
        clock.now += 1
        come(board, "items", 1)
        come(board, "answers", 30)
    assert board.remaining_s("answers") == board.remaining_s("items") == pytest.approx(90)


def test_what_cannot_come_any_more_is_not_waited_for(board: Board, clock: Clock) -> None:
    board.note_phase_begun("answers")
    for _ in range(10):
        clock.now += 1
        come(board, "answers", 10)
    assert board.remaining_s("answers") == pytest.approx(50)
    board.phases["answers"].gaps[ModelStopped.kind] += 1
    board.count_cut_off("answers", 399)
    assert board.remaining_s("answers") == pytest.approx(10)
    assert phase_figures(board, board.phases["answers"]).not_requested == "400"


def test_records_and_calls_are_both_told_by_name(board: Board, clock: Clock) -> None:
    board.note_phase_begun("items")
    clock.now += 2
    come(board, "items", 50)
    board.count_outcome("items", 3, None, "timeout")
    assert phase_sentence(board, board.phases["items"]) == (
        "items: 70/120 records, 53/100 calls, 1 failed, 0 tokens, 26 calls/s, ETA 0:02"
    )
    assert phase_sentence(board, board.phases["answers"]) == (
        "answers: 0/600 records, 0/600–1,800 calls, 0 failed, 0 tokens"
    )


CALL: Call[bytes] = Call(
    decode=lambda reply, redactor: reply.body,
    explain=lambda reply, redactor: None,
    timeout_s=5.0,
    priority=0,
    permit=lambda: None,
)


class Seconds:
    """A clock that moves by what is slept, and stands still at its ``end``."""

    def __init__(self, end: float) -> None:
        self.now = 0.0
        self.end = end
        self.over = asyncio.Event()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if self.now + seconds > self.end:
            self.over.set()
            await never(0)
        self.now += seconds


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  what is awaited lies in other tasks
        await asyncio.sleep(0.001)


async def never(_: float) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A base URL where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


async def test_a_host_that_is_away_is_named_with_the_reason_after_a_moment_and_then_every_minute(
    nowhere: str,
) -> None:
    time = Seconds(end=TOLD_AFTER_S + AGAIN_AFTER_S + 10)
    reported, http = list[tuple[float, str]](), Http(sleep=never, clock=time.clock)
    endpoint = Endpoint(nowhere, None, Limiter())
    asking = [asyncio.create_task(http.post(endpoint, "/chat/completions", b"{}", CALL)) for _ in range(2)]
    await until(lambda: endpoint.outage is not None)
    async with report_host_problems(
        http, lambda line: reported.append((time.now, line)), clock=time.clock, sleep=time.sleep
    ):
        await time.over.wait()
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await http.aclose()
    assert [moment for moment, _ in reported] == [TOLD_AFTER_S, TOLD_AFTER_S + AGAIN_AFTER_S]
    host = nowhere.removeprefix("http://")
    assert reported[0][1] == (
        f"only failures for 3 s, trying again for 297 s more: POST {host}/chat/completions: "
        "no connection (Connection refused)"
    )
    assert http.describe_outages() == {}  # nobody waits any more


async def test_a_host_that_is_slow_to_fail_is_in_trouble_while_it_is_asked_again() -> None:
    endpoint = Endpoint("http://127.0.0.1:9/v1", None, Limiter())
    endpoint.record_retry("answered 504", 8.0)
    seen = [endpoint.outage]  # nobody waits
    await endpoint.limiter.acquire(0, is_retry=True)  # on the wire again, and nobody naps
    endpoint.record_retry("answered 503", 16.0)
    seen.append(endpoint.outage)
    endpoint.record_success(17.0)
    seen.append(endpoint.outage)
    assert seen == [None, (8.0, "answered 503"), None]


async def test_nothing_is_said_while_nothing_waits() -> None:
    time, reported, http = Seconds(end=200), list[str](), Http()
    async with report_host_problems(http, reported.append, clock=time.clock, sleep=time.sleep):
        await time.over.wait()
    assert reported == []


async def test_an_interruption_ends_a_wait() -> None:
    interrupt = asyncio.Event()
    waiting = asyncio.create_task(await_unless_interrupted(never(0), interrupt, "stopped before it began"))
    await asyncio.sleep(0)
    interrupt.set()
    with pytest.raises(Draining, match="stopped before it began"):
        await waiting


async def test_what_ends_by_itself_is_given_as_it_is() -> None:
    async def fails() -> None:
        raise ValueError("its own error")

    assert await await_unless_interrupted(asyncio.sleep(0, "done"), asyncio.Event(), "") == "done"
    with pytest.raises(ValueError, match="its own error"):
        await await_unless_interrupted(fails(), asyncio.Event(), "")


async def test_a_host_that_hangs_is_named_while_it_hangs() -> None:
    """One that takes requests and answers none: the time-out that ends them may be ten minutes away."""
    time = Seconds(end=SILENT_AFTER_S + AGAIN_AFTER_S + 10)
    reported, http = list[tuple[float, str]](), Http(sleep=never, clock=time.clock)
    taken = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        taken.set()
        await reader.read()  # until whoever asks has gone
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    endpoint = Endpoint(f"http://{host}/v1", None, Limiter())
    asking = asyncio.create_task(http.post(endpoint, "/chat/completions", b"{}", CALL))
    await taken.wait()
    async with report_host_problems(
        http, lambda line: reported.append((time.now, line)), clock=time.clock, sleep=time.sleep
    ):
        await time.over.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await http.aclose()
    server.close()
    await server.wait_closed()
    assert [moment for moment, _ in reported] == [SILENT_AFTER_S, SILENT_AFTER_S + AGAIN_AFTER_S]
    assert reported[0][1] == (
        f"http://{host}/v1 has not answered for 30 s; 1 request waiting there, "
        "each given up after 5 s (parameters.timeout_s)"
    )
