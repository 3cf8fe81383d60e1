"""`coeval repair`: finds invalid records of a run, sets them aside, and counts what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from coeval.cli import streams
from coeval.cli.command_names import RunFolder, RunWord, require_folder
from coeval.cli.views.gaps_view import print_remedy
from coeval.cli.views.table_view import show_rows
from coeval.core.errors import UsageError
from coeval.core.plain import escape_line
from coeval.core.text import pluralize
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.upkeep.gaps import build_continue_command
from coeval.pipeline.upkeep.repair import REASONS, DamagedLine, FileState, RepairOptions, RepairReport
from coeval.pipeline.upkeep.repair import repair_run as repair_run
from coeval.reports.content import make_columns
from coeval.store.output_folder import require_run
from coeval.store.rundir import RunDir

# Some four lines of a terminal: enough to see where a line is damaged.
_EXCERPT = 300


def repair(
    word: RunWord = None,
    run: RunFolder = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report; change nothing.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Lines and gaps of every file.")] = False,
    breakdown: Annotated[bool, typer.Option("--breakdown", help="Invalid lines by kind of error.")] = False,
    examples: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show N invalid lines of each kind and file.")
    ] = 0,
    phase: Annotated[
        str | None, typer.Option(help="Only one phase, by name or number. Example: --phase evaluation")
    ] = None,
) -> None:
    """Set invalid records aside; --continue regenerates them.

    A line is invalid if it is truncated or not JSON, lacks fields or its value, has
    an id that does not match its content, has a level that its scale lacks or a
    factor that the rubric lacks, or refers to a record that does not exist. It is
    moved, byte for byte, to repaired/TIME/ in the run folder. All other lines stay.
    Failed records are valid, and still missing.

    \b
    Examples:
      coeval repair --run ./runs/quickstart --dry-run
      coeval repair --run ./runs/quickstart --dry-run --breakdown --examples 2
      coeval repair --run ./runs/quickstart --stats --phase evaluation
      coeval repair --run ./runs/quickstart
    """
    phases = PHASES if phase is None else (_parse_phase(phase),)
    folder = require_run(require_folder(word, run, "repair"), whole=dry_run)
    report = repair_run(folder, RepairOptions(phases, dry_run, examples))
    console, files = streams.results(), report.files
    by_phase: dict[str, list[FileState]] = {
        phase: [file for file in files if file.phase == phase] for phase in phases
    }
    _show_counts("", "phase", by_phase, console)
    if stats:  # a document has no lines: it gets a row if it is damaged
        listed = [file for file in files if not file.is_document or file.invalid]
        by_file = {f"{file.path.parent.name}/{file.path.name}": [file] for file in listed}
        _show_counts("Files", "file", by_file, console)
    if breakdown:
        _show_invalid_by_reason(report, console)
    _show_damaged_lines(report.invalid, folder.path, console)
    _show_repair_outcome(report, folder, dry_run, console)


def _parse_phase(text: str) -> Phase:
    for number, name in enumerate(PHASES, 1):
        if text in (name, str(number)):
            return name
    raise UsageError(f"--phase {text}: the phases are {', '.join(PHASES)}, or 1 to {len(PHASES)}")


def _sum_lines_and_gaps(files: list[FileState]) -> list[int | str]:
    """Return lines, failed, invalid; then planned, there and missing, empty without a plan to count by."""
    counts = [sum(f.lines for f in files), sum(f.failed for f in files), sum(f.invalid for f in files)]
    gaps = [file.gap for file in files if file.gap is not None]
    if not gaps:
        return [*counts, "", "", ""]
    sums = (sum(gap.planned for gap in gaps), sum(gap.there for gap in gaps))
    return [*counts, *sums, sums[0] - sums[1]]


_HEADINGS = ("lines", "failed", "invalid", "planned", "there", "missing")


def _show_counts(
    title: str, heading: str, files_by_name: dict[str, list[FileState]], console: Console
) -> None:
    rows = [(name, *_sum_lines_and_gaps(files)) for name, files in files_by_name.items()]
    show_rows(console, title, (*make_columns(heading), *make_columns(*_HEADINGS, kind="count")), rows)


def _show_invalid_by_reason(report: RepairReport, console: Console) -> None:
    if report.reasons:
        reasons = report.reasons.most_common()
        rows = [(reason, phase, count, REASONS[reason]) for (phase, reason), count in reasons]
        lines = make_columns("lines", kind="count")
        columns = (*make_columns("reason", "phase"), *lines, *make_columns("meaning"))
        show_rows(console, "Invalid lines", columns, rows)


def _show_damaged_lines(lines: list[DamagedLine], folder: Path, console: Console) -> None:
    if lines:
        console.print(Text("Invalid lines:", style="bold"))
    for line in lines:
        why = f"{line.flaw.reason}: {line.flaw.detail}"
        streams.say(console, f"{line.path.relative_to(folder)}:{line.number}  {why}")
        text = line.text[: 4 * _EXCERPT].decode(errors="backslashreplace").rstrip("\n")
        more = "…" if len(text) > _EXCERPT else ""
        console.print(Text(f"  {escape_line(text[:_EXCERPT])}{more}", style="dim"))


def _show_repair_outcome(report: RepairReport, folder: RunDir, dry_run: bool, console: Console) -> None:
    """Print damaged files, uncounted gaps, what was set aside, and the command that regenerates it."""
    for file in report.files:
        if file.damaged is not None:
            streams.say(console, f"damaged: {file.damaged}", "yellow")
    if report.no_plan:
        streams.say(console, f"Gaps cannot be counted: {report.no_plan}", "yellow")
    if unsettled := report.gaps.unsettled:
        streams.say(console, f"Phases 1–2 are not finished for: {', '.join(unsettled)}", "yellow")
    invalid = sum(file.invalid for file in report.files)
    counted = pluralize(invalid, "invalid record")
    if report.aside is not None:
        streams.say(console, f"{counted} set aside in {report.aside.relative_to(folder.path)}")
    elif invalid:
        streams.say(console, f"{counted}. Nothing was changed; leave out --dry-run to set them aside.")
    else:
        streams.say(console, "All records are valid.")
    owed = sum(file.owed for file in report.files)
    if (owed or unsettled) and not (dry_run and invalid):
        print_remedy(console, report.gaps.short, build_continue_command(folder), owed=owed + len(unsettled))
