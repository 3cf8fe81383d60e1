"""An index of a run's records of phases 3–5, and whether each is still current.

A record is current if it is good, and recipe and content that it was made from are those of now; the
`ChangePolicy` decides about others. But a record made from an earlier version of its item or answer, since
regenerated in a run that ended before its followers, is never good: it is about something else. Content
and the order of lines decide that, never times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from coeval.analysis.doubtful_answers import EmptyAnswers
from coeval.analysis.readers.run_records import discarded_draft_notes
from coeval.core.errors import Misshapen, Undecodable
from coeval.core.foreign import make_decoder
from coeval.core.records import (
    PAIR,
    SEPARATOR,
    answer_name,
    is_good,
    item_id,
    item_prefix,
    keep_valid_levels,
    keep_valid_values,
    preference_id,
    strip_names,
    student_or_judge_of,
)
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.plan.recipes import (
    hash_answer_input,
    hash_item_content,
    hash_judged_input,
    strip_item_part,
)
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


class RecordEntry(msgspec.Struct, frozen=True, eq=False):
    """A recorded item or response, compared by identity, since like records share one. ``fresh``: made from
    the content of now. ``empty``: why an answer has no text."""

    good: bool
    recipe: str
    attempts: RequestAttempts
    fresh: bool = True
    empty: Emptiness = ""

    def find_recipe_or_input_change(self, recipe: str) -> Change:
        if self.recipe and self.recipe != recipe:
            return "recipe"
        return "" if self.fresh else "input"


class EvaluationEntry(RecordEntry, frozen=True, eq=False):
    """A recorded evaluation; ``scored`` pairs each factor with the hash of its criterion, if known."""

    scored: tuple[tuple[str, str], ...] = ()


# --- Hashes of the inputs of answers and judgments


class ItemContents(NamedTuple):
    """Hashes of what an item's answers and judgments are made from. Records of older layouts have no
    ``input_hash``: these, and records of absent items, are taken as current."""

    requested: str
    content: str


# --- Reading the lines of phases 3–5
#
# There may be millions of them, so the loops here call nothing needless.

EntryT = TypeVar("EntryT", RecordEntry, EvaluationEntry)

_mapping = make_decoder(dict[str, Any])


def _list_factors_if_values_valid(part: EvaluationPart) -> tuple[str, ...] | None:
    """Return the factors of a record that have a value; None if some value is invalid."""
    if part.values is NONE:
        return ()
    values = _mapping(part.values)
    return tuple(values) if len(keep_valid_values(values)) == len(values) else None


class _JudgeColumn(NamedTuple):
    """One judge's evaluations of one student's answers; ``inputs`` are their input hashes of now."""

    column: RecordColumn[int, EvaluationEntry]
    inputs: dict[int, str]
    older: dict[int, set[str]]
    answers: Mapping[int, RecordEntry]


class RecordIndexer:
    """Adds lines to ``indexes``, phase by phase in order. ``_contents`` are those of items by row;
    ``_judged``, the input hashes of judgments, by suffix of the answer's id and row. ``_older…`` holds
    what was there before a record was regenerated: little, even in a large run."""

    def __init__(self, indexes: RunIndex) -> None:
        self._contents: dict[int, ItemContents] = {}
        self._older_contents: dict[int, list[ItemContents]] = {}
        self._judged: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._older_judged: defaultdict[str, dict[int, set[str]]] = defaultdict(dict)
        self._indexes = indexes
        self._attributes: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._entries: dict[tuple[bool, str, RequestAttempts, bool, Emptiness], RecordEntry] = {}
        self._evaluation_entries: dict[tuple[object, ...], EvaluationEntry] = {}

    def index_items(self, lines: Iterable[tuple[int, ItemPart]]) -> None:
        indexes, contents = self._indexes, self._contents
        column, rows, by_teacher = indexes.items.columns[""], indexes.rows, indexes.items_by_teacher
        for position, part in lines:
            try:
                if not part.id.startswith(item_prefix(part.task_id, part.teacher_model_id)):
                    raise _misnamed_error(part)
                row = rows[part.id]
                if row in column.entries and column.keeps_good_entry(row, part):
                    continue
                good, attributes = self._is_good_noting_doubt(part), part.sampled_target_attributes
                prompt = part.prompt or ""
                shared = self._attributes.setdefault(tuple(attributes.items()), attributes)
                fellows = by_teacher.setdefault((part.task_id, part.teacher_model_id), {})
                fellows[part.id] = shared
                content = hash_item_content(prompt, part.reference_response or "", attributes)
                if (older := contents.get(row)) is not None:
                    self._older_contents.setdefault(row, []).append(older)
                contents[row] = ItemContents(hash_answer_input(prompt), content)
                if part.input_hash:
                    indexes.passage_keys_by_row[row] = part.input_hash
                if part.filtered:
                    indexes.discarded_by_row[row] = part.filtered
                entry = self._share_entry(
                    good, strip_item_part(part.recipe), count_attempts(part), fresh=True
                )
                column.put(row, entry, position)
            except Undecodable:
                indexes.items.files.damage(position)

    def index_responses(self, lines: Iterable[tuple[int, ResponsePart]]) -> None:
        """Index lines of answers; one made from an earlier version of its item is not good."""
        indexes, items, older_items = self._indexes, self._contents, self._older_contents
        rows, answered = indexes.rows, None
        for position, part in lines:
            if (part.student_model_id, part.sample) != answered:
                answered = (part.student_model_id, part.sample)
                end = SEPARATOR + answer_name(*answered)
                column, inputs = indexes.responses.columns[end], self._judged[end]
            try:
                if part.id != part.datapoint_id + end:
                    raise _misnamed_error(part)
                row = rows[part.datapoint_id]
                if row in column.entries and column.keeps_good_entry(row, part):
                    continue
                good, fresh, answer = self._is_good_noting_doubt(part), True, part.response
                if (item := items.get(row)) is None:
                    indexes.may_be_invalid = True
                else:
                    older = older_items.get(row, ()) if older_items else ()
                    fresh = part.input_hash in ("", item.requested)
                    good = good and (fresh or all(part.input_hash != earlier.requested for earlier in older))
                    if answer is not None:
                        if older or row in inputs:
                            self._keep_older_input_hashes(end, row, answer, older)
                        inputs[row] = hash_judged_input(item.content, answer)
                empty = answer is not None and (not answer or answer.isspace())
                how: Emptiness = ("truncated" if part.truncated else "ended") if empty else ""
                column.put(
                    row, self._share_entry(good, part.recipe, count_attempts(part), fresh, how), position
                )
            except Undecodable:
                indexes.responses.files.damage(position)

    def index_evaluations(self, lines: Iterable[tuple[int, EvaluationPart]]) -> None:
        """Index lines of judgments; one of an earlier version of its answer is outdated."""
        indexes, rows, alike_before = self._indexes, self._indexes.rows, self._evaluation_entries
        judged_by: dict[tuple[str, str], _JudgeColumn] = {}
        for position, part in lines:
            try:
                response, judge, made_from = part.response_id, part.judge_model_id, part.input_hash
                if part.id != f"{response}{SEPARATOR}{judge}":
                    raise _misnamed_error(part)
                item = strip_names(response, 1)
                answered, row = response[len(item) :], rows[item]
                if (columns := judged_by.get((answered, judge))) is None:
                    columns = judged_by[answered, judge] = self._find_judge_column(answered, judge)
                column, inputs, older, answers = columns
                if row in column.entries and column.keeps_good_entry(row, part):
                    continue
                judged, outdated = inputs.get(row), False
                if judged is None and row not in answers:
                    indexes.may_be_invalid = True
                fresh = not made_from or judged is None or judged == made_from
                if not fresh and made_from in older.get(row, ()):
                    outdated = True
                status = "outdated" if outdated else part.status
                scored, labelled = b"".join((part.scores, part.criteria)), part.label_scores is not NONE
                valued = _list_factors_if_values_valid(part)
                alike = (
                    scored,
                    valued,
                    part.recipe,
                    part.task_id,
                    status,
                    count_attempts(part),
                    fresh,
                    labelled,
                )
                if (entry := alike_before.get(alike)) is None:  # one for all records that are alike
                    entry = alike_before[alike] = self._make_evaluation_entry(part, valued, outdated, fresh)
                column.put(row, entry, position)
            except Undecodable:
                indexes.evaluations.files.damage(position)

    def index_pairs(self, lines: Iterable[tuple[int, PreferencePart]]) -> None:
        """Index lines of comparisons; one of an earlier version of its answers is not good."""
        indexes, rows = self._indexes, self._indexes.rows
        judged, older = self._judged, self._older_judged
        for position, part in lines:
            names = (part.first_model_id, part.second_model_id, part.judge_model_id)
            try:
                if part.id != preference_id(part.datapoint_id, *names):
                    raise _misnamed_error(part)
                row, good = rows[part.datapoint_id], self._is_good_noting_doubt(part)
                column = indexes.pairs.columns[part.id[len(part.datapoint_id) :]]
                if row in column.entries and column.keeps_good_entry(row, part):
                    continue
                fresh = True
                of_two = part.input_hash.split(PAIR) if part.input_hash else ()
                for name, made_from in zip(names, of_two, strict=False):
                    end = SEPARATOR + name
                    now = judged[end].get(row)
                    if now is None or now == made_from:
                        indexes.may_be_invalid |= now is None
                        continue
                    fresh = False
                    good = good and made_from not in older[end].get(row, ())
                column.put(row, self._share_entry(good, part.recipe, count_attempts(part), fresh), position)
            except Undecodable:
                indexes.pairs.files.damage(position)

    def _keep_older_input_hashes(
        self, answer_suffix: str, row: int, answer: str, older: Iterable[ItemContents]
    ) -> None:
        inputs = self._judged[answer_suffix]
        before = self._older_judged[answer_suffix].setdefault(row, set())
        before.update(hash_judged_input(contents.content, answer) for contents in older)
        if row in inputs:
            before.add(inputs[row])

    def _find_judge_column(self, answered: str, judge: str) -> _JudgeColumn:
        indexes = self._indexes
        return _JudgeColumn(
            indexes.evaluations.columns[f"{answered}{SEPARATOR}{judge}"],
            self._judged[answered],
            self._older_judged[answered],
            indexes.responses.columns[answered].entries,
        )

    def _make_evaluation_entry(
        self, part: EvaluationPart, valued: tuple[str, ...] | None, outdated: bool, fresh: bool
    ) -> EvaluationEntry:
        """Make the entry of an evaluation; one with an invalid level, which repair removes, has no scores."""
        good = self._is_good_noting_doubt(part) and not outdated
        criteria, scores = _mapping(part.criteria), _mapping(part.scores)
        self._indexes.scored_factors.update((part.task_id, factor) for factor in (*scores, *(valued or ())))
        factors = (*scores, *(valued or ()))
        if valued is None or keep_valid_levels(scores) != scores:
            factors, self._indexes.may_be_invalid = (), True
        scored = tuple((factor, criteria.get(factor, "")) for factor in factors)
        return EvaluationEntry(good, part.recipe, count_attempts(part), fresh, scored=scored)

    def _is_good_noting_doubt(self, part: RecordPart) -> bool:
        """Check whether a record is good; note one that is neither good nor failed."""
        good = is_good(part)
        if not good and part.status != "failed":
            self._indexes.may_be_invalid = True
        return good

    def _share_entry(
        self, good: bool, recipe: str, attempts: RequestAttempts, fresh: bool, empty: Emptiness = ""
    ) -> RecordEntry:
        """Return the one entry that all records like this share."""
        alike = (good, recipe, attempts, fresh, empty)
        entry = self._entries.get(alike)
        if entry is None:
            entry = self._entries[alike] = RecordEntry(*alike)
        return entry


def _misnamed_error(part: RecordPart) -> Misshapen:
    """Return the error for a line whose id and fields contradict each other."""
    return Misshapen(f"{part.id} does not name what the record is about")


def count_prior_attempts(
    index: PhaseIndex[RecordEntry] | PhaseIndex[EvaluationEntry], key: str
) -> RequestAttempts:
    """Count the attempts of all records of an id; the seed of the next attempt depends on it."""
    entry = index.get(key)
    return NOT_TRIED if entry is None else max(index.attempts_after_good(key), entry.attempts)


class RunIndex:
    """An index of a run's records: read phase after phase; comparisons of answers are in ``pairs``."""

    def __init__(self) -> None:
        self.rows = ItemRows()
        """Item id → its row in the columns of all phases."""
        self.items: PhaseIndex[RecordEntry] = PhaseIndex(self.rows, 0)
        self.responses: PhaseIndex[RecordEntry] = PhaseIndex(self.rows, 1)
        self.evaluations: PhaseIndex[EvaluationEntry] = PhaseIndex(self.rows, 2)
        self.pairs: PhaseIndex[RecordEntry] = PhaseIndex(self.rows, 2)
        self.items_by_teacher: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
        """(task, teacher) → its items in order of first appearance: id → sampled target attributes."""
        self.passage_keys_by_row: dict[int, str] = {}
        """Row of an item made from documents → the `join_passage_keys` of its passages."""
        self.discarded_by_row: dict[int, dict[str, int]] = {}
        """Row of such an item → the replies that were discarded before it, by reason."""
        self.scored_factors: set[tuple[str, str]] = set()
        """(task, factor) of all scores on record."""
        self.may_be_invalid = False
        """Whether a line may be no valid record, or made from none, judging by the fields read here."""
        self.assumed: set[str] = set()
        """Items counted as existing, though nobody has supplied them yet."""

    @property
    def files(self) -> tuple[RecordFiles, ...]:
        """Return what was read of each phase."""
        return self.items.files, self.responses.files, self.evaluations.files, self.pairs.files

    @property
    def damaged(self) -> list[tuple[Path, int]]:
        """Return lines that are no records, by file and offset."""
        return [line for files in self.files for line in files.damaged]

    def read(
        self,
        folder: RunDir,
        phases: Iterable[Phase] = PHASES[2:],
        without: Mapping[Path, Collection[int]] = NOTHING,
        supplied: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> RunIndex:
        """Index the records of these phases; ``without`` names lines to skip, by offset. ``supplied`` are
        items and answers that will be written to files before a run starts."""
        indexer, needed = RecordIndexer(self), set(phases)

        def files(phase: Phase) -> list[Path]:
            existing, directory = folder.files(phase), folder.folder(phase)
            return [
                *existing,
                *(path for path in supplied if path not in existing and path.parent == directory),
            ]

        if "data_generation" in needed:
            indexer.index_items(
                self.items.files.read_parts(files("data_generation"), ItemPart, without, supplied)
            )
        if "response_collection" in needed:
            answers = files("response_collection")
            indexer.index_responses(self.responses.files.read_parts(answers, ResponsePart, without, supplied))
        if "evaluation" in needed:
            verdicts = folder.files("evaluation")
            indexer.index_evaluations(self.evaluations.files.read_parts(verdicts, EvaluationPart, without))
            indexer.index_pairs(self.pairs.files.read_parts(folder.files(PAIRS), PreferencePart, without))
        return self

    def assume_items(self, task: str, teacher: str, total: int) -> None:
        """Count ``total`` items of a benchmark teacher that has supplied none yet."""
        if (task, teacher) not in self.items_by_teacher:
            ids = [item_id(task, teacher, n) for n in range(1, total + 1)]
            self.items_by_teacher[task, teacher] = {key: {} for key in ids}
            self.assumed.update(ids)

    def describe_discarded_replies(self) -> tuple[str, ...]:
        """Say how many replies of teachers were discarded."""
        counts = Counter[str]()
        for reasons in self.discarded_by_row.values():
            counts.update(reasons)
        return discarded_draft_notes(dict(counts.most_common()))

    def count_empty_answers(self) -> list[EmptyAnswers]:
        """Count for each student the good answers without text."""
        of_student: dict[str, Counter[Emptiness]] = {}
        for end, column in self.responses.columns.items():
            good = Counter(entry.empty for entry in column.entries.values() if entry.good)
            if good:
                of_student.setdefault(student_or_judge_of(end), Counter()).update(good)
        return [
            EmptyAnswers(name, good.total() - good[""], good["truncated"], good.total())
            for name, good in of_student.items()
        ]
