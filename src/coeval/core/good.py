"""Whether a record is good, and which of an id's lines counts.

Resumption, repair, results and benchmarks ask here. A record is good when its status is ``ok`` and it holds
the value that it was made for: an item its prompt, an answer its text (an empty one is a text), an evaluation
the labels that were compared, or a valid level for at least one factor. What is not good counts as failed,
whatever it says of itself: it is owed, and never a score.

The SQL beside the Python says the same of the columns of a line; random records hold the two to agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Protocol, TypeVar

import msgspec

from coeval.core.records import LEVELS, Kept, Level

_LEVEL_BY_WORD: dict[str, Level] = {word: level for level in LEVELS for word in (level, level.lower())}
_BLANKS = " \t\n\r"

KeptT = TypeVar("KeptT", bound=Kept)


class Valued(Protocol):
    """A record, or what is read of one."""

    @property
    def status(self) -> str: ...
    @property
    def value(self) -> object: ...


def is_good(record: Valued) -> bool:
    return record.status == "ok" and record.value is not None


def level_of(word: object) -> Level | None:
    """The level that a word is, in upper or lower case and with blanks around it; None where it is none."""
    if not isinstance(word, str):
        return None
    return _LEVEL_BY_WORD.get(word) or _LEVEL_BY_WORD.get(word.strip(_BLANKS).lower())


def valid_levels(scores: Mapping[str, Any]) -> dict[str, Level]:
    """The scores that are levels, by factor; any other counts as missing."""
    found = {factor: level_of(word) for factor, word in scores.items()}
    return {factor: level for factor, level in found.items() if level is not None}


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


def level_sql(word: str, then: Mapping[Level, str]) -> str:
    """What `level_of` a word is turned into, NULL where that is None. Almost all are spelled as we spell
    them: only others are looked at twice."""
    spelled = " ".join(f"WHEN '{level}' THEN {value}" for level, value in then.items())
    blanks = " || ".join(f"chr({ord(blank)})" for blank in _BLANKS)
    otherwise = " ".join(f"WHEN '{level.lower()}' THEN {value}" for level, value in then.items())
    return f"CASE {word} {spelled} ELSE CASE {_lower(f'trim({word}, {blanks})')} {otherwise} END END"


def _lower(word: str) -> str:
    """In ASCII alone: DuckDB makes other letters into these."""
    return f"translate({word}, '{ascii_uppercase}', '{ascii_lowercase}')"


_ARE_LEVELS = f"[{level_sql('word', dict.fromkeys(LEVELS, 'true'))} FOR word IN map_values(scores)]"
PROMPT_SQL = "prompt IS NOT NULL"
RESPONSE_SQL = "response IS NOT NULL"
SCORES_SQL = f"(label_scores IS NOT NULL OR list_contains({_ARE_LEVELS}, true))"
VALUE_SQL = "value IS NOT NULL"
"""Whether a line's columns hold the value of an item, an answer, an evaluation, a benchmark's judgment."""


def good_sql(holds_value: str) -> str:
    """`is_good` of a line with a column ``status``, as an expression that is never NULL."""
    return f"coalesce(coalesce(status, 'ok') = 'ok' AND {holds_value}, false)"


def counting_sql(table: str) -> str:
    """The rowids that `by_id` chooses of a table in the order of the lines, with ``key`` and ``failed``."""
    chosen = "coalesce(max(rowid) FILTER (NOT failed), max(rowid))"
    return f"SELECT {chosen} FROM {table} GROUP BY key"  # noqa: S608 - names of ours
