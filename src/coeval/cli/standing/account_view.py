"""What a folder's models cost, its batch jobs, and what went wrong in it lately."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path

from rich.console import Console
from rich.text import Text

from coeval.analysis.costs import model_costs
from coeval.cli.say import say, warn
from coeval.cli.standing.standing import LAST_ERRORS, read_errors
from coeval.cli.views.cost_table import print_costs
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.cli.views.progress.batches_view import show_batches
from coeval.core.errors import StoreError
from coeval.engine.error_lines import ErrorLine
from coeval.models.batch.waiting.job_list import read_jobs

__all__ = ["show_costs", "show_errors", "show_jobs"]

_MOST_GROUPS = 20
_EXCERPT = 200


def show_costs(usage: Path, console: Console, *, at_work: bool) -> None:
    try:
        print_costs(model_costs(usage, at_work=at_work), console)
    except StoreError as error:
        warn(console, f"what it cost cannot be told: {error}")


def show_jobs(pending: Path, console: Console, look: str) -> None:
    """``look``: what to do to have them looked at; empty where somebody does."""
    if jobs := read_jobs(pending):
        show_batches(jobs, console)
        if look:
            say(console, f"They are shown as they stood at the last look; {look} looks again.", "dim")


def show_errors(errors: Path, console: Console) -> None:

    groups: Counter[tuple[str, str, str]] = Counter()
    last: deque[ErrorLine] = deque(maxlen=LAST_ERRORS)
    for error in read_errors(errors):
        groups[error.phase, error.model, error.kind] += 1
        last.append(error)
    if not last:
        return
    rows = [
        NameRow(phase, (model, kind, f"{times:,}"))
        for (phase, model, kind), times in groups.most_common(_MOST_GROUPS)
    ]
    columns = (Column("model", words=True), Column("error", words=True), Column("times"))
    print_table(console, "Errors so far", "phase", columns, rows)
    if (left_out := len(groups) - _MOST_GROUPS) > 0:
        console.print(f"… and {left_out:,} more kinds")
    of_all = f" of {groups.total():,}" if groups.total() > len(last) else ""
    console.print(Text(f"Last {len(last)}{of_all}:"), style="bold")
    for error in last:
        about = error.id or error.phase or errors.name
        say(console, f"{error.at}  {error.kind}  {about}")
        message = error.message if len(error.message) <= _EXCERPT else f"{error.message[:_EXCERPT]}…"
        say(console, f"  {message}", "dim")
