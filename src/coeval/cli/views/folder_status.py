"""The state of a folder as one record, for tables and programs: accounts, limits, batch jobs, errors."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from coeval.analysis.readers.run_records import read_errors
from coeval.analysis.run_results import model_costs
from coeval.cli.streams import say, warn
from coeval.cli.views.name_table import Column, NameRow, print_costs, print_table, say_names
from coeval.cli.views.progress_view import show_batches
from coeval.core.errors import StoreError
from coeval.core.shown_names import ShownNames
from coeval.core.text import dollars, limit_in_dollars
from coeval.engine.session import ErrorLine
from coeval.models.batch.waiting.job_list import PendingJob, read_jobs
from coeval.models.metering.account_file import ModelAccount, Spent, read_accounts
from coeval.pipeline.config.schema import Experiment

# --- Watching a folder at work

# A person watches; records come within a second of their answer (`store.journal`).
EVERY_S = 2.0
# Of the time, at most so much is spent on looking: a large folder is looked at less often.
_LOOKED_SHARE = 0.1


def watch(show: Callable[[], str], is_at_work: Callable[[], bool], console: Console) -> None:
    """Write what ``show`` makes until nobody is at work any more: over what stood there on a terminal, below
    it elsewhere, where it has changed."""
    last: str | None = None
    while True:
        going_on, began = is_at_work(), time.monotonic()
        text = show()
        if text != last:
            _write(text, console, first=last is None)
            last = text
        if not going_on or console.quiet:
            return
        time.sleep(max(EVERY_S, (time.monotonic() - began) / _LOOKED_SHARE))


def _write(text: str, console: Console, *, first: bool) -> None:
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


class PhaseStatus(msgspec.Struct, frozen=True):
    """Records of a phase, or its documents: those of the plan, the good ones among them, the failed ones, and
    what is owed. None: nobody can know yet."""

    planned: int | None
    good: int
    failed: int
    owed: int | None


class Spend(msgspec.Struct, frozen=True):
    """What a model was sent, and what that took; ``cost_usd`` is None where no answer's price is known,
    ``perhaps_usd`` what requests may have cost besides."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    perhaps_usd: float = 0.0


class StateShown(msgspec.Struct, frozen=True):
    """``status`` is that of ``meta.json``, "stopped" where it says "running" and nobody is at work, and
    "not started" where there is none, "replacing" while a part of it has moved to ``replaced/``; of
    eval-framework, "completed" where nothing is owed,
    "incomplete" where records are missing, else "running" or "stopped". ``pid``: who is at work."""

    status: str
    pid: int | None


class MoneyShown(msgspec.Struct, frozen=True):
    """US dollars: ``spent`` for sure, and ``perhaps``; held for batch jobs, and set aside for other requests
    on their way."""

    limit_usd: float | None
    spent_usd: float
    perhaps_usd: float
    in_jobs_usd: float
    set_aside_usd: float

    @classmethod
    def of(cls, limit: float | None, accounts: Collection[ModelAccount], *, at_work: bool) -> MoneyShown:
        return cls(limit, *Spent.of(accounts, at_work=at_work))


class CallsShown(msgspec.Struct, frozen=True):
    limit: int
    sent: int


class BudgetShown(msgspec.Struct, frozen=True):
    """``total`` is of all models, its limit ``experiment.budget_usd``; the others have a key for each model
    with such a quota."""

    total: MoneyShown
    max_cost_usd: dict[str, MoneyShown] = {}
    max_calls: dict[str, CallsShown] = {}


class FolderStatus(msgspec.Struct, frozen=True):
    """``batches`` are the jobs that are not done with, ``errors`` the last ones of ``run_errors.jsonl``,
    oldest first. ``run`` is the id of the experiment, None of an output folder; ``notes`` say what
    else is to be known of a run's records."""

    phases: dict[str, PhaseStatus]
    spend: dict[str, Spend]
    batches: list[dict[str, Any]]
    errors: list[ErrorLine]
    run: str | None
    state: StateShown
    budget: BudgetShown
    notes: tuple[str, ...] = ()


def budget_of(usage: Path, experiment: Experiment | None, *, at_work: bool) -> BudgetShown:
    """Without limits where there is no ``experiment``. Raises StoreError where the file cannot be read."""
    accounts = read_accounts(usage)
    quotas = {} if experiment is None else experiment.quota
    limit = None if experiment is None else experiment.budget_usd
    return BudgetShown(
        MoneyShown.of(limit, accounts.values(), at_work=at_work),
        {
            name: MoneyShown.of(quota.max_cost_usd, [accounts.get(name, ModelAccount())], at_work=at_work)
            for name, quota in quotas.items()
            if quota.max_cost_usd is not None
        },
        {
            name: CallsShown(quota.max_calls, _sent(accounts.get(name, ModelAccount())))
            for name, quota in quotas.items()
            if quota.max_calls is not None
        },
    )


def _sent(account: ModelAccount) -> int:
    return account.requests + account.reserved


def spend_of(usage: Path, *, at_work: bool) -> dict[str, Spend]:
    """By model, dearest first. Raises StoreError where the file cannot be read."""
    return {
        cost.model: Spend(
            cost.requests, cost.input_tokens, cost.output_tokens, cost.cost_usd, cost.perhaps_usd
        )
        for cost in model_costs(usage, at_work=at_work)
    }


def jobs_shown(pending: Path) -> list[dict[str, Any]]:
    """The jobs of ``pending_batches.json``, how old they are and the last look at them, in seconds.
    Raises StoreError likewise."""
    return [_shown(job) for job in read_jobs(pending)]


def _shown(job: PendingJob) -> dict[str, Any]:
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
        "age_s": _age_s(job.written_at),
        "look_age_s": None if job.checked_at is None else _age_s(job.checked_at),
        "note": job.note,
    }


def _age_s(at: float) -> int:
    return max(0, round(time.time() - at))


def last_errors(errors: Path) -> list[ErrorLine]:
    return list(deque(read_errors(errors), maxlen=LAST_ERRORS))


# --- Cost, batch jobs and recent errors of a folder

# Rows of a screen; kinds of errors are few unless each names something else.
_MOST_GROUPS = 20
# Two lines of a terminal of 100 columns.
_EXCERPT = 200


def show_costs(usage: Path, console: Console, *, at_work: bool) -> None:
    try:
        costs = model_costs(usage, at_work=at_work)
        shown = ShownNames.of(cost.model for cost in costs)
        print_costs(shown.renamed(costs), console)
        say_names(console, shown)
    except StoreError as error:
        warn(console, f"its cost is unknown: {error}")


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


# The part of a budget whose rest may not pay for another request.
_TOO_LITTLE = 0.1


def limits_used(
    experiment: Experiment, accounts: Mapping[str, ModelAccount], *, at_work: bool
) -> Iterator[str]:
    """A sentence on each ceiling and budget that the experiment sets."""
    if (budget := experiment.budget_usd) is not None:
        yield f"experiment.budget_usd: {_money(accounts.values(), budget, at_work=at_work)}"
    for name, quota in experiment.quota.items():
        account = accounts.get(name, ModelAccount())
        if quota.max_calls is not None:
            sent = account.requests + account.reserved
            yield f"experiment.quota.{name}.max_calls: {sent:,} of {quota.max_calls:,} requests"
        if quota.max_cost_usd is not None:
            spent = _money([account], quota.max_cost_usd, at_work=at_work)
            yield f"experiment.quota.{name}.max_cost_usd: {spent}"


def to_be_raised(experiment: Experiment, accounts: Mapping[str, ModelAccount], owed: int) -> str:
    """What is to be raised before ``owed`` records can be asked for; nothing where that is not known. Of a
    budget it is a guess, by what requests have cost so far and with a tenth of it left over."""
    used_up = []
    if _is_short(accounts.values(), experiment.budget_usd, owed):
        used_up.append("experiment.budget_usd")
    for name, quota in experiment.quota.items():
        account = accounts.get(name, ModelAccount())
        key = f"experiment.quota.{name}"
        if quota.max_calls is not None and account.requests + account.reserved >= quota.max_calls:
            used_up.append(f"{key}.max_calls")
        if _is_short([account], quota.max_cost_usd, 1):
            used_up.append(f"{key}.max_cost_usd")
    return f"Raise first what may not suffice: {', '.join(used_up)}." if used_up else ""


def _is_short(accounts: Collection[ModelAccount], budget: float | None, owed: int) -> bool:
    if budget is None:
        return False
    spent = Spent.of(accounts, at_work=False)
    requests = sum(account.requests for account in accounts)
    expected = owed * spent.known_usd / requests if requests else 0.0
    return spent.usd + spent.in_jobs_usd + max(expected, _TOO_LITTLE * budget) > budget


def _money(accounts: Collection[ModelAccount], budget: float, *, at_work: bool) -> str:
    spent = Spent.of(accounts, at_work=at_work)
    said = f"{dollars(spent.known_usd)} of {limit_in_dollars(budget)} spent"
    if spent.perhaps_usd:
        said += f", and {dollars(spent.perhaps_usd)} perhaps (billing unknown)"
    if spent.in_jobs_usd:
        said += f", {dollars(spent.in_jobs_usd)} held for batch jobs"
    if spent.set_aside_usd:
        said += f", {dollars(spent.set_aside_usd)} set aside for requests that are being sent or come next"
    return said
