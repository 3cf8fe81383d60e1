"""One pace for all processes, in virtual time: each throttle here stands for a process of its own."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import random
from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.models.pacing.limits import EndpointLimits, Limiter
from coeval.models.pacing.throttle import BURST_S, Throttle, read_throttle
from perf.virtual import in_virtual_time, now

HOST = "https://api.example.com/v1"


def wall() -> float:
    return 1_800_000_000 + now()


class Process:
    """One that asks a host; ``sent`` are its moments."""

    def __init__(self, path: Path, interval_s: float = 0.005, seed: int = 0) -> None:
        rng = random.Random(seed)
        self.throttle = Throttle(interval_s, path, clock=now, wall=wall, rng=rng)
        self.limiter = self.endpoint()
        self.sent: list[float] = []

    def endpoint(self) -> Limiter:
        return Limiter(EndpointLimits(64, 64), turn=self.throttle.open_turn(HOST), clock=now)

    async def ask(self, answer_s: float = 0.03, limiter: Limiter | None = None) -> None:
        limiter = limiter or self.limiter
        await limiter.acquire(0)
        self.sent.append(now())
        try:
            await asyncio.sleep(answer_s)
        finally:
            limiter.release()

    async def ask_all(self, requests: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(requests):
                group.create_task(self.ask())


def assert_paced(sent: list[float], interval_s: float) -> None:
    """In no stretch of time are there more than the pace has, and a burst."""
    sent = sorted(sent)
    for first, last in itertools.combinations(range(0, len(sent), 7), 2):
        allowed = (sent[last] - sent[first] + BURST_S) / interval_s + 1
        assert last - first <= allowed


@pytest.mark.process
@pytest.mark.parametrize(("interval_s", "seconds"), [(0.0005, 1), (0.005, 5), (0.02, 10), (0.3, 60)])
def test_processes_with_one_file_have_one_pace_and_equal_shares(
    tmp_path: Path, interval_s: float, seconds: float
) -> None:
    async def work() -> list[Process]:
        processes = [Process(tmp_path / "state", interval_s, seed) for seed in range(5)]
        asking = asyncio.gather(*(process.ask_all(int(seconds / interval_s)) for process in processes))
        await asyncio.wait({asking}, timeout=seconds)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return processes

    processes = in_virtual_time(work())
    shares = [len(process.sent) for process in processes]
    assert_paced([moment for process in processes for moment in process.sent], interval_s)
    assert sum(shares) >= 0.98 * seconds / interval_s
    assert max(shares) - min(shares) <= 0.1 * max(shares) + 1, shares


def test_one_process_alone_has_the_whole_pace_and_idle_time_is_no_credit(tmp_path: Path) -> None:
    async def work() -> Process:
        process = Process(tmp_path / "state")
        await process.ask_all(400)
        await asyncio.sleep(60)
        await process.ask_all(400)
        return process

    sent = sorted(in_virtual_time(work()).sent)
    assert_paced(sent, 0.005)
    assert sent[399] == pytest.approx(400 * 0.005, abs=0.12)
    assert sent[-1] - sent[400] == pytest.approx(400 * 0.005, abs=0.12)


@pytest.mark.process
def test_a_process_with_little_to_ask_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async def work() -> tuple[int, float]:
        path = tmp_path / "state"
        busy, others = Process(path), [Process(path, seed=seed) for seed in range(1, 5)]
        asking = asyncio.create_task(busy.ask_all(4_000))

        async def one_after_the_other(process: Process) -> None:
            for _ in range(40):
                await process.ask(answer_s=0.2)

        await asyncio.gather(*map(one_after_the_other, others))
        taken, ended = len(busy.sent), now()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return taken, ended

    taken, ended = in_virtual_time(work())
    assert taken + 160 >= 0.95 * ended / 0.005
    assert ended < 40 * 0.3, "their turn comes soon"


def test_endpoints_of_one_process_take_turns(tmp_path: Path) -> None:
    async def work() -> list[int]:
        process = Process(tmp_path / "state")
        counts = [0, 0]

        async def ask(which: int, limiter: Limiter) -> None:
            await process.ask(limiter=limiter)
            counts[which] += 1

        limiters = [process.endpoint(), process.endpoint()]
        asking = [asyncio.create_task(ask(n % 2, limiters[n % 2])) for n in range(2_000)]
        await asyncio.sleep(5)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        return counts

    counts = in_virtual_time(work())
    assert min(counts) > 0.45 * sum(counts) > 400


def sent_within(path: Path, seconds: float, *, each_time: bytes | None = None) -> Process:
    """What one process sends in so many seconds; ``each_time``: somebody writes that, all the time."""

    async def overwrite(content: bytes) -> None:
        while True:
            path.write_bytes(content)  # noqa: ASYNC240  it is what it meets
            await asyncio.sleep(0.005)

    async def work() -> Process:
        process = Process(path)
        tasks = [asyncio.create_task(process.ask_all(int(300 * seconds)))]
        if each_time is not None:
            tasks.append(asyncio.create_task(overwrite(each_time)))
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return process

    return in_virtual_time(work())


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 18, b"18000000", b"-1e400", b"nan", b"inf", b"9" * 60, b"1e300\n", "ſ¾".encode(), b"4e9"],
    ids=["empty", "zeros", "torn", "infinite", "nan", "inf", "huge", "exponent", "no-number", "far-ahead"],
)  # fmt: skip
def test_a_file_that_holds_no_time_of_ours_is_mended(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    process = sent_within(path, 2)
    assert_paced(process.sent, 0.005)
    assert len(process.sent) >= 390
    assert process.throttle.problem is None
    assert float(path.read_bytes()) == pytest.approx(1_800_000_002, abs=0.2)


def test_whoever_writes_again_and_again_keeps_nobody_from_sending(tmp_path: Path) -> None:
    process = sent_within(tmp_path / "state", 2, each_time=b"9e99")
    assert len(process.sent) >= 390
    assert_paced(process.sent, 0.005)


@pytest.mark.process
def test_a_file_that_another_keeps_locked_is_given_up_until_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "state"

    async def work() -> tuple[int, Process]:
        process = Process(path)
        with path.open("wb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            asking = asyncio.create_task(process.ask_all(2_000))
            await asyncio.sleep(5)
            sent = len(process.sent)
        await asking
        return sent, process

    sent, process = in_virtual_time(work())
    assert sent == pytest.approx(3 / 0.005, rel=0.05)
    assert "another process keeps it locked" in str(process.throttle.problem)
    assert_paced(process.sent, 0.005)
    assert float(path.read_bytes()) == pytest.approx(1_800_000_012, abs=0.3)


def _link(path: Path) -> None:
    (path.parent / "theirs").write_text("theirs")
    path.symlink_to(path.parent / "theirs")


def _second_name(path: Path) -> None:
    (path.parent / "theirs").write_text("theirs")
    path.hardlink_to(path.parent / "theirs")


def _letter(path: Path) -> None:
    path.write_text("Dear all, " * 20)


def _another_users(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path.write_text("1.0")
    os.chown(path, 65534, -1)


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (_link, "symbolic link"),
        (_second_name, "it has another name, too"),
        (_letter, "it is not a throttle file"),
        (_another_users, "it is another user's"),
        (Path.mkdir, "Is a directory"),
        (os.mkfifo, "it is a pipe"),
    ],
)
def test_what_is_no_file_of_ours_is_left_alone_and_the_pace_is_kept_all_the_same(
    tmp_path: Path, put: object, why: str
) -> None:
    path = tmp_path / "state"
    put(path)  # type: ignore[operator]
    before = path.lstat()
    process = sent_within(path, 1)
    assert_paced(process.sent, 0.005)
    assert len(process.sent) >= 195
    problem = str(process.throttle.problem)
    assert why in problem
    for reported in ("0.005 s apart", str(path), "EVAL_THROTTLE_STATE_PATH", "MIN_INTERVAL_S=0"):
        assert reported in problem
    assert (path.lstat().st_size, path.lstat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert not (tmp_path / "theirs").exists() or (tmp_path / "theirs").read_text() == "theirs"


def test_a_file_that_is_deleted_meanwhile_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "state"

    async def work() -> list[float]:
        first = Process(path)
        asking = asyncio.create_task(first.ask_all(400))
        await asyncio.sleep(0.5)
        path.unlink()
        second = Process(path, seed=1)
        await asyncio.gather(asking, second.ask_all(200))
        return [*first.sent, *second.sent]

    sent = in_virtual_time(work())
    assert len(sent) == 600
    assert max(sent) >= 600 * 0.005 - 2 * BURST_S - 0.05, "but for a second burst"


def test_a_clock_that_is_set_back_or_forward_keeps_the_pace(tmp_path: Path) -> None:
    async def work() -> Process:
        shift = 0.0
        process = Process(tmp_path / "state")
        process.throttle._wall = lambda: wall() + shift
        asking = asyncio.create_task(process.ask_all(1_200))
        for shift in (-7_200.0, 0.5, 86_400.0, -0.5):  # noqa: B007
            await asyncio.sleep(1)
        await asking
        return process

    process = in_virtual_time(work())
    assert_paced(process.sent, 0.005)
    assert max(process.sent) < 6 + 2.5


@pytest.mark.parametrize("text", ["often", "-1", "nan", "inf", "1e9", "5ms", "0,01"])
def test_an_interval_that_is_none_is_named_with_the_way_out(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"MIN_INTERVAL_S .* not a number of seconds .* or unset it"
    ) as raised:
        read_throttle({"MIN_INTERVAL_S": text}, default_s=0.005)
    assert text not in str(raised.value).split()


def test_what_the_environment_asks_for(tmp_path: Path) -> None:
    own, far = "http://127.0.0.1:8000/v1", HOST
    assert read_throttle({}) is None
    assert read_throttle({"MIN_INTERVAL_S": "0"}, default_s=0.005) is None
    usual = read_throttle({"MIN_INTERVAL_S": " "}, default_s=0.005)
    assert usual is not None
    assert usual.open_turn(far) is not None
    for spared in (
        own,
        "http://gpu7:8000/v1",
        "http://10.1.2.3/v1",
        "http://judge.internal/v1",
        "http://[::1]/",
    ):
        assert usual.open_turn(spared) is None
    named = {"MIN_INTERVAL_S": "1e-9", "EVAL_THROTTLE_STATE_PATH": str(tmp_path / "state")}
    everywhere = read_throttle(named)
    assert everywhere is not None
    assert everywhere.open_turn(own) is not None
    assert everywhere is read_throttle(named), "one for all sessions of a process"
    with pytest.raises(UsageError, match=r"EVAL_THROTTLE_STATE_PATH .* unknown user"):
        read_throttle({"MIN_INTERVAL_S": "1", "EVAL_THROTTLE_STATE_PATH": "~nobody-of-this-name/state"})
