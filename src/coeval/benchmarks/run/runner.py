"""Run an evaluation up to its records: prepare, ask, judge.

All tasks and samples are one flow, so the tested model is busy from the first prompt to the last and judging
overlaps with answering. Every record is journalled as it is made, and only missing ones are requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from coeval.benchmarks.assets import Progress
from coeval.benchmarks.run.eval_session import EvalSession, board_of
from coeval.benchmarks.run.eval_spec import (
    AssetUsed,
    EvalSpec,
    find_assets,
    jobs_of,
    refuse_another_model,
    stamps_of,
    used_assets,
)
from coeval.benchmarks.run.task_folder import TaskFolder
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.errors import Draining, UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Usage
from coeval.engine.progress import Watcher
from coeval.engine.session import Accounts, SessionContext, opened
from coeval.engine.terms import AskedUnder, Ceiling, batched_at_full_price, refuse_boundless, terms_of
from coeval.models.batch.waiting.job_list import PendingJob
from coeval.models.keys import Keys
from coeval.models.pacing.throttle import Throttle
from coeval.models.transport.http import Http
from coeval.models.transport.shared_hosts import SharedHosts
from coeval.pricing.price_book import PriceBook
from coeval.store.record_usage import usage_on_record


@dataclass(frozen=True, slots=True)
class Prepared:
    """An evaluation with all assets found and all prompts read."""

    evaluation: EvalSpec
    task_runs: list[TaskRun]
    assets: Mapping[str, Mapping[str, AssetUsed]]


@dataclass(frozen=True, slots=True)
class EndOfAsking:
    """How asking ended. ``begun``: the probes passed and missing records were requested.

    ``stopped`` names the models given up, with reasons; ``interrupted``: by the user; ``batches``: jobs still
    running.
    """

    begun: bool
    interrupted: bool
    stopped: Mapping[str, str] = field(default_factory=dict)
    batches: Sequence[PendingJob] = ()


def prepare(evaluation: EvalSpec, watcher: Watcher, progress: Progress | None = None) -> Prepared:
    """Prepare an evaluation: everything that can fail before a model is asked.

    Raises
    ------
    UsageError
        the output folder belongs to another model, or there is an unknown task, an asset that cannot
        be had, wrong data, or no stored answers to judge.
    """
    refuse_another_model(evaluation)
    paths = find_assets(evaluation.tasks, progress, watcher.note)
    task_runs: list[TaskRun] = []
    assets: dict[str, Mapping[str, AssetUsed]] = {}
    for request, found in zip(evaluation.tasks, paths, strict=True):
        before = stamps_of(found)
        mine = list(jobs_of(evaluation, request, found))
        assets[mine[0].task] = used_assets(found, before)
        task_runs += mine
    if evaluation.mode == "judge":
        for task_run in task_runs:
            if not task_run.folder.has_answers():
                raise UsageError(
                    f"{task_run.folder.path} holds no responses.jsonl to judge; "
                    "ask the model first, without --judge-only"
                )
    return Prepared(evaluation, task_runs, assets)


@contextmanager
def held(prepared: Prepared) -> Iterator[None]:
    """Hold the lock of every task's folder, and merge answers made in shards.

    Raises
    ------
    UsageError
        another process is; it is named.
    StoreError
        answers cannot be taken in.
    """
    with ExitStack() as stack:
        for task_run in prepared.task_runs:
            stack.enter_context(task_run.folder.locked())
            task_run.folder.take_in_shards()
        yield


async def ask_owed(
    prepared: Prepared,
    keys: Keys,
    watcher: Watcher,
    interrupt: asyncio.Event | None = None,
    hosts: SharedHosts | None = None,
) -> EndOfAsking:
    """Request and record everything that is missing, while the folders are `held`.

    Failures and gaps do not raise; they are in the records, and counted at the conclusion. Evaluations of one
    event loop with the same ``hosts`` share connections and every limit of a host; each ends, and is
    interrupted, on its own.

    Raises
    ------
    UsageError
        a model has no address or no key.
    ModelUnavailable
        a model that is to be asked does not answer.
    StoreError
        a folder cannot be read or written; what was recorded stays.
    """
    evaluation, task_runs = prepared.evaluation, prepared.task_runs
    context = SessionContext(
        keys, watcher, interrupt or asyncio.Event(), Http(hosts=hosts), evaluation.batching()
    )
    output = evaluation.accounts_folder
    accounts = Accounts(
        usage_file(evaluation),
        error_file(evaluation),
        output / "probe_results.json",
        output / "pending_batches.json",
        output / "batches",
        lambda path: path.parent.name,
        evaluation.budget_usd,
        _recorded(evaluation, task_runs),
    )
    specs = specs_of(prepared)
    prices = PriceBook()
    terms = terms_of(specs, {spec.name: Ceiling(evaluation.max_calls) for spec in specs}, prices)
    for sentence in batched_at_full_price(specs, context.batching.phases, terms, prices):
        watcher.warn(sentence)
    refuse_boundless(_asked_under(specs, task_runs), terms, evaluation.budget_usd)
    async with opened(accounts, specs, board_of(task_runs), context, terms) as session:
        asking = EvalSession(evaluation, task_runs, session)
        asking.read_recorded()
        try:
            await asking.meet()
        except Draining:
            return EndOfAsking(begun=False, interrupted=True)
        asking.take_up_folders(watcher.note)
        watcher.begin(session.board)
        await asking.carry_out()
        jobs = session.batches.jobs() if session.batches is not None else ()
    return EndOfAsking(begun=True, interrupted=session.interrupted, stopped=session.stopped, batches=jobs)


async def ask_alone(
    prepared: Prepared,
    keys: Keys,
    watcher: Watcher,
    interrupt: asyncio.Event,
    throttle: Throttle | None,
) -> EndOfAsking:
    """Run `ask_owed` as the only evaluation of its event loop."""
    async with SharedHosts(throttle=throttle) as hosts:
        return await ask_owed(prepared, keys, watcher, interrupt, hosts)


def _recorded(evaluation: EvalSpec, task_runs: Iterable[TaskRun]) -> dict[str, Usage]:
    """What the records of the folders took, by model; nothing where several accounts share the folders."""
    if evaluation.account is not None:
        return {}
    folders = [task_run.folder for task_run in task_runs]
    tested, judging = evaluation.tested, evaluation.judging
    recorded: dict[str, Usage] = {}
    for spec, files_of in ((tested, TaskFolder.answer_files), (judging, TaskFolder.judgment_files)):
        if spec is None:
            continue
        called = evaluation.tested_as if spec is tested else spec.model
        taken = usage_on_record(path for folder in folders for path in files_of(folder))
        if (usage := taken.get(called)) is not None:
            known = recorded.get(spec.name)
            recorded[spec.name] = usage if known is None else known + usage
    return recorded


def _asked_under(specs: Iterable[ModelSpec], task_runs: Iterable[TaskRun]) -> Iterator[AskedUnder]:
    """The models in each of their roles."""
    known = {spec.name: spec for spec in specs}
    for task_run in task_runs:
        for role_model in (task_run.tested, task_run.judge):
            if role_model is not None and role_model.name in known:
                yield AskedUnder(known[role_model.name], role_model.sampling)


def error_file(evaluation: EvalSpec) -> Path:
    """Return the file of failures and torn lines of all tasks."""
    return evaluation.accounts_folder / "run_errors.jsonl"


def usage_file(evaluation: EvalSpec) -> Path:
    """Return the file of the models' usage in the output folder."""
    return evaluation.accounts_folder / "usage.json"


def specs_of(prepared: Prepared) -> list[ModelSpec]:
    """List the models that some task may ask, each once."""
    evaluation = prepared.evaluation
    labels = {
        role_model.name
        for task_run in prepared.task_runs
        for role_model in (task_run.tested, task_run.judge)
        if role_model is not None
    }
    asked = (None if evaluation.mode == "conclude" else evaluation.tested, evaluation.judge)
    known = {spec.name: spec for spec in asked if spec is not None}
    return [spec for name, spec in known.items() if name in labels]
