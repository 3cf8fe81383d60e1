"""What has been used of the ceilings and budgets of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from coeval.core.text import dollars, limit_in_dollars
from coeval.models.metering.account_file import ModelAccount
from coeval.models.metering.spent import Spent
from coeval.pipeline.config.schema import Experiment

__all__ = ["limits_used"]


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
