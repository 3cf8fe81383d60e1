"""Run an evaluation up to its records: prepare, ask, judge.

All tasks and samples are one flow, so the tested model is busy from the first prompt to the last and judging
overlaps with answering. Every record is journalled as it is made, and only missing ones are requested.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coeval.benchmarks.assets.cache import Progress
from coeval.benchmarks.assets.library import AssetUsed, Library
from coeval.benchmarks.benchmark import Answer, Judgment
from coeval.benchmarks.run.eval_spec import (
    EvalSpec,
    find_assets,
    jobs_of,
    judge_model,
    refuse_another_model,
)
from coeval.benchmarks.run.task_folder import RETRIES, AnswerWork, JudgmentWork
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.errors import AskError, Draining, ModelUnavailable, QuotaExhausted, UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Kept, Purpose, Usage, is_good
from coeval.engine.model_work import Asking, RoleModel
from coeval.engine.probing import probe_models
from coeval.engine.progress import Board, Calls, Watcher, WorkCounts
from coeval.engine.session import Accounts, Session, SessionContext, opened, unless_interrupted
from coeval.engine.terms import (
    Ceiling,
    RequestedUnder,
    batched_at_full_price,
    counted_as_free,
    refuse_boundless,
    terms_of,
)
from coeval.engine.work import Work
from coeval.models.answer_store import AnswerStore
from coeval.models.batch.job_list import PendingJob
from coeval.models.keys import Keys
from coeval.models.pacing.throttle import Throttle
from coeval.models.transport.http import Http, SharedHosts
from coeval.pricing.price_book import PriceBook
from coeval.store.output_folder import JUDGMENTS
from coeval.store.record_index import usage_on_record


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

    Raises UsageError: the output folder belongs to another model, or there is an unknown task, an asset that
    cannot be had, wrong data, or no stored answers to judge.
    """
    refuse_another_model(evaluation)
    paths = find_assets(evaluation.tasks, progress, watcher.note)
    task_runs: list[TaskRun] = []
    library = Library()
    assets: dict[str, Mapping[str, AssetUsed]] = {}
    for request, found in zip(evaluation.tasks, paths, strict=True):
        mine = list(jobs_of(evaluation, request, found))
        assets[mine[0].task] = {name: library.hash_asset(name, path) for name, path in found.items()}
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

    Raises UsageError: another process is; it is named; StoreError: answers cannot be taken in.
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

    Raises UsageError: a model has no address or no key; ModelUnavailable: a model that is to be asked does
    not answer; StoreError: a folder cannot be read or written; what was recorded stays.
    """
    evaluation, task_runs = prepared.evaluation, prepared.task_runs
    tested = () if evaluation.tested is None else (evaluation.tested.name,)
    context = SessionContext(
        keys,
        watcher,
        interrupt or asyncio.Event(),
        Http(hosts=hosts),
        evaluation.batching(),
        AnswerStore.open_named(None, os.environ, without=tested, seed=evaluation.seed or 0),
    )
    accounts = accounts_of(evaluation, _recorded(evaluation, task_runs))
    specs = specs_of(prepared)
    prices = PriceBook()
    terms = terms_of(specs, {spec.name: Ceiling(evaluation.max_calls) for spec in specs}, prices)
    for sentence in batched_at_full_price(specs, context.batching.phases, terms, prices):
        watcher.warn(sentence)
    for sentence in counted_as_free(specs, terms, evaluation.budget_usd):
        watcher.note(sentence)
    refuse_boundless(_requested_under(specs, task_runs), terms, evaluation.budget_usd)
    board = Board(owners(task_runs), {task_run.judging: task_run.label for task_run in task_runs})
    async with opened(accounts, specs, board, context, terms) as session:
        asking = EvalSession(evaluation, task_runs, session)
        asking.read_recorded()
        try:
            await asking.meet(_requested_under(specs, task_runs))
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


def accounts_of(evaluation: EvalSpec, recorded: Mapping[str, Usage]) -> Accounts:
    """Return where an evaluation's accounts lie; ``recorded`` is what the records took, by model."""
    output = evaluation.accounts_folder
    return Accounts(
        usage_file(evaluation),
        error_file(evaluation),
        output / "probe_results.json",
        output / "pending_batches.json",
        output / "batches",
        lambda path: path.parent.name,
        evaluation.budget_usd,
        recorded,
    )


def _recorded(evaluation: EvalSpec, task_runs: Iterable[TaskRun]) -> dict[str, Usage]:
    """What the records of the folders took, by model; nothing where several accounts share the folders."""
    if evaluation.account is not None:
        return {}
    folders = [task_run.folder.path for task_run in task_runs]
    tested, judging = evaluation.tested, evaluation.judging
    recorded: dict[str, Usage] = {}
    for spec, files in ((tested, "responses*.jsonl"), (judging, JUDGMENTS)):
        if spec is None:
            continue
        called = evaluation.tested_as if spec is tested else spec.model
        taken = usage_on_record(path for folder in folders for path in sorted(folder.glob(files)))
        if (usage := taken.get(called)) is not None:
            known = recorded.get(spec.name)
            recorded[spec.name] = usage if known is None else known + usage
    return recorded


def _requested_under(specs: Iterable[ModelSpec], task_runs: Iterable[TaskRun]) -> Iterator[RequestedUnder]:
    """The models in each of their roles."""
    known = {spec.name: spec for spec in specs}
    for task_run in task_runs:
        for role_model in (task_run.tested, task_run.judge):
            if role_model is not None and role_model.name in known:
                judge = role_model.role == "judge"
                yield RequestedUnder(known[role_model.name], role_model.sampling, judge)


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
    requested = (None if evaluation.mode == "conclude" else evaluation.tested, evaluation.judge)
    known = {spec.name: spec for spec in requested if spec is not None}
    return [spec for name, spec in known.items() if name in labels]


log = logging.getLogger("coeval")


class EvalSession:
    """A session on the tasks of an evaluation."""

    def __init__(self, evaluation: EvalSpec, task_runs: Sequence[TaskRun], session: Session) -> None:
        self._evaluation = evaluation
        self._task_runs = task_runs
        self._session = session
        self._asking = Asking(session.models, RETRIES)
        self._owner = owners(task_runs)

    def read_recorded(self) -> None:
        """Read the folders' records, and report unreadable lines."""
        for task_run in self._task_runs:
            if task_run.given is None:
                task_run.read_answers()
            task_run.read_judgments()
            for remark in task_run.folder.remarks():
                self._session.context.watcher.warn(remark)

    def take_up_folders(self, note: Callable[[str], None]) -> None:
        """Switch each folder's files to this evaluation's recipe; store supplied responses as answers."""
        for task_run in self._task_runs:
            if task_run.tested is None:
                continue
            if (said := task_run.folder.take_up(task_run.tested)) is not None:
                note(said)
            if task_run.given is not None:
                recorded = task_run.folder.answers(task_run.tested)
                for answer in task_run.answers.values():
                    if recorded.get(answer.id) != answer:
                        self._session.journal.append(task_run.folder.responses, answer)

    async def meet(self, requested: Iterable[RequestedUnder]) -> None:
        """Probe the models that are ``requested``, and let tasks probe their judge.

        Raises as `probe_models`.
        """
        counts = work_counts([self._owed(task_run) for task_run in self._task_runs])
        await probe_models(self._session, self._evaluation.probing, counts.owing(), requested)
        met: set[int] = set()  # the samples of a task share their benchmark
        for task_run in self._task_runs:
            judge = task_run.judge
            if judge is None or id(task_run.benchmark) in met:
                continue
            if counts.total(task=task_run.label, model=judge.name).owed:
                met.add(id(task_run.benchmark))
                meeting = self._introduce(task_run, judge)
                await unless_interrupted(meeting, self._session.context.interrupt, "nothing was asked")
        for task_run in self._task_runs:
            self._settle_judge(task_run)

    async def _introduce(self, task_run: TaskRun, judge: RoleModel) -> None:
        try:
            await task_run.benchmark.probe_judge(self._session.models[judge.name])
        except QuotaExhausted:
            return  # nothing will be asked of it: its judgments are gaps
        except AskError as error:
            message = f"the judge {judge.model} cannot be asked for {task_run.task}: {error}"
            if self._evaluation.probing.on_fail == "abort":
                raise ModelUnavailable(message) from error
            self._session.context.watcher.warn(message)

    def _settle_judge(self, task_run: TaskRun) -> None:
        """What a task found out about its judge is part of the judge's recipe."""
        spec = self._evaluation.judging
        if task_run.judge is None or spec is None:
            return
        settled = judge_model(self._evaluation, spec, task_run)
        if settled != task_run.judge:
            task_run.judge = settled
            task_run.read_judgments()

    async def carry_out(self) -> None:
        """Make all missing records possible, in as many rounds as batch jobs need."""
        counts = work_counts([self._owed(task_run) for task_run in self._task_runs])
        for task_run in self._task_runs:  # show what is owed
            phases: Mapping[str, Purpose] = {
                task_run.label: "response_collection",
                task_run.judging: "evaluation",
            }
            for phase, purpose in phases.items():
                count = counts.total(purpose, task=task_run.label)
                recorded, calls = count.planned - count.owed, Calls(count.calls, count.calls)
                self._session.board.expect(phase, recorded=recorded, owed=count.owed, calls=calls)
        await self._round()
        while await self._session.another_round():
            await self._round()
        self._session.clears_batches = True

    async def _round(self) -> None:
        """Do what can be done now."""
        async for done in self._session.carry_out(self._works(), self._keep, self._follow):
            if done.pending:
                continue
            if isinstance(done.work, AnswerWork) and (done.record is None or not is_good(done.record)):
                task_run = self._owner[done.work.phase]
                to_come = task_run.judgments_to_come(done.work.item)
                self._session.board.cut_off(task_run.judging, to_come)

    async def _works(self) -> AsyncIterator[Work]:
        for task_run in self._task_runs:
            of_task = self._owed(task_run)
            works: Sequence[Work] = (*of_task.judgments, *of_task.answers)
            for work in works:
                yield work
                await asyncio.sleep(0)

    def _owed(self, task_run: TaskRun) -> Owed:
        asks = task_run.given is None and task_run.tested is not None and self._evaluation.mode != "conclude"
        answers = task_run.answer_works(self._asking) if asks else []
        judgments = [] if task_run.judge is None else task_run.judgment_works(self._asking, task_run.items)
        return Owed(task_run, answers, judgments)

    def _keep(self, work: Work, record: Kept) -> None:
        task_run = self._owner[work.phase]
        match record:
            case Answer():
                self._session.journal.append(task_run.folder.responses, record)
                task_run.answers[record.id] = record
            case Judgment() if task_run.judge is not None:
                self._session.journal.append(task_run.folder.judgments(task_run.judge), record)
                task_run.judgments[record.id] = record

    def _follow(self, work: Work, _: Kept) -> Iterable[Work]:
        task_run = self._owner[work.phase]
        if not isinstance(work, AnswerWork) or task_run.judge is None:
            return ()
        works = task_run.judgment_works(self._asking, [work.item])
        if is_good(task_run.answers[work.item.id]):
            self._session.board.correct(task_run.judging, len(works) - task_run.judgments_to_come(work.item))
        return works


class Owed(NamedTuple):
    """Works that a task misses now, without judgments of future answers."""

    task_run: TaskRun
    answers: Sequence[AnswerWork]
    judgments: Sequence[JudgmentWork]


def work_counts(owed: Iterable[Owed]) -> WorkCounts:
    """Count planned and missing records of each task by model, judgments of future answers included."""
    counts = WorkCounts()
    for task_run, answers, judgments in owed:
        tested = task_run.tested.name if task_run.tested is not None else ""
        count = counts.of("response_collection", task_run.label, tested)
        count.planned, count.owed, count.calls = len(task_run.items), len(answers), len(answers)
        if task_run.judge is not None:
            to_come = sum(task_run.judgments_to_come(work.item) for work in answers)
            count = counts.of("evaluation", task_run.label, task_run.judge.name)
            count.planned = len(task_run.needed) + to_come
            count.owed = count.calls = len(judgments) + to_come
    return counts


def owners(task_runs: Iterable[TaskRun]) -> dict[str, TaskRun]:
    """Return the phases of an evaluation, in order: each task's answers and its judgments."""
    return {label: task_run for task_run in task_runs for label in (task_run.label, task_run.judging)}
