"""Runs `coeval sweep` and prints it: a live table of slots and judging on a terminal, plain lines elsewhere,
then the outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coeval.cli import streams
from coeval.cli.commands.sweep.sweep_tables import aggregate_draw_and_print
from coeval.cli.loop import run_async, run_interruptible
from coeval.cli.streams import say, warn, warn_in_lines
from coeval.cli.views.progress_view import Progress, Terminal
from coeval.cli.views.table_view import show_rows
from coeval.core.errors import UsageError
from coeval.core.figures import dollars
from coeval.core.plain import escape_line
from coeval.core.text import join_names, pluralize
from coeval.engine.progress import abbreviate, format_as_clock
from coeval.exchange.trackers import log_after_command, parse_destinations
from coeval.models.keys import load_keys
from coeval.pipeline.config.settings_file import read_settings_file
from coeval.pipeline.plan.estimate.run_estimate import format_calls, format_tokens, format_usd_range
from coeval.pricing.tariff import join_price_sources
from coeval.reports.content import ReportColumn, make_columns
from coeval.store.rundir import RunDir
from coeval.sweeps.job_table import JobTable, TaskStatus
from coeval.sweeps.judging_run import ConcludeProgress
from coeval.sweeps.scheduler import SweepBoard, WorkerShown
from coeval.sweeps.sweep import WORKERS, JobPlan, Sweep, sweep_folder
from coeval.sweeps.sweep_choice import explain_absent_program, make_sweep_request
from coeval.sweeps.sweep_settings import SweepSettings
from coeval.sweeps.sweep_start import (
    SweepEstimate,
    describe_changes,
    estimate_sweep,
    open_sweep,
    require_checkpoints,
    should_draw_results,
)
from coeval.sweeps.worker_files import WorkerProgress, read_progress

# Progress files change about once a second.
FRAMES_PER_S = 2
# As often as a frame is drawn.
POLL_S = 0.5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
"""Seconds between plain lines: few at first, then more."""
# Cells left free at the end of a line, where a terminal writes ``^C``.
_CTRL_C = 2
# With a row for each slot, the table stays on a screen of 24 lines.
_MOST_JUDGING = 6
# Cells of each; the task takes what is left.
_COLUMNS = {"slot": 6, "checkpoint": 12, "task": 12, "done": 15, "tokens/s": 8, "left": 8}


class SweepView(Progress):
    """Shows a board on a console while entered, and prints problems as they occur."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._board = SweepBoard(())
        self._problems_printed = 0
        self._restarts: dict[str, str] = {}
        self._last_line = ""

    def __enter__(self) -> Self:
        self.try_animate(self._table, FRAMES_PER_S, transient=True)  # what came of it is told after it
        self.start_thread(self._keep_printing_problems_and_status)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._print_new_problems()

    def begin(self, board: SweepBoard) -> None:
        self._board = board

    def _keep_printing_problems_and_status(self) -> None:
        """Print problems as they occur, and status lines where there is no live table."""
        wait = FIRST_PAUSE_S
        due = time.monotonic() + wait
        while not self._ended.wait(POLL_S):
            self._print_new_problems()
            if self._live is None and time.monotonic() >= due:
                self._print_new_status_line()
                wait = min(LONGEST_PAUSE_S, wait * 1.5)
                due = time.monotonic() + wait

    def _print_new_problems(self) -> None:
        problems = self._board.problems[self._problems_printed :]
        self._problems_printed += len(problems)
        for problem in problems:
            if not problem.given_up:  # those are told at the end
                warn_in_lines(self._console, f"{problem.what} is retried: {problem.why}")
        for _, name, progress in self._board.list_slots():
            why = "" if progress is None else progress.restarted
            if name is not None and why and self._restarts.get(name) != why:
                self._restarts[name] = why
                warn_in_lines(self._console, f"{name}: its server ended and is being restarted: {why}")

    def _print_new_status_line(self) -> None:
        busy = [slot for slot in self._board.list_slots() if slot.worker is not None]
        parts = [self._board.describe_counts(), *map(_worker_status_line, busy)]
        if names := [name for name, _ in self._board.list_judging()]:
            more = f" and {len(names) - 2} more" if len(names) > 2 else ""
            parts.append(f"judging {', '.join(names[:2])}{more}")
        line = "; ".join(parts)
        if line != self._last_line:
            self._last_line = line
            say(self._console, f"{format_as_clock(time.monotonic() - self._board.began)}  {line}")

    def _table(self) -> Table:
        return make_slot_table(self._board, self._console.size.width - _CTRL_C, self._console.size.height)


def make_slot_table(board: SweepBoard, width: int, height: int) -> Table:
    """Make the live table: slots with their work, judging, and a line of counts, within ``width`` ×
    ``height`` cells."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    spare = max(0, width - sum(_COLUMNS.values()) - 2 * len(_COLUMNS))
    for name, cells in _COLUMNS.items():
        is_number = name in ("done", "tokens/s", "left")
        table.add_column(
            width=cells + (spare if name == "task" else 0),
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    table.add_row(*(Text(name, style="dim") for name in _COLUMNS))
    judging = list(board.list_judging())[:_MOST_JUDGING]
    slots = list(board.list_slots())
    room = max(1, height - len(judging) - 4)
    if len(slots) > room:
        slots.sort(key=lambda slot: slot.worker is None)
    for slot in slots[:room]:
        table.add_row(*map(Text, _slot_cells(slot)))
    for name, progress in judging:
        step, _, task = name.partition(" ")
        table.add_row("judge", Text(step), Text(escape_line(task)), Text(_format_done(progress)))
    table.add_row()
    more = f", {len(slots) - room:,} more slots" if len(slots) > room else ""
    elapsed = format_as_clock(time.monotonic() - board.began)
    outer = Table.grid()
    outer.add_row(table)
    outer.add_row(Text(f"{elapsed}  {board.describe_counts()}{more}", overflow="ellipsis", no_wrap=True))
    return outer


class _SlotCells(NamedTuple):
    slot: str
    checkpoint: str
    task: str = ""
    done: str = ""
    pace: str = ""
    left: str = ""


def _slot_cells(slot_state: WorkerShown) -> _SlotCells:
    slot = ",".join(slot_state.slot.gpus) or str(slot_state.slot.number)
    worker, progress = slot_state.worker, slot_state.progress
    if worker is None:
        return _SlotCells(slot, "free")
    if progress is None:
        return _SlotCells(slot, worker, "begins")
    pace = "" if progress.output_tokens_per_s is None else abbreviate(round(progress.output_tokens_per_s))
    left = "" if progress.remaining_s is None else format_as_clock(progress.remaining_s)
    return _SlotCells(slot, worker, _task_or_activity(progress), _format_done(progress), pace, left)


def _task_or_activity(progress: WorkerProgress) -> str:
    if progress.state == "asking":
        return next(
            (escape_line(task) for task, (done, planned) in progress.tasks.items() if done < planned), ""
        )
    words = {"reading": "reads", "starting": "server starts", "restarting": "server starts again"}
    return words.get(progress.state, "ends")


def _format_done(progress: WorkerProgress | ConcludeProgress | None) -> str:
    return "" if progress is None or not progress.planned else f"{progress.done:,}/{progress.planned:,}"


def _worker_status_line(slot: WorkerShown) -> str:
    cells = _slot_cells(slot)
    pace = f"{cells.pace} tokens/s" if cells.pace else ""
    return " ".join(filter(None, (cells.checkpoint, cells.task, cells.done, pace)))


# --- `coeval sweep --status`

# Two screens; what is not complete comes first.
_MOST_ROWS = 60
# A worker writes its progress every second; one that is silent for so long is gone or stuck.
_RECENT_S = 15.0


def print_sweep_status(settings: SweepSettings) -> None:
    """Print checkpoints, tasks and running workers of a sweep. Raises UsageError: there is none."""
    console = streams.results()
    if settings.out is None:
        raise UsageError("--out is missing: name the sweep's folder")
    out = Path(settings.out)
    own = sweep_folder(out)
    try:
        plan = JobPlan.read(own)
    except FileNotFoundError:
        raise UsageError(f"{out} holds no sweep; start one with coeval sweep") from None
    table = JobTable(out, plan)
    complete_checkpoints = _print_table_and_count_complete(table, console)
    say(console, f"{complete_checkpoints:,} of {pluralize(len(plan.checkpoints), 'checkpoint')} complete")
    writer = RunDir(own).writer_pid()
    state = "no sweep is running" if writer is None else f"process {writer} is running it"
    say(console, state, "dim")
    for line in _describe_unfinished_workers(own / WORKERS):
        say(console, line)


def _print_table_and_count_complete(table: JobTable, console: Console) -> int:
    """Print checkpoints by task with their problems; return how many checkpoints are complete."""
    plan = table.plan
    rows: list[tuple[str, ...]] = []
    problems: dict[str, str] = {}
    complete_checkpoints = missing = 0
    for checkpoint in plan.checkpoints:
        statuses = [table.summarise_task(checkpoint, task) for task in plan.tasks]
        complete = all(task_status.concluded == task_status.samples for task_status in statuses)
        complete_checkpoints += complete
        missing += sum(task_status.missing for task_status in statuses)
        for task, task_status in zip(plan.tasks, statuses, strict=True):
            if task_status.problem:
                problems[f"{checkpoint.name} {task.label}"] = task_status.problem
        if not complete or len(plan.checkpoints) <= _MOST_ROWS:
            rows.append((str(checkpoint.step), *map(_format_sample_counts, statuses)))
    title = "Scored samples of each checkpoint and task (+ answered, not scored yet; ! failed)"
    tasks = (ReportColumn(task.label, task.label, "count", "", task.label) for task in plan.tasks)
    show_rows(console, title, (*make_columns("step"), *tasks), rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        say(console, f"… {len(rows) - _MOST_ROWS:,} more that are not complete", "dim")
    if missing:
        say(console, f"scored samples lack {pluralize(missing, 'record')}")
    for what, why in problems.items():
        warn_in_lines(console, f"{what} failed: {why}")
    return complete_checkpoints


def _format_sample_counts(status: TaskStatus) -> str:
    """Return ``1 of 2 +1``: one sample is scored, another one answered."""
    waiting = status.answered - status.concluded
    more = f" +{waiting}" if waiting > 0 else ""
    return f"{status.concluded} of {status.samples}{more}" + (f" !{status.failed}" if status.failed else "")


def _describe_unfinished_workers(workers: Path) -> Iterator[str]:
    """Yield a line for each running worker, and for each that was stopped with answers on disk."""
    for folder in sorted(workers.glob("*/")):
        progress = read_progress(folder)
        if progress is None or (progress.planned and progress.done >= progress.planned):
            continue
        if progress.state != "ended" and time.time() - progress.at < _RECENT_S:
            again = f"(its server was restarted: {progress.restarted})" if progress.restarted else ""
            parts = folder.name, _task_or_activity(progress), _format_done(progress), again
            yield " ".join(filter(None, parts))
        elif progress.done:
            yield f"{folder.name} was left at {_format_done(progress)} answers"


# --- Outcome of a sweep


def print_sweep_outcome(board: SweepBoard, sweep: Sweep, results: Console, messages: Console) -> int:
    """Print the summary; return the exit code: 0 complete, 2 if no server came up, 3 with gaps or failed
    jobs, 130 interrupted."""
    whole = board.concluded - board.incomplete
    done = f"{whole:,} of {pluralize(board.jobs, 'job')} done" if board.jobs else "nothing was missing"
    if board.incomplete:
        done += f", {board.incomplete:,} with gaps"
    if board.jobs and board.jobs_before:
        done += f"; {board.jobs_before:,} were already done"
    say(results, f"{sweep.out}: {done}")
    if board.unjudged:
        say(results, f"{pluralize(board.unjudged, 'job')} answered but not judged; use --judge")
    for gap in board.gaps:
        warn_in_lines(messages, gap)
    if board.cost_usd:
        say(messages, f"judging: {dollars(board.cost_usd)}")
    if board.interrupted:
        say(messages, "Interrupted; finished work is on disk; the same command resumes.")
    return board.exit_code


# --- `coeval sweep --dry-run`

_PLAN_HEADINGS = ("jobs", "answers", "judgments", "judging", "from – to")


def print_sweep_plan(settings: SweepSettings) -> None:
    """Count jobs and price the judging; sends and writes nothing. Raises UsageError: a task cannot be
    prepared."""
    request = make_sweep_request(settings, load_keys(settings.keys))
    sweep, console, messages = request.sweep, streams.results(), streams.messages()
    with Terminal(messages) as terminal:
        checkpoints = require_checkpoints(request, terminal.warn)
        table = JobTable(sweep.out, request.plan.with_earlier_checkpoints(sweep.own_folder))
        for sentence in describe_changes(table, checkpoints):
            terminal.warn(sentence)
        estimate = estimate_sweep(request, table, checkpoints, terminal)
    if estimate.workers and (absent := explain_absent_program(request)):
        warn(messages, absent)
    steps = join_names([str(checkpoint.step) for checkpoint in checkpoints], 12)
    owed = f"{estimate.checkpoints:,} with something missing" if estimate.checkpoints else "nothing missing"
    owed += f", {pluralize(estimate.workers, 'server start')}" if estimate.workers else ""
    say(console, f"{pluralize(len(checkpoints), 'checkpoint')} (steps {steps}), {owed}")
    rows = []
    for task, row in estimate.tasks.items():
        cost = row.cost_usd
        price = ("", "") if cost is None else (dollars(cost.central), format_usd_range(cost))
        rows.append((task, row.jobs, row.answers, format_calls(row.judgments), *price))
    if rows:
        show_rows(console, "", (*make_columns("task"), *make_columns(*_PLAN_HEADINGS, kind="count")), rows)
    _print_judging_estimate(sweep, estimate, console)


def _print_judging_estimate(sweep: Sweep, estimate: SweepEstimate, console: Console) -> None:
    judge = sweep.evaluation.judge
    line = estimate.judge
    if judge is None or line is None:
        return
    taken = f"{format_tokens(line.input_tokens)} tokens in, {format_tokens(line.output_tokens)} out"
    if line.cost_usd is None:
        say(console, f"Judging by {judge.model}: {taken}; its price is not known.")
        return
    cost = f"{dollars(line.cost_usd.central)} ({format_usd_range(line.cost_usd)})"
    say(console, f"Judging by {judge.model}: {taken}, {cost}.")
    if estimate.prices:
        say(console, f"Prices: {join_price_sources(estimate.prices)}.", "dim")


# --- The command

_AT_ONCE = "Stopped at once; finished work is on disk; the same command resumes."
FIRST_KEYS = "checkpoints:, out: and tasks:"


def read_sweep_settings(flags: dict[str, Any], file: Path | None) -> SweepSettings:
    """Merge the flags over the file's settings. Raises ConfigError: the file cannot be read, or has a
    mistake."""
    read = {} if file is None else read_settings_file(file, SweepSettings, FIRST_KEYS)
    return SweepSettings(**{**read, **flags})


def sweep_and_print(settings: SweepSettings) -> int:
    """Run the sweep, print its outcome, draw and log its results; return the exit code."""
    results, messages = streams.results(), streams.messages()
    request = make_sweep_request(settings, load_keys(settings.keys))
    log_to = parse_destinations(settings.log_to)
    view = SweepView(messages)
    checkpoints = require_checkpoints(request, view.warn)
    with open_sweep(request, checkpoints, view) as sweeping:
        try:
            with view:
                run_async(run_interruptible(sweeping.run, view.note))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_AT_ONCE) from None
        code = print_sweep_outcome(sweeping.board, request.sweep, results, messages)
        if should_draw_results(request, sweeping.board):
            if settings.plot:
                gaps_code = aggregate_draw_and_print(request.sweep)
                if settings.inference and settings.judge:
                    code = max(code, gaps_code)  # else it may lack what it was to leave out
            log_after_command(request.sweep.out, log_to, view.warn)
    return code
