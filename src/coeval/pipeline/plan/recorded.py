"""What the run folder holds of phases 3–5, and whether each record still stands.

A record stands when it is good, was made by the recipe that would make it now, and from the
content that is there now. What to do with one that does not is the `Stance` of the run. But one that was
made from an earlier record of its item or answer (which has been made anew since, and the run ended before
anything could follow) is not good, whatever the stance: it is about something else. That is decided by
content and by the order of lines, never by times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from coeval.analysis.empty_answers import EmptyAnswers
from coeval.core.errors import Misshapen
from coeval.core.foreign import decoder
from coeval.core.good import is_good, valid_levels
from coeval.core.ids import evaluation_id, item_id, item_prefix, maker, response_id
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.plan.recipes import answer_input, base_recipe, item_content, judged_input
from coeval.pipeline.plan.record_entry import Emptiness, Entry, EvaluationEntry
from coeval.store.journal import NO_LINES, NOTHING, Index, RecordPart
from coeval.store.record_parts import NONE, EvaluationPart, ItemPart, ResponsePart
from coeval.store.rundir import RunDir


class Stance(Enum):
    """What a run does with good records of another configuration, or made from other content."""

    REFUSE = "refuse"
    REDO = "redo"
    KEEP = "keep"


_mapping = decoder(dict[str, Any])


def tried_before(index: Index[Entry] | Index[EvaluationEntry], key: str) -> int:
    """The askings that all records of an id count; the seed of the next one depends on it."""
    entry = index.get(key)
    return 0 if entry is None else max(index.asked_in_vain(key), entry.attempts)


class MadeFrom(Enum):
    """What a record was made from, as it is now."""

    STANDS = "stands"
    """It is the one on record."""
    LOST = "lost"
    """There was none, or no good one, and it was made in this run. What is recorded counts where it was made
    from the same content."""
    REDONE = "redone"
    """A good one was made again. Whoever wants that wants what follows from it anew, too."""


def made_from(index: Index[Entry], key: str) -> MadeFrom:
    """What a record that was made now is to those that follow from it."""
    entry = index.get(key)
    return MadeFrom.REDONE if entry is not None and entry.good else MadeFrom.LOST


def outdated(
    source: MadeFrom,
    index: Index[Entry] | Index[EvaluationEntry],
    key: str,
    kind: type[ResponsePart | EvaluationPart],
    content: Callable[[], str],
) -> bool:
    """Whether the record ``key``, if there is one, was made from something else than ``content()``, which is
    the ``input_hash`` of one made now; nothing is read where its ``source`` answers that."""
    if source is MadeFrom.STANDS:
        return False
    entry = index.get(key)
    if source is MadeFrom.REDONE or entry is None or not entry.good:
        return True
    return index.load(key, kind).input_hash != content()


class _Prepared(NamedTuple):
    """What an item's answers and judgments are made from. Older layouts recorded no ``input_hash``:
    their records, and those of items that are not there, are taken as they are."""

    asked: str
    content: str


class Recorded:
    """Indexes of the three phases. `read` takes in files in the order of the phases."""

    def __init__(self) -> None:
        self.items: Index[Entry] = Index()
        self.responses: Index[Entry] = Index()
        self.evaluations: Index[EvaluationEntry] = Index()
        self.by_teacher: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
        """(task, teacher) → its items in order of first appearance: id → sampled target attributes."""
        self.assumed: set[str] = set()
        """Items that a count takes to be there, though nobody has supplied them yet."""
        self.scored: set[tuple[str, str]] = set()
        """(task, factor) of all scores on record."""
        self.doubtful = False
        """Whether a line may be no valid record, by what is read of it here, or follow from none."""
        self._attributes: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._entries: dict[tuple[bool, str, int, bool, Emptiness], Entry] = {}
        self._evaluation_entries: dict[tuple[object, ...], EvaluationEntry] = {}
        self._prepared: dict[str, _Prepared] = {}
        self._judged_inputs: dict[str, str] = {}
        # what stood before it was made anew: few, whatever the size of a run
        self._older_items: dict[str, list[_Prepared]] = {}
        self._older_judged_inputs: dict[str, set[str]] = {}

    def read(
        self,
        folder: RunDir,
        phases: Iterable[Phase] = PHASES[2:],
        without: Mapping[Path, Collection[int]] = NOTHING,
        supplied: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> Recorded:
        """Take in what the folder holds of these phases; ``without`` names lines to leave out, by offset.

        ``supplied`` are items as they are to stand in files that do not hold them so yet, or are not there.
        """
        wanted = set(phases)
        if "data_generation" in wanted:
            there, place = folder.files("data_generation"), folder.folder("data_generation")
            files = [*there, *(path for path in supplied if path not in there and path.parent == place)]
            self.items.read(files, ItemPart, self._note_item, without, supplied)
        if "response_collection" in wanted:
            answers = folder.files("response_collection")
            self.responses.read(answers, ResponsePart, self._note_response, without)
        self._prepared.clear()
        self._older_items.clear()
        if "evaluation" in wanted:
            verdicts = folder.files("evaluation")
            self.evaluations.read(verdicts, EvaluationPart, self._note_evaluation, without)
        self._judged_inputs.clear()
        self._older_judged_inputs.clear()
        self._evaluation_entries.clear()
        return self

    def assume_items(self, task: str, teacher: str, total: int) -> None:
        """Count ``total`` items of a benchmark teacher that supplies none yet."""
        if (task, teacher) not in self.by_teacher:
            ids = [item_id(task, teacher, n) for n in range(1, total + 1)]
            self.by_teacher[task, teacher] = {key: {} for key in ids}
            self.assumed.update(ids)

    def empty_answers(self) -> list[EmptyAnswers]:
        """Of each student, how many of its good answers hold nothing."""
        good: Counter[str] = Counter()
        empty: Counter[tuple[str, Emptiness]] = Counter()
        for key in self.responses:
            entry = self.responses.get(key)
            if entry is not None and entry.good:
                student = maker(key)
                good[student] += 1
                empty[student, entry.empty] += 1
        return [
            EmptyAnswers(name, empty[name, "ended"] + (cut := empty[name, "truncated"]), cut, count)
            for name, count in good.items()
        ]

    @property
    def damaged(self) -> list[tuple[Path, int]]:
        """Lines that are no records, by file and offset."""
        return self.items.damaged + self.responses.damaged + self.evaluations.damaged

    def _note_item(self, part: ItemPart) -> Entry:
        if not part.id.startswith(item_prefix(part.task_id, part.teacher_model_id)):
            raise _misnamed(part)
        good = self._judge(part)
        attributes = part.sampled_target_attributes
        shared = self._attributes.setdefault(tuple(attributes.items()), attributes)
        self.by_teacher.setdefault((part.task_id, part.teacher_model_id), {})[part.id] = shared
        prompt = part.prompt or ""
        content = item_content(prompt, part.reference_response or "", attributes)
        if (older := self._prepared.get(part.id)) is not None:
            self._older_items.setdefault(part.id, []).append(older)
        self._prepared[part.id] = _Prepared(answer_input(prompt), content)
        return self._entry(good, base_recipe(part.recipe), part.attempts, fresh=True)

    def _note_response(self, part: ResponsePart) -> Entry:
        if part.id != response_id(part.datapoint_id, part.student_model_id):
            raise _misnamed(part)
        good, fresh = self._judge(part), True
        if (item := self._prepared.get(part.datapoint_id)) is None:
            self.doubtful = True
        else:
            older = self._older_items.get(part.datapoint_id, ())
            fresh = part.input_hash in ("", item.asked)
            good = good and (fresh or all(part.input_hash != one.asked for one in older))
            if part.response is not None:
                self._note_judged_inputs(part.id, part.response, item, older)
        empty = part.response is not None and not part.response.strip()
        how: Emptiness = ("truncated" if part.truncated else "ended") if empty else ""
        return self._entry(good, part.recipe, part.attempts, fresh, how)

    def _note_judged_inputs(self, key: str, answer: str, item: _Prepared, older: Iterable[_Prepared]) -> None:
        """Note what judgments of an answer are made from now, and what they were made from before."""
        if older or key in self._judged_inputs:
            before = self._older_judged_inputs.setdefault(key, set())
            before.update(judged_input(one.content, answer) for one in older)
            if key in self._judged_inputs:
                before.add(self._judged_inputs[key])
        self._judged_inputs[key] = judged_input(item.content, answer)

    def _note_evaluation(self, part: EvaluationPart) -> EvaluationEntry:
        if part.id != evaluation_id(part.response_id, part.judge_model_id):
            raise _misnamed(part)
        made_from, outdated = part.input_hash, False
        judged = self._judged_inputs.get(part.response_id)
        if judged is None and part.response_id not in self.responses:
            self.doubtful = True
        fresh = not made_from or judged is None or judged == made_from
        if not fresh and made_from in self._older_judged_inputs.get(part.response_id, ()):
            outdated = True
        return self._evaluation_entry(part, outdated=outdated, fresh=fresh)

    def _evaluation_entry(self, part: EvaluationPart, *, outdated: bool, fresh: bool) -> EvaluationEntry:
        """One entry for all records that are alike."""
        scores, criteria, labelled = bytes(part.scores), bytes(part.criteria), part.label_scores is not NONE
        status = "outdated" if outdated else part.status
        alike = (part.task_id, status, part.recipe, part.attempts, fresh, labelled, scores, criteria)
        entry = self._evaluation_entries.get(alike)
        if entry is None:
            entry = self._new_entry(part, outdated=outdated, fresh=fresh)
            self._evaluation_entries[alike] = entry
        return entry

    def _new_entry(self, part: EvaluationPart, *, outdated: bool, fresh: bool) -> EvaluationEntry:
        """Where a level is none, all factors are scored anew: what repair takes out cannot be completed."""
        good = self._judge(part) and not outdated
        criteria, scores = _mapping(part.criteria), _mapping(part.scores)
        self.scored.update((part.task_id, factor) for factor in scores)
        levels = valid_levels(scores)
        if len(levels) < len(scores):
            levels, self.doubtful = {}, True
        scored = tuple((factor, criteria.get(factor, "")) for factor in levels)
        return EvaluationEntry(good, part.recipe, part.attempts, fresh, scored=scored)

    def _judge(self, part: RecordPart) -> bool:
        """Whether a record is good; one that is neither that nor failed is in doubt."""
        good = is_good(part)
        if not good and part.status != "failed":
            self.doubtful = True
        return good

    def _entry(self, good: bool, recipe: str, attempts: int, fresh: bool, empty: Emptiness = "") -> Entry:
        """One entry for all records that are alike."""
        alike = (good, recipe, attempts, fresh, empty)
        entry = self._entries.get(alike)
        if entry is None:
            entry = self._entries[alike] = Entry(*alike)
        return entry


def _misnamed(part: RecordPart) -> Misshapen:
    """Of a line whose id is not what it is about: one of them is damaged, and it cannot be told which."""
    return Misshapen(f"{part.id} does not name what the record is about")
