"""What answers cost and how long they took, by student: the records' own usage, good answers alone.

Retries, probes and discarded answers are no part of it; the bill of a run counts them too. The cost of an
answer from the store is not known: another run paid it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader

# Answers whose figures a page keeps one by one, so that filters can use them: two bytes each, twice.
MOST_KEPT = 40_000


class AnswerCost(NamedTuple):
    """US dollars per 1,000 answers over the ``priced`` ones, and the median of seconds; None: not known."""

    answers: int
    priced: int
    usd_per_1000: float | None
    seconds: float | None


class AnswerFigures(NamedTuple):
    """Of one answer, by item and student; NaN where it is not known."""

    item: str
    student: str
    usd_per_1000: float
    seconds: float


class AnswerCosts(NamedTuple):
    """By student, and one by one where there are at most `MOST_KEPT`, else None."""

    students: Mapping[str, AnswerCost]
    each: Sequence[AnswerFigures] | None


_USAGE = {"id": "VARCHAR", "latency_s": "DOUBLE", "usage": "STRUCT(cost_usd DOUBLE, stored BIGINT)"}
# Of several lines of an id the last one counts, as a redone answer's does.
_ANSWERS = """
SELECT {select} FROM (
    SELECT md5_number(id) AS key, 1000 * last(if(usage.stored IS NULL, usage.cost_usd, NULL)) AS usd,
           last(CASE WHEN latency_s > 0 THEN latency_s END) AS seconds
    FROM {lines} WHERE id IS NOT NULL GROUP BY ALL
) s JOIN response r USING (key) JOIN planned d ON r.datapoint = d.key
WHERE NOT r.failed AND NOT d.failed
"""
_BY_STUDENT = "r.student::VARCHAR, count(*), count(usd), avg(usd), median(seconds)"
_EACH = "d.id, r.student::VARCHAR, coalesce(usd, 'NaN'), coalesce(seconds, 'NaN')"


# Of an output folder; files read in part are no part of it.
_OUTPUT = """
SELECT p.model, count(*), count(usd), avg(usd), median(seconds) FROM (
    SELECT md5_number(filename || chr(10) || id) AS key,
           1000 * last(if(usage.stored IS NULL, usage.cost_usd, NULL)) AS usd,
           last(CASE WHEN latency_s > 0 THEN latency_s END) AS seconds
    FROM {lines} WHERE id IS NOT NULL GROUP BY ALL
) s JOIN answer a USING (key) JOIN place p USING (file)
WHERE NOT a.failed GROUP BY ALL
"""


@singledispatch
def model_costs(reader: Reader) -> dict[str, AnswerCost]:
    """By model that answered, in a run or an output folder. Raises StoreError: a file cannot be read."""
    return _costs(reader.of_lines("answers", _USAGE, _OUTPUT))


@model_costs.register
def _(reader: RunReader) -> dict[str, AnswerCost]:
    sql = _ANSWERS.replace("{select}", _BY_STUDENT) + "GROUP BY ALL"
    return _costs(reader.of_lines("response_collection", _USAGE, sql))


def _costs(rows: Iterable[tuple[Any, ...]]) -> dict[str, AnswerCost]:
    return {str(model): AnswerCost(*cost) for model, *cost in rows}


def answer_costs(reader: RunReader) -> AnswerCosts:
    """
    Raises StoreError: a file cannot be read.
    """
    students = model_costs(reader)
    if sum(one.answers for one in students.values()) > MOST_KEPT or reader.sampled:
        return AnswerCosts(students, None)
    rows = reader.of_lines("response_collection", _USAGE, _ANSWERS.replace("{select}", _EACH))
    return AnswerCosts(students, [AnswerFigures(*row) for row in rows])


Halves: TypeAlias = NDArray[np.float16]


def packed_figures(costs: AnswerCosts, items: Mapping[str, int], students: Sequence[str]) -> Halves | None:
    """(items, students, 2): dollars per 1,000 and seconds in half precision (three digits), NaN where none is
    known; ``items`` gives places. None: they are not kept one by one, or none is known."""
    if not costs.each:
        return None
    found = np.full((len(items), len(students), 2), np.nan)
    place = {name: at for at, name in enumerate(students)}
    for one in costs.each:
        if one.item in items and one.student in place:
            found[items[one.item], place[one.student]] = one.usd_per_1000, one.seconds
    if np.isnan(found).all():
        return None
    return np.asarray(np.clip(found, 0, float(np.finfo(np.float16).max)), "<f2")
