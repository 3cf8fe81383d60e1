"""Starts that stop early: probing the models of an experiment, or asking them for a few samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.options import NO_SAMPLES
from coeval.core.text import dollars
from coeval.engine.probing import Probing, try_models
from coeval.engine.session import Session, SessionContext
from coeval.models.open import check_askable, obstacle_to
from coeval.models.probe import ProbeResult
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.live_samples import add_samples, sampled_models
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.start.open_start import Opening, open_start, owing, resolved_models
from coeval.pricing.lengths import Lengths
from coeval.pricing.price_book import PriceBook

# --- Probing the models alone


class Probed(NamedTuple):
    """The configuration, ``auto`` resolved, and what was found of its models."""

    config: Config
    results: list[ProbeResult]


async def probe_only(config: Config, probing: Probing, context: SessionContext) -> Probed:
    """Find out which of a configuration's models can be asked, as a start of its run does, and write
    ``probe_results.json`` into its folder. What is sent counts there, against the ceilings of models.

    With the mode ``resume`` those are tried that have work left in the run, all of them where there is none.

    Raises UsageError: a model cannot be asked at all: it has no address or no key; StoreError: the run is at
    work, or its folder cannot be written; Draining: somebody interrupted it.
    """
    prices, options = PriceBook(), RunOptions.so_far(config)
    config = resolved_models(config, options, context.keys, prices).config
    if probing.mode == "disable":
        check_askable([model.spec() for model in config.models], context.keys)
        return Probed(config, [])
    async with open_start(config, prices, context) as session:
        begun = probing.mode == "resume" and options.continue_run
        work_left = owing(preview_run(config, options)) if begun else None
        return Probed(config, await try_models(session, probing, work_left))


async def sample_only(
    config: Config, preview: Preview, lengths: Lengths, prices: PriceBook, context: SessionContext
) -> None:
    """Add to ``lengths`` what ``experiment.estimate_samples`` of each model show, whatever its roles. A
    model that cannot be asked is reported; what is sent counts in the run's folder, against the ceilings of
    models.

    Raises UsageError: the run is at work: its folder counts what it sends by itself; StoreError: the folder
    cannot be written; Draining: somebody interrupted it.
    """
    folder = run_folder(config)
    needed = sampled_models(preview)
    askable = []
    for spec in (model.spec() for model in config.models if model.name in needed):
        if (why := obstacle_to(spec, context.keys)) is None:
            askable.append(spec)
        else:
            context.watcher.warn(f"no samples of {spec.name}: {why}")
    if not config.experiment.estimate_samples or not askable:
        return
    if (writer := folder.writer()) is not None:
        raise UsageError(
            f"{folder.path} is in use by process {writer}, and samples would count there too; wait for "
            f"it, or estimate without samples ({NO_SAMPLES})"
        )
    async with open_start(config, prices, context, Opening(askable)) as session:
        before = _spent(askable, session)
        await add_samples(config, preview, lengths, [spec.name for spec in askable], session)
        if cost := _spent(askable, session) - before:
            context.watcher.note(
                f"samples cost {dollars(cost)}: {folder.usage} keeps it, and it counts towards the "
                "budgets of the run"
            )


def _spent(specs: Iterable[ModelSpec], session: Session) -> float:
    return sum(session.ledger.meter(spec.name).spent_usd for spec in specs)
