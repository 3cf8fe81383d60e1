"""What `coeval describe` shows of an experiment: worked out of its file and folder."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.core.errors import UsageError
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.pipeline.config.doubts import doubts
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.estimated_start import EstimatedStart, described_start
from coeval.pipeline.plan.estimate.on_record import evidence_of
from coeval.pipeline.plan.estimate.run_estimate import Assumed, estimate_run
from coeval.pipeline.plan.estimate.savings import with_savings
from coeval.pipeline.run_session import RunOptions
from coeval.pipeline.start.checks import run_folder
from coeval.pricing.price_book import PriceBook
from coeval.reports.description.description_report import DescribedExperiment

__all__ = ["described_experiment"]


def described_experiment(config: Config, keys: Keys) -> DescribedExperiment:
    """What is left of its run where it has begun, else all of it; nothing is asked, created or changed.

    Raises
    ------
    UsageError
        a model has no host, or items of one's own cannot be used.
    """
    prices = PriceBook()
    prices.refuse_strangers(HOSTS, HOSTS.own)
    options = RunOptions(continue_run=run_folder(config).meta.exists())
    start = described_start(config, options, keys, prices)
    assumed = Assumed(prices, evidence_of(start.config, start.preview))
    estimate = estimate_run(start.config, start.preview, assumed)
    estimate = with_savings(estimate, start.config, start.preview, options, assumed)
    warnings = (*doubts(config), *start.warnings, *_changed(start, options), *start.choices)
    return DescribedExperiment(start.config, start.preview, options, estimate, warnings)


def _changed(start: EstimatedStart, options: RunOptions) -> Iterator[str]:
    """Why the run could not go on as it is, where records of another configuration stand."""
    try:
        start.preview.refuse_changed(options.stance)
    except UsageError as changed:
        yield str(changed)
