"""What a folder's models were sent, and what that cost, as its ``usage.json`` has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from coeval.core.text import dollars
from coeval.models.metering.account_file import read_accounts

__all__ = ["Bill", "ModelCost", "bill", "model_costs"]


class ModelCost(msgspec.Struct, frozen=True):
    """A model over the life of a folder: requests sent, tokens, and US dollars.

    ``cost_usd`` is that of the answers whose price was known, None while there is none; ``unpriced`` counts
    the others. ``priced_by`` says whose the price is. ``perhaps_usd`` is what requests may have cost besides,
    of which nobody can know whether they were billed.
    """

    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    unpriced: int
    priced_by: str | None
    perhaps_usd: float = 0.0


class Bill(msgspec.Struct, frozen=True):
    """What all models of a folder cost together, as far as that is known. ``unknown`` are the models whose
    price is not; ``untold`` those that have one, and answers all the same whose cost nobody can tell: the
    host told no tokens of them, or they came before the price was known. ``sources`` are those whose word the
    prices are."""

    cost_usd: float
    unknown: tuple[str, ...]
    sources: tuple[str, ...]
    untold: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is something to say: not where all models are local."""
        return self.cost_usd > 0 or self.is_partial

    @property
    def is_partial(self) -> bool:
        """Whether there are answers whose cost is not known."""
        return bool(self.unknown or self.untold)

    def __str__(self) -> str:
        """``$1.20``, or ``$1.20, without model-b, whose price is unknown``."""
        if not self.is_partial:
            return dollars(self.cost_usd)
        whose = [f"{', '.join(self.unknown)}, whose price is unknown"] if self.unknown else []
        if self.untold:
            whose.append(f"answers of {', '.join(self.untold)} that nobody told the tokens of")
        left_out = ", and ".join(whose)
        return f"{dollars(self.cost_usd)}, without {left_out}" if self.cost_usd else f"unknown for {left_out}"


def model_costs(usage: Path, *, at_work: bool = True) -> tuple[ModelCost, ...]:
    """The models of a ``usage.json`` that were asked, dearest first, ties by name; none where there is no
    file. Where nobody is ``at_work``, what was set aside for requests may have been billed.

    Raises
    ------
    StoreError
        it cannot be read.
    """
    costs = [
        ModelCost(
            model=name,
            requests=account.requests,
            input_tokens=account.input_tokens,
            output_tokens=account.output_tokens,
            cost_usd=account.known_usd,
            unpriced=account.unpriced,
            priced_by=account.priced_by,
            perhaps_usd=account.uncertain_usd + (0.0 if at_work else account.reserved_usd),
        )
        for name, account in read_accounts(usage).items()
        if account.requests or account.known_usd
    ]
    return tuple(sorted(costs, key=lambda cost: (-(cost.cost_usd or 0.0), cost.model)))


def bill(costs: Sequence[ModelCost]) -> Bill:
    """The sum of costs."""
    known = [cost for cost in costs if cost.cost_usd]
    sources = (cost.priced_by.partition(":")[0] for cost in known if cost.priced_by is not None)
    return Bill(
        cost_usd=sum(cost.cost_usd or 0.0 for cost in known),
        unknown=tuple(cost.model for cost in costs if cost.unpriced and cost.priced_by is None),
        sources=tuple(dict.fromkeys(sources)),
        untold=tuple(cost.model for cost in costs if cost.unpriced and cost.priced_by is not None),
    )
