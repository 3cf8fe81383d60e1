"""What a run lacks, in words: how many records, and how to fill the gaps."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import show_rows
from coeval.core.errors import BatchLost
from coeval.core.text import pluralize
from coeval.pipeline.upkeep.gaps import build_continue_command, read_unscored_checks
from coeval.reports.content import make_columns

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.pipeline.phases.supplied import ShortSupply
    from coeval.pipeline.run_session import PhaseOutcome, RunSummary
    from coeval.pipeline.upkeep.repair import MissingRecords
    from coeval.store.rundir import RunDir

# On a terminal; a pipe is told of all.
_MOST_FILES = 8
# Reasons that quote answers may be as many as these; a screen holds so many.
_MOST_REASONS = 20


def print_missing_records(missing: MissingRecords, folder: RunDir, console: Console) -> None:
    """Print which records of a run's plan are missing, if any, in which files, and how to continue."""
    gaps = missing.gaps if missing.sentences else None
    for sentence in missing.sentences if gaps is None else gaps.describe(with_files=False):
        warn(console, sentence)
    if gaps is None:
        return
    most = _MOST_FILES if console.file.isatty() else None
    if left_out := show_lacking_and_count_hidden(gaps.missing_by_file, console, most):
        more = f"coeval status --run {quote(str(folder.path))}"
        say(console, f"… and {pluralize(left_out, 'more file')}; see {more}")
    print_remedy(console, gaps.short, build_continue_command(folder), owed=gaps.owed)


def show_lacking_and_count_hidden(
    lacking: Sequence[tuple[str, int]], console: Console, most: int | None, title: str = ""
) -> int:
    """Print which files lack how many records, most first, and return how many more files do."""
    files = sorted(lacking, key=lambda file: -file[1])[:most]
    if files:
        columns = (*make_columns("missing", kind="count"), *make_columns("of file"))
        show_rows(console, title, columns, ((count, name) for name, count in files))
    return len(lacking) - len(files)


def print_remedy(
    console: Console, short: Sequence[ShortSupply], command: str, *, owed: int, first: str = ""
) -> None:
    """Print how to fill the gaps: by items that people write, by what must be done ``first``, then by the
    command."""
    for supply in short:
        noun = "answers" if supply.student else "items"
        say(console, f"No model makes the {noun} that are missing: {supply.remedy}.")
    asks = not short or owed > sum(supply.missing for supply in short if not supply.gone)
    if first:
        say(console, first)
    say(console, f"{'Fill the gaps with' if asks and not first else 'After that'}: {command}")


def describe_failure_of_owed_checks(folder: RunDir, owed: int) -> str:
    """Name the first reason why checks have no score if only checks are ``owed``; else return ''."""
    unscored = read_unscored_checks(folder)
    if not unscored.records or owed > unscored.records:
        return ""
    (task, factor, why), count = unscored.reasons.most_common(1)[0]
    more = pluralize(len(unscored.reasons) - 1, "more reason")
    also = f", and {more}" if len(unscored.reasons) > 1 else ""
    return f"First fix why checks have no score: {task}, {factor}: {why} ({count:,}{also})."


def show_unscored_checks(folder: RunDir, console: Console) -> None:
    """Print a table of why checks have no score, if any lacks one."""
    reasons = read_unscored_checks(folder).reasons.most_common()
    if not reasons:
        return
    rows = [(f"{task}, {factor}", n, why) for (task, factor, why), n in reasons[:_MOST_REASONS]]
    columns = (*make_columns("check"), *make_columns("answers", kind="count"), *make_columns("why"))
    show_rows(console, "Checks without a score", columns, rows)
    if len(reasons) > len(rows):
        say(console, f"… and {pluralize(len(reasons) - len(rows), 'more reason')}")


def print_gaps(summary: RunSummary, messages: Console) -> None:
    """Print a table of what a run, or a part of one, has not made, and why."""
    warn(messages, "Some requested records are missing:")
    rows = []
    for phase, outcome in summary.phases.items():
        if outcome.missing:
            counts = (outcome.planned, outcome.planned - outcome.missing, outcome.missing)
            rows.append((phase, *counts, _describe_reasons(outcome, interrupted=summary.interrupted)))
    counted = make_columns("planned", "there", "missing", kind="count")
    show_rows(messages, "", (*make_columns("phase"), *counted, *make_columns("why")), rows)


_GAPS = {BatchLost.kind: "the batch job failed (reason above)"}


def _describe_reasons(outcome: PhaseOutcome, *, interrupted: bool) -> str:
    reasons = [f"{count:,} failed: {kind}" for kind, count in outcome.failed.most_common()]
    gaps = ((count, _GAPS.get(kind, kind)) for kind, count in outcome.gaps.most_common())
    reasons += [f"{count:,} not requested: {why}" for count, why in gaps]
    others = (
        (outcome.unsupplied, "not supplied"),
        (outcome.incomplete, "lack factors"),
        (outcome.pending, "wait for batch jobs"),
        (outcome.blocked, "not begun when the run was stopped" if interrupted else "wait for what they need"),
    )
    return "; ".join([*reasons, *(f"{count:,} {why}" for count, why in others if count)])
