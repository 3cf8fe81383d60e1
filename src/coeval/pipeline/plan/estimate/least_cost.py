"""The least that a run is expected to cost: what a budget is held against before anything is asked."""

from __future__ import annotations

from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.on_record import evidence_of
from coeval.pipeline.plan.estimate.run_estimate import Assumed, estimate_run
from coeval.pipeline.plan.preview import Preview
from coeval.pricing.price_book import PriceBook

__all__ = ["least_cost_usd"]


def least_cost_usd(config: Config, preview: Preview, prices: PriceBook) -> float | None:
    """The low end of the estimate of all that ``preview`` says is owed, in US dollars; None where some model
    that is to be asked has no known price. In ``config`` the interface `auto` stands for none any more."""
    estimate = estimate_run(config, preview, Assumed(prices, evidence_of(config, preview)))
    cost = estimate.total.cost_usd
    return None if estimate.unpriced or cost is None else cost.low
