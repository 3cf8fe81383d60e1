"""What has been used of the ceilings and budgets of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from coeval.core.text import dollars
from coeval.models.metering.account_file import ModelAccount
from coeval.pipeline.config.schema import Experiment

__all__ = ["limits_used"]


def limits_used(experiment: Experiment, accounts: Mapping[str, ModelAccount]) -> Iterator[str]:
    """A sentence on each ceiling and budget that the experiment sets."""
    if (budget := experiment.budget_usd) is not None:
        yield f"experiment.budget_usd: {_money(accounts.values(), budget)}"
    for name, quota in experiment.quota.items():
        account = accounts.get(name, ModelAccount())
        if quota.max_calls is not None:
            sent = account.requests + account.reserved
            yield f"experiment.quota.{name}.max_calls: {sent:,} of {quota.max_calls:,} requests"
        if quota.max_cost_usd is not None:
            yield f"experiment.quota.{name}.max_cost_usd: {_money([account], quota.max_cost_usd)}"


def _money(accounts: Collection[ModelAccount], budget: float) -> str:
    spent = sum(account.cost_usd or 0.0 for account in accounts)
    said = f"{dollars(spent)} of {dollars(budget)} spent"
    if uncertain := sum(account.uncertain_usd for account in accounts):
        said += f", and {dollars(uncertain)} perhaps (nobody knows whether it was billed)"
    in_jobs = sum(job.usd for account in accounts for job in account.jobs.values())
    if on_the_way := in_jobs + sum(account.reserved_usd for account in accounts):
        said += f", {dollars(on_the_way)} set aside for requests on their way"
    return said
