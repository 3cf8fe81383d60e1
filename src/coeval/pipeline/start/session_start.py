"""Steps that every start shares: resolve models, set their budgets, lock the folder, open a session.

Runs, probes, samples for an estimate and proposals all use `lock_and_open_session`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from coeval.core.errors import ConfigError, StoreError
from coeval.core.model import ModelSpec
from coeval.core.records import Usage, model_of
from coeval.engine.progress import Board
from coeval.engine.session import Accounts, Session, SessionContext, open_session, write_log
from coeval.engine.terms import (
    RequestedUnder,
    make_terms,
    require_prices_and_bounds,
    warn_models_counted_free,
    warn_undiscounted_batches,
)
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.open import find_interface_obstacle, raise_unless_askable
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.resolve import ResolvedConfig, list_role_parameters, list_routes, resolve_models
from coeval.pipeline.config.schema import PHASES, Config
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.run_plan import FED_BY
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route
from coeval.store.record_index import subtract_usage_down_to_0, sum_recorded_usage
from coeval.store.rundir import FOLDERS, RECORD_FILES, RunDir


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session is opened: ``specs`` are the models to open (None: all of the configuration), ``board``
    counts their work, ``log``: whether the run's log is written."""

    specs: list[ModelSpec] | None = None
    board: Board | None = None
    log: bool = False


@asynccontextmanager
async def lock_and_open_session(
    config: Config, prices: PriceBook, context: SessionContext, options: SessionOptions = SessionOptions()
) -> AsyncIterator[Session]:
    """Lock a run's folder and open a session in it, whose account counts requests. ``config`` has no
    ``auto``.

    Raises UsageError: a model has no address or no key, the budget cannot be enforced, or another process
    uses the folder; nothing was created then. StoreError: the folder cannot be read or written.
    """
    specs = options.specs if options.specs is not None else [model.spec() for model in config.models]
    raise_unless_askable(specs, context.keys)
    terms, folder = build_terms(config, prices), run_folder(config)
    for sentence in warn_undiscounted_batches(specs, context.batching.phases, terms, prices):
        context.watcher.warn(sentence)
    for sentence in warn_models_counted_free(specs, terms, config.experiment.budget_usd):
        context.watcher.note(sentence)
    log = write_log(folder.log, config.experiment.log_level) if options.log else nullcontext()
    with folder.hold_lock():
        accounts = _build_accounts(folder.at_absolute_path(), config, terms)
        with log:  # until the session's last word
            board = options.board or Board(PHASES, FED_BY)
            async with open_session(accounts, specs, board, context, terms) as session:
                yield session


def find_models_with_work(preview: Preview) -> set[str] | None:
    """Name the models that have owed work; None if any may have some, since phases 1–2 are unfinished."""
    return None if preview.unsettled else set(map(model_of, preview.plan_count.owing_models()))


def resolve_hosts(config: Config, options: RunOptions, keys: Keys, prices: PriceBook) -> ResolvedConfig:
    """Resolve ``auto``, as before if a run is continued. Raises UsageError: a model has no usable host."""
    if all(model.interface != "auto" for model in config.models):
        return ResolvedConfig(config)
    before = _read_previous_routes(run_folder(config)) if options.continue_run else {}
    return resolve_models(
        config, lambda interface: find_interface_obstacle(interface, keys) is None, prices, before
    )


def _read_previous_routes(folder: RunDir) -> dict[str, Route]:
    """Read the hosts of a run's last start; none if its configuration cannot be read."""
    try:
        return list_routes(load_config(folder.config))
    except (ConfigError, StoreError):
        return {}


def build_terms(config: Config, prices: PriceBook) -> dict[str, Terms]:
    """Return each model's price, ceilings, limits; raises UsageError if they bound no cost for a budget."""
    quotas = config.experiment.quota
    limits = {
        name: Terms(max_calls=quota.max_calls, max_cost_usd=quota.max_cost_usd)
        for name, quota in quotas.items()
    }
    sent = {model.name: list_role_parameters(model) for model in config.models}
    terms = make_terms([model.spec() for model in config.models], limits, prices, sent)
    require_prices_and_bounds(list_role_requests(config), terms, config.experiment.budget_usd)
    return terms


def list_role_requests(config: Config) -> Iterator[RequestedUnder]:
    """List each model of an experiment in each of its roles, without benchmark teachers."""
    for model in config.models:
        if model.interface != "benchmark":
            for role in model.roles:
                yield RequestedUnder(model.spec(), model.sampling(role), role == "judge")


def _build_accounts(folder: RunDir, config: Config, terms: Mapping[str, Terms]) -> Accounts:
    """Return the files of a run's account and its budget; its lock is held (`RunDir.hold_lock`)."""
    costs = any(model_terms.most is not None for model_terms in terms.values())
    return Accounts(
        folder.usage,
        folder.errors,
        folder.probe_results,
        folder.pending_batches,
        folder.batches,
        _find_phase_of_file,
        config.experiment.budget_usd,
        sum_own_usage(folder) if costs else {},
    )


def _find_phase_of_file(path: Path) -> str:
    return next((phase for phase, folder in FOLDERS.items() if folder == path.parent.name), "")


def sum_own_usage(folder: RunDir) -> dict[str, Usage]:
    """Sum the usage of a run's own records by model; empty if that of inherited ones is unknown."""
    meta = folder.read_meta() if folder.meta.exists() else None
    if meta is not None and meta.resume_from is not None and meta.inherited is None:
        return {}
    whole = sum_recorded_usage(path for kind in RECORD_FILES for path in folder.files(kind))
    return subtract_usage_down_to_0(whole, meta.inherited) if meta is not None and meta.inherited else whole
