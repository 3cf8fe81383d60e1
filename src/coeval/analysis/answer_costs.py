"""What answers cost and how long they took, by student: the records' own usage, good answers alone.

Retries, probes and discarded answers are excluded; the bill of a run counts them too. The cost of an
answer from the store is unknown: another run paid it.
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
    """US dollars per 1,000 answers over the ``priced`` ones, and the median of seconds; None: unknown."""

    answers: int
    priced: int
    usd_per_1000: float | None
    seconds: float | None


class CostsAndTimes(NamedTuple):
    """Cost and seconds of each answer, (A,), NaN where unknown; with indices of their items and students."""

    item: NDArray[np.int64]
    student: NDArray[np.int64]
    usd_per_1000: Floats
    seconds: Floats
    students: Sequence[str]

    def costs_by_student(self, is_item_chosen: NDArray[np.bool_]) -> dict[str, AnswerCost]:
        """Summarise the answers to some of the items, (I,), by student."""
        selected, costs = is_item_chosen[self.item], {}
        for code, student in enumerate(self.students):
            if not (own := selected & (self.student == code)).any():
                continue
            usd, seconds = (
                figures[own & np.isfinite(figures)] for figures in (self.usd_per_1000, self.seconds)
            )
            costs[student] = AnswerCost(
                int(own.sum()),
                len(usd),
                float(usd.mean()) if len(usd) else None,
                float(np.median(seconds)) if len(seconds) else None,
            )
        return costs


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
def costs_by_model(reader: Reader) -> dict[str, AnswerCost]:
    """Summarise the cost of each model's answers in a folder. Raises StoreError: a file cannot be read."""
    rows = reader.query_lines("answers", _USAGE, _OUTPUT)
    return {str(model): AnswerCost(*cost) for model, *cost in rows}


@costs_by_model.register
def _(reader: RunReader) -> dict[str, AnswerCost]:
    items = [item for (item,) in reader.rows("SELECT id FROM planned WHERE NOT failed")]
    return read_costs_and_seconds(reader, items, reader.answering_models()).costs_by_student(
        np.ones(len(items), bool)
    )


def read_costs_and_seconds(reader: RunReader, items: Sequence[str], students: Sequence[str]) -> CostsAndTimes:
    """Read the cost and seconds of some students' answers to some items. Raises as `costs_by_model`."""
    item_codes = {item: code for code, item in enumerate(items)}
    student_codes = {student: code for code, student in enumerate(students)}
    rows = [
        (item_codes[item], student_codes[student], usd, seconds)
        for item, student, usd, seconds in reader.query_lines("response_collection", _USAGE, _ANSWERS)
        if item in item_codes and student in student_codes
    ]
    table = np.array(rows, np.float64).reshape(-1, 4)
    codes = table[:, :2].astype(np.int64)
    return CostsAndTimes(codes[:, 0], codes[:, 1], table[:, 2], table[:, 3], tuple(students))
