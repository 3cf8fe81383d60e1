"""The status of a run or an eval-framework folder: as one record for programs, and as tables."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

import msgspec
from rich.console import Console
from rich.text import Text

from coeval.analysis.doubtful_answers import empty_answers_sentence
from coeval.analysis.run_results import ModelCost, read_model_costs
from coeval.cli.streams import say, warn
from coeval.cli.views.gaps_view import (
    describe_failure_of_owed_checks,
    print_remedy,
    show_lacking_and_count_hidden,
    show_unscored_checks,
)
from coeval.cli.views.progress_view import show_batch_jobs
from coeval.cli.views.table_view import print_full_names, show_costs, show_rows
from coeval.core.errors import StoreError
from coeval.core.figures import dollars, limit_in_dollars
from coeval.core.shown_names import ShownNames
from coeval.core.text import pluralize
from coeval.models.batch.job_list import PendingJob, read_jobs
from coeval.models.metering.account_file import ModelAccount, Spent, read_accounts
from coeval.pipeline.config.schema import PHASES, Experiment, Phase
from coeval.pipeline.upkeep.gaps import build_continue_command
from coeval.pipeline.upkeep.repair import QuickInspection, RepairReport, inspect_if_doubtful, load_run_config
from coeval.reports.content import make_columns
from coeval.store.jsonl import read_decodable_lines
from coeval.store.output_folder import find_writer_pid
from coeval.store.record_index import PhaseIndex
from coeval.store.rundir import ErrorLine, Meta, RunDir

# --- Watching a folder at work

# A person watches; records come within a second of their answer (`Journal`).
EVERY_S = 2.0
# Of the time, at most so much is spent on looking: a large folder is looked at less often.
_MOST_LOOKING = 0.1


def show_until_idle(render_text: Callable[[], str], is_at_work: Callable[[], bool], console: Console) -> None:
    """Show the text until nobody is at work: in place on a terminal, elsewhere below if it has changed."""
    last: str | None = None
    while True:
        going_on, began = is_at_work(), time.monotonic()
        text = render_text()
        if text != last:
            _write_screen(text, console, first=last is None)
            last = text
        if not going_on or console.quiet:
            return
        time.sleep(max(EVERY_S, (time.monotonic() - began) / _MOST_LOOKING))


def _write_screen(text: str, console: Console, *, first: bool) -> None:
    if console.is_terminal:
        console.clear()
    elif not first and "\n" in text.rstrip("\n"):
        text = f"\n{text}"
    try:
        console.file.write(text)
        console.file.flush()
    except BrokenPipeError:
        console.on_broken_pipe()


# --- Status of a folder as one record

# What fits on a screen below the table.
LAST_ERRORS = 10
# The part of a budget whose rest may not pay for another request.
_TOO_LITTLE = 0.1


class PhaseStatus(msgspec.Struct, frozen=True):
    """Records of a phase, or its documents: planned, good, failed and owed ones. None: unknown as yet."""

    planned: int | None
    good: int
    failed: int
    owed: int | None


class StateShown(msgspec.Struct, frozen=True):
    """A folder's state, and the process at work. A run's ``status`` is that of ``meta.json``, but "stopped"
    if it says "running" and nobody is at work, "not started" without the file, and "replacing" while parts
    move to ``replaced/``. Of eval-framework: "completed" if nothing is owed, "incomplete" if records are
    missing, else "running" or "stopped"."""

    status: str
    pid: int | None


class MoneyShown(msgspec.Struct, frozen=True):
    """US dollars: ``spent`` for sure, ``perhaps``, held for batch jobs, and set aside for other requests in
    flight."""

    limit_usd: float | None
    spent_usd: float
    perhaps_usd: float
    in_jobs_usd: float
    set_aside_usd: float

    @property
    def leaves_too_little(self) -> bool:
        """Check whether the rest may not pay for another request."""
        taken = self.spent_usd + self.perhaps_usd + self.in_jobs_usd + self.set_aside_usd
        return self.limit_usd is not None and taken > (1 - _TOO_LITTLE) * self.limit_usd

    def __str__(self) -> str:
        sentence = f"{dollars(self.spent_usd)} of {limit_in_dollars(self.limit_usd or 0.0)} spent"
        if self.perhaps_usd:
            sentence += f", and {dollars(self.perhaps_usd)} perhaps (billing unknown)"
        if self.in_jobs_usd:
            sentence += f", {dollars(self.in_jobs_usd)} held for batch jobs"
        if self.set_aside_usd:
            aside = "set aside for requests that are being sent or come next"
            sentence += f", {dollars(self.set_aside_usd)} {aside}"
        return sentence


class CallsShown(msgspec.Struct, frozen=True):
    limit: int
    sent: int

    @property
    def leaves_too_little(self) -> bool:
        return self.sent >= self.limit

    def __str__(self) -> str:
        return f"{self.sent:,} of {self.limit:,} requests"


class BudgetShown(msgspec.Struct, frozen=True):
    """Use of limits: ``total`` of all models, with ``experiment.budget_usd``; the others by model with such a
    quota."""

    total: MoneyShown
    max_cost_usd: dict[str, MoneyShown] = {}
    max_calls: dict[str, CallsShown] = {}

    def list_limits_by_key(self) -> Iterator[tuple[str, MoneyShown | CallsShown]]:
        """Yield each limit that the experiment sets, by its key."""
        if self.total.limit_usd is not None:
            yield "experiment.budget_usd", self.total
        for name, calls in self.max_calls.items():
            yield f"experiment.quota.{name}.max_calls", calls
        for name, money in self.max_cost_usd.items():
            yield f"experiment.quota.{name}.max_cost_usd", money


Limits: TypeAlias = Sequence[tuple[str, MoneyShown | CallsShown]]


class FolderStatus(msgspec.Struct, frozen=True):
    """The status of a folder. ``batches``: unfinished jobs; ``errors``: the last of ``run_errors.jsonl``,
    oldest first; ``run``: the experiment's id, None of an output folder; ``notes``: further sentences on a
    run's records."""

    phases: dict[str, PhaseStatus]
    spend: dict[str, ModelCost]
    batches: list[dict[str, Any]]
    errors: list[ErrorLine]
    run: str | None
    state: StateShown
    budget: BudgetShown
    notes: tuple[str, ...] = ()


def read_folder_status(path: Path) -> FolderStatus:
    """Read the status of a folder without changing it. Raises StoreError: a file cannot be read."""
    folder, pid = RunDir(path), find_writer_pid(path)
    if not folder.is_run():
        phases, status = _read_output_phases_and_status(path)
        return _complete_status(folder, phases, None, StateShown(status if pid is None else "running", pid))
    if sentence := folder.describe_half_replaced():  # whatever has moved, the account stays
        unknown = PhaseStatus(planned=None, good=0, failed=0, owed=None)
        state = StateShown("replacing", pid)
        return _complete_status(folder, dict.fromkeys(PHASES, unknown), path.name, state, notes=(sentence,))
    look = inspect_if_doubtful(folder, config := load_run_config(folder))
    meta = folder.read_meta() if folder.meta.exists() else None
    status = "running" if pid is not None else "not started" if meta is None else folder.status(meta)
    mixed = (look.report.gaps.mixed,) if look.report is not None and look.report.gaps.mixed else ()
    phases = {phase: _count_phase(folder, look, phase) for phase in PHASES}
    run = path.name if meta is None else meta.experiment_id
    experiment = None if isinstance(config, str) else config.experiment
    notes = (*mixed, *look.recorded.describe_discarded_replies())
    return _complete_status(folder, phases, run, StateShown(status, pid), experiment, notes)


def _complete_status(
    folder: RunDir,
    phases: dict[str, PhaseStatus],
    run: str | None,
    state: StateShown,
    experiment: Experiment | None = None,
    notes: tuple[str, ...] = (),
) -> FolderStatus:
    at_work = state.pid is not None
    spend = {cost.model: cost for cost in read_model_costs(folder.usage, at_work=at_work)}
    jobs = [_job_as_data(job) for job in read_jobs(folder.pending_batches)]
    errors = list(deque(read_decodable_lines(folder.errors, ErrorLine), maxlen=LAST_ERRORS))
    budget = _read_budget(folder.usage, experiment, at_work=at_work)
    return FolderStatus(phases, spend, jobs, errors, run, state, budget, notes)


def _read_budget(usage: Path, experiment: Experiment | None, *, at_work: bool) -> BudgetShown:
    """Read the use of limits, or without an ``experiment`` the spending alone. Raises StoreError: it cannot
    be read."""
    accounts = read_accounts(usage)

    def money(limit: float | None, accounts_counted: Collection[ModelAccount]) -> MoneyShown:
        return MoneyShown(limit, *Spent.add_up(accounts_counted, at_work=at_work))

    budget = BudgetShown(money(None if experiment is None else experiment.budget_usd, accounts.values()))
    for name, quota in {} if experiment is None else experiment.quota.items():
        account = accounts.get(name, ModelAccount())
        if quota.max_cost_usd is not None:
            budget.max_cost_usd[name] = money(quota.max_cost_usd, [account])
        if quota.max_calls is not None:
            budget.max_calls[name] = CallsShown(quota.max_calls, account.requests + account.reserved)
    return budget


def _job_as_data(job: PendingJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "tag": job.tag,
        "model": job.name,
        "interface": job.interface,
        "phases": job.phases,
        "requests": job.requests,
        "done": job.done,
        "failed": job.failed,
        "state": job.state,
        "provider_state": job.shown,
        "age_s": _seconds_since(job.written_at),
        "look_age_s": None if job.checked_at is None else _seconds_since(job.checked_at),
        "note": job.note,
    }


def _seconds_since(at: float) -> int:
    return max(0, round(time.time() - at))


def _read_output_phases_and_status(path: Path) -> tuple[dict[str, PhaseStatus], str]:
    """Count the records of an output folder by task; and its status while nobody works on it."""
    from coeval.analysis.readers.output_reader import OutputReader  # it loads DuckDB, which runs do without

    with OutputReader(path) as reader:
        phases = {
            name: PhaseStatus(*counts, None if counts.planned is None else counts.planned - counts.good)
            for name, counts in reader.count_answers_and_judgments().items()
        }
        return phases, reader.status_when_idle()


def _count_phase(folder: RunDir, look: QuickInspection, phase: Phase) -> PhaseStatus:
    """Count a phase's records; good ones that the plan does not name count only if there is no plan."""
    recorded, report = look
    files = [] if report is None else [file for file in report.files if file.phase == phase]
    indexes: dict[str, PhaseIndex[Any]] = {
        "data_generation": recorded.items,
        "response_collection": recorded.responses,
        "evaluation": recorded.evaluations if recorded.evaluations or not recorded.pairs else recorded.pairs,
    }
    if phase not in indexes:
        documents = len(list(folder.folder(phase).glob("*.json")))
        damaged = sum(file.damaged is not None for file in files)
        is_settled = report is not None and not (report.no_plan or report.gaps.unsettled)
        lacking = None if report is None else damaged or (0 if is_settled else None)
        return PhaseStatus(None if lacking is None else documents, documents - damaged, damaged, lacking)
    good = sum(entry.good for entry in indexes[phase].entries())
    failed = len(indexes[phase]) - good
    if report is None or (owed := report.count_owed(phase)) is None:
        return PhaseStatus(None, good, failed, None)
    planned = sum(file.gap.planned for file in files if file.gap is not None)
    return PhaseStatus(planned, planned - owed, failed, owed)


# --- Tables

# Rows of a screen, of files and of kinds of errors, which are few unless each names something else.
_MOST_ROWS = 20
# Two lines of a terminal of 100 columns.
_EXCERPT = 200


def show_status(path: Path, console: Console) -> None:
    """Print a folder's state, phases, gaps, cost, limits, batch jobs and errors."""
    folder, pid = RunDir(path), find_writer_pid(path)
    is_run, at_work = folder.is_run(), pid is not None
    config = load_run_config(folder) if is_run else ""
    limits, unknown = [], ""
    if not isinstance(config, str):  # else why it cannot be read is told of what is missing
        try:
            limits = list(_read_budget(folder.usage, config.experiment, at_work=at_work).list_limits_by_key())
        except StoreError as error:
            unknown = str(error)
    if not is_run:
        state = f"running (process {pid})" if at_work else "no process is working on it"
        say(console, f"{path}: results of eval-framework; {state}", "bold")
        _show_phases("task", _read_output_phases_and_status(path)[0], console)
    elif sentence := folder.describe_half_replaced():
        say(console, f"{path.name}: being replaced", "bold")
        warn(console, sentence)
    else:
        _show_run(folder, inspect_if_doubtful(folder, config), limits, console)
    try:
        costs = read_model_costs(folder.usage, at_work=at_work)
        names = ShownNames.of(cost.model for cost in costs)
        show_costs(names.shorten_in(costs), console)
        print_full_names(console, names)
    except StoreError as error:
        warn(console, f"its cost is unknown: {error}")
    for key, limit in limits:
        say(console, f"{key}: {limit}")
    if unknown:
        warn(console, f"the use of quotas is unknown: {unknown}")
    if jobs := read_jobs(folder.pending_batches):
        show_batch_jobs(jobs, console)
        if not at_work:
            look = "--fetch-batches" if is_run else "the same eval-framework command"
            say(console, f"As of the last check; {look} checks again.", "dim")
    _show_error_counts_and_last(folder.errors, console)


def _show_run(folder: RunDir, look: QuickInspection, limits: Limits, console: Console) -> None:
    """Print a run's state, phases, and what it lacks."""
    meta = folder.read_meta() if folder.meta.exists() else None
    if meta is None:
        say(console, f"{folder.path}: not started yet (no meta.json)")
    else:
        kind = " (simulated models)" if meta.simulated else ""
        say(console, f"{meta.experiment_id}: {_describe_run_state(folder, meta, look.report)}{kind}", "bold")
        say(console, f"created {meta.created_at}, updated {meta.updated_at}", "dim")
        if meta.resume_from:
            say(console, f"resumed from {meta.resume_from}")
    phases: dict[str, PhaseStatus] = {phase: _count_phase(folder, look, phase) for phase in PHASES}
    _show_phases("phase", phases, console, () if meta is None else meta.phases_completed)
    if sentence := empty_answers_sentence(look.recorded.count_empty_answers(), "of"):
        warn(console, sentence)
    for sentence in look.recorded.describe_discarded_replies():
        say(console, f"{sentence[0].upper()}{sentence[1:]}.")
    if look.report is not None:
        _show_invalid_and_owed_records(look.report, folder, limits, console)
    elif count := len(look.recorded.damaged):
        lines = "line is not a record" if count == 1 else "lines are not records"
        waiting = "" if meta is not None else "; your items are read when the run starts"
        say(console, f"{count:,} {lines}{waiting}")
    if look.report is not None:
        if look.report.gaps.mixed:
            warn(console, look.report.gaps.mixed)
        owed = [file for file in look.report.files if file.owed]
        lacking = [(f"{file.path.parent.name}/{file.path.name}", file.owed) for file in owed]
        if left_out := show_lacking_and_count_hidden(lacking, console, _MOST_ROWS, "Files that lack records"):
            console.print(f"… and {left_out:,} more")
    show_unscored_checks(folder, console)


def _describe_run_state(folder: RunDir, meta: Meta, report: RepairReport | None) -> str:
    """Return a run's state. After a kill ``meta.json`` still says running, so the lock decides; a completed
    run that has lost records is incomplete."""
    if meta.status != "running":
        lacks = report is not None and (report.gaps.unsettled or any(file.owed for file in report.files))
        return "incomplete" if lacks and meta.status == "completed" else meta.status
    writer = folder.writer_pid()
    if writer is not None:
        return f"running (process {writer})"
    return f"stopped before its end; continue with {build_continue_command(folder)}"


def _show_phases(
    heading: str, phases: Mapping[str, PhaseStatus], console: Console, ended: Collection[str] | None = None
) -> None:
    """Print phases. ``ended``: those that a run's file says are complete, used if nothing else is known."""
    rows = []
    for name, phase in phases.items():
        complete = name in (ended or ()) if phase.owed is None else not phase.owed
        rows.append((name, None if ended is None else complete, *msgspec.structs.astuple(phase)))
    figures = make_columns("planned", "good", "failed", "missing", kind="count")
    show_rows(console, "", (*make_columns(heading, "complete"), *figures), rows)


def _show_invalid_and_owed_records(
    report: RepairReport, folder: RunDir, limits: Limits, console: Console
) -> None:
    """Print invalid and owed records, and what to do about both."""
    if invalid := sum(file.invalid for file in report.files):
        mend = f"coeval repair --run {quote(str(folder.path))} --dry-run"
        warn(console, f"{pluralize(invalid, 'invalid record')}; see {mend}")
    if report.no_plan:
        warn(console, f"what is missing cannot be counted: {report.no_plan}")
    gaps = report.gaps
    if gaps.unsettled:
        warn(console, f"phases 1–2 are not finished for {', '.join(gaps.unsettled)}")
    owed = sum(file.owed for file in report.files)
    if (owed or gaps.unsettled) and folder.writer_pid() is None:
        checks = owed - sum(supply.missing for supply in gaps.short)
        used_up = ", ".join(key for key, limit in limits if limit.leaves_too_little)
        raised = f"Raise these limits first: {used_up}."
        first = raised if used_up else describe_failure_of_owed_checks(folder, checks)
        whole = owed + len(gaps.unsettled)
        print_remedy(console, gaps.short, build_continue_command(folder), owed=whole, first=first)


def _show_error_counts_and_last(errors: Path, console: Console) -> None:
    groups: Counter[tuple[str, str, str]] = Counter()
    last: deque[ErrorLine] = deque(maxlen=LAST_ERRORS)
    for error in read_decodable_lines(errors, ErrorLine):
        groups[error.phase, error.model, error.kind] += 1
        last.append(error)
    if not last:
        return
    rows = [(*of_kind, times) for of_kind, times in groups.most_common(_MOST_ROWS)]
    columns = (*make_columns("phase", "model", "error"), *make_columns("times", kind="count"))
    show_rows(console, "Errors so far", columns, rows)
    if (left_out := len(groups) - _MOST_ROWS) > 0:
        console.print(f"… and {left_out:,} more kinds")
    of_all = f" of {groups.total():,}" if groups.total() > len(last) else ""
    console.print(Text(f"Last {len(last)}{of_all}:"), style="bold")
    for error in last:
        about = error.id or error.phase or errors.name
        say(console, f"{error.at}  {error.kind}  {about}")
        message = error.message if len(error.message) <= _EXCERPT else f"{error.message[:_EXCERPT]}…"
        say(console, f"  {message}", "dim")
