"""The state of a folder that ``eval-framework`` filled, by task."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from coeval.analysis.load import writer_of
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


class OutputPlace:
    """A folder that ``eval-framework`` filled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._usage, self._errors = path / "usage.json", path / "run_errors.jsonl"
        self._pending = path / "pending_batches.json"

    def writer(self) -> int | None:
        return writer_of(self._path)

    def status(self) -> FolderStatus:
        pid = self.writer()
        with OutputReader(self._path) as reader:
            phases, status = _phases(reader), reader.status()
        return FolderStatus(
            phases,
            spend_of(self._usage, at_work=pid is not None),
            jobs_shown(self._pending),
            last_errors(self._errors),
            None,
            StateShown(status if pid is None else "running", pid),
            budget_of(self._usage, None, at_work=pid is not None),
        )

    def show(self, console: Console) -> None:
        writer = self.writer()
        at_work = "nobody is at work there" if writer is None else f"running (process {writer})"
        say(console, f"{self._path}: results of eval-framework; {at_work}", "bold")
        with OutputReader(self._path) as reader:
            rows = [
                NameRow(name, [_figure(figure) for figure in (of.planned, of.good, of.failed, of.owed)])
                for name, of in _phases(reader).items()
            ]
        columns = [Column(heading) for heading in ("planned", "good", "failed", "missing")]
        print_table(console, "", "task", columns, rows)
        show_costs(self._usage, console, at_work=writer is not None)
        show_jobs(self._pending, console, "the same eval-framework command" if writer is None else "")
        show_errors(self._errors, console)


def _phases(reader: OutputReader) -> dict[str, PhaseStatus]:
    return {
        name: PhaseStatus(*counts, None if counts.planned is None else counts.planned - counts.good)
        for name, counts in reader.counts().items()
    }


def _figure(figure: int | None) -> str:
    return "" if figure is None else f"{figure:,}"
