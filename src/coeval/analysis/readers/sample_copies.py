"""Samples of an answer that are copies of each other: from a cache, or a host that repeats itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coeval.core.text import numbered

# Of fewer items, short answers may be the same by chance; a host that heeds the temperature repeats itself
# in all samples of so many items only where an item has one right answer.
FEWEST, NEARLY_ALL = 5, 0.95
# So much more of its items than of any other student's: at the same settings neither chance nor short answers
# make that of several items.
_FAR_MORE = 0.5

# An id that stands for several texts, or items, is none.
_COPIED = """
CREATE OR REPLACE TABLE copied AS
WITH sound AS (
    SELECT student, reply_id FROM response WHERE NOT failed AND reply_id <> ''
    GROUP BY ALL HAVING count(DISTINCT said) = 1 AND count(DISTINCT datapoint) = 1
)
SELECT key, student FROM response JOIN sound USING (student, reply_id) WHERE NOT failed
QUALIFY row_number() OVER (PARTITION BY student, reply_id ORDER BY sample) > 1
"""
_COUNTED = "SELECT student::VARCHAR AS name, count(DISTINCT key) FROM copied GROUP BY ALL ORDER BY name"
_REPEATED = """
SELECT student::VARCHAR AS name, count(*) FILTER (texts = 1), count(*) FILTER (texts < answers),
       count(*) AS items
FROM (
    SELECT r.student, r.datapoint, count(DISTINCT r.said) AS texts, count(*) AS answers
    FROM response r JOIN planned d ON r.datapoint = d.key WHERE NOT r.failed AND NOT d.failed
    GROUP BY ALL HAVING answers > 1
)
GROUP BY ALL HAVING items >= ? ORDER BY name
"""


class SampleCopies:
    """Takes copies out of the table of answers, by the ids of replies, and says what else repeats."""

    def __init__(self, rows: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]) -> None:
        self._rows = rows
        rows(_COPIED, ())
        self.by_student: dict[str, int] = dict(rows(_COUNTED, ()))
        if self.by_student:
            rows("DELETE FROM response WHERE key IN (SELECT key FROM copied)", ())

    def notes(self) -> Iterator[str]:
        """A sentence on each student with copies, or with answers that repeat each other."""
        for student, copies in self.by_student.items():
            yield (
                f"not counted as samples: {numbered(copies, 'answer')} of {student} from a cache, by the ids "
                "of their replies; turn caching off at the gateway"
            )
        found = self._rows(_REPEATED, [FEWEST])
        shares = {student: repeated / items for student, _, repeated, items in found}
        for student, alike, repeated, items in found:
            others = max((share for name, share in shares.items() if name != student), default=1.0)
            if alike >= NEARLY_ALL * items:
                yield (
                    f"the samples of {student} do not differ ({alike:,} of {numbered(items, 'item')}): its "
                    "host may ignore the temperature, or it is 0; further samples add nothing"
                )
            elif shares[student] - others > _FAR_MORE:
                yield (
                    f"samples of {student} repeat each other in {repeated:,} of {numbered(items, 'item')}, "
                    "far more than those of other students: if a gateway's cache makes copies, turn it off"
                )
