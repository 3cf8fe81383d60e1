"""Phases 3–5 as one flow: a datapoint is answered as soon as it exists, judged as soon as it is answered.

What is recorded flows first: an item that stands is read from disk only when something is owed
downstream of it, so a resumed run needs no special case.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coeval.core.good import is_good
from coeval.core.ids import evaluation_id, item_number, response_id
from coeval.core.records import EXACT_MATCH, Datapoint, Evaluation, Kept, Response
from coeval.engine.model_work import Asking
from coeval.engine.work import Work
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.phases.evaluations import EvaluationWork, Judged, LabelWork
from coeval.pipeline.phases.items import ItemWork
from coeval.pipeline.phases.prepared_item import PreparedItem, prepared_item
from coeval.pipeline.phases.responses import ResponseWork
from coeval.pipeline.plan.recipes import answer_input
from coeval.pipeline.plan.recorded import MadeFrom, made_from, outdated, tried_before
from coeval.pipeline.plan.run_plan import FLOWING, Plan, Slot
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.sampling.nuance import KnownNuance
from coeval.pipeline.sampling.samples import Sample, Samples
from coeval.store.record_parts import EvaluationPart, ResponsePart
from coeval.store.rundir import RunDir

_BREATH = 256  # slots walked before other tasks get their turn


class Spared(NamedTuple):
    """How many records of a phase need not be made after all, and the calls for them not."""

    phase: Phase
    records: int
    calls: int


class RunFlow:
    """The works of a plan, and what follows from each record.

    ``open`` says, slot by slot, where anything is owed (see `Survey`). ``phases`` limits what is
    begun: all three at once, or one after the other with barriers.
    """

    def __init__(
        self,
        plan: Plan,
        open: Sequence[int],  # noqa: A002  what `Survey` calls it
        folder: RunDir,
        asking: Asking,
        phases: tuple[Phase, ...] = FLOWING,
    ) -> None:
        self._plan = plan
        self._open = open
        self._recorded = plan.recorded
        self._folder = folder
        self._asking = asking
        self._phases = frozenset(phases)
        self._paths: dict[tuple[str, ...], Path] = {}
        self._setups: Mapping[str, TaskSetup] = {setup.task.name: setup for setup in plan.setups}
        self._nuance = {
            name: KnownNuance(setup.task, setup.space.nuance)
            for name, setup in self._setups.items()
            if setup.shows_nuance
        }

    async def works(self) -> AsyncIterator[Work]:
        """All work that does not wait for other work, items in order."""
        walked = 0
        for setup in self._plan.setups:
            samples = _Sampled(self._plan, setup)
            for slot in self._plan.slots(setup):
                if self._open[walked]:
                    for work in self._of_slot(setup, slot, samples):
                        yield work
                walked += 1
                if not walked % _BREATH:
                    await asyncio.sleep(0)

    def _of_slot(self, setup: TaskSetup, slot: Slot, samples: _Sampled) -> Iterator[Work]:
        if self._plan.owes_item(setup, slot):
            if slot.teacher is not None and "data_generation" in self._phases:
                tried = tried_before(self._recorded.items, slot.id)
                yield ItemWork(self._asking, setup, slot.teacher, slot.id, samples.of(slot), tried)
        elif self._plan.has_item(slot):
            yield from self._of_item(setup, slot, None)

    def follow(self, work: Work, record: Kept) -> Iterator[Work]:
        """The works that a new record brings about; none after a failed one."""
        if not is_good(record):
            return
        match record, work:
            case Datapoint(), ItemWork():
                slot = Slot(record.id, 0, None, record.teacher_model_id)
                item = prepared_item(record, work.sample.nuance)
                yield from self._of_item(self._setups[record.task_id], slot, item)
            case Response(), ResponseWork():
                judged = Judged(work.setup, work.prepared, record)
                yield from self._of_response(judged, made_from(self._recorded.responses, record.id))

    def cut_off(self, work: Work) -> Counter[Phase]:
        """How many owed records, by phase, cannot be made since that of ``work`` was not."""
        lost: Counter[Phase] = Counter()
        match work:
            case ItemWork():
                slot = Slot(work.key, 0, None, work.model)
                for student in work.setup.students:
                    key = response_id(slot.id, student.name)
                    if self._plan.owes_response(key, work.setup, slot, student, renewed=True):
                        lost["response_collection"] += 1
                        names = (slot.teacher_name, student.name)
                        lost["evaluation"] += self._judgments(key, work.setup, names)
            case ResponseWork():
                names = (work.prepared.item.teacher_model_id, work.model)
                lost["evaluation"] = self._judgments(work.key, work.setup, names)
        return lost

    def _judgments(self, response: str, setup: TaskSetup, names: tuple[str, str]) -> int:
        """How many evaluations a new response is owed."""
        count = sum(
            bool(
                self._plan.owed_factors(
                    evaluation_id(response, judge.name), setup, names, judge, renewed=True
                )
            )
            for judge in setup.judges
        )
        if setup.task.label_attributes:
            count += self._plan.owes_labels(evaluation_id(response), setup, names, renewed=True)
        return count

    def spared(self, work: Work, record: Kept) -> Iterator[Spared]:
        """What was to follow anew from a new record, and is there already, made from the same content."""
        recorded = self._recorded
        if not recorded.responses and not recorded.evaluations:
            return  # as in every run that begins
        match record, work:
            case Datapoint(), ItemWork():
                source, item = made_from(recorded.items, record.id), prepared_item(record, work.sample.nuance)
                slot = Slot(record.id, 0, None, record.teacher_model_id)
                for student in work.setup.students:
                    key = response_id(record.id, student.name)
                    anew = outdated(source, recorded.responses, key, ResponsePart, item.asked)
                    foreseen = self._plan.owes_response(key, work.setup, slot, student, renewed=True)
                    owed = self._plan.owes_response(key, work.setup, slot, student, renewed=anew)
                    if foreseen and not owed:
                        yield Spared("response_collection", 1, 1)
                        answer = recorded.responses.load(key, Response)
                        yield self._spared_judgments(Judged(work.setup, item, answer), source)
            case Response(), ResponseWork():
                judged = Judged(work.setup, work.prepared, record)
                yield self._spared_judgments(judged, made_from(recorded.responses, record.id))

    def _spared_judgments(self, judged: Judged, source: MadeFrom) -> Spared:
        records = calls = 0
        plan, setup, answer = self._plan, judged.setup, judged.response
        names = (answer.teacher_model_id, answer.student_model_id)
        for judge in setup.judges:
            key = evaluation_id(answer.id, judge.name)
            if self._judged_anew(source, key, judged):
                continue
            foreseen = plan.owed_factors(key, setup, names, judge, renewed=True)
            owed = plan.owed_factors(key, setup, names, judge, renewed=False)
            spared = bool(foreseen) - bool(owed)
            records += spared
            calls += len(foreseen) - len(owed) if setup.task.evaluation_mode == "per_factor" else spared
        key = evaluation_id(answer.id)
        if setup.task.label_attributes and not self._judged_anew(source, key, judged):
            foreseen_labels = plan.owes_labels(key, setup, names, renewed=True)
            records += foreseen_labels - plan.owes_labels(key, setup, names, renewed=False)
        return Spared("evaluation", records, calls)

    def replaces(self, work: Work, record: Kept) -> bool:
        """Whether records stand that followed from what the new ``record`` stands in place of."""
        recorded = self._recorded
        match record, work:
            case Datapoint(), ItemWork():
                source, asked = made_from(recorded.items, record.id), answer_input(record.prompt or "")
                keys = [response_id(record.id, student.name) for student in work.setup.students]
                return any(
                    key in recorded.responses
                    and outdated(source, recorded.responses, key, ResponsePart, asked)
                    for key in keys
                )
            case Response(), ResponseWork():
                source = made_from(recorded.responses, record.id)
                judged = Judged(work.setup, work.prepared, record)
                judges = (*(judge.name for judge in work.setup.judges), EXACT_MATCH)
                rejudged = any(
                    key in recorded.evaluations and self._judged_anew(source, key, judged)
                    for key in (evaluation_id(record.id, judge) for judge in judges)
                )
                return rejudged or record.datapoint_id in self._plan.renewed
            case _:
                return False

    def path(self, record: Kept) -> Path:
        """The file that a record belongs to."""
        match record:
            case Evaluation():
                names = (record.task_id, record.teacher_model_id, record.judge_model_id)
                return self._path(self._folder.evaluations, names)
            case Response():
                return self._path(self._folder.responses, (record.task_id, record.student_model_id))
            case Datapoint():
                return self._path(self._folder.datapoints, (record.task_id, record.teacher_model_id))
            case _:
                raise TypeError(f"no file of a run keeps a {type(record).__name__}")

    def _path(self, of: Callable[..., Path], names: tuple[str, ...]) -> Path:
        """``of(*names)``, made once: there are few files and many records."""
        path = self._paths.get((of.__name__, *names))
        if path is None:
            path = self._paths[of.__name__, *names] = of(*names)
        return path

    def _of_item(self, setup: TaskSetup, slot: Slot, new: PreparedItem | None) -> Iterator[Work]:
        """What is owed of an item that stands (``new`` is None: read it when needed) or was made now."""
        item, recorded = new, self._recorded
        source = MadeFrom.STANDS if new is None else made_from(recorded.items, slot.id)
        for student in setup.students:
            key = response_id(slot.id, student.name)
            anew = new is not None and outdated(source, recorded.responses, key, ResponsePart, new.asked)
            if self._plan.owes_response(key, setup, slot, student, renewed=anew):
                if "response_collection" in self._phases:
                    item = item or self._standing_item(slot)
                    tried = tried_before(recorded.responses, key)
                    yield ResponseWork(self._asking, setup, student, key, item, tried)
            elif new is not None or self._owes_evaluations(setup, slot, key, student.name):
                if not self._plan.has_response(key):
                    continue
                item = item or self._standing_item(slot)
                response = recorded.responses.load(key, Response)
                yield from self._of_response(Judged(setup, item, response), source)

    def _standing_item(self, slot: Slot) -> PreparedItem:
        item = self._recorded.items.load(slot.id, Datapoint)
        known = self._nuance.get(item.task_id)
        return prepared_item(item, known.of(item) if known is not None else {})

    def _owes_evaluations(self, setup: TaskSetup, slot: Slot, response: str, student: str) -> bool:
        if "evaluation" not in self._phases or not self._plan.has_response(response):
            return False
        names = (slot.teacher_name, student)
        if setup.task.label_attributes and self._plan.owes_labels(
            evaluation_id(response), setup, names, renewed=False
        ):
            return True
        return any(
            self._plan.owed_factors(evaluation_id(response, judge.name), setup, names, judge, renewed=False)
            for judge in setup.judges
        )

    def _of_response(self, judged: Judged, source: MadeFrom) -> Iterator[Work]:
        """What is owed of an answer; ``source``: the answer, or the item where the answer to it is kept."""
        if "evaluation" not in self._phases:
            return
        setup, response = judged.setup, judged.response
        names = (response.teacher_model_id, response.student_model_id)
        key = evaluation_id(response.id)
        if setup.task.label_attributes:
            anew = self._judged_anew(source, key, judged)
            if self._plan.owes_labels(key, setup, names, renewed=anew):
                yield LabelWork(judged, key)
        for judge in setup.judges:
            key = evaluation_id(response.id, judge.name)
            anew = self._judged_anew(source, key, judged)
            factors = self._plan.owed_factors(key, setup, names, judge, renewed=anew)
            if not factors:
                continue
            about = judged
            if self._plan.completes(key, judge, renewed=anew):
                earlier = self._recorded.evaluations.load(key, Evaluation)
                about = Judged(setup, judged.prepared, response, earlier)
            tried = tried_before(self._recorded.evaluations, key)
            yield EvaluationWork(self._asking, about, judge, key, factors, tried)

    def _judged_anew(self, source: MadeFrom, key: str, judged: Judged) -> bool:
        return outdated(source, self._recorded.evaluations, key, EvaluationPart, judged.input_hash)


class _Sampled:
    """The sampled attributes of a task's items, drawn in order for each teacher."""

    def __init__(self, plan: Plan, setup: TaskSetup) -> None:
        self._plan = plan
        self._setup = setup
        self._samples: dict[str, Samples] = {}

    def of(self, slot: Slot) -> Sample:
        samples = self._samples.get(slot.teacher_name)
        if samples is None:
            samples = self._samples[slot.teacher_name] = self._start(slot.teacher_name)
        return samples.item(slot.n)

    def _start(self, teacher: str) -> Samples:
        task = self._setup.task
        recorded = {}
        for key, attributes in self._plan.recorded.by_teacher.get((task.name, teacher), {}).items():
            entry = self._plan.recorded.items.get(key)
            number = item_number(key)
            if entry is not None and entry.good and number is not None:
                recorded[number] = attributes
        return Samples(
            self._setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher, recorded=recorded
        )
