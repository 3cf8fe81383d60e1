"""Queries of a folder's items, by row or whole."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

import duckdb
import msgspec

from coeval.analysis.measures.benchmark_measures import ItemMeasures
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.whole_items import ItemDetail
from coeval.core.errors import StoreError
from coeval.core.shown_names import ShownNames
from coeval.reports.items.item_rows import (
    FLAGS,
    ItemChoice,
    ItemFacets,
    ItemRow,
    ItemScoreArrays,
    RowPage,
    find_item_rows,
    make_item_tables,
    read_item_facets,
    read_item_rows,
    read_item_score_arrays,
)

# Characters of a prompt's beginning: a line of a list, however much space there is between its words.
_OPENING_LENGTH, _READ_LENGTH = 80, 400

_SCORES_OF_ITEM = """
SELECT item, task, student::VARCHAR, score FROM viewed LEFT JOIN answered USING (no)
WHERE no = (SELECT min(no) FROM viewed WHERE item = ? AND (? = '' OR task = ?))
"""

log = logging.getLogger("coeval")


class ItemBrowser:
    """The items of an open reader, for one thread at a time. Raises StoreError: no tables can be made of
    them."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = Lock()
        self._searchable = False
        self._items = reader.items()
        try:
            make_item_tables(reader)
            self.facets: ItemFacets = read_item_facets(reader)
        except duckdb.Error as error:
            raise StoreError(f"cannot show the items of {reader.folder}: {error}") from error

    def index_lines(self) -> None:
        """Index the lines of all items beforehand: seconds at a million judgments. Raises StoreError: a file
        cannot be read."""
        self._items.index_lines()

    def find_rows(self, choice: ItemChoice, first: int = 0, most: int = 50) -> RowPage:
        """Return a page of the items that fit a choice. Raises StoreError: files to be searched cannot be
        read."""
        with self._lock:
            if choice.words and not self._searchable:
                self._make_searchable()
            return find_item_rows(self._reader, choice, first, most)

    def add_openings(self, page: RowPage) -> RowPage:
        """Add the beginnings of prompts to a page, unless the files can no longer be read."""
        try:
            with self._lock:
                prompts = [self._items.read_prompt(row.item, row.task) or "" for row in page.rows]
        except StoreError as error:
            log.debug("items are listed without their prompts: %s", error)
            return page
        rows = [
            msgspec.structs.replace(row, opening=" ".join(prompt[:_READ_LENGTH].split())[:_OPENING_LENGTH])
            for row, prompt in zip(page.rows, prompts, strict=True)
        ]
        return msgspec.structs.replace(page, rows=rows)

    def read_score_arrays(self) -> ItemScoreArrays:
        """Return the scores and disagreement of all items as arrays."""
        with self._lock:
            return read_item_score_arrays(self._reader, self.facets)

    def read_rows(self, numbers: Sequence[int]) -> list[ItemRow]:
        with self._lock:
            return read_item_rows(self._reader, ItemChoice(), numbers)

    def _make_searchable(self) -> None:
        """Index all texts on the first search: it takes seconds and 200 MB at a million judgments."""
        try:
            self._reader.rows("CREATE OR REPLACE TABLE item_text (no INTEGER, text VARCHAR)")
            self._reader.fill_item_text_table()
        except duckdb.Error as error:
            raise StoreError(f"cannot search the records of {self._reader.folder}: {error}") from error
        self._searchable = True

    def read_detail(self, item: str, task: str = "") -> ItemDetail | None:
        """Return an item whole, or None if there is none; ``task`` is needed if ids are unique only within
        one. Raises StoreError: a file cannot be read."""
        with self._lock:
            records = self._reader.rows(_SCORES_OF_ITEM, [item, task, task])
            scores = {student: score for _, _, student, score in records}
            return self._items.read_item(records[0][0], records[0][1], scores) if records else None

    def read_row_detail(self, row: ItemRow) -> ItemDetail | None:
        """Return the whole item of a row with all students; raises as `read_detail`."""
        with self._lock:
            return self._items.read_item(row.item, row.task, row.scores)

    def replace_marked_items(self, task_item_pairs: Iterable[tuple[str, str]]) -> None:
        """Replace the set of marked items, given by task and item."""
        tasks, items = [list(column) for column in zip(*task_item_pairs, strict=True)] or ([], [])
        with self._lock:
            self._reader.rows("DELETE FROM marked")
            self._reader.rows(
                "INSERT INTO marked SELECT v.no FROM viewed v JOIN "
                "(SELECT unnest(?::VARCHAR[]) AS task, unnest(?::VARCHAR[]) AS item) USING (task, item)",
                [tasks, items],
            )

    def replace_flags(self, measures_by_item: Mapping[str, ItemMeasures]) -> None:
        """Flag items by their measures, given by id."""
        flag_rows = [(item, flag) for item, own in measures_by_item.items() for flag in _item_flags(own)]
        with self._lock:
            self._reader.rows("DELETE FROM flagged")
            self._reader.rows(
                "INSERT INTO flagged SELECT v.no, f.flag FROM viewed v JOIN "
                "(SELECT unnest(?::VARCHAR[]) AS item, unnest(?::VARCHAR[]) AS flag) f USING (item)",
                [[item for item, _ in flag_rows], [flag for _, flag in flag_rows]],
            )

    def use_short_names(self, labels: Mapping[str, str]) -> None:
        self.facets = msgspec.structs.replace(self.facets, short=ShownNames(labels).key)

    def order_student_facet(self, best_first: Sequence[str]) -> None:
        """Order the facet of students, best first; others come last."""
        students = [name for name in best_first if name in self.facets.students]
        students += [name for name in self.facets.students if name not in students]
        self.facets = msgspec.structs.replace(self.facets, students=students)


def _item_flags(measures: ItemMeasures) -> list[str]:
    holds = {
        "all_pass": measures.all_pass,
        "all_fail": measures.all_fail,
        "reversed": measures.is_reversed,
        "near_duplicate": measures.near_duplicate_of is not None,
    }
    return [flag for flag in FLAGS if holds[flag]]
