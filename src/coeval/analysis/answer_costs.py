"""What answers cost and how long they took, by student: the records' own usage, good answers alone.

Retries, probes and discarded answers are no part of it; the bill of a run counts them too. The cost of an
answer from the store is not known: another run paid it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader


class AnswerCost(NamedTuple):
    """US dollars per 1,000 answers over the ``priced`` ones, and the median of seconds; None: not known."""

    answers: int
    priced: int
    usd_per_1000: float | None
    seconds: float | None


class AnswerFigures(NamedTuple):
    """Of answers, one by one, (A,): places of item and student in their lists, NaN where a figure is not
    known."""

    item: NDArray[np.int64]
    student: NDArray[np.int64]
    usd_per_1000: Floats
    seconds: Floats
    students: Sequence[str]

    def by_student(self, items: NDArray[np.bool_]) -> dict[str, AnswerCost]:
        """Summarise the answers to some of the items, (I,)."""
        some, found = items[self.item], {}
        for place, student in enumerate(self.students):
            if not (mine := some & (self.student == place)).any():
                continue
            usd, seconds = (of[mine & np.isfinite(of)] for of in (self.usd_per_1000, self.seconds))
            found[student] = AnswerCost(
                int(mine.sum()),
                len(usd),
                float(usd.mean()) if len(usd) else None,
                float(np.median(seconds)) if len(seconds) else None,
            )
        return found


_USAGE = {"id": "VARCHAR", "latency_s": "DOUBLE", "usage": "STRUCT(cost_usd DOUBLE, stored BIGINT)"}
# Of several lines of an id the last one counts, as a redone answer's does.
_ANSWERS = """
SELECT d.id, r.student::VARCHAR, coalesce(usd, 'NaN'), coalesce(seconds, 'NaN') FROM (
    SELECT md5_number(id) AS key, 1000 * last(if(usage.stored IS NULL, usage.cost_usd, NULL)) AS usd,
           last(CASE WHEN latency_s > 0 THEN latency_s END) AS seconds
    FROM {lines} WHERE id IS NOT NULL GROUP BY ALL
) s JOIN response r USING (key) JOIN planned d ON r.datapoint = d.key
WHERE NOT r.failed AND NOT d.failed
"""
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
    rows = reader.of_lines("answers", _USAGE, _OUTPUT)
    return {str(model): AnswerCost(*cost) for model, *cost in rows}


@model_costs.register
def _(reader: RunReader) -> dict[str, AnswerCost]:
    items = [item for (item,) in reader.rows("SELECT id FROM planned WHERE NOT failed")]
    return answer_figures(reader, items, reader.models()).by_student(np.ones(len(items), bool))


def answer_figures(reader: RunReader, items: Sequence[str], students: Sequence[str]) -> AnswerFigures:
    """Read what each answer of some students to some items cost and took.

    Raises StoreError: a file cannot be read.
    """
    of_item = {item: place for place, item in enumerate(items)}
    of_student = {student: place for place, student in enumerate(students)}
    rows = [
        (of_item[item], of_student[student], usd, seconds)
        for item, student, usd, seconds in reader.of_lines("response_collection", _USAGE, _ANSWERS)
        if item in of_item and student in of_student
    ]
    table = np.array(rows, np.float64).reshape(-1, 4)
    places = table[:, :2].astype(np.int64)
    return AnswerFigures(places[:, 0], places[:, 1], table[:, 2], table[:, 3], tuple(students))
