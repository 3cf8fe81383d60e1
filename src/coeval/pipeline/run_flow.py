"""Phases 3–5 as one flow: an item is answered as soon as it exists, judged as soon as it is answered.

Recorded items flow first, and are read from disk only if something made from them is owed, so a continued
run needs no special case.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from coeval.core import records
from coeval.engine.model_work import Asking, RoleModel
from coeval.engine.work import Work
from coeval.judging.checks.check_runner import CheckRunner
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.phases.evaluations import (
    CheckWork,
    EvaluationWork,
    ItemWork,
    JudgeInput,
    LabelWork,
    PairWork,
    PreparedItem,
    ResponseWork,
)
from coeval.pipeline.plan.recorded import RecordEntry, RunIndex, count_prior_attempts
from coeval.pipeline.plan.run_plan import FLOWING, Node, Plan, ReusableRecords, Slot
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.plan.walk import IsOutdated, PlanWalk, assume_outdated, find_reusable_records
from coeval.pipeline.samples import KnownNuance, Sample, Samples
from coeval.store.record_index import NO_ROW, NOT_TRIED, EvaluationPart, PhaseIndex, ResponsePart
from coeval.store.rundir import RunDir

if TYPE_CHECKING:
    from coeval.pipeline.phases.document_items import AcceptedItems

_BREATH = 256  # slots walked before other tasks get their turn


class _SourceChange(Enum):
    """How the source of a record differs from the one on disk."""

    UNCHANGED = "unchanged"
    """The source is the one on record."""
    RECOVERED = "recovered"
    """The source was missing or not good, and this run made it. Records count if made from the same
    content."""
    REPLACED = "replaced"
    """A good source was made again; what was made from it is to be made again too."""


class _SourceRecords:
    """An item and its answers, from which other records are made; each is read when it is first needed.
    ``source_change`` compares the item, or the answer passed to `load_judged`, with the record on disk."""

    def __init__(
        self, recorded: RunIndex, was: _SourceChange, setup: TaskSetup, prepare: Callable[[], PreparedItem]
    ) -> None:
        self._recorded = recorded
        self._source_change = was
        self._prepare = prepare
        self._item: PreparedItem | None = None
        self._judged: dict[str, JudgeInput] = {}
        self.setup = setup

    @property
    def item(self) -> PreparedItem:
        if self._item is None:
            self._item = self._prepare()
        return self._item

    def load_judged(self, response: str, answer: records.Response | None = None) -> JudgeInput:
        """Return the answer of this id for judging: ``answer``, or the one on record."""
        if response not in self._judged:
            answer = answer or self._recorded.responses.load(response, records.Response)
            self._judged[response] = JudgeInput(self.setup, self.item, answer)
        return self._judged[response]

    def is_outdated(self, phase: Phase, key: str) -> bool:
        """Check whether the record ``key`` was made from other content than this, read only if need be."""
        if self._source_change is _SourceChange.UNCHANGED:
            return False
        answers, judgments = self._recorded.responses, self._recorded.evaluations
        entry = answers.get(key) if phase == "response_collection" else judgments.get(key)
        if self._source_change is _SourceChange.REPLACED or entry is None or not entry.good:
            return True
        if phase == "response_collection":
            return answers.load(key, ResponsePart).input_hash != self.item.requested
        return (
            judgments.load(key, EvaluationPart).input_hash
            != self.load_judged(records.parent_id(key)).input_hash
        )


class _PairedAnswers:
    """Answers to one item while some are awaited; a comparison starts when its second answer arrives."""

    def __init__(self) -> None:
        self.awaited: set[str] = set()
        self.arrived: dict[str, JudgeInput] = {}
        self.lost: set[str] = set()


class RunFlow:
    """The works of a plan, and those that follow from each record. ``open_slots`` says for each slot whether
    anything is owed (see `PlanCount`). ``phases`` limits the works: all three phases at once, or one after
    the other with barriers."""

    def __init__(
        self,
        plan: Plan,
        open_slots: Sequence[int],
        folder: RunDir,
        asking: Asking,
        checks: CheckRunner,
        phases: tuple[Phase, ...] = FLOWING,
    ) -> None:
        self.missed_keys: Set[str] = frozenset()
        """Keys of records that were not made earlier in this run, and are not tried again in it."""
        self._plan = plan
        self._open_slots = open_slots
        self._recorded = plan.recorded
        self._folder = folder
        recorded = plan.recorded
        self.builds_on_records = bool(
            recorded.responses or recorded.evaluations or recorded.pairs or plan.regenerated_ids
        )
        """Whether a record may be `reusable` or replaced; never in a new run."""
        self._asking = asking
        self._checks = checks
        self._slow = {  # checks that a worker or a program computes
            setup.task.name: {factor for factor, check in setup.checks.items() if check.runs != "here"}
            for setup in plan.setups
        }
        self._phases = frozenset(phases)
        self._paths: dict[tuple[type[records.Kept], str, str, str], Path] = {}
        self._accepted: dict[str, AcceptedItems] = {}
        self._meetings: defaultdict[str, _PairedAnswers] = defaultdict(_PairedAnswers)
        self._walks = {setup.task.name: PlanWalk(plan, setup, yield_each=True) for setup in plan.setups}
        self._nuance = {
            setup.task.name: KnownNuance(setup.task, setup.space.nuance)
            for setup in plan.setups
            if setup.shows_nuance
        }

    async def iterate_works(self) -> AsyncIterator[Work]:
        """Yield all work that waits for no other work, items in order."""
        walked = 0
        for setup in self._plan.setups:
            samples = _TaskSamples(self._plan, setup)
            for slot in self._plan.list_slots(setup):
                if self._open_slots[walked]:
                    for work in self._make_slot_works(setup, slot, samples):
                        yield work
                walked += 1
                if not walked % _BREATH:
                    await asyncio.sleep(0)

    def _make_slot_works(self, setup: TaskSetup, slot: Slot, samples: _TaskSamples) -> Iterator[Work]:
        """Make the work of an owed item, else what is owed of its answers and judgments."""
        standing = partial(self._load_item, slot.id)
        source = _SourceRecords(self._recorded, _SourceChange.UNCHANGED, setup, standing)
        nodes: Iterable[Node] = self._walks[setup.task.name].walk_slot(slot)
        if setup.pairs is not None:
            nodes = self._list_nodes_and_note_awaited(nodes, slot.id)
        for node in nodes:
            if node.phase == "data_generation" and node.owed:
                left = node.phase in self._phases and node.key not in self.missed_keys
                if slot.teacher is not None and left:
                    yield self._make_item_work(setup, slot, slot.teacher, samples.sample_for(slot))
                return  # the rest follows from it
            yield from self._make_ready_works([node], source)

    def _make_item_work(self, setup: TaskSetup, slot: Slot, teacher: RoleModel, sample: Sample) -> ItemWork:
        """Make the work of an item; one from documents is given the accepted items, to reject duplicates."""
        tried = count_prior_attempts(self._recorded.items, slot.id)
        if not sample.passages:
            return ItemWork(self._asking, teacher, slot.id, tried, setup, sample)
        from coeval.pipeline.phases.document_items import AcceptedItems, DocumentItemWork

        task, items = setup.task.name, self._recorded.items
        if task not in self._accepted:
            slots = self._plan.list_slots(setup)
            good_ids = (
                planned_slot.id
                for planned_slot in slots
                if (entry := items.get(planned_slot.id)) is not None and entry.good
            )
            self._accepted[task] = AcceptedItems(items.load(key, records.Datapoint) for key in good_ids)
        self._accepted[task].drop(slot.id)
        before = self._recorded.discarded_by_row.get(self._recorded.rows.get(slot.id, NO_ROW), {})
        return DocumentItemWork(
            *(self._asking, teacher, slot.id, tried, setup, sample),
            accepted=self._accepted[task],
            filtered=Counter(before),
        )

    def make_followers(self, work: Work, record: records.Kept) -> Iterable[Work]:
        """Return the works that follow from a new record; none from a failed one."""
        if isinstance(record, records.Evaluation | records.Preference) or not records.is_good(record):
            return ()  # most records are the last of their line
        source = self._find_source_records(work, record)
        if source is None:
            return ()
        below = self._list_followers(work, source.is_outdated, waiting=False)
        if source.setup.pairs is not None and isinstance(work, ItemWork):
            below = self._list_nodes_and_note_awaited(below, work.key)
        elif source.setup.pairs is not None and isinstance(work, ResponseWork):
            pairs = self._note_answer_and_list_pairs(work, source.load_judged(work.key))
            begun = [*self._make_ready_works(chain(below, pairs), source)]
            self._forget_answers_of_complete_item(work.prepared.item.id)
            return begun
        return self._make_ready_works(below, source)

    def _forget_answers_of_complete_item(self, item: str) -> None:
        """Drop the answers to an item once the last has arrived: they may be large."""
        if item in self._meetings and not self._meetings[item].awaited:
            del self._meetings[item]

    def note_loss_and_count_followers(self, work: Work) -> Counter[Phase]:
        """Count by phase the owed records that cannot be made since that of ``work`` was not."""
        nodes = self._list_followers(work, assume_outdated)
        if isinstance(work, ResponseWork) and work.setup.pairs is not None:
            nodes = [*nodes, *self._note_answer_and_list_pairs(work, None)]
            self._forget_answers_of_complete_item(work.prepared.item.id)
        return Counter(node.phase for node in nodes if node.owed)

    def _list_nodes_and_note_awaited(self, nodes: Iterable[Node], item: str) -> list[Node]:
        """Note which answers to an item will be requested, before any of them can arrive."""
        nodes = list(nodes)
        if "evaluation" in self._phases:
            owed_answers = [node for node in nodes if node.phase == "response_collection" and node.owed]
            # answers of a regenerated item may turn out to be current; later samples are not compared
            makers = ((node.key, node.maker) for node in owed_answers if not node.waits)
            answers = {key for key, maker in makers if maker is None or not maker.sample}
            self._meetings[item].awaited |= answers - self.missed_keys
        return nodes

    def _note_answer_and_list_pairs(self, work: ResponseWork, judged: JudgeInput | None) -> list[Node]:
        """List the comparisons with an answer that has just arrived; those that still wait are marked. If it
        will not come (``judged`` None), list the comparisons that are lost with it."""
        item, names = work.prepared.item, work.prepared.item.teacher_model_id
        walk, meeting = self._walks[work.setup.task.name], self._meetings.get(item.id)
        if meeting is None or work.role_model.sample or work.key not in meeting.awaited:
            return []
        meeting.awaited.discard(work.key)
        states = zip(walk.list_answer_ids(item.id), walk.find_recorded_answer_states(item.id), strict=True)
        ready = [
            True
            if key in meeting.arrived
            else False
            if key in meeting.awaited or key == work.key
            else None
            if key in meeting.lost
            else on_record
            for key, on_record in states
        ]
        if judged is None:
            meeting.lost.add(work.key)
        else:
            meeting.arrived[work.key] = judged
            ready[walk.list_answer_ids(item.id).index(work.key)] = True
        own_ids = frozenset(walk.list_pair_ids(work.key))
        pairs = walk.walk_owed_pairs(item.id, names, ready, outdated=True)
        return [node for node in pairs if node.key in own_ids]

    def _make_pair_work(self, node: Node, source: _SourceRecords) -> PairWork:
        design, maker = source.setup.pairs, node.maker
        item, pair, _ = node.key.rsplit(records.SEPARATOR, 2)
        came = self._meetings[item].arrived if item in self._meetings else {}
        keys = [item + records.SEPARATOR + name for name in pair.split(records.PAIR)]
        first, second = (came.get(key) or source.load_judged(key) for key in keys)
        if design is None or maker is None:
            raise TypeError(f"{node.key} is not a comparison")
        tried = count_prior_attempts(self._recorded.pairs, node.key) if self.builds_on_records else NOT_TRIED
        return PairWork(self._asking, maker, node.key, tried, design, first, second)

    def list_reusable_records(self, work: Work, record: records.Kept) -> Iterator[ReusableRecords]:
        """Yield followers of a new record that are on record, made from the same content."""
        if (source := self._find_source_records(work, record)) is not None:
            yield from find_reusable_records(
                self._list_followers(work, assume_outdated), self._list_followers(work, source.is_outdated)
            )

    def is_remade_or_outdates(self, work: Work, record: records.Kept, regenerated_ids: Set[str]) -> bool:
        """Check whether a new record outdates recorded followers, or was made from a regenerated one."""
        source, recorded = self._find_source_records(work, record), self._recorded
        match work:
            case ItemWork() if source is not None:
                followers = self._walks[work.setup.task.name].list_answer_ids(work.key)
                return any(
                    key in recorded.responses and source.is_outdated("response_collection", key)
                    for key in followers
                )
            case ResponseWork() if source is not None:
                followers = self._walks[work.setup.task.name].list_judgment_ids(work.key)
                rejudged = any(
                    key in recorded.evaluations and source.is_outdated("evaluation", key) for key in followers
                )
                again = any(
                    key in recorded.pairs for key in self._walks[work.setup.task.name].list_pair_ids(work.key)
                )
                return rejudged or again or work.prepared.item.id in regenerated_ids
            case EvaluationWork() | LabelWork() | CheckWork():
                return work.judged.response.id in regenerated_ids
            case PairWork():
                return not regenerated_ids.isdisjoint((work.first.response.id, work.second.response.id))
            case _:
                return False

    def _find_source_records(self, work: Work, record: records.Kept) -> _SourceRecords | None:
        """Return what the followers of a new record are made from; None if nothing follows."""
        recorded = self._recorded
        match record, work:
            case records.Datapoint(), ItemWork():
                was = self._find_source_change(recorded.items, record.id)
                prepare = partial(PreparedItem, record, work.sample.nuance)
                return _SourceRecords(recorded, was, work.setup, prepare)
            case records.Response(), ResponseWork():
                was = self._find_source_change(recorded.responses, record.id)
                source = _SourceRecords(recorded, was, work.setup, lambda: work.prepared)
                source.load_judged(record.id, record)
                return source
            case _:
                return None

    def _find_source_change(self, index: PhaseIndex[RecordEntry], key: str) -> _SourceChange:
        """Return whether a record made now replaces a good one, as none does in a new run."""
        entry = index.get(key) if self.builds_on_records else None
        return _SourceChange.REPLACED if entry is not None and entry.good else _SourceChange.RECOVERED

    def _list_followers(self, work: Work, is_outdated: IsOutdated, *, waiting: bool = True) -> Iterable[Node]:
        """List the records that follow from that of ``work``; see `PlanWalk.walk_answers_and_followers`."""
        match work:
            case ItemWork():
                return self._walks[work.setup.task.name].walk_answers_and_followers(
                    work.key, work.model, is_outdated, waiting=waiting
                )
            case ResponseWork():
                names = (work.prepared.item.teacher_model_id, work.role_model.name)
                return self._walks[work.setup.task.name].walk_judgments(work.key, names, is_outdated)
            case _:
                return ()

    def _make_ready_works(self, nodes: Iterable[Node], source: _SourceRecords) -> Iterator[Work]:
        """Make the works of those nodes that wait for no other."""
        setup, recorded = source.setup, self._recorded
        for node in nodes:
            if not node.owed or node.waits or node.phase not in self._phases or node.key in self.missed_keys:
                continue
            key, maker = node.key, node.maker
            if node.phase == "response_collection" and maker is not None:
                tried = count_prior_attempts(recorded.responses, key) if self.builds_on_records else NOT_TRIED
                yield ResponseWork(self._asking, maker, key, tried, setup, source.item)
                continue
            if setup.pairs is not None and maker is not None:
                yield self._make_pair_work(node, source)
                continue
            judged = source.load_judged(records.parent_id(key))
            if maker is None and node.name == records.EXACT_MATCH:
                yield LabelWork(judged, key)
                continue
            if node.entry is not None and self._plan.can_keep_scores(node.entry, maker):
                earlier = recorded.evaluations.load(key, records.Evaluation)
                judged = JudgeInput(setup, judged.prepared, judged.response, earlier)
            if maker is None:
                factors = node.status.factors
                at_once = self._slow[setup.task.name].isdisjoint(factors)
                yield CheckWork(judged, key, factors, self._checks, at_once)
                continue
            tried = count_prior_attempts(recorded.evaluations, key) if self.builds_on_records else NOT_TRIED
            yield EvaluationWork(self._asking, maker, key, tried, judged, node.status.factors)

    def _load_item(self, key: str) -> PreparedItem:
        item = self._recorded.items.load(key, records.Datapoint)
        known_nuance = self._nuance.get(item.task_id)
        return PreparedItem(item, known_nuance.find_nuance(item) if known_nuance is not None else {})

    def record_path(self, record: records.Kept) -> Path:
        """Return the file that a record is appended to."""
        locate: Callable[..., Path]
        match record:
            case records.Evaluation():
                locate = self._folder.evaluations
                names = (record.task_id, record.teacher_model_id, record.judge_model_id)
            case records.Preference():
                locate = self._folder.pairs
                names = (record.task_id, record.teacher_model_id, record.judge_model_id)
            case records.Response():
                locate, names = self._folder.responses, (record.task_id, record.student_model_id, "")
            case records.Datapoint():
                locate, names = self._folder.datapoints, (record.task_id, record.teacher_model_id, "")
            case _:
                raise TypeError(f"no file of a run keeps a {type(record).__name__}")
        key = (type(record), *names)
        path = self._paths.get(key)
        if path is None:  # made once: there are few files and many records
            path = self._paths[key] = locate(*filter(None, names))
        return path


class _TaskSamples:
    """The sampled attributes of a task's items, drawn in order for each teacher."""

    def __init__(self, plan: Plan, setup: TaskSetup) -> None:
        self._plan = plan
        self._setup = setup
        self._samples: dict[str, Samples] = {}

    def sample_for(self, slot: Slot) -> Sample:
        samples = self._samples.get(slot.teacher_name)
        if samples is None:
            samples = self._samples[slot.teacher_name] = self._start_samples(slot.teacher_name)
        return samples.draw_sample(slot.n)

    def _start_samples(self, teacher: str) -> Samples:
        """Replay a teacher's samples over its recorded items."""
        task = self._setup.task
        recorded, about = dict[int, Mapping[str, str]](), dict[int, str]()
        for key, attributes in self._plan.recorded.items_by_teacher.get((task.name, teacher), {}).items():
            entry = self._plan.recorded.items.get(key)
            number = records.item_number(key)
            if entry is not None and entry.good and number is not None:
                recorded[number] = attributes
                if (
                    keys := self._plan.recorded.passage_keys_by_row.get(self._plan.recorded.rows[key])
                ) is not None:
                    about[number] = keys
        seed, space = task.sampling.seed, self._setup.space
        return Samples(space, seed=seed, task=task.name, teacher=teacher, recorded=recorded, about=about)
