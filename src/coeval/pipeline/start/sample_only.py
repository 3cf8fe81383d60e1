"""Asking the models of an experiment for a few samples, and nothing else: so that an estimate knows them."""

from __future__ import annotations

from collections.abc import Iterable

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.options import NO_SAMPLES
from coeval.core.text import dollars
from coeval.engine.model_work import Asking
from coeval.engine.progress import Board
from coeval.engine.session import Session, SessionContext, opened
from coeval.engine.waiting import unless_interrupted
from coeval.models.open import obstacle_to
from coeval.pipeline.config.schema import PHASES, Config
from coeval.pipeline.plan.estimate.live_samples import LiveSamples, sampled_models, short_ceilings
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.run_plan import FED_BY
from coeval.pipeline.start.begin import accounts_of, terms_for
from coeval.pipeline.start.checks import run_folder
from coeval.pricing.estimate.evidence import Evidence
from coeval.pricing.price_book import PriceBook

__all__ = ["sample_only"]


async def sample_only(
    config: Config, preview: Preview, evidence: Evidence, prices: PriceBook, context: SessionContext
) -> None:
    """Add to ``evidence`` what ``experiment.estimate_samples`` of each model tell, whatever its roles. A
    model that cannot be asked is told; what is sent counts in the run's folder, against the ceilings of
    models.

    Raises
    ------
    UsageError
        the run is at work: its folder counts what it sends by itself.
    StoreError
        the folder cannot be written.
    Draining
        somebody interrupted it.
    """
    each, folder = config.experiment.estimate_samples, run_folder(config)
    wanted = sampled_models(preview)
    askable = []
    for spec in (model.spec() for model in config.models if model.name in wanted):
        if (why := obstacle_to(spec, context.keys)) is None:
            askable.append(spec)
        else:
            context.watcher.warn(f"no samples of {spec.name}: {why}")
    if not each or not askable:
        return
    samples = LiveSamples(config, preview, evidence, [spec.name for spec in askable], each)
    if (writer := folder.writer()) is not None:
        raise UsageError(
            f"{folder.path} is in use by process {writer}, and samples would count there too; wait for "
            f"it, or estimate without samples ({NO_SAMPLES})"
        )
    with folder.locked():
        terms = terms_for(config, prices)
        async with opened(
            accounts_of(folder, config, terms), askable, Board(PHASES, FED_BY), context, terms
        ) as session:
            before = _spent(askable, session)
            await unless_interrupted(
                samples.ask(Asking(session.models, 0), context.watcher),
                context.interrupt,
                "stopped while samples were being asked for; nothing was run",
            )
            if cost := _spent(askable, session) - before:
                context.watcher.note(
                    f"samples cost {dollars(cost)}: {folder.usage} keeps it, and it counts towards the "
                    "budgets of the run"
                )
            for sentence in short_ceilings(config, preview, session.ledger):
                context.watcher.warn(sentence)


def _spent(specs: Iterable[ModelSpec], session: Session) -> float:
    return sum(session.ledger.meter(spec.name).spent_usd for spec in specs)
