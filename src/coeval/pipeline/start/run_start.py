"""The start of a run: checks before the first request, and what is written into its folder."""

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
from coeval.engine.terms import require_budget
from coeval.models.batch.job_list import Batching, BatchMode, PollPace
from coeval.models.catalog import HOSTS
from coeval.pipeline.config.schema import PHASES, Config, TaskConfig
from coeval.pipeline.phases.blueprint import Blueprint
from coeval.pipeline.phases.supplied import declare_item_labels
from coeval.pipeline.plan.count_plan import read_recipes
from coeval.pipeline.plan.preview import Preview, preview_run, read_start_supply
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.plan.what_counts import read_planned_names
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.run_session import RunSession
from coeval.pipeline.start.checks import refuse_bad_start
from coeval.pipeline.start.inherit import (
    copy_inherited,
    find_source_run,
    move_phases_of_mode_new_aside,
    phases_to_inherit,
    record_inherited_names,
)
from coeval.pipeline.start.session_start import (
    SessionOptions,
    find_models_with_work,
    list_role_requests,
    lock_and_open_session,
    resolve_hosts,
)
from coeval.pricing.price_book import PriceBook
from coeval.store.record_index import sum_recorded_usage
from coeval.store.rundir import RECORD_FILES, Meta, RunDir, finish_move_to_replaced, phase_of_kind, utc_now

log = logging.getLogger("coeval")


@dataclass(slots=True)
class StartedRun:
    """A started run: its models answer and its folder is locked. ``preview`` was read before anything was
    written; ``blocked_tasks`` have no blueprint."""

    run: RunSession
    blueprint: Blueprint
    meta: Meta
    preview: Preview
    blocked_tasks: list[TaskConfig] = field(default_factory=list)

    @property
    def matches_preview(self) -> bool:
        """Check whether the preview's plan is the run's: it was settled, and read the run's own folder."""
        settled = not self.preview.unsettled and not self.blocked_tasks
        return settled and self.preview.records_folder.path.absolute() == self.run.folder.path


@asynccontextmanager
async def start_run(
    config: Config, options: RunOptions, context: SessionContext
) -> AsyncIterator[StartedRun]:
    """Start a run, and hold its folder, models and journal open while its phases run. Existing records and
    owed work are computed once, while the folder is locked (`StartedRun.preview`). Nothing is written
    before the configuration, the credentials and supplied items have been checked."""
    watcher, prices, folder = context.watcher, PriceBook(), run_folder(config)
    if folder.replacing.exists():
        finish_move_to_replaced(folder)
        refuse_bad_start(config, options)  # another folder now than the one that was checked
    config, choices = resolve_hosts(config, options, context.keys, prices)
    context = replace(context, batching=_choose_batching(config, options.batches, watcher))
    supply = read_start_supply(config, options)
    supply.refuse_teachers_without_items()
    opening = SessionOptions([model.spec() for model in options.models_to_open(config)], log=True)
    async with lock_and_open_session(config, prices, context, opening) as session:
        for choice in choices:
            log.info("%s", choice)
        if not options.overwrite:
            read_recipes(folder)  # raises, if they are damaged, before any request
        preview = preview_run(config, options, supply)
        preview.refuse_start(options)
        for remark in supply.list_remarks():
            watcher.warn(remark)
        _refuse_unaffordable_new_run(config, preview, prices, session, options)
        probing = Probing(config.experiment.probe_mode, config.experiment.probe_on_fail)
        requested = list_role_requests(config) if options.batches.calls_models else ()
        await probe_models(session, probing, find_models_with_work(preview), requested)
        if config.experiment.estimate_cost:
            from coeval.pipeline.plan.estimate.live_samples import sample_and_write_start_estimate

            barriers = options.phase_barriers
            await sample_and_write_start_estimate(config, preview, session, prices, phase_barriers=barriers)
        _note_look_if_extending(config, options, preview, watcher)
        supply.write_items_and_answers(folder)
        meta = _prepare_folder(config, options, folder, watcher)
        settled = declare_item_labels(config, supply)
        if preview.records_folder.path == folder.path:
            for files in preview.plan.recorded.files:
                files.forget_replacements()
        supply.drop_lines()
        anchored = folder.at_absolute_path()
        blueprint = Blueprint(
            settled, anchored, follow_file=options.continue_run, inherited=find_source_run(config)
        )
        run_session = RunSession(settled, options, anchored, session)
        run_session.summary.notes += [remark for answers in supply.answers for remark in answers.notes]
        yield StartedRun(run_session, blueprint, meta, preview)


def _choose_batching(config: Config, mode: BatchMode, watcher: Watcher) -> Batching:
    """Choose the phases in which each model uses batch jobs, and warn of hosts that have none."""
    phases: dict[str, frozenset[Purpose]] = {}
    for model in config.models:
        if HOSTS[model.interface].batch:
            phases[model.name] = config.batched_phases(model)
        elif model.batch_enabled:
            watcher.warn(
                f"models.{model.name}.batch_enabled: the interface {model.interface} has no Batch API here; "
                "it is called live, at live prices"
            )
    needed = {name: batched for name, batched in phases.items() if batched}
    return Batching(needed, PollPace(*config.experiment.batch_poll_s), mode)


def _refuse_unaffordable_new_run(
    config: Config, preview: Preview, prices: PriceBook, session: Session, options: RunOptions
) -> None:
    """Refuse a new run whose least expected cost exceeds what is left of its budget.

    A continued run goes as far as the money lasts. With open batch jobs nothing is refused: their results
    are paid, or reserved, and yet among the owed records.

    Raises UsageError: it exceeds it.
    """
    budget = config.experiment.budget_usd
    if budget is None or options.continue_run or session.accounts.jobs.exists():
        return
    from coeval.pipeline.plan.estimate.run_estimate import estimate_least_cost_usd

    least = estimate_least_cost_usd(config, preview, prices)
    if least is not None:
        as_started = f" {OVERWRITE.flag}" if options.overwrite else ""
        require_budget(least, budget, session.ledger.accounts, f"`coeval plan{as_started}`")


def _note_look_if_extending(config: Config, options: RunOptions, preview: Preview, watcher: Watcher) -> None:
    """Record a look at the finished run whose scores this start extends with more items."""
    folder = run_folder(config)
    source = folder if options.continue_run else find_source_run(config)
    if source is None or not any(preview.plan_count.total(phase).owed for phase in FLOWING):
        return
    if source is not folder and "evaluation" not in phases_to_inherit(config):
        return  # its scores are not among those to come
    from coeval.pipeline.plan.run_reading import record_pre_extension_look_or_problem

    planned = preview.plan_count.total("data_generation").planned
    if unwritten := record_pre_extension_look_or_problem(source, folder, planned):
        watcher.warn(unwritten)


def _prepare_folder(config: Config, options: RunOptions, folder: RunDir, watcher: Watcher) -> Meta:
    """Move what is overwritten to ``replaced/``, copy what ``resume_from`` names, and write ``config.yaml``;
    at last ``meta.json``, which makes the folder a run that can be continued."""
    experiment = config.experiment
    inherited = _sum_inherited_usage(config, folder, copying=not options.continue_run)
    if options.overwrite and (moved := move_phases_of_mode_new_aside(config, folder)) is not None:
        watcher.note(f"earlier records of phases that are New in {folder.path} are now in {moved}")
    source = find_source_run(config)
    if source is not None and not options.continue_run:
        copied = copy_inherited(config, source, folder)
        watcher.note(copied.done)
        if copied.left_out is not None:
            watcher.warn(copied.left_out)
        record_inherited_names(config, source, folder, phases_to_inherit(config), _read_planned_names(source))
    if options.continue_run:
        meta = folder.read_meta()
        meta.phases_completed, meta.status = [], "running"
    else:
        meta = Meta(
            experiment_id=experiment.id,
            status="running",
            created_at=utc_now(),
            updated_at=utc_now(),
            resume_from=experiment.resume_from,
        )
    meta.coeval_version = __version__
    meta.inherited = inherited
    meta.simulated = any(model.interface == "simulated" for model in config.models)
    meta.phases_in_progress = list(PHASES)
    if options.batches.calls_models:  # else the configuration is the folder's own
        folder.write_config_and_keep_older(config.model_dump(mode="json", exclude_unset=True))
    folder.write_meta(meta)
    return meta


def _sum_inherited_usage(config: Config, folder: RunDir, *, copying: bool) -> dict[str, Usage] | None:
    """Sum the usage of inherited records, and of those copied now, by model; see `Meta.inherited`."""
    meta = folder.read_meta() if folder.meta.exists() else None
    source = find_source_run(config) if copying else None
    if source is None:
        return meta.inherited if meta is not None else None
    files = []
    for kind in RECORD_FILES:
        if phase_of_kind(kind) in phases_to_inherit(config):
            to_come = source.files(kind)
            new = [path for path in to_come if not (folder.folder(kind) / path.name).exists()]
            # A start that ended before it wrote meta.json has asked for nothing: what lies there was copied.
            files += [*new, *(folder.files(kind) if meta is None else ())]
    before = meta.inherited if meta is not None and meta.inherited else {}
    usage = sum_recorded_usage(files)
    return {
        name: before.get(name, Usage(cost_usd=0.0)) + usage.get(name, Usage(cost_usd=0.0))
        for name in before | usage
    }


def _read_planned_names(source: RunDir) -> Planned | None:
    """Read which names count in a source run; None (all of them) if its configuration cannot be read."""
    try:
        return read_planned_names(source)
    except (ConfigError, StoreError):
        return None
