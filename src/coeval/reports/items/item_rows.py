"""The rows of the items that a choice names, a page of them at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from coeval.analysis.readers.reader import Reader
from coeval.reports.items.item_choice import ItemChoice, ItemOrder, LostTo
from coeval.reports.items.item_table import SPREAD

__all__ = ["ItemFacets", "ItemRow", "RowPage", "find_rows", "item_facets"]


class ItemRow(msgspec.Struct, frozen=True):
    """An item, and what students came to on it. ``scores``: by student, None where nothing is scored yet.

    ``difficulty`` is 1 less the mean over students, None where scores are no shares; ``disagreement`` the
    mean over answers and factors of the highest less the lowest score that judges gave. ``failed`` counts
    answers, judgments and scores that failed. ``row`` is its number in the folder.
    """

    row: int
    item: str
    task: str
    teacher: str | None
    attributes: dict[str, str]
    difficulty: float | None
    disagreement: float | None
    scores: dict[str, float | None]
    failed: int
    flags: list[str]


class RowPage(msgspec.Struct, frozen=True):
    """A page of the items that fit a choice, and how many fit it."""

    rows: list[ItemRow]
    total: int


class ItemFacets(msgspec.Struct, frozen=True):
    """What can be chosen among: names, and values by attribute; how many ``items`` there are."""

    items: int
    students: list[str]
    tasks: list[str]
    teachers: list[str]
    judges: list[str]
    factors: list[str]
    attributes: dict[str, list[str]]


_MOST_VALUES = 200
"""Of an attribute; of more nobody chooses in a menu."""

_ORDER: dict[ItemOrder, str] = {
    "id": "no",
    "worst": "worst NULLS LAST, no",
    "disagreement": "disagreement DESC NULLS LAST, no",
    "difficulty": "mean NULLS LAST, no",
}


class _Conditions:
    """Conditions with their parameters, in the order in which they stand in a query."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.values: list[object] = []

    def among(self, column: str, names: Sequence[str]) -> None:
        if names:
            self.add(f"{column} IN (SELECT unnest(?::VARCHAR[]))", list(names))

    def coded(self, column: str, names: Sequence[str]) -> None:
        """As `among`, of a column of codes: those are compared, no texts."""
        if names:
            codes = "SELECT name::item_name FROM item_names WHERE list_contains(?::VARCHAR[], name)"
            self.add(f"{column} IN ({codes})", list(names))

    def add(self, text: str, *values: object) -> None:
        self.texts.append(text)
        self.values += values

    @property
    def where(self) -> str:
        return " AND ".join(self.texts) or "true"


def find_rows(reader: Reader, choice: ItemChoice, first: int, most: int) -> RowPage:
    """The rows from the ``first`` on, at most so many; the tables are those of `make_item_tables`."""
    summed, values = _summed(choice)
    items = _of_items(choice)
    failed = "v.failed::INTEGER + coalesce(s.failed, 0) AS failed"
    kept = (
        f"SELECT v.no, s.* EXCLUDE (no, failed), {failed} "  # noqa: S608 - names of ours
        f"FROM viewed v {_join(choice)} ({summed}) s USING (no)"
    )
    order = "margin DESC, no" if choice.lost is not None and choice.order == "id" else _ORDER[choice.order]
    sql = (
        f"SELECT no, count(*) OVER () FROM ({kept}) k WHERE no IN "  # noqa: S608
        f"(SELECT no FROM viewed v WHERE {items.where}) "
        f"{'AND margin > 0 ' if choice.lost is not None else ''}{'AND failed > 0 ' if choice.failed else ''}"
        f"ORDER BY {order} LIMIT {most:d} OFFSET {first:d}"
    )
    page = reader.rows(sql, [*values, *items.values])
    if not page and first:
        return RowPage([], find_rows(reader, choice, 0, 1).total)
    return RowPage(_rows(reader, choice, [no for no, _ in page]), page[0][1] if page else 0)


def _join(choice: ItemChoice) -> str:
    """Items without an answer are there as well, unless answers are chosen among."""
    chosen = choice.students or choice.judges or choice.factors or choice.lost
    return "JOIN" if chosen else "LEFT JOIN"


def _of_items(choice: ItemChoice) -> _Conditions:
    found = _Conditions()
    found.among("v.task", choice.tasks)
    found.among("v.teacher", choice.teachers)
    found.among("v.item", choice.items)
    for name, wanted in choice.attributes.items():
        sampled = [f"{name}={value}" for value in wanted]
        found.add("list_has_any(v.sampled, ?::VARCHAR[])", sampled)
    if choice.flags:
        found.add(
            "no IN (SELECT no FROM flagged WHERE list_contains(?::VARCHAR[], flag))", list(choice.flags)
        )
    if choice.marked:
        found.add("no IN (SELECT no FROM marked)")
    for word in choice.words:
        found.add("no IN (SELECT no FROM item_text WHERE contains(text, ?))", word)
    return found


def _summed(choice: ItemChoice) -> tuple[str, list[object]]:
    """What the chosen students came to on each item, by its number, as a query."""
    answers, values = _answers(choice)
    margin = "NULL::DOUBLE"
    if choice.lost is not None:
        margin = "max(score) FILTER (student::VARCHAR = ?) - max(score) FILTER (student::VARCHAR = ?)"
        values = [choice.lost.winner, choice.lost.loser, *values]
    sql = (
        f"SELECT no, min(score) AS worst, avg(score) AS mean, avg(disagreement) AS disagreement, "  # noqa: S608
        f"sum(failed) AS failed, {margin} AS margin FROM ({answers}) GROUP BY no"
    )
    return sql, values


def _answers(choice: ItemChoice, page: list[int] | None = None) -> tuple[str, list[object]]:
    """The chosen students' scores, item by item: as they stand, or of the chosen judges and factors; of all
    items, or those of a page. How far judges of a choice are apart takes as long again as their scores, and
    is only told where it is shown or ordered by."""
    found = _Conditions()
    found.coded("student", choice.students or (_both(choice.lost) if choice.lost is not None else ()))
    if page is not None:
        found.add("no IN (SELECT unnest(?::INTEGER[]))", page)
    if not choice.judges and not choice.factors:
        return f"SELECT * FROM answered WHERE {found.where}", found.values  # noqa: S608 - names of ours
    found.coded("judge", choice.judges)
    found.coded("factor", choice.factors)
    told = "no, student, sum(total) / nullif(sum(n), 0) AS score, sum(failed) AS failed"
    if not choice.judges:
        sql = f"SELECT {told}, avg(spread) AS disagreement FROM by_factor"  # noqa: S608
    elif page is None and not choice.factors and choice.order != "disagreement":
        sql = f"SELECT {told}, NULL::DOUBLE AS disagreement FROM by_judge"  # noqa: S608
    else:
        if not choice.factors:
            found.add("shown")
        one = (
            "SELECT no, student, factor, sum(value) AS total, count(value) AS n, "  # noqa: S608
            f"count(*) - count(value) AS failed, {SPREAD} AS spread "
            f"FROM cell WHERE {found.where} GROUP BY no, student, factor"
        )
        sql = f"SELECT {told}, avg(spread) AS disagreement FROM ({one}) GROUP BY no, student"  # noqa: S608
        return sql, found.values
    return f"{sql} WHERE {found.where} GROUP BY no, student", found.values


def _both(lost: LostTo) -> tuple[str, str]:
    return lost.loser, lost.winner


def _rows(reader: Reader, choice: ItemChoice, page: list[int]) -> list[ItemRow]:
    """The items of a page, in its order."""
    if not page:
        return []
    answers, values = _answers(choice, page)
    of_page = "no IN (SELECT unnest(?::INTEGER[]))"
    scores: defaultdict[int, dict[str, float | None]] = defaultdict(dict)
    spreads: defaultdict[int, list[float]] = defaultdict(list)
    failed: defaultdict[int, int] = defaultdict(int)
    for no, student, score, spread, failures in reader.rows(
        f"SELECT no, student::VARCHAR AS name, score, disagreement, failed FROM ({answers}) "  # noqa: S608
        "ORDER BY no, name",
        values,
    ):
        scores[no][student] = score
        spreads[no] += [] if spread is None else [spread]
        failed[no] += failures or 0
    flags: defaultdict[int, list[str]] = defaultdict(list)
    for no, flag in reader.rows(f"SELECT no, flag FROM flagged WHERE {of_page} ORDER BY ALL", [page]):  # noqa: S608
        flags[no].append(flag)
    [(shares,)] = reader.rows("SELECT shares FROM scale")
    found = {
        no: ItemRow(
            no, item, task, teacher, attributes or {},
            _difficulty(scores[no]) if shares else None, _mean(spreads[no]),
            scores[no], failed[no] + bool(lost), flags[no],
        )
        for no, item, task, teacher, attributes, lost in reader.rows(
            f"SELECT no, item, task, teacher, attributes, failed FROM viewed WHERE {of_page}",  # noqa: S608
            [page],
        )
    }  # fmt: skip
    return [found[no] for no in page]


def _difficulty(scores: dict[str, float | None]) -> float | None:
    mean = _mean([score for score in scores.values() if score is not None])
    return None if mean is None else 1 - mean


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def item_facets(reader: Reader) -> ItemFacets:
    """What there is to choose among in a folder."""

    def names(column: str, table: str) -> list[str]:
        sql = f"SELECT DISTINCT {column}::VARCHAR AS name FROM {table} WHERE name IS NOT NULL ORDER BY name"  # noqa: S608
        return [name for (name,) in reader.rows(sql)]

    [(items,)] = reader.rows("SELECT count(*) FROM viewed")
    return ItemFacets(
        items,
        names("student", "answered"),
        names("task", "viewed"),
        names("teacher", "viewed"),
        names("judge", "cell"),
        names("factor", "cell"),
        {name: values for name, values in reader.rows(_ATTRIBUTES)},  # noqa: C416
    )


_ATTRIBUTES = f"""
SELECT name, list(value ORDER BY value)[:{_MOST_VALUES}] FROM (
    SELECT DISTINCT entry.key AS name, entry.value AS value
    FROM (SELECT unnest(map_entries(attributes)) AS entry FROM viewed)
)
GROUP BY name ORDER BY name
"""  # noqa: S608
