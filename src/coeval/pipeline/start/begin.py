"""Starting a run: what must be true before the first item is asked for, and what is put in place."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from coeval import __version__
from coeval.analysis.planned_names import Planned
from coeval.core.errors import ConfigError, StoreError, UsageError
from coeval.core.options import CONTINUE, ONLY_MODELS, OVERWRITE
from coeval.core.records import Purpose, Usage
from coeval.engine.probing import Probing, probe_models
from coeval.engine.progress import Board, Watcher
from coeval.engine.session import Accounts, Session, SessionContext, logged, opened
from coeval.engine.terms import (
    AskedUnder,
    Ceiling,
    batched_at_full_price,
    refuse_boundless,
    refuse_least,
    terms_of,
)
from coeval.models.batch.waiting.job_list import Batching, BatchMode, PollPace
from coeval.models.catalog import HOSTS
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
from coeval.pipeline.plan.count_plan import known_recipes
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.plan.run_plan import FED_BY
from coeval.pipeline.plan.what_counts import planned_names
from coeval.pipeline.run_session import RunOptions, RunSession
from coeval.pipeline.start.checks import Start, run_folder, start_findings
from coeval.pipeline.start.inherit import (
    give_way,
    inherited_phases,
    phase_3_source,
    remember_inherited,
    source_folder,
    take_over,
)
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route
from coeval.store.record_usage import less, usage_on_record
from coeval.store.rundir import FOLDERS, Meta, RunDir, finish_replacing, now

# --- Which models of an experiment go by batch jobs, in which phases


def batching_of(config: Config, mode: BatchMode) -> Batching:
    """What goes by batch jobs; every `auto` is resolved by now.

    Raises
    ------
    UsageError
        a model is to go by batch jobs whose interface has none.
    """
    phases: dict[str, frozenset[Purpose]] = {}
    for model in config.models:
        wanted = config.batched_phases(model)
        if wanted and HOSTS[model.interface].batch:
            phases[model.name] = wanted
        elif wanted and not model.batch_enabled:
            raise UsageError(
                f"experiment.batch.{model.interface}: batch jobs of this interface cannot be submitted by "
                "this version; leave the setting out to ask live, at live prices"
            )
    return Batching(phases, PollPace(*config.experiment.batch_poll_s), mode)


def live_after_all(config: Config) -> Iterator[str]:
    """A sentence on each model that was to go by batch jobs, and whose host has none."""
    for model in config.models:
        if model.batch_enabled and not HOSTS[model.interface].batch:
            yield (
                f"models.{model.name}.batch_enabled: the interface {model.interface} has no Batch API here; "
                "it is asked live, at live prices"
            )


# --- What a run's budget is held against before its first request


def asked_under(config: Config) -> Iterator[AskedUnder]:
    """The models of an experiment in each of their roles; benchmark teachers are not asked."""
    for model in config.models:
        if model.interface != "benchmark":
            for role in model.roles:
                yield AskedUnder(model.spec(), model.sampling(role))


def own_usage(folder: RunDir) -> dict[str, Usage]:
    """What the records of a run took, by model, less those that it took over; nothing where nobody noted what
    those took.

    Raises
    ------
    StoreError
        they cannot be read.
    """
    meta = folder.read_meta() if folder.meta.exists() else None
    if meta is not None and meta.resume_from is not None and meta.inherited is None:
        return {}
    whole = usage_on_record(_record_files(folder))
    return less(whole, meta.inherited) if meta is not None and meta.inherited else whole


def inherited_usage(config: Config, folder: RunDir, *, taking: bool) -> dict[str, Usage] | None:
    """What the records took that a run has taken over before it starts, and takes over now where it is
    ``taking``; see `Meta.inherited`."""
    meta = folder.read_meta() if folder.meta.exists() else None
    source = source_folder(config) if taking else None
    if source is None:
        return meta.inherited if meta is not None else None
    files = []
    for phase in inherited_phases(config):
        if phase in PHASES[2:]:
            to_come = source.files(phase)
            new = [path for path in to_come if not (folder.folder(phase) / path.name).exists()]
            # A start that ended before it wrote meta.json has asked for nothing: what lies there was copied.
            files += [*new, *(folder.files(phase) if meta is None else ())]
    before = meta.inherited if meta is not None and meta.inherited else {}
    found = usage_on_record(files)
    return {
        name: before.get(name, Usage(cost_usd=0.0)) + found.get(name, Usage(cost_usd=0.0))
        for name in before | found
    }


def _record_files(folder: RunDir) -> list[Path]:
    return [path for phase in PHASES[2:] for path in folder.files(phase)]


def refuse_too_dear(
    config: Config, preview: Preview, prices: PriceBook, session: Session, options: RunOptions
) -> None:
    """A run that goes on is not refused: it goes as far as the money carries. Nor is one while batch jobs are
    not done with: what they bring is paid for, or held, already, and stands among what is to be done.

    Raises
    ------
    UsageError
        what it is expected to cost at the least does not fit into what is left of the budget.
    """
    budget = config.experiment.budget_usd
    if budget is None or options.continue_run or session.accounts.jobs.exists():
        return
    from coeval.pipeline.plan.estimate.run_estimate import least_cost_usd

    least = least_cost_usd(config, preview, prices)
    if least is not None:
        as_started = f" {OVERWRITE.flag}" if options.overwrite else ""
        refuse_least(least, budget, session.ledger.accounts, f"`coeval plan{as_started}`")


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
