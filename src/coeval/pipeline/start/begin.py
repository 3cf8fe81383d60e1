"""Starting a run: what must be true before the first item is asked for, and what is put in place."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from coeval import __version__
from coeval.analysis.planned_names import Planned
from coeval.core.errors import ConfigError, StoreError, UsageError
from coeval.core.options import CONTINUE, ONLY_MODELS, OVERWRITE
from coeval.engine.bounded_cost import refuse_boundless
from coeval.engine.probing import Probing, probe_models
from coeval.engine.progress import Board, Watcher
from coeval.engine.run_log import logged
from coeval.engine.session import Accounts, Session, SessionContext, opened
from coeval.engine.terms import Ceiling, batched_at_full_price, terms_of
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.open import check_askable, obstacle
from coeval.pipeline.config.draft import Draft
from coeval.pipeline.config.findings import render_path
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.resolve import Resolved, resolve_models, routes_of, sent_in_roles
from coeval.pipeline.config.schema import PHASES, Config, TaskConfig
from coeval.pipeline.phases.blueprint import Blueprint
from coeval.pipeline.phases.supplied import Supply, read_supply, with_found_labels
from coeval.pipeline.plan.changes import known_recipes
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.plan.run_plan import FED_BY
from coeval.pipeline.plan.what_counts import planned_names
from coeval.pipeline.run_session import RunOptions, RunSession
from coeval.pipeline.start.batched_models import batching_of, live_after_all
from coeval.pipeline.start.budgets import asked_under, inherited_usage, own_usage, refuse_too_dear
from coeval.pipeline.start.checks import Start, run_folder, start_findings
from coeval.pipeline.start.inherit import inherited_phases, phase_3_source, source_folder, take_over
from coeval.pipeline.start.overwrite import give_way
from coeval.pipeline.start.taken_over import remember_inherited
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route
from coeval.store.replacing import finish_replacing
from coeval.store.rundir import FOLDERS, Meta, RunDir, now

log = logging.getLogger("coeval")


@dataclass(slots=True)
class Begun:
    """A run whose models answer and whose folder is ours.

    ``preview`` is what a run that goes on found; ``blocked`` are tasks without a blueprint.
    """

    running: RunSession
    blueprint: Blueprint
    meta: Meta
    preview: Preview | None
    blocked: list[TaskConfig] = field(default_factory=list)


def check_startable(config: Config, options: RunOptions) -> None:
    """
    Raises
    ------
    UsageError
        the run cannot start as asked; nothing has been created.
    """
    start = Start(options.continue_run, options.overwrite, options.only_models)
    findings = list(start_findings(Draft(config.model_dump(), frozenset()), start))
    if findings:
        raise ConfigError([f"{render_path(f.path)}  {f.rule}  {f.message}" for f in findings])
    _refuse_for_nothing(config, options)


def _refuse_for_nothing(config: Config, options: RunOptions) -> None:
    """What stands is not moved away for a run that could not do anything."""
    if not (options.overwrite and options.only_models):
        return
    if not preview_run(config, options).plan_count.total().owed:
        raise UsageError(
            f"{OVERWRITE} with {ONLY_MODELS} {','.join(options.only_models)} leaves nothing to do: what they "
            f"take part in needs work of others first; use {CONTINUE}, or name those too"
        )


def resolved_models(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> Resolved:
    """The configuration with `auto` resolved; a run that goes on stays with the hosts it began with.

    Raises
    ------
    UsageError
        some model has no host that can be asked.
    """
    if all(model.interface != "auto" for model in config.models):
        return Resolved(config)
    before = _routes_before(run_folder(config)) if options.continue_run else {}
    return resolve_models(config, lambda interface: obstacle(interface, keys) is None, prices, before)


def _routes_before(folder: RunDir) -> dict[str, Route]:
    """The hosts that a run's models had at its last start; none where that can no longer be read."""
    try:
        return routes_of(load_config(folder.config))
    except (ConfigError, StoreError):
        return {}


@asynccontextmanager
async def begun(config: Config, options: RunOptions, context: SessionContext) -> AsyncIterator[Begun]:
    """Hold a run's folder, models and journal open while its phases run.

    Nothing is created before the configuration, the credentials and the items of benchmark
    teachers have been found to be in order.
    """
    keys, watcher = context.keys, context.watcher
    finish_replacing(run_folder(config))
    check_startable(config, options)
    prices = PriceBook()
    config, choices = resolved_models(config, options, keys, prices)
    for sentence in live_after_all(config):
        watcher.warn(sentence)
    context = replace(context, batching=batching_of(config, options.batches))
    folder = run_folder(config)
    supply = _checked_supply(config, options)
    specs = [model.spec() for model in config.models]
    check_askable(specs, keys)
    terms = terms_for(config, prices)
    for sentence in batched_at_full_price(specs, context.batching.phases, terms, prices):
        watcher.warn(sentence)
    with folder.locked():
        if not options.overwrite:
            known_recipes(folder)  # where they cannot be read, it is told before anything is asked
        if supply.changes:
            _unchanged_outlook(config, options)  # refused before any item gives way to another one
        supply.put(folder)
        accounts = accounts_of(folder, config, terms)
        with logged(folder.log, config.experiment.log_level):  # until the session's last word
            async with opened(accounts, specs, Board(PHASES, FED_BY), context, terms) as session:
                for choice in choices:
                    log.info("%s", choice)
                for remark in supply.remarks():
                    watcher.warn(remark)
                preview = _unchanged_outlook(config, options)
                if config.experiment.budget_usd is not None:
                    looked = preview or preview_run(config, options)
                    refuse_too_dear(config, looked, prices, session, options)
                probing = Probing(config.experiment.probe_mode, config.experiment.probe_on_fail)
                await probe_models(session, probing, owing(preview))
                if config.experiment.estimate_cost:
                    await _estimate(config, options, session, preview or preview_run(config, options))
                meta = _put_in_place(config, options, folder, watcher)
                settled = with_found_labels(config, supply)
                blueprint = Blueprint(
                    settled, folder, follow_file=options.continue_run, inherited=source_folder(config)
                )
                running = RunSession(settled, options, folder, session)
                yield Begun(running, blueprint, meta, preview if options.continue_run else None)


async def _estimate(config: Config, options: RunOptions, session: Session, preview: Preview) -> None:
    from coeval.pipeline.plan.estimate.estimate_at_start import estimate_at_start

    await estimate_at_start(config, preview, session, PriceBook(), phase_barriers=options.phase_barriers)


def terms_for(config: Config, prices: PriceBook) -> dict[str, Terms]:
    """On what terms a configuration's models are asked.

    Raises
    ------
    UsageError
        prices cannot be read, or there is a budget that they cannot be held to.
    """
    quotas = config.experiment.quota
    ceilings = {name: Ceiling(quota.max_calls, quota.max_cost_usd) for name, quota in quotas.items()}
    sent = {model.name: sent_in_roles(model) for model in config.models}
    terms = terms_of([model.spec() for model in config.models], ceilings, prices, sent)
    refuse_boundless(asked_under(config), terms, config.experiment.budget_usd)
    return terms


def accounts_of(folder: RunDir, config: Config, terms: Mapping[str, Terms]) -> Accounts:
    """Where a run keeps its account, and how far it goes, while the folder is `locked`."""
    costs = any(each.most is not None for each in terms.values())
    return Accounts(
        folder.usage,
        folder.errors,
        folder.probe_results,
        folder.pending_batches,
        folder.batches,
        _phase_of,
        config.experiment.budget_usd,
        own_usage(folder) if costs else {},
    )


def owing(preview: Preview | None) -> set[str] | None:
    """The models that have work; None where all may have some, as while phases 1–2 are open."""
    if preview is None or preview.unsettled:
        return None
    return preview.plan_count.owing()


def _phase_of(path: Path) -> str:
    return next((phase for phase, folder in FOLDERS.items() if folder == path.parent.name), "")


def _builds_on_its_own(config: Config, options: RunOptions) -> bool:
    """Whether the run starts from what its folder holds: all of it, or what phases have that are not New."""
    folder = run_folder(config)
    kept = [phase for phase in PHASES if config.experiment.mode(phase) != "New"]
    return options.continue_run or any(folder.holds(phase) for phase in kept)


def _unchanged_outlook(config: Config, options: RunOptions) -> Preview | None:
    """What a run that builds on records will find, once it is clear that they may be built on.

    Raises
    ------
    UsageError
        they were made by another configuration; nothing has been written.
    """
    builds = _builds_on_its_own(config, options) or config.experiment.resume_from is not None
    if not builds and config.experiment.probe_mode != "resume":
        return None
    preview = preview_run(config, options)
    preview.refuse_changed(options.stance)
    return preview


def _checked_supply(config: Config, options: RunOptions) -> Supply:
    """What benchmark teachers supply, once all of it can be used and none of them supplies nothing."""
    taken = None if options.continue_run else phase_3_source(config)
    supply = read_supply(config, run_folder(config), taken)
    supply.refuse_flawed()
    supply.need_items()
    return supply


def _put_in_place(config: Config, options: RunOptions, folder: RunDir, watcher: Watcher) -> Meta:
    """Let what is overwritten give way, and take over what ``resume_from`` names; write ``config.yaml`` and
    at last ``meta.json``, which makes the folder a run that can be continued."""
    experiment = config.experiment
    inherited = inherited_usage(config, folder, taking=not options.continue_run)
    if options.overwrite and (moved := give_way(config, folder)) is not None:
        watcher.note(f"what stood in {folder.path} of phases that are New is now in {moved}")
    source = source_folder(config)
    if source is not None and not options.continue_run:
        taken = take_over(config, source, folder)
        watcher.note(taken.done)
        if taken.left_out is not None:
            watcher.warn(taken.left_out)
        remember_inherited(config, source, folder, inherited_phases(config), _counted(source))
    if options.continue_run:
        meta = folder.read_meta()
        meta.phases_completed, meta.status = [], "running"
    else:
        meta = Meta(
            experiment_id=experiment.id,
            status="running",
            created_at=now(),
            updated_at=now(),
            resume_from=experiment.resume_from,
        )
    meta.coeval_version = __version__
    meta.inherited = inherited
    meta.simulated = any(model.interface == "simulated" for model in config.models)
    meta.phases_in_progress = list(PHASES)
    if options.batches.asks:  # else the configuration is the folder's own
        folder.write_config(config.model_dump(mode="json", exclude_unset=True))
    folder.write_meta(meta)
    return meta


def _counted(source: RunDir) -> Planned | None:
    """What counts in a source; all of it where its own configuration cannot be read."""
    try:
        return planned_names(source)
    except (ConfigError, StoreError):
        return None
