"""Whole records of a run, phase by phase; no table of them is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from coeval.core.html_table import Columns, record_columns
from coeval.core.records import Datapoint, Evaluation, Preference, Record, Response
from coeval.core.text import pluralize
from coeval.store.record_index import index_record_states
from coeval.store.rundir import PAIRS, RunDir

R = TypeVar("R", bound=Record | Preference, covariant=True)

RECORD_KINDS: dict[str, type[Any]] = {
    "data_generation": Datapoint,
    "response_collection": Response,
    "evaluation": Evaluation,
    PAIRS: Preference,
}


class Records(Generic[R]):
    """The records of one phase: iterating reads each from disk, one of each id; a failed one only where there
    is no good one (``record.status == "failed"``).

    >>> judgments = coeval.open_run("runs/quickstart").records("evaluation")
    >>> len(judgments), next(iter(judgments)).status
    (756, 'ok')
    """

    def __init__(self, folder: RunDir, phase: str) -> None:
        self._kind: type[R] = RECORD_KINDS[phase]
        self._index = index_record_states(folder.files(phase), phase)

    def __iter__(self) -> Iterator[R]:
        return (self._index.load(key, self._kind) for key in self._index)

    def __len__(self) -> int:
        return len(self._index)

    def table(self) -> Columns:
        """Return all records as columns, for ``pandas.DataFrame`` or ``polars.DataFrame``.

        There is a column for each field of the record; nested fields are named with a dot, such as
        ``usage.output_tokens``, ``error.kind``, ``scores.FACTOR`` (High, Medium, Low), ``values.FACTOR``
        (0 to 1: of other scales, and of checks) or ``sampled_target_attributes.ATTRIBUTE``, and None where
        a record has none.
        """
        return record_columns(self._kind, self)

    def __repr__(self) -> str:
        return f"Records({len(self):,} × {self._kind.__name__})"


FILTERED_SQL = """
SELECT entry.key, sum(entry.value)::BIGINT
FROM (SELECT unnest(map_entries(passage_filtered)) AS entry FROM planned) GROUP BY 1 ORDER BY 2 DESC, 1
"""


def discarded_draft_notes(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Say how many replies were discarded while items were written from documents, and why."""
    if not counts:
        return ()
    why = ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
    drafts = pluralize(sum(counts.values()), "draft")
    return (f"discarded while items were written from documents: {drafts} ({why})",)
