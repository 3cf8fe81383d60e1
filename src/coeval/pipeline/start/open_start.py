"""What every start shares: its models resolved, what they may spend, its folder locked, a session open.

A run, a probe, samples for an estimate and proposals all go this way (`lock_and_open_session`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from coeval.core.errors import ConfigError, StoreError
from coeval.core.model import ModelSpec
from coeval.core.records import Usage, model_of
from coeval.engine.progress import Board
from coeval.engine.session import Accounts, Session, SessionContext, logged, opened
from coeval.engine.terms import (
    Ceiling,
    RequestedUnder,
    batched_at_full_price,
    counted_as_free,
    refuse_boundless,
    terms_of,
)
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.open import check_askable, find_interface_obstacle
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.resolve import ResolvedConfig, list_role_parameters, list_routes, resolve_models
from coeval.pipeline.config.schema import PHASES, Config
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.run_plan import FED_BY
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route
from coeval.store.record_index import less, usage_on_record
from coeval.store.rundir import FOLDERS, RECORD_FILES, RunDir


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session is opened: ``specs`` are the models that are asked (None: all of the configuration),
    ``board`` counts their work, ``log``: the run's log is written meanwhile."""

    specs: list[ModelSpec] | None = None
    board: Board | None = None
    log: bool = False


@asynccontextmanager
async def lock_and_open_session(
    config: Config, prices: PriceBook, context: SessionContext, opening: SessionOptions = SessionOptions()
) -> AsyncIterator[Session]:
    """Hold a run's folder and a session in it, whose account counts what is sent. ``config`` has no ``auto``.

    Raises UsageError: a model cannot be asked at all (no address, no key), the budget cannot be held, or
    another process is at work in the folder. Nothing was created; StoreError: the folder cannot be read or
    written.
    """
    specs = opening.specs if opening.specs is not None else [model.spec() for model in config.models]
    check_askable(specs, context.keys)
    terms, folder = terms_for(config, prices), run_folder(config)
    for sentence in batched_at_full_price(specs, context.batching.phases, terms, prices):
        context.watcher.warn(sentence)
    for sentence in counted_as_free(specs, terms, config.experiment.budget_usd):
        context.watcher.note(sentence)
    log = logged(folder.log, config.experiment.log_level) if opening.log else nullcontext()
    with folder.locked():
        accounts = _accounts(folder.anchored(), config, terms)
        with log:  # until the session's last word
            board = opening.board or Board(PHASES, FED_BY)
            async with opened(accounts, specs, board, context, terms) as session:
                yield session


def owing(preview: Preview) -> set[str] | None:
    """The models that have work; None where all may have some, as while phases 1–2 are open."""
    return None if preview.unsettled else set(map(model_of, preview.plan_count.owing()))


def resolve_hosts(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> ResolvedConfig:
    """The configuration with ``auto`` resolved; a run that goes on stays with the hosts it began with.

    Raises UsageError: some model has no host that can be asked.
    """
    if all(model.interface != "auto" for model in config.models):
        return ResolvedConfig(config)
    before = _routes_before(run_folder(config)) if options.continue_run else {}
    return resolve_models(
        config, lambda interface: find_interface_obstacle(interface, keys) is None, prices, before
    )


def _routes_before(folder: RunDir) -> dict[str, Route]:
    """The hosts that a run's models had at its last start; none where that can no longer be read."""
    try:
        return list_routes(load_config(folder.config))
    except (ConfigError, StoreError):
        return {}


def terms_for(config: Config, prices: PriceBook) -> dict[str, Terms]:
    """On what terms a configuration's models are asked.

    Raises UsageError: prices cannot be read, or there is a budget that they cannot be held to.
    """
    quotas = config.experiment.quota
    ceilings = {name: Ceiling(quota.max_calls, quota.max_cost_usd) for name, quota in quotas.items()}
    sent = {model.name: list_role_parameters(model) for model in config.models}
    terms = terms_of([model.spec() for model in config.models], ceilings, prices, sent)
    refuse_boundless(requested_under(config), terms, config.experiment.budget_usd)
    return terms


def requested_under(config: Config) -> Iterator[RequestedUnder]:
    """The models of an experiment in each of their roles; benchmark teachers are not asked."""
    for model in config.models:
        if model.interface != "benchmark":
            for role in model.roles:
                yield RequestedUnder(model.spec(), model.sampling(role), role == "judge")


def _accounts(folder: RunDir, config: Config, terms: Mapping[str, Terms]) -> Accounts:
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
        read_own_usage(folder) if costs else {},
    )


def _phase_of(path: Path) -> str:
    return next((phase for phase, folder in FOLDERS.items() if folder == path.parent.name), "")


def read_own_usage(folder: RunDir) -> dict[str, Usage]:
    """What the records of a run took, by model, less those that it took over; nothing where nobody noted what
    those took.

    Raises StoreError: they cannot be read.
    """
    meta = folder.read_meta() if folder.meta.exists() else None
    if meta is not None and meta.resume_from is not None and meta.inherited is None:
        return {}
    whole = usage_on_record(_record_files(folder))
    return less(whole, meta.inherited) if meta is not None and meta.inherited else whole


def _record_files(folder: RunDir) -> Iterable[Path]:
    return [path for kind in RECORD_FILES for path in folder.files(kind)]
