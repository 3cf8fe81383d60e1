"""The estimate of a start: its configuration as it would be asked, what it owes, and what that costs."""

from __future__ import annotations

from typing import NamedTuple

from coeval.core.errors import KeyMissing
from coeval.models.keys import Keys
from coeval.pipeline.config.resolve import Resolved, resolve_models
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.forecast import expected
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.run_session import RunOptions
from coeval.pipeline.start.begin import check_startable, resolved_models
from coeval.pricing.price_book import PriceBook

__all__ = ["EstimatedStart", "described_start", "estimated_start"]


class EstimatedStart(NamedTuple):
    """``config`` has no `auto` any more; ``choices`` are sentences on what it stands for, ``warnings`` on
    what of the file is not carried out as it stands."""

    config: Config
    preview: Preview
    choices: tuple[str, ...]
    warnings: tuple[str, ...]


def estimated_start(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> EstimatedStart:
    """What a run that starts now would find; nothing is asked, created or changed.

    Raises
    ------
    UsageError
        it would not start, for another reason than that a credential is lacking.
    """
    check_startable(config, options)
    start = described_start(config, options, keys, prices)
    start.preview.refuse_changed(options.stance)
    return start


def described_start(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> EstimatedStart:
    """As `estimated_start`, whether or not the run could start so: an experiment can be shown at any time.

    Raises
    ------
    UsageError
        a model has no host, or items of one's own cannot be used.
    """
    resolved, unresolved = _resolved(config, options, keys, prices)
    preview = preview_run(resolved.config, options)
    warnings = expected(resolved.config, preview).warnings
    return EstimatedStart(resolved.config, preview, resolved.choices, (*unresolved, *warnings))


def _resolved(
    config: Config, options: RunOptions, keys: Keys, prices: PriceBook
) -> tuple[Resolved, tuple[str, ...]]:
    """Without a credential for any of its hosts, `auto` is priced as the cheapest of them."""
    try:
        return resolved_models(config, options, keys, prices), ()
    except KeyMissing as error:
        resolved = resolve_models(config, lambda _: True, prices)
        return resolved, (f"priced as the cheapest host, and a run would not start (exit code 1): {error}",)
