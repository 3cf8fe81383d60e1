"""The state of a folder that ``eval-framework`` filled, by task."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console

from coeval.analysis.readers.output_reader import OutputReader
from coeval.cli.streams import say
from coeval.cli.views.folder_status import (
    FolderStatus,
    PhaseStatus,
    StateShown,
    budget_of,
    jobs_shown,
    last_errors,
    show_costs,
    show_errors,
    show_jobs,
    spend_of,
)
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.errors import StoreError
from coeval.store.jsonl import read_json
from coeval.store.output_folder import SUMMARY, output_tasks, sample_of
from coeval.store.rundir import RunDir

# --- Records planned and missing in an output folder, by task

_COUNT = """
SELECT task, sample, count(*) FILTER (NOT failed), count(*) FILTER (failed) FROM {} GROUP BY task, sample
"""


class _TaskSummed(msgspec.Struct, frozen=True):
    """What is read of a ``summary.json``. ``missing`` counts records without a value, of both kinds."""

    task: str = ""
    n_expected: int = 0
    counted: str = ""
    missing: dict[str, int] = {}
    complete: bool = False


def output_phases(path: Path) -> dict[str, PhaseStatus]:
    """Each task's answers, and its judgments where there are any. What is planned is known once the task has
    been summed up: of answers where prompts are counted, of judgments where nothing is missing."""
    tasks = {}
    for folder in output_tasks(path):
        summary = _summary(folder / SUMMARY)
        tasks[summary.task or folder.name, sample_of(folder)] = summary
    several = len({sample for _, sample in tasks}) > 1
    phases: dict[str, PhaseStatus] = {}
    with OutputReader(path) as reader:
        counted = {
            view: {(task, sample): counts for task, sample, *counts in reader.rows(_COUNT.format(view))}
            for view in ("answers", "judgments")
        }
    for place, summary in tasks.items():
        label = f"run_{place[1]} {place[0]}" if several else place[0]
        good, failed = counted["answers"].get(place, (0, 0))
        planned = summary.n_expected if summary.counted == "prompts" and summary.n_expected else None
        if summary.complete:
            planned = good
        phases[label] = PhaseStatus(planned, good, failed, None if planned is None else planned - good)
        if place in counted["judgments"]:
            good, failed = counted["judgments"][place]
            planned = good if summary.complete else None
            phases[f"{label} judging"] = PhaseStatus(planned, good, failed, 0 if summary.complete else None)
    return phases


def output_status(path: Path) -> str:
    """Of a folder that nobody is at work in: "completed" where nothing of its tasks is owed, "incomplete"
    where asking has ended and records are missing, else "stopped"."""
    summaries = [_summary(folder / SUMMARY) for folder in output_tasks(path)]
    if not summaries or any(not summary.task for summary in summaries):
        return "stopped"
    return "completed" if all(summary.complete for summary in summaries) else "incomplete"


def output_writer(path: Path) -> int | None:
    """The process that is at work in one of the tasks' folders."""
    writers = (RunDir(folder).writer() for folder in output_tasks(path))
    return next((writer for writer in writers if writer is not None), None)


def _summary(file: Path) -> _TaskSummed:
    try:
        return read_json(file, _TaskSummed)
    except (FileNotFoundError, StoreError):
        return _TaskSummed()  # it is written when asking has ended; a damaged one the reader tells of


class OutputPlace:
    """A folder that ``eval-framework`` filled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._usage, self._errors = path / "usage.json", path / "run_errors.jsonl"
        self._pending = path / "pending_batches.json"

    def writer(self) -> int | None:
        return output_writer(self._path)

    def status(self) -> FolderStatus:
        pid = self.writer()
        return FolderStatus(
            output_phases(self._path),
            spend_of(self._usage, at_work=pid is not None),
            jobs_shown(self._pending),
            last_errors(self._errors),
            None,
            StateShown(output_status(self._path) if pid is None else "running", pid),
            budget_of(self._usage, None, at_work=pid is not None),
        )

    def show(self, console: Console) -> None:
        writer = self.writer()
        at_work = "nobody is at work there" if writer is None else f"running (process {writer})"
        say(console, f"{self._path}: results of eval-framework; {at_work}", "bold")
        rows = [
            NameRow(name, [_figure(figure) for figure in (of.planned, of.good, of.failed, of.owed)])
            for name, of in output_phases(self._path).items()
        ]
        columns = [Column(heading) for heading in ("planned", "good", "failed", "owed")]
        print_table(console, "", "task", columns, rows)
        show_costs(self._usage, console, at_work=writer is not None)
        show_jobs(self._pending, console, "the same eval-framework command" if writer is None else "")
        show_errors(self._errors, console)


def _figure(figure: int | None) -> str:
    return "" if figure is None else f"{figure:,}"
