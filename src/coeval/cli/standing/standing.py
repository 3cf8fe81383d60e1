"""A folder's standing as one record, for tables and for programs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from coeval.analysis.costs import model_costs
from coeval.core.errors import Undecodable
from coeval.core.foreign import decoder
from coeval.engine.error_lines import ErrorLine
from coeval.models.batch.waiting.job_list import PendingJob, read_jobs
from coeval.models.metering.account_file import ModelAccount, read_accounts
from coeval.models.metering.spent import Spent
from coeval.pipeline.config.schema import Experiment
from coeval.store.jsonl import whole_lines

__all__ = [
    "FolderStanding",
    "PhaseStanding",
    "Spend",
    "StateShown",
    "budget_of",
    "jobs_shown",
    "last_errors",
    "read_errors",
    "spend_of",
]

LAST_ERRORS = 10


class PhaseStanding(msgspec.Struct, frozen=True):
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


class FolderStanding(msgspec.Struct, frozen=True):
    """``batches`` are the jobs that are not done with, ``errors`` the last ones of ``run_errors.jsonl``,
    oldest first. ``run`` is the id of the experiment, None of an output folder; ``notes`` say what
    else is to be known of a run's records."""

    phases: dict[str, PhaseStanding]
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


def read_errors(errors: Path) -> Iterator[ErrorLine]:
    """The lines of ``run_errors.jsonl``, oldest first; what is none of ours is left out."""
    read = decoder(ErrorLine)
    for line in whole_lines(errors):
        with suppress(Undecodable):
            yield read(line.text)
