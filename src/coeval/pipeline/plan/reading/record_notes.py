"""Taking in the lines of phases 3–5: what is remembered of each, and whether it is made from what is there.

There may be millions of them, so the loops here call nothing needless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from coeval.core.errors import Misshapen, Undecodable
from coeval.core.foreign import decoder
from coeval.core.good import is_good, valid_levels
from coeval.core.ids import SEPARATOR, item_of, item_prefix
from coeval.pipeline.plan.reading.contents import Contents, ItemContents
from coeval.pipeline.plan.reading.record_indexes import RecordIndexes
from coeval.pipeline.plan.recipes import answer_input, base_recipe, item_content, judged_input
from coeval.pipeline.plan.record_entry import Emptiness, Entry, EvaluationEntry
from coeval.store.record_index import RecordColumn, RecordPart
from coeval.store.record_parts import NONE, EvaluationPart, ItemPart, ResponsePart

EntryT = TypeVar("EntryT", Entry, EvaluationEntry)

_mapping = decoder(dict[str, Any])


class _JudgedBy(NamedTuple):
    """One judge's evaluations of one student's answers; ``inputs`` are what these are made from now."""

    column: RecordColumn[int, EvaluationEntry]
    inputs: dict[int, str]
    older: dict[int, set[str]]
    answers: Mapping[int, Entry]


class RecordNotes:
    """Notes lines in ``indexes``, in the order of the phases."""

    def __init__(self, indexes: RecordIndexes) -> None:
        self.contents = Contents()
        self._indexes = indexes
        self._attributes: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._entries: dict[tuple[bool, str, int, bool, Emptiness], Entry] = {}
        self._evaluation_entries: dict[tuple[object, ...], EvaluationEntry] = {}

    def items(self, lines: Iterable[tuple[int, ItemPart]]) -> None:
        indexes, contents = self._indexes, self.contents
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
                if (older := contents.items.get(row)) is not None:
                    contents.older_items.setdefault(row, []).append(older)
                contents.items[row] = ItemContents(answer_input(prompt), content)
                entry = self._entry(good, base_recipe(part.recipe), part.attempts, fresh=True)
                column.put(row, entry, position)
            except Undecodable:
                indexes.items.files.damage(position)

    def responses(self, lines: Iterable[tuple[int, ResponsePart]]) -> None:
        indexes, items, older_items = self._indexes, self.contents.items, self.contents.older_items
        rows, student = indexes.rows, None
        for position, part in lines:
            if part.student_model_id != student:
                student = part.student_model_id
                end = SEPARATOR + student
                column, inputs = indexes.responses.columns[end], self.contents.judged[end]
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
                    fresh = part.input_hash in ("", item.asked)
                    good = good and (fresh or all(part.input_hash != one.asked for one in older))
                    if answer is not None:
                        if older or row in inputs:
                            self._note_older_judged(end, row, answer, older)
                        inputs[row] = judged_input(item.content, answer)
                empty = answer is not None and (not answer or answer.isspace())
                how: Emptiness = ("truncated" if part.truncated else "ended") if empty else ""
                column.put(row, self._entry(good, part.recipe, part.attempts, fresh, how), position)
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
                item = item_of(response, 1)
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
                alike = (said, part.recipe, part.task_id, status, part.attempts, fresh, labelled)
                if (entry := alike_before.get(alike)) is None:  # one for all records that are alike
                    entry = alike_before[alike] = self._evaluation_entry(part, outdated=outdated, fresh=fresh)
                column.put(row, entry, position)
            except Undecodable:
                indexes.evaluations.files.damage(position)

    def _note_older_judged(self, end: str, row: int, answer: str, older: Iterable[ItemContents]) -> None:
        """Note what judgments of an answer were made from before."""
        inputs = self.contents.judged[end]
        before = self.contents.older_judged[end].setdefault(row, set())
        before.update(judged_input(one.content, answer) for one in older)
        if row in inputs:
            before.add(inputs[row])

    def _judged_by(self, answered: str, judge: str) -> _JudgedBy:
        indexes, contents = self._indexes, self.contents
        return _JudgedBy(
            indexes.evaluations.columns[f"{answered}{SEPARATOR}{judge}"],
            contents.judged[answered],
            contents.older_judged[answered],
            indexes.responses.columns[answered].entries,
        )

    def _evaluation_entry(self, part: EvaluationPart, *, outdated: bool, fresh: bool) -> EvaluationEntry:
        """Where a level is none of ours, all factors are scored anew: what repair takes out cannot be
        completed."""
        good = self._judge(part) and not outdated
        criteria, scores = _mapping(part.criteria), _mapping(part.scores)
        self._indexes.scored.update((part.task_id, factor) for factor in scores)
        levels = valid_levels(scores)
        if levels != scores:
            levels, self._indexes.doubtful = {}, True
        scored = tuple((factor, criteria.get(factor, "")) for factor in levels)
        return EvaluationEntry(good, part.recipe, part.attempts, fresh, scored=scored)

    def _judge(self, part: RecordPart) -> bool:
        """Whether a record is good; one that is neither that nor failed is in doubt."""
        good = is_good(part)
        if not good and part.status != "failed":
            self._indexes.doubtful = True
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
