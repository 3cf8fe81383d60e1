"""What would make a run cheaper: changes of its plan, each with the figure that the changed plan comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from coeval.core.errors import KeyMissing
from coeval.core.text import listed
from coeval.engine.terms import tariff_of_roles
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.pipeline.config.draft import BENCHMARK
from coeval.pipeline.config.resolve import Resolved, resolve_models, sent_in_roles
from coeval.pipeline.config.schema import BATCH_INTERFACES, Config, ModelConfig
from coeval.pipeline.plan.estimate.run_estimate import Assumed, estimate_run
from coeval.pipeline.plan.preview import Preview, expected, preview_run
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.start.open_start import resolved_models
from coeval.pricing.estimate import Estimate, Saving
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import blended_usd
from coeval.pricing.tariff import Tariff

# --- The estimate of a start: its configuration as it would be asked, what it owes, and what that costs


class EstimatedStart(NamedTuple):
    """``config`` has no ``auto`` any more; ``choices`` are sentences on what it stands for, ``warnings`` on
    what of the file is not carried out as it stands."""

    config: Config
    preview: Preview
    choices: tuple[str, ...]
    warnings: tuple[str, ...]


def estimated_start(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> EstimatedStart:
    """What a run that starts now would find; nothing is asked, created or changed.

    Raises UsageError: it would not start, for another reason than that a credential is lacking.
    """
    start = described_start(config, options, keys, prices)
    start.preview.refuse(options)
    return start


def described_start(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> EstimatedStart:
    """As `estimated_start`, whether or not the run could start so: an experiment can be shown at any time.

    Raises UsageError: a model has no host, or items of one's own cannot be used.
    """
    resolved, unresolved = _resolved(config, options, keys, prices)
    preview = preview_run(resolved.config, options)
    warnings = expected(resolved.config, preview).warnings
    return EstimatedStart(resolved.config, preview, resolved.choices, (*unresolved, *warnings))


def _resolved(
    config: Config, options: RunOptions, keys: Keys, prices: PriceBook
) -> tuple[Resolved, tuple[str, ...]]:
    """Without a credential for any of its hosts, ``auto`` is priced as the cheapest of them."""
    try:
        return resolved_models(config, options, keys, prices), ()
    except KeyMissing as error:
        resolved = resolve_models(config, lambda _: True, prices)
        return resolved, (f"priced as the cheapest host, and a run would not start (exit code 1): {error}",)


_LEAST_SHARE, _LEAST_USD = 0.05, 0.01
"""A change that saves less than this is not worth the words."""
# A line each on the screen of a plan; further judges would save alike.
_MOST_JUDGES = 3


class _Change(NamedTuple):
    """``plans_anew``: what is owed is another; ``judged_by``: see `Assumed`."""

    words: str
    config: Config
    judged_by: Mapping[str, ModelConfig] = MappingProxyType({})
    plans_anew: bool = False


def with_savings(
    estimate: Estimate, config: Config, preview: Preview, options: RunOptions, assumed: Assumed
) -> Estimate:
    """The estimate with what would make it cheaper, what saves the most first."""
    now = estimate.total.cost_usd
    if now is None:
        return estimate
    least, savings = max(_LEAST_USD, _LEAST_SHARE * now.central), dict[str, Saving]()
    judges = _judges(config, estimate, assumed)
    for change in (*_batches(config, estimate), *judges, *_single(config, options)):
        plan = preview_run(change.config, options) if change.plans_anew else preview
        changed = estimate_run(change.config, plan, assumed._replace(judged_by=change.judged_by))
        after = changed.total.cost_usd
        if after is not None and now.central - after.central >= least:
            savings[change.words] = Saving(change.words, after)
    cheapest_first = sorted(savings.values(), key=lambda saving: saving.cost_usd.central)
    return msgspec.structs.replace(estimate, savings=tuple(cheapest_first))


def _batches(config: Config, estimate: Estimate) -> Iterator[_Change]:
    """All that can go by batch jobs, by these."""
    able = [
        model.name
        for model in config.models
        if model.interface in BATCH_INTERFACES
        and _cost(estimate, model.name)
        and model.batch_enabled is None
        and not config.batched_phases(model)
    ]
    if able:
        models = [
            each.model_copy(update={"batch_enabled": True}) if each.name in able else each
            for each in config.models
        ]
        words = f"batch jobs for {listed(able, most=2)} (batch_enabled: true)"
        yield _Change(words, config.model_copy(update={"models": models}))


def _judges(config: Config, estimate: Estimate, assumed: Assumed) -> Iterator[_Change]:
    """A cheaper model in the place of one of the most expensive judges: of the file, or of the same
    host's."""
    judges = [model for model in config.with_role("judge") if _cost(estimate, model.name)]
    judges.sort(key=lambda model: -_cost(estimate, model.name))
    for judge in judges[:_MOST_JUDGES]:
        price = blended_usd(_tariff(judge, assumed.prices))
        for other in (_of_file(config, assumed.prices), _of_host(judge, assumed.prices)):
            if other is not None and blended_usd(_tariff(other, assumed.prices)) < price:
                yield _judged_by(config, judge, other)


def _judged_by(config: Config, judge: ModelConfig, other: ModelConfig) -> _Change:
    model = other.spec().model
    parameters = {**other.parameters, "model": model}
    requested = other.model_copy(update={"name": f"{judge.name} by {model}", "parameters": parameters})
    return _Change(f"{model} as judge in the place of {judge.name}", config, {judge.name: requested})


def _of_file(config: Config, prices: PriceBook) -> ModelConfig | None:
    """The cheapest of the file's models that is asked over a network and judges nothing yet."""
    able = [
        m
        for m in config.models
        if "judge" not in m.roles and not HOSTS[m.interface].local and m.interface != BENCHMARK
    ]
    return min(able, key=lambda model: blended_usd(_tariff(model, prices)), default=None)


def _of_host(judge: ModelConfig, prices: PriceBook) -> ModelConfig | None:
    """The cheapest of the models at the judge's host that the price book routes to."""
    if judge.spec().base_url is not None:
        return None
    ids = dict.fromkeys(
        route.model
        for routes in prices.table.auto_routing.values()
        for route in routes
        if route.interface == judge.interface
    )
    return min(
        map(judge.requested_as, ids), key=lambda model: blended_usd(_tariff(model, prices)), default=None
    )


def _single(config: Config, options: RunOptions) -> Iterator[_Change]:
    """One call for all factors, in a run that has no judgments yet."""
    alone = [task.name for task in config.tasks if task.evaluation_mode == "per_factor"]
    if alone and not options.continue_run and config.experiment.resume_from is None:
        tasks = [task.model_copy(update={"evaluation_mode": "single"}) for task in config.tasks]
        words = f"evaluation_mode: single for {', '.join(alone)}"
        yield _Change(words, config.model_copy(update={"tasks": tasks}), plans_anew=True)


def _cost(estimate: Estimate, model: str) -> float:
    line = estimate.by_model.get(model)
    return line.cost_usd.central if line is not None and line.cost_usd is not None else 0.0


def _tariff(model: ModelConfig, prices: PriceBook) -> Tariff | None:
    return tariff_of_roles(model.spec(), sent_in_roles(model), prices)
