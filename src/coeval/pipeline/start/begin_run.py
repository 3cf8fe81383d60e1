"""The start of a run: what must be true before the first item is asked for, and what is put in place."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from coeval import __version__
from coeval.analysis.planned_names import Planned
from coeval.core.errors import ConfigError, StoreError
from coeval.core.options import OVERWRITE
from coeval.core.records import Purpose, Usage
from coeval.engine.probing import Probing, probe_models
from coeval.engine.progress import Watcher
from coeval.engine.session import Session, SessionContext
from coeval.engine.terms import refuse_least
from coeval.models.batch.job_list import Batching, BatchMode, PollPace
from coeval.models.catalog import HOSTS
from coeval.pipeline.config.schema import PHASES, Config, TaskConfig
from coeval.pipeline.phases.blueprint import Blueprint
from coeval.pipeline.phases.supplied import with_found_labels
from coeval.pipeline.plan.count_plan import read_recipes
from coeval.pipeline.plan.preview import Preview, preview_run, supply_of
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.plan.what_counts import planned_names
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.run_session import RunSession
from coeval.pipeline.start.checks import refuse_bad_start
from coeval.pipeline.start.inherit import (
    give_way,
    inherited_phases,
    remember_inherited,
    source_folder,
    take_over,
)
from coeval.pipeline.start.open_start import (
    SessionOptions,
    lock_and_open_session,
    owing,
    requested_under,
    resolve_hosts,
)
from coeval.pricing.price_book import PriceBook
from coeval.store.record_index import usage_on_record
from coeval.store.rundir import RECORD_FILES, Meta, RunDir, finish_replacing, now, phase_of_files

log = logging.getLogger("coeval")


@dataclass(slots=True)
class StartedRun:
    """A run whose models answer and whose folder is ours.

    ``preview`` is what was found before anything was put in place; ``blocked`` are tasks without a blueprint.
    """

    running: RunSession
    blueprint: Blueprint
    meta: Meta
    preview: Preview
    blocked: list[TaskConfig] = field(default_factory=list)

    @property
    def as_previewed(self) -> bool:
        """Whether the preview's plan is the run's: its blueprint is settled and its records lie where they
        were read."""
        settled = not self.preview.unsettled and not self.blocked
        return settled and self.preview.standing.path.absolute() == self.running.folder.path


@asynccontextmanager
async def start_run(
    config: Config, options: RunOptions, context: SessionContext
) -> AsyncIterator[StartedRun]:
    """Hold a run's folder, models and journal open while its phases run. What there is and what is owed is
    worked out once (`StartedRun.preview`), while the folder is locked.

    Nothing is created before the configuration, the credentials and the items of benchmark
    teachers have been found to be in order.
    """
    watcher, prices, folder = context.watcher, PriceBook(), run_folder(config)
    if folder.replacing.exists():
        finish_replacing(folder)
        refuse_bad_start(config, options)  # another folder now than the one that was checked
    config, choices = resolve_hosts(config, options, context.keys, prices)
    context = replace(context, batching=_batching_of(config, options.batches, watcher))
    supply = supply_of(config, options)
    supply.need_items()
    opening = SessionOptions([model.spec() for model in options.opened(config)], log=True)
    async with lock_and_open_session(config, prices, context, opening) as session:
        for choice in choices:
            log.info("%s", choice)
        if not options.overwrite:
            read_recipes(folder)  # where they cannot be read, it is told before anything is asked
        preview = preview_run(config, options, supply)
        preview.refuse(options)
        for remark in supply.remarks():
            watcher.warn(remark)
        _refuse_too_dear(config, preview, prices, session, options)
        probing = Probing(config.experiment.probe_mode, config.experiment.probe_on_fail)
        requested = requested_under(config) if options.batches.asks else ()
        await probe_models(session, probing, owing(preview), requested)
        if config.experiment.estimate_cost:
            from coeval.pipeline.plan.estimate.live_samples import estimate_at_start

            await estimate_at_start(config, preview, session, prices, phase_barriers=options.phase_barriers)
        _record_look(config, options, preview, watcher)
        supply.put(folder)
        meta = _put_in_place(config, options, folder, watcher)
        settled = with_found_labels(config, supply)
        if preview.standing.path == folder.path:
            for files in preview.plan.recorded.files:
                files.written()
        supply.forget()
        anchored = folder.anchored()
        blueprint = Blueprint(
            settled, anchored, follow_file=options.continue_run, inherited=source_folder(config)
        )
        running = RunSession(settled, options, anchored, session)
        running.summary.notes += [remark for answers in supply.answers for remark in answers.said]
        yield StartedRun(running, blueprint, meta, preview)


def _batching_of(config: Config, mode: BatchMode, watcher: Watcher) -> Batching:
    """What goes by batch jobs; every ``auto`` is resolved by now, and may stand for a host that has none."""
    phases: dict[str, frozenset[Purpose]] = {}
    for model in config.models:
        if HOSTS[model.interface].batch:
            phases[model.name] = config.batched_phases(model)
        elif model.batch_enabled:
            watcher.warn(
                f"models.{model.name}.batch_enabled: the interface {model.interface} has no Batch API here; "
                "it is asked live, at live prices"
            )
    needed = {name: of for name, of in phases.items() if of}
    return Batching(needed, PollPace(*config.experiment.batch_poll_s), mode)


def _refuse_too_dear(
    config: Config, preview: Preview, prices: PriceBook, session: Session, options: RunOptions
) -> None:
    """A run that goes on is not refused: it goes as far as the money carries. Nor is one while batch jobs are
    not done with: what they bring is paid for, or held, already, and stands among what is to be done.

    Raises UsageError: what it is expected to cost at the least does not fit into what is left of the budget.
    """
    budget = config.experiment.budget_usd
    if budget is None or options.continue_run or session.accounts.jobs.exists():
        return
    from coeval.pipeline.plan.estimate.run_estimate import least_cost_usd

    least = least_cost_usd(config, preview, prices)
    if least is not None:
        as_started = f" {OVERWRITE.flag}" if options.overwrite else ""
        refuse_least(least, budget, session.ledger.accounts, f"`coeval plan{as_started}`")


def _record_look(config: Config, options: RunOptions, preview: Preview, watcher: Watcher) -> None:
    """Record a look at the run whose scores this start adds to, if it was finished and gets more items."""
    folder = run_folder(config)
    source = folder if options.continue_run else source_folder(config)
    if source is None or not any(preview.plan_count.total(phase).owed for phase in FLOWING):
        return
    if source is not folder and "evaluation" not in inherited_phases(config):
        return  # its scores are not among those to come
    from coeval.pipeline.plan.run_reading import record_extension

    planned = preview.plan_count.total("data_generation").planned
    if unwritten := record_extension(source, folder, planned):
        watcher.warn(unwritten)


def _put_in_place(config: Config, options: RunOptions, folder: RunDir, watcher: Watcher) -> Meta:
    """Let what is overwritten give way, and take over what ``resume_from`` names; write ``config.yaml`` and
    at last ``meta.json``, which makes the folder a run that can be continued."""
    experiment = config.experiment
    inherited = _inherited_usage(config, folder, taking=not options.continue_run)
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


def _inherited_usage(config: Config, folder: RunDir, *, taking: bool) -> dict[str, Usage] | None:
    """What the records took that a run has taken over before it starts, and takes over now where it is
    ``taking``; see `Meta.inherited`."""
    meta = folder.read_meta() if folder.meta.exists() else None
    source = source_folder(config) if taking else None
    if source is None:
        return meta.inherited if meta is not None else None
    files = []
    for kind in RECORD_FILES:
        if phase_of_files(kind) in inherited_phases(config):
            to_come = source.files(kind)
            new = [path for path in to_come if not (folder.folder(kind) / path.name).exists()]
            # A start that ended before it wrote meta.json has asked for nothing: what lies there was copied.
            files += [*new, *(folder.files(kind) if meta is None else ())]
    before = meta.inherited if meta is not None and meta.inherited else {}
    found = usage_on_record(files)
    return {
        name: before.get(name, Usage(cost_usd=0.0)) + found.get(name, Usage(cost_usd=0.0))
        for name in before | found
    }


def _counted(source: RunDir) -> Planned | None:
    """What counts in a source; all of it where its own configuration cannot be read."""
    try:
        return planned_names(source)
    except (ConfigError, StoreError):
        return None
