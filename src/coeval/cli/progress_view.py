"""The run as it goes: bars on a terminal, plain lines elsewhere. Drawn at a fixed rate, off the hot path."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coeval.cli.say import say
from coeval.engine.progress import Board, PhaseCount

FRAMES_PER_S = 5
LINE_INTERVAL_S = 5.0


class Terminal:
    """A `Watcher` that shows the board on a console while it is entered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._board: Board | None = None
        self._live: Live | None = None
        self._ended = threading.Event()
        self._lines: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
        if self._lines is not None:
            self._lines.join()
            self._print_lines()

    def note(self, message: str) -> None:
        say(self._console, message, "dim")

    def begin(self, board: Board) -> None:
        self._board = board
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, refresh_per_second=FRAMES_PER_S, get_renderable=self._bars
            )
            self._live.start()
        else:
            self._lines = threading.Thread(target=self._keep_printing, name="progress", daemon=True)
            self._lines.start()

    def _counts(self) -> list[PhaseCount]:
        board = self._board
        return [count for count in board.phases.values() if count.owed or count.recorded] if board else []

    def _bars(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for justify in ("left", "left", "right", "right", "right", "right", "right"):
            table.add_column(justify=justify, no_wrap=True)
        for count in self._counts():
            bar = ProgressBar(total=max(count.owed, 1), completed=count.ended or (not count.owed), width=16)
            table.add_row(count.name, bar, *self._figures(count))
        return table

    def _figures(self, count: PhaseCount) -> list[str]:
        left_out = count.gaps.total()
        tokens = count.input_tokens + count.output_tokens
        rate = count.calls_per_s
        remaining = count.remaining_s(self._board.clock()) if self._board else None
        return [
            f"{count.done:,}/{count.owed:,}",
            f"{count.failed.total():,} failed" + (f", {left_out:,} not asked" if left_out else ""),
            f"{rate:,.0f}/s" if rate else "",
            f"{_short(tokens)} tok",
            f"ETA {_clock(remaining)}" if remaining is not None else "",
        ]

    def _keep_printing(self) -> None:
        while not self._ended.wait(LINE_INTERVAL_S):
            self._print_lines()

    def _print_lines(self) -> None:
        for count in self._counts():
            figures = ", ".join(figure for figure in self._figures(count) if figure)
            self._console.print(Text(f"{count.name}: {figures}"), soft_wrap=True)


def _short(number: int) -> str:
    """1,234 → 1.2k; three significant digits are enough to watch."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return str(number)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
