"""What a run's budget is held against before its first request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coeval.core.options import OVERWRITE
from coeval.core.records import Usage
from coeval.engine.bounded_cost import AskedUnder, refuse_least
from coeval.engine.session import Session
from coeval.pipeline.config.schema import PHASES, Config
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.run_session import RunOptions
from coeval.pipeline.start.inherit import inherited_phases, source_folder
from coeval.pricing.price_book import PriceBook
from coeval.store.record_usage import less, usage_on_record
from coeval.store.rundir import RunDir

__all__ = ["asked_under", "inherited_usage", "own_usage", "refuse_too_dear"]


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
    from coeval.pipeline.plan.estimate.least_cost import least_cost_usd

    least = least_cost_usd(config, preview, prices)
    if least is not None:
        as_started = f" {OVERWRITE.flag}" if options.overwrite else ""
        refuse_least(least, budget, session.ledger.accounts, f"`coeval plan{as_started}`")
