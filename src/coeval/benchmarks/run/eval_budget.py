"""What the budget of an evaluation is held against before its first request."""

from __future__ import annotations

from coeval.benchmarks.run.eval_estimate import estimate_evaluation
from coeval.benchmarks.run.runner import Prepared, usage_file
from coeval.engine.bounded_cost import refuse_least
from coeval.models.metering.account_file import read_accounts
from coeval.pricing.price_book import PriceBook

__all__ = ["refuse_too_dear"]


def refuse_too_dear(prepared: Prepared) -> None:
    """While the folders are `held`. What goes on in a folder is not refused, as of a run: it goes as far as
    the money carries.

    Raises
    ------
    UsageError
        the low end of the estimate does not fit into what is left of the budget.
    """
    evaluation = prepared.evaluation
    budget = evaluation.budget_usd
    accounts = read_accounts(usage_file(evaluation)).values()
    if budget is None or any(account.requests or account.reserved for account in accounts):
        return
    estimate = estimate_evaluation(prepared, PriceBook())
    cost = estimate.total.cost_usd
    if cost is not None and not estimate.unpriced:
        refuse_least(cost.low, budget, accounts, "the same command with --estimate-only")
