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
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from coeval.analysis.doubtful_answers import EmptyAnswers
from coeval.analysis.readers.run_records import filtered_note
from coeval.core.errors import Misshapen, Undecodable
from coeval.core.foreign import make_decoder
from coeval.core.records import (
    PAIR,
    SEPARATOR,
    answer_name,
    is_good,
    item_id,
    item_part,
    item_prefix,
    keep_valid_levels,
    keep_valid_values,
    maker_of,
    preference_id,
)
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.plan.recipes import answer_input, base_recipe, item_content, judged_input
from coeval.store.record_index import (
    NO_LINES,
    NONE,
    NOT_TRIED,
    NOTHING,
    EvaluationPart,
    ItemPart,
    ItemRows,
    PhaseIndex,
    PreferencePart,
    RecordColumn,
    RecordFiles,
    RecordPart,
    RequestAttempts,
    ResponsePart,
    count_attempts,
)
from coeval.store.rundir import PAIRS, RunDir

# --- Memory of one record of phases 3–5

Change = Literal["", "recipe", "input"]
"""How a good record differs from what would be made now: not at all, by recipe, by what it was made from."""

Emptiness = Literal["", "ended", "truncated"]
"""How an answer without text came about: the model ended it, or the limit on tokens did; "" for others."""


class Entry(msgspec.Struct, frozen=True, eq=False):
    """A recorded item or response; one object for all that are alike, so it is known by its identity.

    ``fresh``: made from the content that is there now. ``empty``: how an answer came to have no text.
    """

    good: bool
    recipe: str
    attempts: RequestAttempts
    fresh: bool = True
    empty: Emptiness = ""

    def change(self, recipe: str) -> Change:
        if self.recipe and self.recipe != recipe:
            return "recipe"
        return "" if self.fresh else "input"


class EvaluationEntry(Entry, frozen=True, eq=False):
    """A recorded evaluation; ``scored`` pairs each factor with the hash of its criterion, if known."""

    scored: tuple[tuple[str, str], ...] = ()


# --- Hashes of the inputs of answers and judgments


class ItemContents(NamedTuple):
    """What an item's answers and judgments are made from. Older layouts recorded no ``input_hash``:
    their records, and those of items that are not there, are taken as they are."""

    requested: str
    content: str


# --- Reading the lines of phases 3–5
#
# There may be millions of them, so the loops here call nothing needless.

EntryT = TypeVar("EntryT", Entry, EvaluationEntry)

_mapping = make_decoder(dict[str, Any])


def _valued(part: EvaluationPart) -> tuple[str, ...] | None:
    """The factors of a record that have a value; None where one of them is no value."""
    if part.values is NONE:
        return ()
    values = _mapping(part.values)
    return tuple(values) if len(keep_valid_values(values)) == len(values) else None


class _JudgedBy(NamedTuple):
    """One judge's evaluations of one student's answers; ``inputs`` are what these are made from now."""

    column: RecordColumn[int, EvaluationEntry]
    inputs: dict[int, str]
    older: dict[int, set[str]]
    answers: Mapping[int, Entry]


class RecordNotes:
    """Notes lines in ``indexes``, in the order of the phases.

    Contents are those of items by their row; ``_judged``, what judgments are made from, of answers by the end
    of their ids too. ``_older…`` is what stood there before it was made anew: few, however large a run is.
    """

    def __init__(self, indexes: Recorded) -> None:
        self._contents: dict[int, ItemContents] = {}
        self._older_contents: dict[int, list[ItemContents]] = {}
        self._judged: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._older_judged: defaultdict[str, dict[int, set[str]]] = defaultdict(dict)
        self._indexes = indexes
        self._attributes: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._entries: dict[tuple[bool, str, RequestAttempts, bool, Emptiness], Entry] = {}
        self._evaluation_entries: dict[tuple[object, ...], EvaluationEntry] = {}

    def items(self, lines: Iterable[tuple[int, ItemPart]]) -> None:
        indexes, contents = self._indexes, self._contents
        column, rows, by_teacher = indexes.items.columns[""], indexes.rows, indexes.by_teacher
        for position, part in lines:
            try:
                if not part.id.startswith(item_prefix(part.task_id, part.teacher_model_id)):
                    raise _misnamed(part)
                row = rows[part.id]
                if row in column.entries and column.stays(row, part):
                    continue
                good, attributes, prompt = (
                    self._judge(part),
                    part.sampled_target_attributes,
                    part.prompt or "",
                )
                shared = self._attributes.setdefault(tuple(attributes.items()), attributes)
                fellows = by_teacher.setdefault((part.task_id, part.teacher_model_id), {})
                fellows[part.id] = shared
                content = item_content(prompt, part.reference_response or "", attributes)
                if (older := contents.get(row)) is not None:
                    self._older_contents.setdefault(row, []).append(older)
                contents[row] = ItemContents(answer_input(prompt), content)
                if part.input_hash:
                    indexes.about[row] = part.input_hash
                if part.filtered:
                    indexes.filtered[row] = part.filtered
                entry = self._entry(good, base_recipe(part.recipe), count_attempts(part), fresh=True)
                column.put(row, entry, position)
            except Undecodable:
                indexes.items.files.damage(position)

    def responses(self, lines: Iterable[tuple[int, ResponsePart]]) -> None:
        indexes, items, older_items = self._indexes, self._contents, self._older_contents
        rows, answered = indexes.rows, None
        for position, part in lines:
            if (part.student_model_id, part.sample) != answered:
                answered = (part.student_model_id, part.sample)
                end = SEPARATOR + answer_name(*answered)
                column, inputs = indexes.responses.columns[end], self._judged[end]
            try:
                if part.id != part.datapoint_id + end:
                    raise _misnamed(part)
                row = rows[part.datapoint_id]
                if row in column.entries and column.stays(row, part):
                    continue
                good, fresh, answer = self._judge(part), True, part.response
                if (item := items.get(row)) is None:
                    indexes.doubtful = True
                else:
                    older = older_items.get(row, ()) if older_items else ()
                    fresh = part.input_hash in ("", item.requested)
                    good = good and (fresh or all(part.input_hash != one.requested for one in older))
                    if answer is not None:
                        if older or row in inputs:
                            self._note_older_judged(end, row, answer, older)
                        inputs[row] = judged_input(item.content, answer)
                empty = answer is not None and (not answer or answer.isspace())
                how: Emptiness = ("truncated" if part.truncated else "ended") if empty else ""
                column.put(row, self._entry(good, part.recipe, count_attempts(part), fresh, how), position)
            except Undecodable:
                indexes.responses.files.damage(position)

    def evaluations(self, lines: Iterable[tuple[int, EvaluationPart]]) -> None:
        indexes, rows, alike_before = self._indexes, self._indexes.rows, self._evaluation_entries
        judged_by: dict[tuple[str, str], _JudgedBy] = {}
        for position, part in lines:
            try:
                response, judge, made_from = part.response_id, part.judge_model_id, part.input_hash
                if part.id != f"{response}{SEPARATOR}{judge}":
                    raise _misnamed(part)
                item = item_part(response, 1)
                answered, row = response[len(item) :], rows[item]
                if (found := judged_by.get((answered, judge))) is None:
                    found = judged_by[answered, judge] = self._judged_by(answered, judge)
                column, inputs, older, answers = found
                if row in column.entries and column.stays(row, part):
                    continue
                judged, outdated = inputs.get(row), False
                if judged is None and row not in answers:
                    indexes.doubtful = True
                fresh = not made_from or judged is None or judged == made_from
                if not fresh and made_from in older.get(row, ()):
                    outdated = True
                status = "outdated" if outdated else part.status
                said, labelled = b"".join((part.scores, part.criteria)), part.label_scores is not NONE
                valued = _valued(part)
                alike = (
                    said,
                    valued,
                    part.recipe,
                    part.task_id,
                    status,
                    count_attempts(part),
                    fresh,
                    labelled,
                )
                if (entry := alike_before.get(alike)) is None:  # one for all records that are alike
                    entry = alike_before[alike] = self._evaluation_entry(part, valued, outdated, fresh)
                column.put(row, entry, position)
            except Undecodable:
                indexes.evaluations.files.damage(position)

    def pairs(self, lines: Iterable[tuple[int, PreferencePart]]) -> None:
        """Note comparisons: made from two answers as they are now, from older ones, or from others."""
        indexes, rows = self._indexes, self._indexes.rows
        judged, older = self._judged, self._older_judged
        for position, part in lines:
            names = (part.first_model_id, part.second_model_id, part.judge_model_id)
            try:
                if part.id != preference_id(part.datapoint_id, *names):
                    raise _misnamed(part)
                row, good = rows[part.datapoint_id], self._judge(part)
                column = indexes.pairs.columns[part.id[len(part.datapoint_id) :]]
                if row in column.entries and column.stays(row, part):
                    continue
                fresh = True
                of_two = part.input_hash.split(PAIR) if part.input_hash else ()
                for name, made_from in zip(names, of_two, strict=False):
                    end = SEPARATOR + name
                    now = judged[end].get(row)
                    if now is None or now == made_from:
                        indexes.doubtful |= now is None
                        continue
                    fresh = False
                    good = good and made_from not in older[end].get(row, ())
                column.put(row, self._entry(good, part.recipe, count_attempts(part), fresh), position)
            except Undecodable:
                indexes.pairs.files.damage(position)

    def _note_older_judged(self, end: str, row: int, answer: str, older: Iterable[ItemContents]) -> None:
        """Note what judgments of an answer were made from before."""
        inputs = self._judged[end]
        before = self._older_judged[end].setdefault(row, set())
        before.update(judged_input(one.content, answer) for one in older)
        if row in inputs:
            before.add(inputs[row])

    def _judged_by(self, answered: str, judge: str) -> _JudgedBy:
        indexes = self._indexes
        return _JudgedBy(
            indexes.evaluations.columns[f"{answered}{SEPARATOR}{judge}"],
            self._judged[answered],
            self._older_judged[answered],
            indexes.responses.columns[answered].entries,
        )

    def _evaluation_entry(
        self, part: EvaluationPart, valued: tuple[str, ...] | None, outdated: bool, fresh: bool
    ) -> EvaluationEntry:
        """Where a level is none of ours, all factors are scored anew: what repair takes out cannot be
        completed."""
        good = self._judge(part) and not outdated
        criteria, scores = _mapping(part.criteria), _mapping(part.scores)
        self._indexes.scored.update((part.task_id, factor) for factor in (*scores, *(valued or ())))
        factors = (*scores, *(valued or ()))
        if valued is None or keep_valid_levels(scores) != scores:
            factors, self._indexes.doubtful = (), True
        scored = tuple((factor, criteria.get(factor, "")) for factor in factors)
        return EvaluationEntry(good, part.recipe, count_attempts(part), fresh, scored=scored)

    def _judge(self, part: RecordPart) -> bool:
        """Whether a record is good; one that is neither that nor failed is in doubt."""
        good = is_good(part)
        if not good and part.status != "failed":
            self._indexes.doubtful = True
        return good

    def _entry(
        self, good: bool, recipe: str, attempts: RequestAttempts, fresh: bool, empty: Emptiness = ""
    ) -> Entry:
        """One entry for all records that are alike."""
        alike = (good, recipe, attempts, fresh, empty)
        entry = self._entries.get(alike)
        if entry is None:
            entry = self._entries[alike] = Entry(*alike)
        return entry


def _misnamed(part: RecordPart) -> Misshapen:
    """Of a line whose id is not what it is about: one of them is damaged, and it cannot be told which."""
    return Misshapen(f"{part.id} does not name what the record is about")


def tried_before(index: PhaseIndex[Entry] | PhaseIndex[EvaluationEntry], key: str) -> RequestAttempts:
    """The attempts that all records of an id count; the seed of the next one depends on them."""
    entry = index.get(key)
    return NOT_TRIED if entry is None else max(index.requested_in_vain(key), entry.attempts)


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


class Recorded:
    """What files hold, each phase read after those before it; comparisons of answers in ``pairs``."""

    def __init__(self) -> None:
        self.rows = ItemRows()
        """Item id → its row in the columns of all phases."""
        self.items: PhaseIndex[Entry] = PhaseIndex(self.rows, 0)
        self.responses: PhaseIndex[Entry] = PhaseIndex(self.rows, 1)
        self.evaluations: PhaseIndex[EvaluationEntry] = PhaseIndex(self.rows, 2)
        self.pairs: PhaseIndex[Entry] = PhaseIndex(self.rows, 2)
        self.by_teacher: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
        """(task, teacher) → its items in order of first appearance: id → sampled target attributes."""
        self.about: dict[int, str] = {}
        """Row of an item made from documents → the `passage_keys` of its passages."""
        self.filtered: dict[int, dict[str, int]] = {}
        """Row of such an item → the replies that were discarded before it, by reason."""
        self.scored: set[tuple[str, str]] = set()
        """(task, factor) of all scores on record."""
        self.doubtful = False
        """Whether a line may be no valid record, by what is read of it here, or follow from none."""
        self.assumed: set[str] = set()
        """Items that a count takes to be there, though nobody has supplied them yet."""

    @property
    def files(self) -> tuple[RecordFiles, ...]:
        """What has been read of each phase."""
        return self.items.files, self.responses.files, self.evaluations.files, self.pairs.files

    @property
    def damaged(self) -> list[tuple[Path, int]]:
        """Lines that are no records, by file and offset."""
        return [line for files in self.files for line in files.damaged]

    def read(
        self,
        folder: RunDir,
        phases: Iterable[Phase] = PHASES[2:],
        without: Mapping[Path, Collection[int]] = NOTHING,
        supplied: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> Recorded:
        """Take in what the folder holds of these phases; ``without`` names lines to leave out, by offset.

        ``supplied`` are items and answers as they are to stand in files that do not hold them so yet, or are
        not there.
        """
        notes, needed = RecordNotes(self), set(phases)

        def files(phase: Phase) -> list[Path]:
            there, place = folder.files(phase), folder.folder(phase)
            return [*there, *(path for path in supplied if path not in there and path.parent == place)]

        if "data_generation" in needed:
            notes.items(self.items.files.lines(files("data_generation"), ItemPart, without, supplied))
        if "response_collection" in needed:
            answers = files("response_collection")
            notes.responses(self.responses.files.lines(answers, ResponsePart, without, supplied))
        if "evaluation" in needed:
            verdicts = folder.files("evaluation")
            notes.evaluations(self.evaluations.files.lines(verdicts, EvaluationPart, without))
            notes.pairs(self.pairs.files.lines(folder.files(PAIRS), PreferencePart, without))
        return self

    def assume_items(self, task: str, teacher: str, total: int) -> None:
        """Count ``total`` items of a benchmark teacher that supplies none yet."""
        if (task, teacher) not in self.by_teacher:
            ids = [item_id(task, teacher, n) for n in range(1, total + 1)]
            self.by_teacher[task, teacher] = {key: {} for key in ids}
            self.assumed.update(ids)

    def filtered_note(self) -> tuple[str, ...]:
        """How many replies of teachers were discarded, in words."""
        counts = Counter[str]()
        for of in self.filtered.values():
            counts.update(of)
        return filtered_note(dict(counts.most_common()))

    def empty_answers(self) -> list[EmptyAnswers]:
        """Of each student, how many of its good answers hold nothing."""
        of_student: dict[str, Counter[Emptiness]] = {}
        for end, column in self.responses.columns.items():
            good = Counter(entry.empty for entry in column.entries.values() if entry.good)
            if good:
                of_student.setdefault(maker_of(end), Counter()).update(good)
        return [
            EmptyAnswers(name, good.total() - good[""], good["truncated"], good.total())
            for name, good in of_student.items()
        ]
