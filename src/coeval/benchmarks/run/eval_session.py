"""An evaluation under way: models met, owed records made, kept and counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress

from coeval.benchmarks.base import Answer, Judgment
from coeval.benchmarks.run.benchmark_works import AnswerWork, JudgmentWork
from coeval.benchmarks.run.eval_spec import Evaluation, judge_party
from coeval.benchmarks.run.task_run import Job
from coeval.core.errors import AskError, ModelStopped, ModelUnavailable
from coeval.core.records import Kept
from coeval.engine.execute import Done, Flow
from coeval.engine.progress import Board, Calls
from coeval.engine.work import Work
from coeval.models.open import Models
from coeval.models.probe import probe
from coeval.store.journal import Journal

log = logging.getLogger("coeval")

DRAIN_S = 5.0
"""How long requests on the wire may still finish after an interruption."""


class Errand:
    """The jobs of an evaluation with open models and journal.

    Afterwards ``stopped`` says which models were given up and why, and ``interrupted`` whether
    somebody ended it.
    """

    def __init__(self, evaluation: Evaluation, jobs: Sequence[Job], models: Models, journal: Journal) -> None:
        self._evaluation = evaluation
        self._jobs = jobs
        self._models = models
        self._journal = journal
        self.stopped: dict[str, str] = {}
        self.interrupted = False
        self._owner = {label: job for job in jobs for label in (job.label, job.judging)}
        self.board = Board(self._owner, {job.judging: job.label for job in jobs})

    def read_recorded(self) -> None:
        """Take in what the folders hold."""
        for job in self._jobs:
            if job.given is None:
                job.read_answers()
            job.read_judgments()

    def take_up_folders(self, note: Callable[[str], None]) -> None:
        """Make each folder's files those of this evaluation; given responses are kept there as answers."""
        for job in self._jobs:
            if job.tested is None:
                continue
            if (said := job.folder.take_up(job.tested)) is not None:
                note(said)
            if job.given is not None:
                recorded = job.folder.answers(job.tested)
                for answer in job.answers.values():
                    if recorded.get(answer.id) != answer:
                        self._journal.append(job.folder.responses, answer)

    async def meet(self, note: Callable[[str], None]) -> None:
        """Ask each model that owes something one question, and let tasks get to know their judge.

        Raises
        ------
        ModelUnavailable
            one does not answer.
        """
        owing = {label for job in self._jobs for label in self._owing(job)}
        if owing:
            note(f"asking whether they answer: {', '.join(sorted(owing))}")
        silent = [result for result in await probe({n: self._models[n] for n in owing}) if not result.ok]
        if silent:
            reasons = [f"  {r.name}: {r.error.message if r.error else 'no answer'}" for r in silent]
            raise ModelUnavailable(
                "\n".join(["these models do not answer, and nothing was asked of them:", *reasons])
            )
        met: set[int] = set()
        for job in self._jobs:
            # The samples of a task share their benchmark.
            if job.judge is not None and job.judge.label in self._owing(job) and id(job.benchmark) not in met:
                met.add(id(job.benchmark))
                await self._introduce(job)
        for job in self._jobs:
            self._settle_judge(job)

    def _owing(self, job: Job) -> set[str]:
        """The models that the job has something to ask, a judge of answers to come among them."""
        answers, judgments = self._answers(job), self._judgments(job)
        judging = {job.judge.label} if job.judge is not None and (answers or judgments) else set()
        return judging | {work.model for work in answers}

    async def _introduce(self, job: Job) -> None:
        if job.judge is None:
            return
        try:
            await job.benchmark.meet_judge(self._models[job.judge.label])
        except AskError as error:
            raise ModelUnavailable(
                f"the judge {job.judge.model} cannot be asked for {job.task}: {error}"
            ) from error

    def _settle_judge(self, job: Job) -> None:
        """What a task found out about its judge is part of the judge's recipe."""
        spec = self._evaluation.judging
        if job.judge is None or spec is None:
            return
        settled = judge_party(self._evaluation, spec, job)
        if settled != job.judge:
            job.judge = settled
            job.read_judgments()

    async def carry_out(self, interrupt: asyncio.Event) -> None:
        """Make every record that is owed, as far as it goes."""
        flow: Flow = Flow(self._keep, self._follow, begin=lambda work: self.board.begun(work.phase))
        stopping = asyncio.create_task(self._stop_when(interrupt, flow))
        try:
            async for done in flow.run(self._works()):
                self._account(done)
        finally:
            stopping.cancel()
            with suppress(asyncio.CancelledError):
                await stopping

    async def _works(self) -> AsyncIterator[Work]:
        owed: list[Sequence[Work]] = []
        for job in self._jobs:
            answers, judgments = self._answers(job), self._judgments(job)
            self._expect(job.label, len(job.items) - len(answers), len(answers))
            to_come = sum(job.judgments_to_come(work.item) for work in answers)
            self._expect(job.judging, len(job.wanted) - len(judgments), len(judgments) + to_come)
            owed += [judgments, answers]
        for works in owed:
            for work in works:
                yield work
                await asyncio.sleep(0)

    def _expect(self, phase: str, recorded: int, owed: int) -> None:
        self.board.expect(phase, recorded=recorded, owed=owed, calls=Calls(owed, owed))

    def _answers(self, job: Job) -> list[AnswerWork]:
        if job.given is not None or job.tested is None:
            return []
        return job.answer_works(self._models[job.tested.label])

    def _judgments(self, job: Job) -> list[JudgmentWork]:
        if job.judge is None:
            return []
        return job.judgment_works(self._models[job.judge.label], job.items)

    def _keep(self, work: Work, record: Kept) -> None:
        job = self._owner[work.phase]
        match record:
            case Answer():
                self._journal.append(job.folder.responses, record)
                job.answers[record.id] = record
            case Judgment() if job.judge is not None:
                self._journal.append(job.folder.judgments(job.judge), record)
                job.judgments[record.id] = record

    def _follow(self, work: Work, _: Kept) -> Iterable[Work]:
        job = self._owner[work.phase]
        if not isinstance(work, AnswerWork) or job.judge is None:
            return ()
        works = job.judgment_works(self._models[job.judge.label], [work.item])
        if job.answers[work.item.id].status == "ok":
            self.board.correct(job.judging, len(works) - job.judgments_to_come(work.item))
        return works

    def _account(self, done: Done) -> None:
        work, record = done.work, done.record
        if isinstance(work, AnswerWork) and (record is None or record.status == "failed"):
            job = self._owner[work.phase]
            self.board.cut_off(job.judging, job.judgments_to_come(work.item))
        if done.gap is not None:
            self.board.left(work.phase, done.gap)
            if isinstance(done.gap, ModelStopped):
                self.stopped.setdefault(work.model, str(done.gap))
        elif record is not None:
            kind = record.error.kind if record.error is not None else None
            self.board.ended(work.phase, work.calls, record.usage, kind)
            if record.error is not None:
                log.warning("%s %s: %s", work.model, work.key, record.error.message)

    async def _stop_when(self, interrupt: asyncio.Event, flow: Flow) -> None:
        await interrupt.wait()
        self.interrupted = True
        flow.drain()
        self._models.drain()
        await asyncio.sleep(DRAIN_S)
        flow.cancel()
