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

from coeval.core.ids import evaluation_id, item_number, response_id
from coeval.core.records import EXACT_MATCH, Datapoint, Evaluation, Kept, Response
from coeval.engine.work import Work
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.phases.evaluations import EvaluationWork, Judged, LabelWork
from coeval.pipeline.phases.items import ItemWork
from coeval.pipeline.phases.prepared_item import Posed, posed
from coeval.pipeline.phases.responses import ResponseWork
from coeval.pipeline.plan.recipes import answer_input
from coeval.pipeline.plan.recorded import (
    EvaluationPart,
    ResponsePart,
    Source,
    outdated,
    source_of,
    tried_before,
)
from coeval.pipeline.plan.run_plan import FLOWING, Plan, Slot
from coeval.pipeline.plan.task_setup import Asking, Scene
from coeval.pipeline.sampling.nuance import KnownNuance
from coeval.pipeline.sampling.samples import Sample, Samples
from coeval.store.rundir import RunDir

_BREATH = 256  # slots walked before other tasks get their turn


class Spared(NamedTuple):
    """How many records of a phase need not be made after all, and the calls for them not."""

    phase: Phase
    records: int
    calls: int


class River:
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
        self._scenes: Mapping[str, Scene] = {scene.task.name: scene for scene in plan.scenes}
        self._nuance = {
            name: KnownNuance(scene.task, scene.space.nuance)
            for name, scene in self._scenes.items()
            if scene.shows_nuance
        }

    async def works(self) -> AsyncIterator[Work]:
        """All work that does not wait for other work, items in order."""
        walked = 0
        for scene in self._plan.scenes:
            samples = _Sampled(self._plan, scene)
            for slot in self._plan.slots(scene):
                if self._open[walked]:
                    for work in self._of_slot(scene, slot, samples):
                        yield work
                walked += 1
                if not walked % _BREATH:
                    await asyncio.sleep(0)

    def _of_slot(self, scene: Scene, slot: Slot, samples: _Sampled) -> Iterator[Work]:
        if self._plan.owes_item(scene, slot):
            if slot.teacher is not None and "data_generation" in self._phases:
                tried = tried_before(self._recorded.items, slot.id)
                yield ItemWork(self._asking, scene, slot.teacher, slot.id, samples.of(slot), tried)
        elif self._plan.has_item(slot):
            yield from self._of_item(scene, slot, None)

    def follow(self, work: Work, record: Kept) -> Iterator[Work]:
        """The works that a new record brings about; none after a failed one."""
        if record.status != "ok":
            return
        match record, work:
            case Datapoint(), ItemWork():
                slot = Slot(record.id, 0, None, record.teacher_model_id)
                item = posed(record, work.sample.nuance)
                yield from self._of_item(self._scenes[record.task_id], slot, item)
            case Response(), ResponseWork():
                judged = Judged(work.scene, work.posed, record)
                yield from self._of_response(judged, source_of(self._recorded.responses, record.id))

    def cut_off(self, work: Work) -> Counter[Phase]:
        """How many owed records, by phase, cannot be made since that of ``work`` was not."""
        lost: Counter[Phase] = Counter()
        match work:
            case ItemWork():
                slot = Slot(work.key, 0, None, work.teacher.name)
                for student in work.scene.students:
                    key = response_id(slot.id, student.name)
                    if self._plan.owes_response(key, work.scene, slot, student, renewed=True):
                        lost["response_collection"] += 1
                        names = (slot.teacher_name, student.name)
                        lost["evaluation"] += self._judgments(key, work.scene, names)
            case ResponseWork():
                names = (work.posed.item.teacher_model_id, work.student.name)
                lost["evaluation"] = self._judgments(work.key, work.scene, names)
        return lost

    def _judgments(self, response: str, scene: Scene, names: tuple[str, str]) -> int:
        """How many evaluations a new response is owed."""
        count = sum(
            bool(
                self._plan.owed_factors(
                    evaluation_id(response, judge.name), scene, names, judge, renewed=True
                )
            )
            for judge in scene.judges
        )
        if scene.task.label_attributes:
            count += self._plan.owes_labels(evaluation_id(response), scene, names, renewed=True)
        return count

    def spared(self, work: Work, record: Kept) -> Iterator[Spared]:
        """What was to follow anew from a new record, and is there already, made from the same content."""
        recorded = self._recorded
        match record, work:
            case Datapoint(), ItemWork():
                source, item = source_of(recorded.items, record.id), posed(record, work.sample.nuance)
                slot = Slot(record.id, 0, None, record.teacher_model_id)
                for student in work.scene.students:
                    key = response_id(record.id, student.name)
                    anew = outdated(source, recorded.responses, key, ResponsePart, item.asked)
                    foreseen = self._plan.owes_response(key, work.scene, slot, student, renewed=True)
                    owed = self._plan.owes_response(key, work.scene, slot, student, renewed=anew)
                    if foreseen and not owed:
                        yield Spared("response_collection", 1, 1)
                        answer = recorded.responses.load(key, Response)
                        yield self._spared_judgments(Judged(work.scene, item, answer), source)
            case Response(), ResponseWork():
                judged = Judged(work.scene, work.posed, record)
                yield self._spared_judgments(judged, source_of(recorded.responses, record.id))

    def _spared_judgments(self, judged: Judged, source: Source) -> Spared:
        records = calls = 0
        plan, scene, answer = self._plan, judged.scene, judged.response
        names = (answer.teacher_model_id, answer.student_model_id)
        for judge in scene.judges:
            key = evaluation_id(answer.id, judge.name)
            foreseen = plan.owed_factors(key, scene, names, judge, renewed=True)
            owed = plan.owed_factors(key, scene, names, judge, renewed=self._judged_anew(source, key, judged))
            spared = bool(foreseen) - bool(owed)
            records += spared
            calls += len(foreseen) - len(owed) if scene.task.evaluation_mode == "per_factor" else spared
        if scene.task.label_attributes:
            key = evaluation_id(answer.id)
            anew = self._judged_anew(source, key, judged)
            foreseen_labels = plan.owes_labels(key, scene, names, renewed=True)
            records += foreseen_labels - plan.owes_labels(key, scene, names, renewed=anew)
        return Spared("evaluation", records, calls)

    def replaces(self, work: Work, record: Kept) -> bool:
        """Whether records stand that followed from what the new ``record`` stands in place of."""
        recorded = self._recorded
        match record, work:
            case Datapoint(), ItemWork():
                source, asked = source_of(recorded.items, record.id), answer_input(record.prompt or "")
                keys = [response_id(record.id, student.name) for student in work.scene.students]
                return any(
                    key in recorded.responses
                    and outdated(source, recorded.responses, key, ResponsePart, asked)
                    for key in keys
                )
            case Response(), ResponseWork():
                source = source_of(recorded.responses, record.id)
                judged = Judged(work.scene, work.posed, record)
                judges = (*(judge.name for judge in work.scene.judges), EXACT_MATCH)
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

    def _of_item(self, scene: Scene, slot: Slot, new: Posed | None) -> Iterator[Work]:
        """What is owed of an item that stands (``new`` is None: read it when needed) or was made now."""
        item, recorded = new, self._recorded
        source = Source.STANDS if new is None else source_of(recorded.items, slot.id)
        for student in scene.students:
            key = response_id(slot.id, student.name)
            anew = new is not None and outdated(source, recorded.responses, key, ResponsePart, new.asked)
            if self._plan.owes_response(key, scene, slot, student, renewed=anew):
                if "response_collection" in self._phases:
                    item = item or self._standing_item(slot)
                    tried = tried_before(recorded.responses, key)
                    yield ResponseWork(self._asking, scene, student, key, item, tried)
            elif new is not None or self._owes_evaluations(scene, slot, key, student.name):
                if not self._plan.has_response(key):
                    continue
                item = item or self._standing_item(slot)
                response = recorded.responses.load(key, Response)
                yield from self._of_response(Judged(scene, item, response), source)

    def _standing_item(self, slot: Slot) -> Posed:
        item = self._recorded.items.load(slot.id, Datapoint)
        known = self._nuance.get(item.task_id)
        return posed(item, known.of(item) if known is not None else {})

    def _owes_evaluations(self, scene: Scene, slot: Slot, response: str, student: str) -> bool:
        if "evaluation" not in self._phases or not self._plan.has_response(response):
            return False
        names = (slot.teacher_name, student)
        if scene.task.label_attributes and self._plan.owes_labels(
            evaluation_id(response), scene, names, renewed=False
        ):
            return True
        return any(
            self._plan.owed_factors(evaluation_id(response, judge.name), scene, names, judge, renewed=False)
            for judge in scene.judges
        )

    def _of_response(self, judged: Judged, source: Source) -> Iterator[Work]:
        """What is owed of an answer; ``source``: the answer, or the item where the answer to it is kept."""
        if "evaluation" not in self._phases:
            return
        scene, response = judged.scene, judged.response
        names = (response.teacher_model_id, response.student_model_id)
        key = evaluation_id(response.id)
        if scene.task.label_attributes:
            anew = self._judged_anew(source, key, judged)
            if self._plan.owes_labels(key, scene, names, renewed=anew):
                yield LabelWork(judged, key)
        for judge in scene.judges:
            key = evaluation_id(response.id, judge.name)
            anew = self._judged_anew(source, key, judged)
            factors = self._plan.owed_factors(key, scene, names, judge, renewed=anew)
            if not factors:
                continue
            about = judged
            if self._plan.completes(key, judge, renewed=anew):
                earlier = self._recorded.evaluations.load(key, Evaluation)
                about = Judged(scene, judged.posed, response, earlier)
            tried = tried_before(self._recorded.evaluations, key)
            yield EvaluationWork(self._asking, about, judge, key, factors, tried)

    def _judged_anew(self, source: Source, key: str, judged: Judged) -> bool:
        return outdated(source, self._recorded.evaluations, key, EvaluationPart, judged.input_hash)


class _Sampled:
    """The sampled attributes of a task's items, drawn in order for each teacher."""

    def __init__(self, plan: Plan, scene: Scene) -> None:
        self._plan = plan
        self._scene = scene
        self._samples: dict[str, Samples] = {}

    def of(self, slot: Slot) -> Sample:
        samples = self._samples.get(slot.teacher_name)
        if samples is None:
            samples = self._samples[slot.teacher_name] = self._start(slot.teacher_name)
        return samples.item(slot.n)

    def _start(self, teacher: str) -> Samples:
        task = self._scene.task
        recorded = {}
        for key, attributes in self._plan.recorded.by_teacher.get((task.name, teacher), {}).items():
            entry = self._plan.recorded.items.get(key)
            number = item_number(key)
            if entry is not None and entry.good and number is not None:
                recorded[number] = attributes
        return Samples(
            self._scene.space, seed=task.sampling.seed, task=task.name, teacher=teacher, recorded=recorded
        )
