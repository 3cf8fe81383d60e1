"""What a display is told of a running flow: totals that stand from the start, and an honest time left."""

from __future__ import annotations

import pytest

from coeval.core.errors import ModelStopped
from coeval.engine.progress import Board, Calls, figures, sentence


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
        board.ended(phase, 1, None, None)


def test_the_first_answers_come_together_and_are_no_pace(board: Board, clock: Clock) -> None:
    """Sixteen requests of ten seconds end at one moment: the pace is theirs since they were asked."""
    board.begun("items")
    clock.now += 10
    come(board, "items", 16)
    assert board.remaining_s("items") == pytest.approx((100 - 16) * 10 / 16)
    assert board.phases["items"].calls_per_s == pytest.approx(1.6)


def test_no_time_is_told_from_next_to_nothing(board: Board, clock: Clock) -> None:
    board.begun("items")
    clock.now += 10
    come(board, "items", 2)
    assert board.remaining_s("items") is None
    assert board.remaining_s("answers") is None


def test_the_pace_is_that_of_the_last_minute(board: Board, clock: Clock) -> None:
    board.begun("answers")
    for _ in range(100):
        clock.now += 10  # slow at first
        come(board, "answers", 1)
    for _ in range(61):
        clock.now += 1  # then five a second
        come(board, "answers", 5)
    assert board.remaining_s("answers") == pytest.approx((600 - 405) / 5, rel=0.05)


def test_while_nothing_comes_the_time_left_grows(board: Board, clock: Clock) -> None:
    board.begun("answers")
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
        board.begun(phase)
    for _ in range(10):
        clock.now += 1
        come(board, "items", 1)
        come(board, "answers", 30)
    assert board.remaining_s("answers") == board.remaining_s("items") == pytest.approx(90)


def test_what_cannot_come_any_more_is_not_waited_for(board: Board, clock: Clock) -> None:
    board.begun("answers")
    for _ in range(10):
        clock.now += 1
        come(board, "answers", 10)
    assert board.remaining_s("answers") == pytest.approx(50)
    board.left("answers", ModelStopped("no key"))
    board.cut_off("answers", 399)
    assert board.remaining_s("answers") == pytest.approx(10)
    assert figures(board, board.phases["answers"]).not_asked == "400"


def test_records_and_calls_are_both_told_by_name(board: Board, clock: Clock) -> None:
    board.begun("items")
    clock.now += 2
    come(board, "items", 50)
    board.ended("items", 3, None, "timeout")
    assert sentence(board, board.phases["items"]) == (
        "items: 70/120 records, 53/100 calls, 1 failed, 0 tokens, 26 calls/s, ETA 0:02"
    )
    assert sentence(board, board.phases["answers"]) == (
        "answers: 0/600 records, 0/600–1,800 calls, 0 failed, 0 tokens"
    )
