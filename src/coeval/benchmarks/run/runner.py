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
    make_judge,
    make_task_runs,
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
from coeval.engine.session import Accounts, Session, SessionContext, await_unless_interrupted, open_session
from coeval.engine.terms import (
    RequestedUnder,
    make_terms,
    require_prices_and_bounds,
    warn_models_counted_free,
    warn_undiscounted_batches,
)
from coeval.engine.work import Work
from coeval.models.answer_store import AnswerStore
from coeval.models.batch.job_list import PendingJob
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.pacing.throttle import Throttle
from coeval.models.transport.http import Http, SharedHosts
from coeval.pricing.price_book import PriceBook
from coeval.store.output_folder import JUDGMENTS
from coeval.store.record_index import sum_recorded_usage


@dataclass(frozen=True, slots=True)
class Prepared:
    """An evaluation with all assets found and all prompts read."""

    evaluation: EvalSpec
    task_runs: list[TaskRun]
    assets: Mapping[str, Mapping[str, AssetUsed]]


@dataclass(frozen=True, slots=True)
class EndOfAsking:
    """How asking ended. ``begun``: the probes passed and missing records were requested. ``stopped`` names
    the models given up, with reasons; ``interrupted``: by the user; ``batches``: jobs still running."""

    begun: bool
    interrupted: bool
    stopped: Mapping[str, str] = field(default_factory=dict)
    batches: Sequence[PendingJob] = ()


def prepare_evaluation(evaluation: EvalSpec, watcher: Watcher, progress: Progress | None = None) -> Prepared:
    """Prepare an evaluation: everything that can fail before a model is asked. Raises UsageError: the folder
    is another model's, a task is unknown, an asset absent, data wrong, or there are no answers to judge."""
    refuse_another_model(evaluation)
    paths = find_assets(evaluation.tasks, progress, watcher.note)
    task_runs: list[TaskRun] = []
    library = Library()
    assets: dict[str, Mapping[str, AssetUsed]] = {}
    for request, asset_paths in zip(evaluation.tasks, paths, strict=True):
        of_task = list(make_task_runs(evaluation, request, asset_paths))
        assets[of_task[0].task] = {name: library.hash_asset(name, path) for name, path in asset_paths.items()}
        task_runs += of_task
    if evaluation.mode == "judge":
        for task_run in task_runs:
            if not task_run.folder.has_answers():
                raise UsageError(
                    f"{task_run.folder.path} holds no responses.jsonl to judge; "
                    "collect answers first, without --judge-only"
                )
    return Prepared(evaluation, task_runs, assets)


@contextmanager
def lock_folders_and_merge_shards(prepared: Prepared) -> Iterator[None]:
    """Hold the lock of every task's folder, and merge answers made in shards. Raises UsageError: another
    process, which it names, holds one; StoreError: answers cannot be merged."""
    with ExitStack() as stack:
        for task_run in prepared.task_runs:
            stack.enter_context(task_run.folder.hold_lock())
            task_run.folder.merge_shards()
        yield


async def ask_owed(
    prepared: Prepared,
    keys: Keys,
    watcher: Watcher,
    interrupt: asyncio.Event | None = None,
    hosts: SharedHosts | None = None,
) -> EndOfAsking:
    """Request and record everything that is missing, with `lock_folders_and_merge_shards` held.

    Failures and gaps do not raise; they are in the records, and counted at the conclusion. Evaluations of
    one event loop with the same ``hosts`` share connections and every limit of a host; each ends, and is
    interrupted, on its own.

    Raises UsageError: a model has no address or no key; ModelUnavailable: a model to be asked does not
    answer; StoreError: a folder cannot be read or written; what was recorded stays.
    """
    evaluation, task_runs = prepared.evaluation, prepared.task_runs
    tested = () if evaluation.tested is None else (evaluation.tested.name,)
    context = SessionContext(
        keys,
        watcher,
        interrupt or asyncio.Event(),
        Http(hosts=hosts),
        evaluation.batching(),
        AnswerStore.open_or_make_if_named(None, os.environ, without=tested, seed=evaluation.seed or 0),
    )
    accounts = locate_accounts(evaluation, _read_recorded_usage(evaluation, task_runs))
    specs = requested_specs(prepared)
    prices = PriceBook()
    terms = make_terms(specs, {spec.name: Terms(max_calls=evaluation.max_calls) for spec in specs}, prices)
    for sentence in warn_undiscounted_batches(specs, context.batching.phases, terms, prices):
        watcher.warn(sentence)
    for sentence in warn_models_counted_free(specs, terms, evaluation.budget_usd):
        watcher.note(sentence)
    require_prices_and_bounds(_models_by_role(specs, task_runs), terms, evaluation.budget_usd)
    board = Board(task_runs_by_phase(task_runs), {task_run.judging: task_run.label for task_run in task_runs})
    async with open_session(accounts, specs, board, context, terms) as session:
        asking = EvalSession(evaluation, task_runs, session)
        asking.read_recorded_and_warn_of_damage()
        try:
            await asking.probe_models_and_judges(_models_by_role(specs, task_runs))
        except Draining:
            return EndOfAsking(begun=False, interrupted=True)
        asking.switch_recipes_and_store_answers(watcher.note)
        watcher.begin(session.board)
        await asking.make_missing_records()
        jobs = session.batches.list_uncollected() if session.batches is not None else ()
    return EndOfAsking(begun=True, interrupted=session.interrupted, stopped=session.stopped, batches=jobs)


async def ask_alone(
    prepared: Prepared, keys: Keys, watcher: Watcher, interrupt: asyncio.Event, throttle: Throttle | None
) -> EndOfAsking:
    """Run `ask_owed` as the only evaluation of its event loop."""
    async with SharedHosts(throttle=throttle) as hosts:
        return await ask_owed(prepared, keys, watcher, interrupt, hosts)


def locate_accounts(evaluation: EvalSpec, recorded: Mapping[str, Usage]) -> Accounts:
    """Return the paths of an evaluation's accounts; ``recorded`` is the usage on record, by model."""
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


def _read_recorded_usage(evaluation: EvalSpec, task_runs: Iterable[TaskRun]) -> dict[str, Usage]:
    """Sum the usage in the folders' records, by model; nothing if several accounts share the folders."""
    if evaluation.account is not None:
        return {}
    folders = [task_run.folder.path for task_run in task_runs]
    tested, judging = evaluation.tested, evaluation.judging
    recorded: dict[str, Usage] = {}
    for spec, files in ((tested, "responses*.jsonl"), (judging, JUDGMENTS)):
        if spec is None:
            continue
        model = evaluation.tested_name if spec is tested else spec.model
        by_model = sum_recorded_usage(path for folder in folders for path in sorted(folder.glob(files)))
        if (usage := by_model.get(model)) is not None:
            earlier = recorded.get(spec.name)
            recorded[spec.name] = usage if earlier is None else earlier + usage
    return recorded


def _models_by_role(specs: Iterable[ModelSpec], task_runs: Iterable[TaskRun]) -> Iterator[RequestedUnder]:
    spec_by_name = {spec.name: spec for spec in specs}
    for task_run in task_runs:
        for role_model in (task_run.tested, task_run.judge):
            if role_model is not None and role_model.name in spec_by_name:
                judge = role_model.role == "judge"
                yield RequestedUnder(spec_by_name[role_model.name], role_model.sampling, judge)


def error_file(evaluation: EvalSpec) -> Path:
    """Return the path of the file of failures and torn lines of all tasks."""
    return evaluation.accounts_folder / "run_errors.jsonl"


def usage_file(evaluation: EvalSpec) -> Path:
    return evaluation.accounts_folder / "usage.json"


def requested_specs(prepared: Prepared) -> list[ModelSpec]:
    """List the models that some task may ask, each once."""
    evaluation = prepared.evaluation
    names = {
        role_model.name
        for task_run in prepared.task_runs
        for role_model in (task_run.tested, task_run.judge)
        if role_model is not None
    }
    requested = (None if evaluation.mode == "conclude" else evaluation.tested, evaluation.judge)
    by_name = {spec.name: spec for spec in requested if spec is not None}
    return [spec for name, spec in by_name.items() if name in names]


log = logging.getLogger("coeval")


class EvalSession:
    """Requests what an evaluation's tasks miss, in one session."""

    def __init__(self, evaluation: EvalSpec, task_runs: Sequence[TaskRun], session: Session) -> None:
        self._evaluation = evaluation
        self._task_runs = task_runs
        self._session = session
        self._asking = Asking(session.models, RETRIES)
        self._run_by_phase = task_runs_by_phase(task_runs)

    def read_recorded_and_warn_of_damage(self) -> None:
        """Read the folders' records, and report unreadable lines."""
        for task_run in self._task_runs:
            if task_run.given is None:
                task_run.read_current_or_failed_answers()
            task_run.read_judgments()
            for remark in task_run.folder.damage_remarks():
                self._session.context.watcher.warn(remark)

    def switch_recipes_and_store_answers(self, note: Callable[[str], None]) -> None:
        """Switch each folder's files to this evaluation's recipe; store supplied responses as answers."""
        for task_run in self._task_runs:
            if task_run.tested is None:
                continue
            if (message := task_run.folder.switch_recipe(task_run.tested)) is not None:
                note(message)
            if task_run.given is not None:
                recorded = task_run.folder.read_counted_answers(task_run.tested)
                for answer in task_run.answers.values():
                    if recorded.get(answer.id) != answer:
                        self._session.journal.append(task_run.folder.responses, answer)

    async def probe_models_and_judges(self, requested: Iterable[RequestedUnder]) -> None:
        """Probe the models ``requested``, and let tasks probe their judge. Raises as `probe_models`."""
        counts = count_work(map(self._list_owed_works, self._task_runs))
        await probe_models(self._session, self._evaluation.probing, counts.owing_models(), requested)
        met: set[int] = set()  # the samples of a task share their benchmark
        for task_run in self._task_runs:
            judge = task_run.judge
            if judge is None or id(task_run.benchmark) in met:
                continue
            if counts.total(task=task_run.label, model=judge.name).owed:
                met.add(id(task_run.benchmark))
                meeting = self._probe_judge(task_run, judge)
                await await_unless_interrupted(
                    meeting, self._session.context.interrupt, "no request was sent"
                )
        for task_run in self._task_runs:
            self._update_judge_recipe(task_run)

    async def _probe_judge(self, task_run: TaskRun, judge: RoleModel) -> None:
        try:
            await task_run.benchmark.detect_judge_abilities(self._session.models[judge.name])
        except QuotaExhausted:
            return  # nothing will be asked of it: its judgments are gaps
        except AskError as error:
            message = f"the judge {judge.model} cannot be used for {task_run.task}: {error}"
            if self._evaluation.probing.on_fail == "abort":
                raise ModelUnavailable(message) from error
            self._session.context.watcher.warn(message)

    def _update_judge_recipe(self, task_run: TaskRun) -> None:
        """Rebuild the task's judge: what the probe found is part of its recipe."""
        spec = self._evaluation.judging
        if task_run.judge is None or spec is None:
            return
        settled = make_judge(self._evaluation, spec, task_run)
        if settled != task_run.judge:
            task_run.judge = settled
            task_run.read_judgments()

    async def make_missing_records(self) -> None:
        """Make all missing records possible, in as many rounds as batch jobs need."""
        counts = count_work(map(self._list_owed_works, self._task_runs))
        for task_run in self._task_runs:  # show what is owed
            phases: Mapping[str, Purpose] = {
                task_run.label: "response_collection",
                task_run.judging: "evaluation",
            }
            for phase, purpose in phases.items():
                count = counts.total(purpose, task=task_run.label)
                recorded, calls = count.planned - count.owed, Calls(count.calls, count.calls)
                self._session.board.expect(phase, recorded=recorded, owed=count.owed, calls=calls)
        await self._run_round()
        while await self._session.await_next_round():
            await self._run_round()
        self._session.clears_batches = True

    async def _run_round(self) -> None:
        async for done in self._session.carry_out(
            self._yield_works(), self._record_result, self._list_judgments_and_adjust_board
        ):
            if done.pending:
                continue
            if isinstance(done.work, AnswerWork) and (done.record is None or not is_good(done.record)):
                task_run = self._run_by_phase[done.work.phase]
                to_come = task_run.count_future_judgments(done.work.item)
                self._session.board.count_cut_off(task_run.judging, to_come)

    async def _yield_works(self) -> AsyncIterator[Work]:
        for task_run in self._task_runs:
            owed = self._list_owed_works(task_run)
            works: Sequence[Work] = (*owed.judgments, *owed.answers)
            for work in works:
                yield work
                await asyncio.sleep(0)

    def _list_owed_works(self, task_run: TaskRun) -> Owed:
        asks = task_run.given is None and task_run.tested is not None and self._evaluation.mode != "conclude"
        answers = task_run.list_answer_works(self._asking) if asks else []
        judgments = (
            [] if task_run.judge is None else task_run.list_judgment_works(self._asking, task_run.items)
        )
        return Owed(task_run, answers, judgments)

    def _record_result(self, work: Work, record: Kept) -> None:
        task_run = self._run_by_phase[work.phase]
        match record:
            case Answer():
                self._session.journal.append(task_run.folder.responses, record)
                task_run.answers[record.id] = record
            case Judgment() if task_run.judge is not None:
                self._session.journal.append(task_run.folder.judgments_path(task_run.judge), record)
                task_run.judgments[record.id] = record

    def _list_judgments_and_adjust_board(self, work: Work, _: Kept) -> Iterable[Work]:
        task_run = self._run_by_phase[work.phase]
        if not isinstance(work, AnswerWork) or task_run.judge is None:
            return ()
        works = task_run.list_judgment_works(self._asking, [work.item])
        if is_good(task_run.answers[work.item.id]):
            self._session.board.adjust_owed(
                task_run.judging, len(works) - task_run.count_future_judgments(work.item)
            )
        return works


class Owed(NamedTuple):
    """Works that a task misses now, without judgments of future answers."""

    task_run: TaskRun
    answers: Sequence[AnswerWork]
    judgments: Sequence[JudgmentWork]


def count_work(owed: Iterable[Owed]) -> WorkCounts:
    """Count planned and missing records of each task by model, judgments of future answers included."""
    counts = WorkCounts()
    for task_run, answers, judgments in owed:
        tested = task_run.tested.name if task_run.tested is not None else ""
        count = counts.count_for("response_collection", task_run.label, tested)
        count.planned, count.owed, count.calls = len(task_run.items), len(answers), len(answers)
        if task_run.judge is not None:
            to_come = sum(task_run.count_future_judgments(work.item) for work in answers)
            count = counts.count_for("evaluation", task_run.label, task_run.judge.name)
            count.planned = len(task_run.needed) + to_come
            count.owed = count.calls = len(judgments) + to_come
    return counts


def task_runs_by_phase(task_runs: Iterable[TaskRun]) -> dict[str, TaskRun]:
    """Map the phases of an evaluation, in order, to task runs: each one's answers, then its judgments."""
    return {label: task_run for task_run in task_runs for label in (task_run.label, task_run.judging)}
