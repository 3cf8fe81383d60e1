"""What a budget needs before anything is sent: a price of each model, a bound on each answer, and room for
what all of it costs at the least."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.options import BUDGET, max_cost
from coeval.core.records import SamplingParameters
from coeval.core.text import dollars, dollars_beyond, limit_in_dollars, listed
from coeval.models.metering.account_file import ModelAccount, Terms
from coeval.models.metering.answer_bound import most_answer_tokens
from coeval.models.metering.spent import Spent, perhaps

__all__ = ["AskedUnder", "refuse_boundless", "refuse_least"]


class AskedUnder(NamedTuple):
    """A model with the parameters of one of its roles."""

    spec: ModelSpec
    sampling: SamplingParameters


def refuse_boundless(
    asked: Iterable[AskedUnder], terms: Mapping[str, Terms], budget_usd: float | None
) -> None:
    """
    Raises
    ------
    UsageError
        a model has a budget, its own or that of all, and nobody knows its price, or nothing bounds what one
        of its answers may have.
    """
    unpriced: dict[str, str] = {}
    unbounded: dict[str, str] = {}
    for spec, sampling in asked:
        of_model = terms[spec.name]
        if budget_usd is None and of_model.max_cost_usd is None:
            continue
        key = str(BUDGET if budget_usd is not None else max_cost(spec.name))
        if of_model.price is None:
            unpriced[spec.name] = key
        elif of_model.most is not None and most_answer_tokens(sampling, spec) is None:
            unbounded[spec.name] = key
    problems = []
    if unpriced:
        problems.append(
            f"{listed(dict.fromkeys(unpriced.values()))} cannot be kept to: nobody knows the price of "
            f"{listed(unpriced)}. Name it under overrides in Config/provider_pricing.yaml (docs/prices.md)"
        )
    if unbounded:
        problems.append(
            f"{listed(dict.fromkeys(unbounded.values()))} cannot be kept to: nothing bounds the answers of "
            f"{listed(unbounded)}. Set parameters.max_tokens to 1 or more, in each of their roles"
        )
    if problems:
        raise UsageError("\n".join(problems))


def refuse_least(least_usd: float, budget_usd: float, accounts: Collection[ModelAccount], shows: str) -> None:
    """Nobody is at work in the folder of the ``accounts``; ``shows`` names what shows the costs.

    Raises
    ------
    UsageError
        what is to be done costs more at the least than is left of the budget.
    """
    spent = Spent.of(accounts, at_work=False)
    if spent.usd + least_usd <= budget_usd:
        return
    needed, gone = dollars(least_usd), ""
    if spent.usd:
        needed, so_far = dollars_beyond(budget_usd, least_usd, spent.usd)
        gone = f", and {so_far} of it is spent{perhaps(spent.perhaps_usd)}"
    raise UsageError(
        f"the run does not fit into its budget: what is to be done costs {needed} at the least, and {BUDGET} "
        f"is {limit_in_dollars(budget_usd)}{gone}; {shows} shows what costs what. Raise {BUDGET}, or "
        "plan less"
    )
