"""Session of an evaluation: probe models, make missing records, count."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple

from coeval.benchmarks.benchmark import Answer, Judgment
from coeval.benchmarks.run.benchmark_works import RETRIES, AnswerWork, JudgmentWork
from coeval.benchmarks.run.eval_spec import EvalSpec, judge_model
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.errors import AskError, ModelUnavailable, QuotaExhausted
from coeval.core.records import Kept, is_good
from coeval.engine.model_work import Asking, RoleModel
from coeval.engine.probing import probe_models
from coeval.engine.progress import Board, Calls, ModelCount, WorkCounts
from coeval.engine.session import Session, unless_interrupted
from coeval.engine.work import Work

log = logging.getLogger("coeval")


class EvalSession:
    """A session on the tasks of an evaluation."""

    def __init__(self, evaluation: EvalSpec, task_runs: Sequence[TaskRun], session: Session) -> None:
        self._evaluation = evaluation
        self._task_runs = task_runs
        self._session = session
        self._asking = Asking(session.models.by_name, RETRIES)
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

    async def meet(self) -> None:
        """Probe the models, and let tasks probe their judge.

        Raises
        ------
        ModelUnavailable
            one does not answer, and that is to end the start.
        Draining
            somebody interrupted it meanwhile.
        """
        counts = work_counts([self._owed(task_run) for task_run in self._task_runs])
        await probe_models(self._session, self._evaluation.probing, counts.owing())
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
            await task_run.benchmark.meet_judge(self._session.models[judge.name])
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
        self._foretell()
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

    def _foretell(self) -> None:
        """Show what is owed."""
        counts = work_counts([self._owed(task_run) for task_run in self._task_runs])
        for task_run in self._task_runs:
            self._expect(task_run.label, counts.total("response_collection", task=task_run.label))
            self._expect(task_run.judging, counts.total("evaluation", task=task_run.label))

    async def _works(self) -> AsyncIterator[Work]:
        for task_run in self._task_runs:
            of_task = self._owed(task_run)
            works: Sequence[Work] = (*of_task.judgments, *of_task.answers)
            for work in works:
                yield work
                await asyncio.sleep(0)

    def _expect(self, phase: str, count: ModelCount) -> None:
        recorded, calls = count.planned - count.owed, Calls(count.calls, count.calls)
        self._session.board.expect(phase, recorded=recorded, owed=count.owed, calls=calls)

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
            count.planned = len(task_run.wanted) + to_come
            count.owed = count.calls = len(judgments) + to_come
    return counts


def owners(task_runs: Iterable[TaskRun]) -> dict[str, TaskRun]:
    """Return the phases of an evaluation, in order: each task's answers and its judgments."""
    return {label: task_run for task_run in task_runs for label in (task_run.label, task_run.judging)}


def board_of(task_runs: Sequence[TaskRun]) -> Board:
    return Board(owners(task_runs), {task_run.judging: task_run.label for task_run in task_runs})
