"""A folder's items, open for questions: of its rows, and of each item whole."""

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
    ItemFigures,
    ItemRow,
    RowPage,
    find_rows,
    item_facets,
    item_figures,
    item_rows,
    make_item_tables,
)

# Characters of a prompt's beginning: a line of a list, however much space there is between its words.
_OPENING, _READ = 80, 400

_OF_ITEM = """
SELECT item, task, student::VARCHAR, score FROM viewed LEFT JOIN answered USING (no)
WHERE no = (SELECT min(no) FROM viewed WHERE item = ? AND (? = '' OR task = ?))
"""

log = logging.getLogger("coeval")


class ItemBrowser:
    """Answers about what a reader read, to one thread at a time; the reader stays open as long.

    Raises StoreError: what was read cannot be put into tables.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = Lock()
        self._searchable = False
        self._items = reader.items()
        try:
            make_item_tables(reader)
            self.facets: ItemFacets = item_facets(reader)
        except duckdb.Error as error:
            raise StoreError(f"cannot show the items of {reader.folder}: {error}") from error

    def prepare(self) -> None:
        """Find the lines of all items, which takes seconds at a million judgments: nobody waits for it then.

        Raises StoreError: a file cannot be read.
        """
        self._items.index_lines()

    def rows(self, choice: ItemChoice, first: int = 0, most: int = 50) -> RowPage:
        """A page of the items that fit a choice.

        Raises StoreError: files that are to be searched cannot be read.
        """
        with self._lock:
            if choice.words and not self._searchable:
                self._make_searchable()
            return find_rows(self._reader, choice, first, most)

    def with_openings(self, page: RowPage) -> RowPage:
        """A page whose rows say how their prompts begin; as it is where the files went away since they were
        read."""
        try:
            with self._lock:
                prompts = [self._items.prompt(row.item, row.task) or "" for row in page.rows]
        except StoreError as error:
            log.debug("items are listed without their prompts: %s", error)
            return page
        rows = [
            msgspec.structs.replace(row, opening=" ".join(prompt[:_READ].split())[:_OPENING])
            for row, prompt in zip(page.rows, prompts, strict=True)
        ]
        return msgspec.structs.replace(page, rows=rows)

    def figures(self) -> ItemFigures:
        """What students came to on each item."""
        with self._lock:
            return item_figures(self._reader, self.facets)

    def numbered(self, numbers: Sequence[int]) -> list[ItemRow]:
        """The items of these numbers."""
        with self._lock:
            return item_rows(self._reader, ItemChoice(), numbers)

    def _make_searchable(self) -> None:
        """Seconds and some 200 MB at a million judgments, so it is done when somebody first searches."""
        try:
            self._reader.rows("CREATE OR REPLACE TABLE item_text (no INTEGER, text VARCHAR)")
            self._reader.add_item_texts()
        except duckdb.Error as error:
            raise StoreError(f"cannot search the records of {self._reader.folder}: {error}") from error
        self._searchable = True

    def detail(self, item: str, task: str = "") -> ItemDetail | None:
        """An item whole; ``task`` where ids are unique in a task alone. None: there is no such item.

        Raises StoreError: a file cannot be read.
        """
        with self._lock:
            found = self._reader.rows(_OF_ITEM, [item, task, task])
            scores = {student: score for _, _, student, score in found}
            return self._items.read_item(found[0][0], found[0][1], scores) if found else None

    def whole(self, row: ItemRow) -> ItemDetail | None:
        """The item of a row of all students; raises as `detail`."""
        with self._lock:
            return self._items.read_item(row.item, row.task, row.scores)

    def mark(self, keys: Iterable[tuple[str, str]]) -> None:
        """Say which items are marked, by task and item."""
        tasks, items = [list(column) for column in zip(*keys, strict=True)] or ([], [])
        with self._lock:
            self._reader.rows("DELETE FROM marked")
            self._reader.rows(
                "INSERT INTO marked SELECT v.no FROM viewed v JOIN "
                "(SELECT unnest(?::VARCHAR[]) AS task, unnest(?::VARCHAR[]) AS item) USING (task, item)",
                [tasks, items],
            )

    def flag(self, items: Mapping[str, ItemMeasures]) -> None:
        """Take over what was measured of a run's ``items``, by id."""
        found = [(item, flag) for item, reported in items.items() for flag in _flags(reported)]
        with self._lock:
            self._reader.rows("DELETE FROM flagged")
            self._reader.rows(
                "INSERT INTO flagged SELECT v.no, f.flag FROM viewed v JOIN "
                "(SELECT unnest(?::VARCHAR[]) AS item, unnest(?::VARCHAR[]) AS flag) f USING (item)",
                [[item for item, _ in found], [flag for _, flag in found]],
            )

    def name(self, labels: Mapping[str, str]) -> None:
        """Call models as a report does; ``labels`` are its."""
        self.facets = msgspec.structs.replace(self.facets, short=ShownNames(labels).key)

    def rank(self, order: Sequence[str]) -> None:
        """Name students in an order, best first; the others behind them."""
        students = [name for name in order if name in self.facets.students]
        students += [name for name in self.facets.students if name not in students]
        self.facets = msgspec.structs.replace(self.facets, students=students)


def _flags(reported: ItemMeasures) -> list[str]:
    holds = {
        "all_pass": reported.all_pass,
        "all_fail": reported.all_fail,
        "reversed": reported.is_reversed,
        "near_duplicate": reported.near_duplicate_of is not None,
    }
    return [flag for flag in FLAGS if holds[flag]]
