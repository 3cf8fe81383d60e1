"""Progress of a run: bars on a terminal, a line now and then elsewhere; open batch jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coeval.cli import streams
from coeval.cli.loop import run_async, run_interruptible
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import show_rows
from coeval.core.errors import INTERRUPTED, Draining
from coeval.core.plain import escape_line
from coeval.engine.progress import (
    HEADINGS,
    Board,
    Figures,
    PhaseCount,
    format_as_clock,
    phase_figures,
    phase_sentence,
)
from coeval.engine.session import SessionContext
from coeval.models.keys import Keys
from coeval.reports.content import Cell, make_columns

if TYPE_CHECKING:
    from coeval.models.batch.job_list import PendingJob

T = TypeVar("T")

# --- Progress bars of a run

# Figures that change faster cannot be read, and each frame costs CPU of the run.
FRAMES_PER_S = 5
# Seconds between plain lines: few at first, then more, so that the log of a long run stays readable.
FIRST_LINE_S, LAST_LINE_S = 5.0, 60.0

# A wider bar says no more; one of fewer than four cells shows no progress.
WIDEST_BAR, NARROWEST_BAR = 24, 4
# Cells that are left free at the end of the last line: a terminal writes ``^C`` there, and were it folded,
# the next drawing would begin a line too low and leave the headings of this one behind.
_CTRL_C = 2
# Cells between columns, as in all tables of the terminal.
_GAP = 2
# Figures that go where there is no room, in this order; the bar goes before any of them, and names are cut
# before others go.
_DROPPED_FIRST = ("calls_per_s", "tokens", "not_requested", "in_batches", "cost")
_DROPPED_LAST = ("failed", "calls")
# Cells: fewer do not tell phases and models apart, so columns are dropped first.
_SHORTEST_NAME = 8


class Progress:
    """Shows work on a console: a live picture on a terminal, lines now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
        if self._thread is not None:
            self._thread.join()

    def note(self, message: str) -> None:
        say(self._console, message, "dim")

    def warn(self, message: str) -> None:
        warn(self._console, message)

    def try_animate(self, draw: Callable[[], Table], frames_per_s: float, *, transient: bool = False) -> bool:
        """Keep drawing on a terminal; return False elsewhere."""
        if not self._console.file.isatty() or self._console.is_dumb_terminal:
            return False
        self._live = Live(
            console=self._console,
            refresh_per_second=frames_per_s,
            get_renderable=draw,
            redirect_stdout=False,  # results are none of the progress
            transient=transient,
        )
        self._live.start()
        return True

    def start_thread(self, target: Callable[[], None]) -> None:
        """Run ``target`` in a thread; it ends once ``_ended`` is set."""
        self._thread = threading.Thread(target=target, name="progress", daemon=True)
        self._thread.start()


class Terminal(Progress):
    """A `Watcher` that shows the board on a console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._board: Board | None = None
        self._printed: dict[str, str] = {}

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._thread is not None:
            self._print_changed_lines()

    def begin(self, board: Board) -> None:
        self._board = board
        if not self.try_animate(self._draw_all_bars, FRAMES_PER_S):
            self.start_thread(self._keep_printing_changed_lines)

    def _planned_phase_counts(self) -> list[PhaseCount]:
        return [count for count in self._board.phases.values() if count.planned] if self._board else []

    def _draw_all_bars(self) -> Table:
        board, counts = self._board, self._planned_phase_counts()
        figures = [phase_figures(board, count) for count in counts] if board is not None else []
        size = self._console.size
        return draw_bars(counts, figures, max(1, size.width - _CTRL_C), size.height)

    def _keep_printing_changed_lines(self) -> None:
        wait = FIRST_LINE_S
        while not self._ended.wait(wait):
            self._print_changed_lines()
            wait = min(LAST_LINE_S, wait * 1.5)

    def _print_changed_lines(self) -> None:
        board = self._board
        if board is None:
            return
        elapsed = format_as_clock(board.clock() - board.started)
        for count in self._planned_phase_counts():
            line = phase_sentence(board, count)
            if self._printed.get(count.name) != line:
                self._printed[count.name] = line
                say(self._console, f"{elapsed}  {line}")


def draw_bars(counts: Sequence[PhaseCount], figures: Sequence[Figures], width: int, height: int) -> Table:
    """Draw a heading and a row for each phase, within ``width`` cells and ``height`` lines. No figure is cut:
    the bar shrinks first, then less important figures go, then names are cut."""
    rows = list(zip(counts, figures, strict=True))
    if len(rows) >= height:
        rows = [row for row in rows if row[0].ended < row[0].owed][: height - 2]
    more = f"… {len(counts) - len(rows)} more" if len(rows) < len(counts) else ""
    longest = max(map(cell_len, [more, *(escape_line(count.name) for count, _ in rows)]))
    columns = _figure_widths([row for _, row in rows])
    before = len(columns)
    for needed, spared in ((longest, _DROPPED_FIRST), (min(longest, _SHORTEST_NAME), _DROPPED_LAST)):
        for field in spared:
            if _used_width(columns) + needed > width:
                columns.pop(field, None)
    room = width - _used_width(columns)
    bar = min(WIDEST_BAR, room - longest - _GAP)
    drawn = bar >= NARROWEST_BAR and len(columns) == before
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    table.add_column(width=max(1, min(longest, room)), no_wrap=True)
    if drawn:
        table.add_column(width=bar)
    for cell_width in columns.values():
        table.add_column(width=cell_width, justify="right", no_wrap=True)
    table.add_row("", *[""] * drawn, *(Text(getattr(HEADINGS, field), style="dim") for field in columns))
    for count, row in rows:
        done = count.recorded + count.ended
        drawing = [ProgressBar(total=max(count.planned, 1), completed=done, width=bar)] * drawn
        table.add_row(
            Text(escape_line(count.name)), *drawing, *(Text(getattr(row, field)) for field in columns)
        )
    if more:
        table.add_row(Text(more, style="dim"))
    return table


def _figure_widths(rows: Sequence[Figures]) -> dict[str, int]:
    """Return the figures to be shown, with the cells that each takes."""
    columns = {}
    for position, field in enumerate(Figures._fields):
        cells = [row[position] for row in rows]
        if any(cells):
            columns[field] = max(map(cell_len, [HEADINGS[position], *cells]))
    return columns


def _used_width(columns: Mapping[str, int]) -> int:
    return sum(wide + _GAP for wide in columns.values())


# Digits of the tag of a job that has no id yet: enough to tell it from others.
_TAG = 8


def print_open_batches(jobs: Sequence[PendingJob], console: Console) -> None:
    show_batch_jobs(jobs, console)
    submitted = [job for job in jobs if job.state == "submitted"]
    if submitted:
        say(console, "They continue at their providers; the command below collects the results.")
    if len(submitted) < len(jobs):
        say(console, "A job without an id may have been submitted: the command below looks for it.")


def show_batch_jobs(jobs: Sequence[PendingJob], console: Console) -> None:
    columns = (
        *make_columns("batch", "model", "phase"),
        *make_columns("requests", "done", "age", "checked", kind="count"),
        *make_columns("state"),
    )
    show_rows(console, "Batch jobs", columns, map(_job_cells, jobs))


def _job_cells(job: PendingJob) -> tuple[Cell, ...]:
    done = "" if job.done is None else job.done + (job.failed or 0)
    age, checked = (
        "never" if at is None else format_as_clock(max(0.0, time.time() - at))
        for at in (job.written_at, job.checked_at)
    )
    checked = checked if job.checked_at is None else f"{checked} ago"
    name = job.id or f"{job.tag[:_TAG]}…"
    state = job.shown or ("being submitted" if job.state == "written" else job.state)
    state = f"{state}; {job.note}" if job.note else state
    return name, job.name, ", ".join(job.phases), job.requests, done, age, checked, state


def show_progress_while(keys: Keys, work: Callable[[SessionContext], Coroutine[Any, Any, T]]) -> T:
    """Run work that calls models and show its progress. Ctrl-C before it begins ends it."""
    messages = streams.messages()
    try:
        with streams.send_user_output_to_stderr(), Terminal(messages) as terminal:
            return run_async(
                run_interruptible(lambda event: work(SessionContext(keys, terminal, event)), terminal.note)
            )
    except Draining as stopped:
        say(messages, str(stopped))
        raise typer.Exit(INTERRUPTED) from None
