"""The standing of a folder that ``eval-framework`` filled."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from coeval.cli.say import say
from coeval.cli.standing.account_view import show_costs, show_errors, show_jobs
from coeval.cli.standing.output_standing import output_phases, output_status, output_writer
from coeval.cli.standing.standing import (
    FolderStanding,
    StateShown,
    budget_of,
    jobs_shown,
    last_errors,
    spend_of,
)
from coeval.cli.views.name_table import Column, NameRow, print_table

__all__ = ["OutputPlace"]


class OutputPlace:
    """A folder that ``eval-framework`` filled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._usage, self._errors = path / "usage.json", path / "run_errors.jsonl"
        self._pending = path / "pending_batches.json"

    def writer(self) -> int | None:
        return output_writer(self._path)

    def standing(self) -> FolderStanding:
        pid = self.writer()
        return FolderStanding(
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
