"""What has been used of the ceilings and budgets of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from coeval.core.text import dollars, limit_in_dollars
from coeval.models.metering.account_file import ModelAccount
from coeval.models.metering.spent import Spent
from coeval.pipeline.config.schema import Experiment

__all__ = ["limits_used", "to_be_raised"]

_TOO_LITTLE = 0.1
"""The part of a budget whose rest may not pay for another request."""


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
        said += f", and {dollars(spent.perhaps_usd)} perhaps (nobody knows whether it was billed)"
    if spent.in_jobs_usd:
        said += f", {dollars(spent.in_jobs_usd)} held for batch jobs"
    if spent.set_aside_usd:
        said += f", {dollars(spent.set_aside_usd)} set aside for requests that are being sent or come next"
    return said
