"""What the run folder holds of phases 3–5, and whether each record still stands.

A record stands when it is good, was made by the recipe that would make it now, and from the
content that is there now. What to do with one that does not is the `Stance` of the run. But one that was
made from an earlier record of its item or answer (which has been made anew since, and the run ended before
anything could follow) is not good, whatever the stance: it is about something else. That is decided by
content and by the order of lines, never by times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from coeval.analysis.empty_answers import EmptyAnswers
from coeval.core.errors import Misshapen
from coeval.core.foreign import decoder
from coeval.core.good import is_good, valid_levels
from coeval.core.ids import SEPARATOR, item_id, item_of, item_prefix, maker
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.plan.recipes import answer_input, base_recipe, item_content, judged_input
from coeval.pipeline.plan.record_entry import Emptiness, Entry, EvaluationEntry
from coeval.store.record_index import NO_LINES, NOTHING, ItemRows, PhaseIndex, RecordPart
from coeval.store.record_parts import NONE, EvaluationPart, ItemPart, ResponsePart
from coeval.store.rundir import RunDir


class Stance(Enum):
    """What a run does with good records of another configuration, or made from other content."""

    REFUSE = "refuse"
    REDO = "redo"
    KEEP = "keep"


_mapping = decoder(dict[str, Any])


def tried_before(index: PhaseIndex[Entry] | PhaseIndex[EvaluationEntry], key: str) -> int:
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


def made_from(index: PhaseIndex[Entry], key: str) -> MadeFrom:
    """What a record that was made now is to those that follow from it."""
    entry = index.get(key)
    return MadeFrom.REDONE if entry is not None and entry.good else MadeFrom.LOST


def outdated(
    source: MadeFrom,
    index: PhaseIndex[Entry] | PhaseIndex[EvaluationEntry],
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
        self.rows = ItemRows()
        """Item id → its row in the columns of all phases."""
        self.items: PhaseIndex[Entry] = PhaseIndex(self.rows, 0)
        self.responses: PhaseIndex[Entry] = PhaseIndex(self.rows, 1)
        self.evaluations: PhaseIndex[EvaluationEntry] = PhaseIndex(self.rows, 2)
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
        # by the item's row, and of answers by the end of their ids too
        self._prepared: dict[int, _Prepared] = {}
        self._judged_inputs: defaultdict[str, dict[int, str]] = defaultdict(dict)
        # what stood before it was made anew: few, whatever the size of a run
        self._older_items: dict[int, list[_Prepared]] = {}
        self._older_judged_inputs: dict[tuple[str, int], set[str]] = {}

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
            self.items.files.read(files, ItemPart, self._note_item, without, supplied)
        if "response_collection" in wanted:
            answers = folder.files("response_collection")
            self.responses.files.read(answers, ResponsePart, self._note_response, without)
        self._prepared.clear()
        self._older_items.clear()
        if "evaluation" in wanted:
            verdicts = folder.files("evaluation")
            self.evaluations.files.read(verdicts, EvaluationPart, self._note_evaluation, without)
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
        found = []
        for end, column in self.responses.columns.items():
            good = [entry for entry in column.entries.values() if entry.good]
            empty = Counter(entry.empty for entry in good if entry.empty)
            if good:
                found.append(EmptyAnswers(maker(end), empty.total(), empty["truncated"], len(good)))
        return found

    @property
    def damaged(self) -> list[tuple[Path, int]]:
        """Lines that are no records, by file and offset."""
        return [
            line for index in (self.items, self.responses, self.evaluations) for line in index.files.damaged
        ]

    def _note_item(self, part: ItemPart, position: int) -> None:
        if not part.id.startswith(item_prefix(part.task_id, part.teacher_model_id)):
            raise _misnamed(part)
        column, row = self.items.columns[""], self.rows[part.id]
        if row in column.entries and column.stays(row, part):
            return
        good = self._judge(part)
        attributes = part.sampled_target_attributes
        shared = self._attributes.setdefault(tuple(attributes.items()), attributes)
        self.by_teacher.setdefault((part.task_id, part.teacher_model_id), {})[part.id] = shared
        prompt = part.prompt or ""
        content = item_content(prompt, part.reference_response or "", attributes)
        if (older := self._prepared.get(row)) is not None:
            self._older_items.setdefault(row, []).append(older)
        self._prepared[row] = _Prepared(answer_input(prompt), content)
        column.put(row, self._entry(good, base_recipe(part.recipe), part.attempts, fresh=True), position)

    def _note_response(self, part: ResponsePart, position: int) -> None:
        key, item, end = part.id, part.datapoint_id, SEPARATOR + part.student_model_id
        if key != item + end:
            raise _misnamed(part)
        column, row = self.responses.columns[end], self.rows[item]
        if row in column.entries and column.stays(row, part):
            return
        good, fresh = self._judge(part), True
        if (prepared := self._prepared.get(row)) is None:
            self.doubtful = True
        else:
            older = self._older_items.get(row, ())
            fresh = part.input_hash in ("", prepared.asked)
            good = good and (fresh or all(part.input_hash != one.asked for one in older))
            if part.response is not None:
                self._note_judged_inputs(end, row, part.response, prepared, older)
        empty = part.response is not None and (not part.response or part.response.isspace())
        how: Emptiness = ("truncated" if part.truncated else "ended") if empty else ""
        column.put(row, self._entry(good, part.recipe, part.attempts, fresh, how), position)

    def _note_judged_inputs(
        self, end: str, row: int, answer: str, item: _Prepared, older: Iterable[_Prepared]
    ) -> None:
        """Note what judgments of an answer are made from now, and what they were made from before."""
        inputs = self._judged_inputs[end]
        if older or row in inputs:
            before = self._older_judged_inputs.setdefault((end, row), set())
            before.update(judged_input(one.content, answer) for one in older)
            if row in inputs:
                before.add(inputs[row])
        inputs[row] = judged_input(item.content, answer)

    def _note_evaluation(self, part: EvaluationPart, position: int) -> None:
        response, judge = part.response_id, part.judge_model_id
        if part.id != f"{response}{SEPARATOR}{judge}":
            raise _misnamed(part)
        item = item_of(response, 1)
        row, answered = self.rows[item], response[len(item) :]
        column = self.evaluations.columns[part.id[len(item) :]]
        if row in column.entries and column.stays(row, part):
            return
        made_from, outdated = part.input_hash, False
        judged = self._judged_inputs[answered].get(row)
        if judged is None and row not in self.responses.columns[answered].entries:
            self.doubtful = True
        fresh = not made_from or judged is None or judged == made_from
        if not fresh and made_from in self._older_judged_inputs.get((answered, row), ()):
            outdated = True
        scores, criteria, labelled = bytes(part.scores), bytes(part.criteria), part.label_scores is not NONE
        status = "outdated" if outdated else part.status
        alike = (scores, criteria, part.recipe, part.task_id, status, part.attempts, fresh, labelled)
        entry = self._evaluation_entries.get(alike)
        if entry is None:  # one for all records that are alike
            entry = self._evaluation_entries[alike] = self._new_entry(part, outdated=outdated, fresh=fresh)
        column.put(row, entry, position)

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
