"""Whether a record is good, and which of an id's lines counts.

Resumption, repair, results and benchmarks ask here. A record is good when its status is ``ok`` and it holds
the value that it was made for: an item its prompt, an answer its text (an empty one is a text), an evaluation
the labels that were compared, or a valid level for at least one factor. What is not good counts as failed,
whatever it says of itself: it is owed, and never a score.

The SQL beside the Python says the same of the columns of a line; random records hold the two to agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from coeval.core.records import LEVELS, Kept, Level

KeptT = TypeVar("KeptT", bound=Kept)


class Valued(Protocol):
    """A record, or what is read of one."""

    @property
    def status(self) -> str: ...
    @property
    def value(self) -> object: ...


def is_good(record: Valued) -> bool:
    return record.status == "ok" and record.value is not None


def valid_levels(scores: Mapping[str, Any]) -> dict[str, Level]:
    """The scores that are levels, by factor; any other counts as missing."""
    return {factor: level for factor, level in scores.items() if level in LEVELS}


def by_id(records: Iterable[KeptT]) -> dict[str, KeptT]:
    """The record that counts of each id, by first appearance: a good one before others, else the last.

    A good one that was asked for again in vain counts the askings of the failed one too, so that the
    next asking goes on from there.
    """
    standing: dict[str, KeptT] = {}
    for record in records:
        earlier = standing.get(record.id)
        if earlier is not None and is_good(earlier) and not is_good(record):
            attempts = max(earlier.attempts, record.attempts)
            record = msgspec.structs.replace(earlier, attempts=attempts)
        standing[record.id] = record
    return standing


_LEVELS = ", ".join(f"'{level}'" for level in LEVELS)
PROMPT_SQL = "prompt IS NOT NULL"
RESPONSE_SQL = "response IS NOT NULL"
SCORES_SQL = f"(label_scores IS NOT NULL OR list_has_any(map_values(scores), [{_LEVELS}]))"
VALUE_SQL = "value IS NOT NULL"
"""Whether a line's columns hold the value of an item, an answer, an evaluation, a benchmark's judgment."""


def good_sql(holds_value: str) -> str:
    """`is_good` of a line with a column ``status``, as an expression that is never NULL."""
    return f"coalesce(coalesce(status, 'ok') = 'ok' AND {holds_value}, false)"


def counting_sql(table: str) -> str:
    """The rowids that `by_id` chooses of a table in the order of the lines, with ``key`` and ``failed``."""
    chosen = "coalesce(max(rowid) FILTER (NOT failed), max(rowid))"
    return f"SELECT {chosen} FROM {table} GROUP BY key"  # noqa: S608 - names of ours
