"""Counts of a worker over the starts of its server: pace, what is left, what a probe must not forget."""

from __future__ import annotations

import pytest

from coeval.core.records import Usage
from coeval.engine.progress import Board, Calls
from coeval.sweeps import worker_files as worker_count
from coeval.sweeps.worker_files import WorkerCount


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_count, "time", clock)
    return clock


def answered(board: Board, count: int, tokens: int = 10) -> None:
    for _ in range(count):
        board.ended("ifeval", 1, Usage(input_tokens=3, output_tokens=tokens), None)


def a_board(owed: int) -> Board:
    board = Board(["ifeval"], {})
    board.expect("ifeval", recorded=0, owed=owed, calls=Calls(owed, owed))
    return board


def test_tokens_and_failures_are_counted_over_all_starts(clock: Clock) -> None:
    count = WorkerCount()
    first, second = a_board(100), a_board(80)
    count.begin(first)
    assert count.progress().output_tokens_per_s is None
    answered(first, 20)
    first.ended("ifeval", 1, None, "server")
    clock.now = 10.0
    assert count.progress().output_tokens_per_s == pytest.approx(20.0)
    count.begin(second)
    count.progress()
    answered(second, 30)
    clock.now = 25.0
    progress = count.progress()
    assert (progress.output_tokens, progress.failed, count.input_tokens) == (500, 1, 150)
    assert progress.output_tokens_per_s == pytest.approx(20.0)
    assert count.asked_last() == (30, {})


def test_the_pace_is_that_of_the_last_minute(clock: Clock) -> None:
    count, board = WorkerCount(), a_board(1_000)
    count.begin(board)
    for second in range(200):
        clock.now = float(second)
        answered(board, 1, tokens=100 if second < 100 else 1)
        progress = count.progress()
    assert progress.output_tokens_per_s == pytest.approx(1.0)


def test_a_message_is_one_bounded_line(clock: Clock) -> None:
    count = WorkerCount()
    count.warn("a\x1b[31m\nb" + "x" * 5_000)
    assert count.progress().message.startswith(r"a\x1b[31m\nbxxx")
    assert len(count.progress().message) < 400
