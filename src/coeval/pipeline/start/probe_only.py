"""Trying the models of an experiment, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

from coeval.engine.probing import Probing, try_models
from coeval.engine.progress import Board
from coeval.engine.session import SessionContext, opened
from coeval.models.open import check_askable
from coeval.models.probe import ProbeResult
from coeval.pipeline.config.schema import PHASES, Config
from coeval.pipeline.plan.preview import preview_run
from coeval.pipeline.plan.run_plan import FED_BY
from coeval.pipeline.run_session import RunOptions
from coeval.pipeline.start.begin import accounts_of, owing, resolved_models, terms_for
from coeval.pipeline.start.checks import run_folder
from coeval.pricing.price_book import PriceBook

__all__ = ["Probed", "probe_only"]


class Probed(NamedTuple):
    """The configuration, `auto` resolved, and what was found of its models."""

    config: Config
    results: list[ProbeResult]


async def probe_only(config: Config, probing: Probing, context: SessionContext) -> Probed:
    """Find out which of a configuration's models can be asked, as a start of its run does, and write
    ``probe_results.json`` into its folder. What is sent counts there, against the ceilings of models.

    With the mode ``resume`` those are tried that have work left in the run, all of them where there is none.

    Raises
    ------
    UsageError
        a model cannot be asked at all: it has no address or no key.
    StoreError
        the run is at work, or its folder cannot be written.
    Draining
        somebody interrupted it.
    """
    prices, options = PriceBook(), RunOptions(continue_run=run_folder(config).meta.exists())
    config = resolved_models(config, options, context.keys, prices).config
    folder, specs, terms = (
        run_folder(config),
        [model.spec() for model in config.models],
        terms_for(config, prices),
    )
    check_askable(specs, context.keys)
    if probing.mode == "disable":
        return Probed(config, [])
    with folder.locked():
        begun = probing.mode == "resume" and options.continue_run
        work_left = owing(preview_run(config, options)) if begun else None
        accounts = accounts_of(folder, config, terms)
        async with opened(accounts, specs, Board(PHASES, FED_BY), context, terms) as session:
            return Probed(config, await try_models(session, probing, work_left))
