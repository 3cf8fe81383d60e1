"""Whether an estimate fits into a budget, in words."""

from __future__ import annotations

from typing import NamedTuple

from coeval.core.text import dollars, limit_in_dollars
from coeval.pricing.estimate.estimate import EstimateLine

__all__ = ["BudgetFit", "budget_fit"]


class BudgetFit(NamedTuple):
    """``fits``: the whole range of the estimate does."""

    fits: bool
    sentence: str


def budget_fit(
    name: str, budget_usd: float, spent_usd: float, line: EstimateLine, *, priced: bool
) -> BudgetFit:
    """What ``line`` costs beside what is left of the budget that ``name`` sets; ``priced`` says whether the
    price of all its calls is known."""
    left = max(0.0, budget_usd - spent_usd)
    of_it = f"{name} is {limit_in_dollars(budget_usd)}"
    if spent_usd:
        of_it += f", {dollars(spent_usd)} of it is spent, and {dollars(left)} is left"
    cost = line.cost_usd
    if cost is not None and cost.low > left:
        return BudgetFit(False, f"The estimate does not fit into the budget: {of_it}.")
    if cost is None or not priced:
        return BudgetFit(False, f"Whether it fits into the budget is not known without all prices: {of_it}.")
    if cost.high > left:
        return BudgetFit(False, f"The estimate may not fit into the budget: {of_it}.")
    return BudgetFit(True, f"The estimate fits into the budget: {of_it}.")
