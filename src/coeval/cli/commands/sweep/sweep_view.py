"""A sweep as it goes: a table of slots and judging on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coeval.cli.say import say, warn_at_length
from coeval.core.plain import plain
from coeval.core.text import numbered
from coeval.engine.figures import clock, short
from coeval.sweeps.leg import LegProgress
from coeval.sweeps.schedule.sweep_board import LegShown, SweepBoard

__all__ = ["SweepView", "board_table", "doing", "done"]

FRAMES_PER_S = 2
LOOK_S = 0.5
FIRST_LINE_S, LAST_LINE_S = 5.0, 60.0
"""Seconds between plain lines: few at first, then more."""
_CTRL_C = 2
"""Cells left free at the end of a line, where a terminal writes ``^C``."""
_MOST_JUDGING = 6
_COLUMNS = {"slot": 6, "checkpoint": 12, "task": 12, "done": 15, "tokens/s": 8, "left": 8}
"""Cells of each; the task takes what is left."""


class SweepView:
    """Shows a board on a console while it is entered."""

    def __init__(self, console: Console, board: SweepBoard) -> None:
        self._console = console
        self._board = board
        self._live: Live | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="sweep", daemon=True)
        self._told = 0
        self._said = ""

    def __enter__(self) -> Self:
        if self._console.file.isatty() and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console,
                refresh_per_second=FRAMES_PER_S,
                get_renderable=self._table,
                redirect_stdout=False,
                transient=True,  # what came of it is told after it
            )
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()
        self._tell_problems()

    def note(self, message: str) -> None:
        say(self._console, message, "dim")

    def _look(self) -> None:
        """Tell problems as they come, and lines where there is no table."""
        wait = FIRST_LINE_S
        due = time.monotonic() + wait
        while not self._ended.wait(LOOK_S):
            self._tell_problems()
            if self._live is None and time.monotonic() >= due:
                self._tell_line()
                wait = min(LAST_LINE_S, wait * 1.5)
                due = time.monotonic() + wait

    def _tell_problems(self) -> None:
        problems = self._board.problems[self._told :]
        self._told += len(problems)
        for problem in problems:
            if not problem.given_up:  # those are told at the end
                warn_at_length(self._console, f"{problem.what} is tried again: {problem.why}")

    def _tell_line(self) -> None:
        line = "; ".join(
            [_counts(self._board), *map(_leg_in_words, _busy(self._board)), *_judging(self._board)]
        )
        if line != self._said:
            self._said = line
            say(self._console, f"{clock(time.monotonic() - self._board.began)}  {line}")

    def _table(self) -> Table:
        return board_table(self._board, self._console.size.width - _CTRL_C, self._console.size.height)


def board_table(board: SweepBoard, width: int, height: int) -> Table:
    """Slots with what they do, what is judged, and a line of counts, within a terminal."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    spare = max(0, width - sum(_COLUMNS.values()) - 2 * len(_COLUMNS))
    for name, cells in _COLUMNS.items():
        of_figures = name in ("done", "tokens/s", "left")
        table.add_column(
            width=cells + (spare if name == "task" else 0),
            justify="right" if of_figures else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    table.add_row(*(Text(name, style="dim") for name in _COLUMNS))
    judging = list(board.shown_judging())[:_MOST_JUDGING]
    shown = list(board.shown_legs())
    room = max(1, height - len(judging) - 4)
    if len(shown) > room:
        shown.sort(key=lambda each: each.leg is None)
    for each in shown[:room]:
        table.add_row(*map(Text, _cells(each)))
    for name, progress in judging:
        step, _, task = name.partition(" ")
        done = f"{progress.done:,}/{progress.planned:,}" if progress is not None and progress.planned else ""
        table.add_row("judge", Text(step), Text(plain(task)), Text(done))
    table.add_row()
    more = f", {len(shown) - room:,} more slots" if len(shown) > room else ""
    elapsed = clock(time.monotonic() - board.began)
    outer = Table.grid()
    outer.add_row(table)
    outer.add_row(Text(f"{elapsed}  {_counts(board)}{more}", overflow="ellipsis", no_wrap=True))
    return outer


class _SlotCells(NamedTuple):
    slot: str
    checkpoint: str
    task: str
    done: str
    pace: str
    left: str


def _cells(shown: LegShown) -> _SlotCells:
    slot = ",".join(shown.slot.gpus) or str(shown.slot.number)
    if shown.leg is None:
        return _SlotCells(slot, "free", "", "", "", "")
    progress = shown.progress
    if progress is None:
        return _SlotCells(slot, shown.leg, "begins", "", "", "")
    pace = "" if progress.output_tokens_per_s is None else short(round(progress.output_tokens_per_s))
    left = "" if progress.remaining_s is None else clock(progress.remaining_s)
    return _SlotCells(slot, shown.leg, doing(progress), done(progress), pace, left)


def doing(progress: LegProgress) -> str:
    """The task that is asked now; else what the leg does."""
    if progress.state == "asking":
        return next((plain(task) for task, (done, planned) in progress.tasks.items() if done < planned), "")
    said = {"reading": "reads", "starting": "server starts", "restarting": "server starts again"}
    return said.get(progress.state, "ends")


def done(progress: LegProgress) -> str:
    return f"{progress.done:,}/{progress.planned:,}" if progress.planned else ""


def _busy(board: SweepBoard) -> Iterator[LegShown]:
    return (shown for shown in board.shown_legs() if shown.leg is not None)


def _leg_in_words(shown: LegShown) -> str:
    cells = _cells(shown)
    pace = f"{cells.pace} tokens/s" if cells.pace else ""
    return " ".join(filter(None, (cells.checkpoint, cells.task, cells.done, pace)))


def _judging(board: SweepBoard) -> Iterator[str]:
    names = [name for name, _ in board.shown_judging()]
    if names:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        yield f"judging {', '.join(names[:2])}{more}"


def _counts(board: SweepBoard) -> str:
    parts = [f"{board.concluded:,} of {numbered(board.jobs, 'job')} done"]
    if board.failed:
        parts.append(f"{board.failed:,} failed")
    if board.waiting:
        parts.append(f"{board.waiting:,} waiting for a slot")
    return ", ".join(parts)
