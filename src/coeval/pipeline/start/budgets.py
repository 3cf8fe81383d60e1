"""What a run's budget is held against before its first request."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.core.options import CONTINUE, OVERWRITE
from coeval.engine.bounded_cost import AskedUnder, refuse_least
from coeval.models.metering.account_file import read_accounts
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.run_session import RunOptions
from coeval.pricing.price_book import PriceBook
from coeval.store.rundir import RunDir

__all__ = ["asked_under", "refuse_too_dear"]


def asked_under(config: Config) -> Iterator[AskedUnder]:
    """The models of an experiment in each of their roles; benchmark teachers are not asked."""
    for model in config.models:
        if model.interface != "benchmark":
            for role in model.roles:
                yield AskedUnder(model.spec(), model.sampling(role))


def refuse_too_dear(
    config: Config, preview: Preview, prices: PriceBook, folder: RunDir, options: RunOptions
) -> None:
    """Nothing is refused while batch jobs are not done with: what they bring is paid for, or held, already,
    and stands among what is to be done.

    Raises
    ------
    UsageError
        what it is expected to cost at the least does not fit into what is left of the budget.
    """
    budget = config.experiment.budget_usd
    if budget is None or folder.pending_batches.exists():
        return
    from coeval.pipeline.plan.estimate.least_cost import least_cost_usd

    least = least_cost_usd(config, preview, prices)
    if least is not None:
        starts = ((CONTINUE, options.continue_run), (OVERWRITE, options.overwrite))
        as_started = "".join(f" {option.flag}" for option, given in starts if given)
        refuse_least(least, budget, read_accounts(folder.usage).values(), f"`coeval plan{as_started}`")
