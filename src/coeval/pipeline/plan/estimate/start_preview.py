"""A start previewed for its estimate, and what batch jobs would save."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from coeval.core.errors import KeyMissing
from coeval.core.text import join_names
from coeval.models.keys import Keys
from coeval.pipeline.config.resolve import resolve_models
from coeval.pipeline.config.schema import BATCH_INTERFACES, Config
from coeval.pipeline.plan.estimate.run_estimate import EstimateInputs, estimate_run
from coeval.pipeline.plan.preview import Preview, forecast_calls, preview_run
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.start.session_start import resolve_hosts
from coeval.pricing.estimate import Estimate, Saving
from coeval.pricing.price_book import PriceBook


class PreviewedStart(NamedTuple):
    """A previewed start. ``config`` has no ``auto``; ``choices`` say what it was resolved to, ``warnings``
    which settings will not be followed as written."""

    config: Config
    preview: Preview
    choices: tuple[str, ...]
    warnings: tuple[str, ...]


def preview_start(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> PreviewedStart:
    """Preview a start, whether or not the run could start: experiments can always be shown. Without a
    credential for any host, ``auto`` is priced as the cheapest one, with a warning. Raises UsageError: a
    model has no host, or supplied items cannot be used."""
    warnings = list[str]()
    try:
        resolved = resolve_hosts(config, options, keys, prices)
    except KeyMissing as error:
        resolved = resolve_models(config, lambda _: True, prices)
        warnings.append(f"priced as the cheapest host, and a run would not start (exit code 1): {error}")
    preview = preview_run(resolved.config, options)
    warnings += forecast_calls(resolved.config, preview).warnings
    return PreviewedStart(resolved.config, preview, resolved.choices, tuple(warnings))


_LEAST_SHARE, _LEAST_USD = 0.05, 0.01
"""A change that saves less than this is not worth the words."""


def add_batch_savings(
    estimate: Estimate, config: Config, preview: Preview, assumed: EstimateInputs
) -> Estimate:
    """Add to an estimate what it would be if all models that can used batch jobs."""
    now, lines = estimate.total.cost_usd, estimate.by_model
    able = [
        model.name
        for model in config.models
        if model.interface in BATCH_INTERFACES
        and model.name in lines
        and (cost := lines[model.name].cost_usd) is not None
        and cost.central
        and model.batch_enabled is None
        and not config.batched_phases(model)
    ]
    if now is None or not able:
        return estimate
    models = [m.model_copy(update={"batch_enabled": True}) if m.name in able else m for m in config.models]
    after = estimate_run(config.model_copy(update={"models": models}), preview, assumed).total.cost_usd
    if after is None or now.central - after.central < max(_LEAST_USD, _LEAST_SHARE * now.central):
        return estimate
    words = f"batch jobs for {join_names(able, most=2)} (batch_enabled: true)"
    return msgspec.structs.replace(estimate, savings=(Saving(words, after),))
