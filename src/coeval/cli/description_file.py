"""The description of an experiment as a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coeval.core.errors import UsageError
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.pipeline.config.doubts import doubts
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.run_estimate import Assumed, estimate_run
from coeval.pipeline.plan.estimate.savings import EstimatedStart, described_start, with_savings
from coeval.pipeline.plan.estimate.seen_lengths import seen_lengths
from coeval.pipeline.run_options import RunOptions
from coeval.pricing.price_book import PriceBook
from coeval.reports.content import Report
from coeval.reports.description_report import DescribedExperiment
from coeval.reports.site.page import write_page
from coeval.store.jsonl import write_bytes_atomic

# --- Experiment description of `coeval describe`


def described_experiment(config: Config, keys: Keys) -> DescribedExperiment:
    """What is left of its run where it has begun, else all of it; nothing is asked, created or changed.

    Raises UsageError: a model has no host, or items of one's own cannot be used.
    """
    prices = PriceBook()
    prices.refuse_strangers(HOSTS, HOSTS.own)
    options = RunOptions.so_far(config)
    start = described_start(config, options, keys, prices)
    assumed = Assumed(prices, seen_lengths(start.config, start.preview))
    estimate = estimate_run(start.config, start.preview, assumed)
    estimate = with_savings(estimate, start.config, start.preview, options, assumed)
    warnings = (*doubts(config), *start.warnings, *_changed(start, options), *start.choices)
    return DescribedExperiment(start.config, start.preview, options, estimate, warnings)


def _changed(start: EstimatedStart, options: RunOptions) -> Iterator[str]:
    """Why the run could not go on as it is, where records of another configuration stand."""
    try:
        start.preview.refuse(options)
    except UsageError as changed:
        yield str(changed)


def refuse_place(place: Path, config: Path) -> None:
    """
    Raises UsageError: a page cannot, or should not, take that place.
    """
    if place.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{place} is to be a page; end its name in .html (a browser prints it)")
    if place.is_dir() or (place.exists() and place.samefile(config)):
        raise UsageError(f"{place} cannot be replaced by a page; name a new file")
    if not place.parent.is_dir():
        raise UsageError(f"{place}: there is no folder {place.parent}; make it, or name another")


def write_description(report: Report, place: Path) -> None:
    """Write it, in place of an older one.

    Raises StoreError: it cannot be written.
    """
    write_bytes_atomic(place, write_page(report))
