"""A run's answers, each with its item and its judgments, chosen by what they scored.

The reader's views decide what is chosen, so it is what counts in the means; the texts are then read from
the files.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.measures.score_grid import read_grid_with_removed
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.records import Datapoint, Evaluation, Preference, Response, response_id

Order: TypeAlias = Literal["id", "worst", "disagreement"]


class AnswerChoice(NamedTuple):
    """Which answers, and in which order. ``id`` is that of an item (also in the user's own file), an answer
    or a judgment. ``worst``: by score, unscored ones last. ``disagreement``: only those on which judges
    differ, most first."""

    students: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    id: str | None = None
    order: Order = "id"
    most: int | None = None


class JudgedAnswer(msgspec.Struct, frozen=True):
    """One answer to an item; ``answer`` is None while it is missing. ``score``: the mean of its judges'
    scores, 0 to 1, or where there are none the share of its labels that are right. ``disagreement``: the
    mean over its factors of the highest minus the lowest score, 0 to 1; None with fewer than two judges.
    ``comparisons``: those with other answers in which it was shown first."""

    item: Datapoint
    answer: Response | None
    judgments: tuple[Evaluation, ...] = ()
    score: float | None = None
    disagreement: float | None = None
    comparisons: tuple[Preference, ...] = ()


class ChosenAnswers(NamedTuple):
    """The chosen answers; ``found`` counts all that fit the choice, ignoring its ``most``."""

    answers: tuple[JudgedAnswer, ...]
    found: int


def read_chosen_answers(reader: RunReader, choice: AnswerChoice) -> ChosenAnswers:
    """Read the answers of a choice, with their items, judgments and scores."""
    make_answer_score_table(reader)
    rows = reader.rows(*_choice_query(choice))
    answered = frozenset(answer for _, answer, *_ in rows if answer is not None)
    items = {record.id: record for record in reader.read_records(Datapoint, {item for item, *_ in rows})}
    answers = {record.id: record for record in reader.read_records(Response, answered)}
    left_out = {(excluded.task, excluded.name) for excluded in reader.left_out if excluded.kind == "judge"}
    judgments: defaultdict[str | None, list[Evaluation]] = defaultdict(list)
    for judgment in sorted(reader.read_records(Evaluation, answered), key=lambda each: each.judge_model_id):
        if (judgment.task_id, judgment.judge_model_id) not in left_out:
            judgments[judgment.response_id].append(judgment)
    comparisons: defaultdict[str | None, list[Preference]] = defaultdict(list)
    for pair in reader.read_records(Preference, frozenset(items)):
        if (pair.task_id, pair.judge_model_id) not in left_out:
            comparisons[response_id(pair.datapoint_id, pair.first_model_id)].append(pair)
    chosen = (
        JudgedAnswer(
            items[item],
            answers[answer] if answer is not None else None,
            tuple(judgments[answer]),
            score,
            disagreement,
            tuple(comparisons[answer]),
        )
        for item, answer, score, disagreement, _ in rows
    )
    return ChosenAnswers(tuple(chosen), rows[0][4] if rows else 0)


_TABLE = """
CREATE OR REPLACE TABLE answer_score AS
SELECT n.item, s.model, sample, total, share, total / nullif(share, 0) AS score
FROM (
    SELECT unnest(?::INTEGER[]) AS number, unnest(?::INTEGER[]) AS student, unnest(?::INTEGER[]) AS sample,
           unnest(?::DOUBLE[]) AS total, unnest(?::DOUBLE[]) AS share
) JOIN (SELECT unnest(?::VARCHAR[]) AS item, unnest(range(?)) AS number) n USING (number)
  JOIN (SELECT unnest(?::VARCHAR[]) AS model, unnest(range(?)) AS student) s USING (student)
"""


def make_answer_score_table(reader: RunReader) -> None:
    """Make the table ``answer_score``: for each answer with a score (``item``, ``model``, ``sample``) the sum
    of its scores and of their shares, and the mean; NULL where it lacks a weighted factor."""
    grid = read_grid_with_removed(reader)
    sums, has_score = grid.sum_scores(), grid.scored
    answers, first, at = np.unique(grid.answer[has_score], return_index=True, return_inverse=True)
    columns = [grid.item, grid.student, np.zeros(len(has_score), int) if grid.sample is None else grid.sample]
    figures = [np.bincount(at, column[has_score], len(answers)) for column in (sums.total, sums.share)]
    reader.rows(
        _TABLE,
        [
            *(column[has_score][first].tolist() for column in columns),
            *(figure.tolist() for figure in figures),
            *(list(grid.items.ids), len(grid.items.ids), list(grid.students), len(grid.students)),
        ],
    )


SCORED_SQL = """
WITH labelled AS (
    SELECT answer, avg(match::INTEGER) AS right FROM labels GROUP BY ALL
), spread AS (
    SELECT answer, avg(high - low) AS disagreement
    FROM (
        SELECT answer, metric, max(value) AS high, min(value) AS low
        FROM scores WHERE value IS NOT NULL GROUP BY ALL HAVING count(DISTINCT judge) > 1
    )
    GROUP BY ALL
), found AS (
    SELECT i.item, a.answer, CASE WHEN s.item IS NULL THEN labelled.right ELSE s.score END AS score,
           disagreement, i.task, a.model, concat_ws('__', i.task, i.teacher, '') AS prefix
    FROM items i LEFT JOIN answers a USING (item)
        LEFT JOIN answer_score s USING (item, model, sample)
        LEFT JOIN labelled USING (answer) LEFT JOIN spread USING (answer)
)
"""
"""The beginning of a query: ``found`` holds all answers, with their scores and how far judges are apart."""

_ORDER: dict[Order, str] = {
    "id": "item, answer",
    "worst": "score NULLS LAST, item, answer",
    "disagreement": "disagreement DESC, item, answer",
}


def _choice_query(choice: AnswerChoice) -> tuple[str, list[object]]:
    conditions: list[str] = []
    values: list[object] = []
    for column, names in (("task", choice.tasks), ("model", choice.students)):
        if names:
            conditions.append(f"list_contains(?::VARCHAR[], {column})")
            values.append(list(names))
    if choice.id is None:
        conditions.append("answer IS NOT NULL")
    else:
        conditions.append("(item IN (?, prefix || ?) OR answer = ? OR starts_with(?, answer || '__'))")
        values += [choice.id] * 4
    if choice.order == "disagreement":
        conditions.append("disagreement > 0")
    sql = (
        f"{SCORED_SQL} SELECT item, answer, score, disagreement, count(*) OVER () FROM found "  # noqa: S608
        f"WHERE {' AND '.join(conditions)} ORDER BY {_ORDER[choice.order]}"
    )
    return (f"{sql} LIMIT {choice.most:d}" if choice.most is not None else sql), values
