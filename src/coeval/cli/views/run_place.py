"""The state of a run's folder, by phase."""

from __future__ import annotations

from shlex import quote

from rich.console import Console

from coeval.analysis.run_results import empty_answers_sentence
from coeval.cli.streams import say, warn
from coeval.cli.views.folder_status import (
    FolderStatus,
    PhaseStatus,
    StateShown,
    budget_of,
    jobs_shown,
    last_errors,
    limits_used,
    show_costs,
    show_errors,
    show_jobs,
    spend_of,
    to_be_raised,
)
from coeval.cli.views.gaps_view import checks_first, show_unscored_checks, tell_way_on
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.errors import StoreError
from coeval.core.text import numbered
from coeval.models.metering.account_file import read_accounts
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.plan.recorded import Entry, EvaluationEntry, PairEntry, Recorded
from coeval.pipeline.upkeep.batch_jobs import continue_command
from coeval.pipeline.upkeep.quick_look import QuickLook, quick_look
from coeval.pipeline.upkeep.repair import RepairReport, config_of
from coeval.store.record_index import PhaseIndex
from coeval.store.rundir import RECORD_FILES, Meta, RunDir, phase_of_files

# --- Records planned and missing in a run, by phase


def phases_of(folder: RunDir, look: QuickLook) -> dict[str, PhaseStatus]:
    """Each phase; records that the plan does not name are good ones all the same, beside it."""
    return {phase: _phase(folder, look, phase) for phase in PHASES}


def _phase(folder: RunDir, look: QuickLook, phase: Phase) -> PhaseStatus:
    recorded, report, _ = look
    owed = None if report is None else missing(report, phase)
    index = index_of(recorded, phase)
    if index is None:
        documents = len(list(folder.folder(phase).glob("*.json")))
        damaged = (
            0 if report is None else sum(f.damaged is not None for f in report.files if f.phase == phase)
        )
        planned = None if owed is None else documents
        return PhaseStatus(planned, documents - damaged, damaged, owed)
    good = sum(entry.good for entry in index.entries())
    planned = None
    if report is not None and owed is not None:
        planned = sum(file.planned or 0 for file in report.files if file.phase == phase)
        good = planned - owed
    return PhaseStatus(planned, good, len(index) - sum(entry.good for entry in index.entries()), owed)


def missing(report: RepairReport, phase: Phase) -> int | None:
    """Records of a phase that are owed, or, of phases 1–2, documents; None where it cannot be known."""
    if phase in ("attribute_mapping", "rubric_mapping"):
        damaged = sum(file.damaged is not None for file in report.files if file.phase == phase)
        return damaged or (None if report.no_plan or report.unsettled else 0)
    return report.owed(phase)


def index_of(
    recorded: Recorded, phase: Phase
) -> PhaseIndex[Entry] | PhaseIndex[EvaluationEntry] | PhaseIndex[PairEntry] | None:
    match phase:
        case "data_generation":
            return recorded.items
        case "response_collection":
            return recorded.responses
        case "evaluation":
            return recorded.evaluations if recorded.evaluations or not recorded.pairs else recorded.pairs
        case _:
            return None


# Rows of a screen; the count of the others follows.
_MOST_FILES = 20


class RunPlace:
    """A run's folder."""

    def __init__(self, folder: RunDir) -> None:
        self._folder = folder

    def writer(self) -> int | None:
        return self._folder.writer()

    def status(self) -> FolderStatus:
        folder, pid = self._folder, self._folder.writer()
        if said := folder.half_replaced():
            return self._half_replaced(said)
        look = quick_look(folder)
        config = config_of(folder)
        meta = folder.read_meta() if folder.meta.exists() else None
        status = "not started" if meta is None else folder.status(meta)
        if pid is not None:
            status = "running"
        return FolderStatus(
            phases_of(folder, look),
            spend_of(folder.usage, at_work=pid is not None),
            jobs_shown(folder.pending_batches),
            last_errors(folder.errors),
            folder.path.name if meta is None else meta.experiment_id,
            StateShown(status, pid),
            budget_of(
                folder.usage,
                None if isinstance(config, str) else config.experiment,
                at_work=pid is not None,
            ),
            (
                *((look.gaps.mixed,) if look.gaps is not None and look.gaps.mixed else ()),
                *look.recorded.filtered_note(),
            ),
        )

    def _half_replaced(self, said: str) -> FolderStatus:
        """What is known whatever has moved: the account, which stays."""
        folder, pid = self._folder, self._folder.writer()
        unknown = PhaseStatus(planned=None, good=0, failed=0, owed=None)
        return FolderStatus(
            dict.fromkeys(PHASES, unknown),
            spend_of(folder.usage, at_work=pid is not None),
            jobs_shown(folder.pending_batches),
            last_errors(folder.errors),
            folder.path.name,
            StateShown("replacing", pid),
            budget_of(folder.usage, None, at_work=pid is not None),
            (said,),
        )

    def show(self, console: Console) -> None:
        folder = self._folder
        if said := folder.half_replaced():
            say(console, f"{folder.path.name}: being replaced", "bold")
            warn(console, said)
        else:
            look = quick_look(folder)
            _show_meta(folder, look.report, console)
            _show_phases(folder, look, console)
            _show_files(look.report, console)
            show_unscored_checks(folder, console)
        show_costs(folder.usage, console, at_work=folder.writer() is not None)
        _show_limits(folder, console)
        show_jobs(folder.pending_batches, console, "--fetch-batches" if folder.writer() is None else "")
        show_errors(folder.errors, console)


def _show_meta(folder: RunDir, report: RepairReport | None, console: Console) -> None:
    try:
        meta = folder.read_meta()
    except FileNotFoundError:
        say(console, f"{folder.path}: not started yet (no meta.json)")
        return
    kind = " (simulated models)" if meta.simulated else ""
    status = f"{meta.experiment_id}: {_status(folder, meta, report)}{kind}"
    say(console, status, "bold")
    say(console, f"created {meta.created_at}, updated {meta.updated_at}", "dim")
    if meta.resume_from:
        say(console, f"resumed from {meta.resume_from}")


def _status(folder: RunDir, meta: Meta, report: RepairReport | None) -> str:
    """A run that was killed still says that it is running; whether it is, its lock tells. One that has lost
    records since says that it is complete."""
    if meta.status != "running":
        lacks = report is not None and (report.unsettled or any(file.owed for file in report.files))
        return "incomplete" if lacks and meta.status == "completed" else meta.status
    writer = folder.writer()
    if writer is not None:
        return f"running (process {writer})"
    return f"stopped before its end; go on with {continue_command(folder)}"


def _show_phases(folder: RunDir, look: QuickLook, console: Console) -> None:
    meta = folder.read_meta() if folder.meta.exists() else None
    recorded, report, _ = look
    rows = []
    for phase in PHASES:
        said_complete = meta is not None and phase in meta.phases_completed
        owed = None if report is None else missing(report, phase)
        complete = said_complete if owed is None else not owed
        index = index_of(recorded, phase)
        if index is not None:
            good = sum(entry.good for entry in index.entries())
            files = sum(len(folder.files(kind)) for kind in RECORD_FILES if phase_of_files(kind) == phase)
            figures = [files, good, len(index) - good, owed]
        else:
            figures = [len(list(folder.folder(phase).glob("*.json"))), None, None, owed]
        cells = ("" if figure is None else f"{figure:,}" for figure in figures)
        rows.append(NameRow(phase, ("yes" if complete else "no", *cells)))
    columns = (Column("complete", words=True), *map(Column, ("files", "records", "failed", "missing")))
    print_table(console, "", "phase", columns, rows)
    if said := empty_answers_sentence(recorded.empty_answers(), "of"):
        warn(console, said)
    for said in recorded.filtered_note():
        say(console, f"{said[0].upper()}{said[1:]}.")
    if report is None:
        if count := len(recorded.damaged):
            lines = "line is no record" if count == 1 else "lines are no records"
            waiting = "" if meta is not None else "; your items are read when the run starts"
            say(console, f"{count:,} {lines}{waiting}")
    else:
        _show_state(report, folder, console)
    if look.gaps is not None and look.gaps.mixed:
        warn(console, look.gaps.mixed)


def _show_files(report: RepairReport | None, console: Console) -> None:
    """The files that lack records, those that lack most first."""

    lacking = [file for file in report.files if file.owed] if report is not None else []
    if not lacking:
        return
    lacking.sort(key=lambda file: -file.owed)
    rows = [
        NameRow(
            f"{file.path.parent.name}/{file.path.name}",
            [f"{file.planned:,}", f"{file.there:,}", f"{file.owed:,}"],
        )
        for file in lacking[:_MOST_FILES]
    ]
    print_table(
        console,
        "Files that lack records",
        "file",
        [Column(name) for name in ("planned", "good", "missing")],
        rows,
    )
    if (left_out := len(lacking) - _MOST_FILES) > 0:
        console.print(f"… and {left_out:,} more")


def _show_state(report: RepairReport, folder: RunDir, console: Console) -> None:
    """What is invalid, what is owed, and what to do about both."""

    if invalid := sum(file.invalid for file in report.files):
        mend = f"coeval repair --run {quote(str(folder.path))} --dry-run"
        warn(console, f"{numbered(invalid, 'invalid record')}; see {mend}")
    if report.no_plan:
        warn(console, f"what is missing cannot be counted: {report.no_plan}")
    if report.unsettled:
        warn(console, f"phases 1–2 are not finished for {', '.join(report.unsettled)}")
    owed = sum(file.owed for file in report.files)
    if (owed or report.unsettled) and folder.writer() is None:
        tell_way_on(
            console,
            report.short,
            continue_command(folder),
            owed=owed + len(report.unsettled),
            first=_to_be_raised(folder, owed)
            or checks_first(folder, owed - sum(supply.missing for supply in report.short)),
        )


def _to_be_raised(folder: RunDir, owed: int) -> str:
    config = config_of(folder)
    if isinstance(config, str):
        return ""
    try:
        return to_be_raised(config.experiment, read_accounts(folder.usage), owed)
    except StoreError:
        return ""  # that the account cannot be read is told of the limits


def _show_limits(folder: RunDir, console: Console) -> None:
    """What is used of the run's ceilings and budgets."""

    config = config_of(folder)
    if isinstance(config, str):
        return  # why it cannot be read is told of what is missing
    try:
        at_work = folder.writer() is not None
        for sentence in limits_used(config.experiment, read_accounts(folder.usage), at_work=at_work):
            say(console, sentence)
    except StoreError as error:
        warn(console, f"the use of quotas is unknown: {error}")
