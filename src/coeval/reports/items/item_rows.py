"""Rows of the items that fit a choice, a page at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import parse_qsl

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.judged_answers import make_answer_score_table
from coeval.analysis.measures.pair_measures import read_pair_comparisons
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.records import CHECK, EXACT_MATCH
from coeval.core.shown_names import ShownNames
from coeval.core.text import join_names

# --- Item choice from an address: ``student=gpt&task=triage&order=worst``
#
# ``student task teacher judge factor item`` are names; ``attribute=NAME=VALUE`` is what an item was sampled
# with. What one key names several times is a union, keys cut each other; each attribute is a key of its own.
# ``student``, ``judge`` and ``factor`` also say which scores the means are made of. ``q`` are words that all
# have to occur; ``order`` is one of `ORDERS`; ``lost=A,B`` are the items on which A scored less than B;
# ``failed=1`` those of which something failed, ``marked=1`` those that somebody marked; ``flag`` is one of
# `FLAGS`; ``by`` is the student of an order by one student's scores.

ItemOrder: TypeAlias = Literal["id", "worst", "disagreement", "difficulty", "highest", "lowest"]
ORDERS: tuple[ItemOrder, ...] = get_args(ItemOrder)
"""``worst``: by the lowest score of an answer, ``difficulty``: by the mean of all, both least first;
``disagreement``: by how far judges are apart; ``highest``, ``lowest``: by the score of one student. What has
none of it stands last."""

WON = "comparisons won"
"""A factor: 1 for each comparison that an answer won, ½ for a tie."""

FLAGS = ("all_pass", "all_fail", "reversed", "near_duplicate")

# A link with every value of every facet ticked stays far below; parsing is bounded.
_MOST_FIELDS = 1_000
# Each is a search of all texts.
_MOST_WORDS = 20
_NAMES = ("student", "task", "teacher", "judge", "factor", "item", "flag")
_SINGLE = ("q", "order", "by", "lost", "failed", "marked")


class ItemChoice(msgspec.Struct, frozen=True):
    """A choice of items; empty: all of them. ``attributes``: values by name; ``words`` are in lower case;
    ``lost``: the first of two students scored less than the second."""

    students: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    teachers: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    attributes: dict[str, tuple[str, ...]] = {}
    words: tuple[str, ...] = ()
    order: ItemOrder = "id"
    by: str = ""
    lost: tuple[str, str] | None = None
    failed: bool = False
    marked: bool = False


def parse_item_filters(query: str) -> ItemChoice:
    """Parse the query of an address. Raises UsageError: a key or a value is unknown; the message names it."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise UsageError(f"a choice of items has at most {_MOST_FIELDS:,} parts; choose fewer") from None
    names: dict[str, list[str]] = {key: [] for key in _NAMES}
    attributes: dict[str, tuple[str, ...]] = {}
    single_values: dict[str, str] = {}
    for key, value in pairs:
        if key in names:
            names[key].append(value)
        elif key == "attribute":
            name, equals, attribute_value = value.partition("=")
            if not equals:
                raise UsageError(f"attribute={value}: write attribute=NAME=VALUE")
            attributes[name] = (*attributes.get(name, ()), attribute_value)
        elif key in _SINGLE:
            single_values[key] = value
        else:
            keys = ", ".join([*_NAMES, "attribute", *_SINGLE])
            raise UsageError(f"{key}: items are not chosen by this; there are {keys}")
    loser, comma, winner = single_values.get("lost", "").partition(",")
    if "lost" in single_values and not comma:
        raise UsageError(f"lost={loser}: write lost=A,B for the items on which A scored less than B")
    name = single_values.get("order", "id")
    if (order := next((order for order in ORDERS if order == name), None)) is None:
        raise UsageError(f"order={name}: items are ordered by {join_names(ORDERS)}")
    return ItemChoice(
        **{f"{key}s": tuple(dict.fromkeys(values)) for key, values in names.items()},
        attributes=attributes,
        words=tuple(single_values.get("q", "").lower().split()[:_MOST_WORDS]),
        order=order,
        by=single_values.get("by", ""),
        lost=(loser, winner) if comma else None,
        failed=single_values.get("failed", "0") == "1",
        marked=single_values.get("marked", "0") == "1",
    )


# --- Item and score tables
#
# They are made once, beside the views of `coeval.analysis.load`, and hold no text: items by number, names as
# codes of an ENUM. ``cell`` holds every score; ``answered`` what each student came to on each item,
# ``by_judge`` and ``by_factor`` the same by judge and by factor, so that no choice has to sum up all scores.
#
# ``shown`` marks the scores that an item's mean is made of where no factor is chosen: the rubric's, where a
# task has any, else its labels' (1 right, 0 wrong); of a benchmark those of its headline metric. ``flagged``
# and ``marked`` are filled by others. Factors count by their weights in whole answers' scores, and alike
# where some judges or factors are chosen. ``scale`` says whether all that is shown lies from 0 to 1.

_ITEMS = """
CREATE TABLE viewed AS
    SELECT (row_number() OVER (ORDER BY task, item) - 1)::INTEGER AS no, item, task, teacher, attributes,
           [entry.key || '=' || entry.value FOR entry IN map_entries(attributes)] AS sampled, failed
    FROM items
"""

_TABLE_NAMES = """
CREATE TABLE item_names AS
    SELECT DISTINCT name FROM (
        SELECT model AS name FROM answers UNION ALL SELECT model FROM scores UNION ALL
        SELECT student FROM won_by UNION ALL SELECT judge FROM won_by UNION ALL SELECT '{won}' UNION ALL
        SELECT judge FROM judgments UNION ALL SELECT judge FROM scores UNION ALL
        SELECT metric FROM scores {labels}
    )
    WHERE name IS NOT NULL ORDER BY name;
CREATE TYPE item_name AS ENUM (SELECT name FROM item_names)
"""

_CELLS = """
CREATE TABLE cell AS
    SELECT v.no, s.model::item_name AS student, s.judge::item_name AS judge, s.metric::item_name AS factor,
           s.value, coalesce(s.metric = h.metric, {shown_by_default}) AS shown,
           s.sample::INTEGER AS sample
    FROM scores s JOIN viewed v USING (task, item) LEFT JOIN headline h ON h.task = s.task
"""

_LABELS = f"""
INSERT INTO cell
    SELECT v.no, l.model::item_name, '{EXACT_MATCH}'::item_name, l.attribute::item_name,
           l.match::INTEGER::DOUBLE, t.task IS NULL, l.sample
    FROM labels l JOIN viewed v USING (task, item)
        LEFT JOIN (SELECT DISTINCT task FROM scores WHERE value IS NOT NULL) t ON t.task = l.task
"""  # noqa: S608

# Where comparisons are all there is, an answer's score is the share of them that it won.
_WON = f"""
INSERT INTO cell
    SELECT v.no, c.student::item_name, c.judge::item_name, '{WON}'::item_name, c.won, t.task IS NULL, 0
    FROM won_by c JOIN viewed v USING (item)
        LEFT JOIN (SELECT DISTINCT task FROM cell JOIN viewed USING (no) WHERE shown) t ON t.task = v.task
"""  # noqa: S608

SPREAD = (
    f"CASE WHEN factor::VARCHAR <> '{WON}' AND "
    "min(judge) FILTER (value IS NOT NULL) <> max(judge) FILTER (value IS NOT NULL) "
    "THEN max(value) - min(value) END"
)
"""Of scores of an answer in one factor: how far judges are apart; NULL with fewer than two, and of
comparisons, which are with different answers."""

_ANSWERED = f"""
CREATE TABLE failures AS
    SELECT no, student, sum(failed)::INTEGER AS failed, sum(answers)::INTEGER AS answers FROM (
        SELECT v.no, a.model::item_name AS student, a.failed::INTEGER AS failed, 1 AS answers
        FROM answers a JOIN viewed v USING (task, item)
        UNION ALL
        SELECT v.no, j.model::item_name, 1, 0 FROM judgments j JOIN viewed v USING (task, item) WHERE j.failed
        UNION ALL
        SELECT no, student, 1, 0 FROM cell WHERE value IS NULL
    )
    GROUP BY no, student;
CREATE TABLE answered AS
    SELECT f.no, f.student, CASE WHEN g.no IS NULL THEN s.score ELSE g.score END AS score,
           d.disagreement, f.failed
    FROM failures f LEFT JOIN (
        SELECT no, student, avg(value) AS score FROM cell WHERE shown GROUP BY no, student
    ) s USING (no, student) LEFT JOIN (
        SELECT v.no, a.model::item_name AS student, sum(total) / nullif(sum(share), 0) AS score
        FROM answer_score a JOIN viewed v USING (item) GROUP BY ALL
    ) g USING (no, student) LEFT JOIN (
        SELECT no, student, avg(high - low) AS disagreement FROM (
            SELECT no, student, factor, max(value) AS high, min(value) AS low
            FROM cell WHERE shown AND value IS NOT NULL AND factor::VARCHAR <> '{WON}'
            GROUP BY no, student, factor, sample HAVING count(DISTINCT judge) > 1
        )
        GROUP BY no, student
    ) d USING (no, student);
DROP TABLE failures;
CREATE TABLE by_judge AS
    SELECT no, student, judge, sum(value) AS total, count(value)::INTEGER AS n,
           (count(*) - count(value))::INTEGER AS failed
    FROM cell WHERE shown GROUP BY no, student, judge;
CREATE TABLE by_factor AS
    SELECT no, student, factor, sum(value) AS total, count(value)::INTEGER AS n,
           (count(*) - count(value))::INTEGER AS failed,
           {SPREAD} AS spread
    FROM cell GROUP BY no, student, factor, sample;
CREATE TABLE flagged (no INTEGER, flag VARCHAR);
CREATE TABLE marked (no INTEGER);
CREATE TABLE scale AS SELECT coalesce(bool_and(value BETWEEN 0 AND 1), true) AS shares FROM cell WHERE shown
"""  # noqa: S608


def make_item_tables(reader: Reader) -> None:
    """Make ``viewed`` (items), ``cell`` (scores) and ``answered`` (students by item) in a reader's database;
    raises as its queries do."""
    labels = "labels" in reader.views
    reader.rows(_ITEMS)
    label_names = f"UNION ALL SELECT attribute FROM labels UNION ALL SELECT '{EXACT_MATCH}'" if labels else ""  # noqa: S608
    reader.rows("CREATE TABLE won_by (item VARCHAR, student VARCHAR, judge VARCHAR, won DOUBLE)")
    _make_answer_and_win_tables(reader)
    for statement in _TABLE_NAMES.format(labels=label_names, won=WON).split(";"):
        reader.rows(statement)
    reader.rows("CREATE TABLE headline (task VARCHAR, metric VARCHAR)")
    for task, metric in reader.headline_metrics().items():
        reader.rows("INSERT INTO headline VALUES (?, ?)", [task, metric])
    reader.rows(_CELLS.format(shown_by_default="true" if labels else "false"))
    if labels:
        reader.rows(_LABELS)
    reader.rows(_WON)
    for statement in _ANSWERED.split(";"):
        reader.rows(statement)


@singledispatch
def _make_answer_and_win_tables(reader: Reader) -> None:
    """Make ``answer_score``, and fill ``won_by`` with each student's share of a comparison; a benchmark's
    scores are cells already."""
    reader.rows(
        "CREATE TABLE answer_score (item VARCHAR, model VARCHAR, sample INTEGER, total DOUBLE, share DOUBLE)"
    )


@_make_answer_and_win_tables.register
def _(reader: RunReader) -> None:
    make_answer_score_table(reader)
    if (pairs := read_pair_comparisons(reader)) is None:
        return
    items = [pairs.items[at] for at in pairs.item]
    judges = [pairs.judges[at] for at in pairs.judge]
    for side, won in ((0, pairs.won), (1, 1 - pairs.won)):
        students = [pairs.students[at] for at in pairs.who[:, side]]
        columns = "unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::DOUBLE[])"
        reader.rows(f"INSERT INTO won_by SELECT {columns}", [items, students, judges, won.tolist()])


class ItemRow(msgspec.Struct, frozen=True):
    """An item with its students' scores. ``scores``: by student, None without a score.

    ``difficulty`` is 1 − the mean over students, None if scores are no shares; ``disagreement`` the mean
    over answers and factors of the highest − the lowest score by judges. ``failed`` counts answers,
    judgments and scores that failed. ``row`` is its number in the folder, ``opening`` the beginning of its
    prompt, if requested.
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
    opening: str = ""


class RowPage(msgspec.Struct, frozen=True):
    """A page of the items that fit a choice, and how many fit it."""

    rows: list[ItemRow]
    total: int


class ItemFacets(msgspec.Struct, frozen=True):
    """Names to choose among, values by attribute, and the number of ``items``.

    ``short``: by name, what people read in its place. ``shown`` are the factors whose mean is an item's
    score, ``binary`` those that are right or wrong: labels, checks and metrics of 0 and 1. ``shares``:
    whether scores run from 0 to 1, and are shown as points.
    """

    items: int
    students: list[str]
    tasks: list[str]
    teachers: list[str]
    judges: list[str]
    factors: list[str]
    attributes: dict[str, list[str]]
    short: dict[str, str] = {}
    shown: list[str] = []
    binary: list[str] = []
    shares: bool = True


# Of an attribute; of more nobody chooses in a menu.
_MOST_VALUES = 200

_ORDER_SQL: dict[ItemOrder, str] = {
    "id": "no",
    "worst": "worst NULLS LAST, no",
    "disagreement": "disagreement DESC NULLS LAST, no",
    "difficulty": "mean NULLS LAST, no",
    "highest": "own DESC NULLS LAST, no",
    "lowest": "own NULLS LAST, no",
}


class _Conditions:
    """Conditions of a query with their parameters, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.values: list[object] = []

    def add_names(self, column: str, names: Sequence[str]) -> None:
        if names:
            self.add(f"{column} IN (SELECT unnest(?::VARCHAR[]))", list(names))

    def add_coded_names(self, column: str, names: Sequence[str]) -> None:
        """Add names of a column of codes, which DuckDB compares without texts."""
        if names:
            codes = "SELECT name::item_name FROM item_names WHERE list_contains(?::VARCHAR[], name)"
            self.add(f"{column} IN ({codes})", list(names))

    def add(self, text: str, *values: object) -> None:
        self.texts.append(text)
        self.values += values

    @property
    def where(self) -> str:
        return " AND ".join(self.texts) or "true"


def find_item_rows(reader: Reader, choice: ItemChoice, first: int, most: int) -> RowPage:
    """Find a choice's rows from the ``first`` on, at most ``most``, in the tables of `make_item_tables`."""
    summed, values = _score_summary_by_item_query(choice)
    items = _item_conditions(choice)
    failed = "v.failed::INTEGER + coalesce(s.failed, 0) AS failed"
    kept = (
        f"SELECT v.no, s.* EXCLUDE (no, failed), {failed} "  # noqa: S608 - names of ours
        f"FROM viewed v {_choose_answer_join(choice)} ({summed}) s USING (no)"
    )
    order = (
        "margin DESC, no" if choice.lost is not None and choice.order == "id" else _ORDER_SQL[choice.order]
    )
    sql = (
        f"SELECT no, count(*) OVER () FROM ({kept}) k WHERE no IN "  # noqa: S608
        f"(SELECT no FROM viewed v WHERE {items.where}) "
        f"{'AND margin > 0 ' if choice.lost is not None else ''}{'AND failed > 0 ' if choice.failed else ''}"
        f"ORDER BY {order} LIMIT {most:d} OFFSET {first:d}"
    )
    page = reader.rows(sql, [*values, *items.values])
    if not page and first:
        return RowPage([], find_item_rows(reader, choice, 0, 1).total)
    return RowPage(read_item_rows(reader, choice, [no for no, _ in page]), page[0][1] if page else 0)


def _choose_answer_join(choice: ItemChoice) -> str:
    """Keep items without an answer, unless the choice is among answers."""
    chosen = choice.students or choice.judges or choice.factors or choice.lost
    return "JOIN" if chosen else "LEFT JOIN"


def _item_conditions(choice: ItemChoice) -> _Conditions:
    """Return the conditions on items, apart from their answers."""
    conditions = _Conditions()
    conditions.add_names("v.task", choice.tasks)
    conditions.add_names("v.teacher", choice.teachers)
    conditions.add_names("v.item", choice.items)
    for name, values in choice.attributes.items():
        sampled = [f"{name}={value}" for value in values]
        conditions.add("list_has_any(v.sampled, ?::VARCHAR[])", sampled)
    if choice.flags:
        conditions.add(
            "no IN (SELECT no FROM flagged WHERE list_contains(?::VARCHAR[], flag))", list(choice.flags)
        )
    if choice.marked:
        conditions.add("no IN (SELECT no FROM marked)")
    for word in choice.words:
        conditions.add("no IN (SELECT no FROM item_text WHERE contains(text, ?))", word)
    return conditions


def _score_summary_by_item_query(choice: ItemChoice) -> tuple[str, list[object]]:
    """Return a query of the chosen students' scores by item number, and its parameters."""
    answers, values = _answer_scores_query(choice)
    margin = "NULL::DOUBLE"
    if choice.lost is not None:
        margin = "max(score) FILTER (student::VARCHAR = ?) - max(score) FILTER (student::VARCHAR = ?)"
        values = [*reversed(choice.lost), *values]
    own = "NULL::DOUBLE"
    if choice.by:
        own, values = "max(score) FILTER (student::VARCHAR = ?)", [choice.by, *values]
    sql = (
        f"SELECT no, {own} AS own, min(score) AS worst, avg(score) AS mean, "  # noqa: S608
        f"avg(disagreement) AS disagreement, sum(failed) AS failed, {margin} AS margin "
        f"FROM ({answers}) GROUP BY no"
    )
    return sql, values


def _answer_scores_query(choice: ItemChoice, page: Sequence[int] | None = None) -> tuple[str, list[object]]:
    """Return a query of the chosen students' scores, item by item, and its parameters.

    Scores are of all or of the chosen judges and factors, on all items or those of a page. Disagreement of
    chosen judges takes as long again, and is only computed if shown or ordered by.
    """
    conditions = _Conditions()
    conditions.add_coded_names("student", choice.students or choice.lost or ())
    if page is not None:
        conditions.add("no IN (SELECT unnest(?::INTEGER[]))", page)
    if not choice.judges and not choice.factors:
        return f"SELECT * FROM answered WHERE {conditions.where}", conditions.values  # noqa: S608 - names of ours
    conditions.add_coded_names("judge", choice.judges)
    conditions.add_coded_names("factor", choice.factors)
    columns = "no, student, sum(total) / nullif(sum(n), 0) AS score, sum(failed) AS failed"
    if not choice.judges:
        sql = f"SELECT {columns}, avg(spread) AS disagreement FROM by_factor"  # noqa: S608
    elif page is None and not choice.factors and choice.order != "disagreement":
        sql = f"SELECT {columns}, NULL::DOUBLE AS disagreement FROM by_judge"  # noqa: S608
    else:
        if not choice.factors:
            conditions.add("shown")
        by_answer = (
            "SELECT no, student, factor, sum(value) AS total, count(value) AS n, "  # noqa: S608
            f"count(*) - count(value) AS failed, {SPREAD} AS spread "
            f"FROM cell WHERE {conditions.where} GROUP BY no, student, factor, sample"
        )
        sql = f"SELECT {columns}, avg(spread) AS disagreement FROM ({by_answer}) GROUP BY no, student"  # noqa: S608
        return sql, conditions.values
    return f"{sql} WHERE {conditions.where} GROUP BY no, student", conditions.values


def read_item_rows(reader: Reader, choice: ItemChoice, page: Sequence[int]) -> list[ItemRow]:
    """Read items by their numbers, in the order of these."""
    if not page:
        return []
    answers, values = _answer_scores_query(choice, page)
    on_page = "no IN (SELECT unnest(?::INTEGER[]))"
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
    for no, flag in reader.rows(f"SELECT no, flag FROM flagged WHERE {on_page} ORDER BY ALL", [page]):  # noqa: S608
        flags[no].append(flag)
    [(shares,)] = reader.rows("SELECT shares FROM scale")
    rows_by_number = {
        no: ItemRow(
            no, item, task, teacher, attributes or {},
            _compute_difficulty(scores[no]) if shares else None, _mean(spreads[no]),
            scores[no], failed[no] + bool(has_failed), flags[no],
        )
        for no, item, task, teacher, attributes, has_failed in reader.rows(
            f"SELECT no, item, task, teacher, attributes, failed FROM viewed WHERE {on_page}",  # noqa: S608
            [page],
        )
    }  # fmt: skip
    return [rows_by_number[no] for no in page]


def _compute_difficulty(scores: dict[str, float | None]) -> float | None:
    mean = _mean([score for score in scores.values() if score is not None])
    return None if mean is None else 1 - mean


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def read_item_facets(reader: Reader) -> ItemFacets:
    """Read the names and values that can be chosen in a folder."""

    def read_names(sql: str) -> list[str]:
        return [name for (name,) in reader.rows(sql)]

    def distinct_names(column: str, table: str, condition: str = "name IS NOT NULL") -> list[str]:
        names = f"SELECT DISTINCT {column}::VARCHAR AS name FROM {table}"  # noqa: S608
        return read_names(f"{names} WHERE {condition} ORDER BY name")

    [(items,)] = reader.rows("SELECT count(*) FROM viewed")
    [(shares,)] = reader.rows("SELECT shares FROM scale")
    students, teachers = distinct_names("student", "answered"), distinct_names("teacher", "viewed")
    judges = distinct_names("judge", "cell")
    labels = None if reader.planned is None else reader.planned.labels
    return ItemFacets(
        items,
        students,
        distinct_names("task", "viewed"),
        teachers,
        judges,
        distinct_names("factor", "cell"),
        {name: values for name, values in reader.rows(_ATTRIBUTES)},  # noqa: C416
        ShownNames.of((*students, *judges, *teachers), labels).key,
        distinct_names("factor", "cell", "shown"),
        read_names(_BINARY),
        shares,
    )


class ItemScoreArrays(NamedTuple):
    """Figures by item number: ``scores`` (S, I) in the order of the facets' students, ``disagreement`` (I,)
    as in `ItemRow`, NaN if unknown; the ``failed`` items, and those ``flagged`` by flag."""

    scores: Floats
    disagreement: Floats
    failed: Sequence[int]
    flagged: Mapping[str, Sequence[int]]


def read_item_score_arrays(reader: Reader, facets: ItemFacets) -> ItemScoreArrays:
    columns = reader.columns(_FIGURES, [facets.students])
    scores, spreads = np.full((2, len(facets.students), facets.items), np.nan)
    for matrix, name in ((scores, "score"), (spreads, "disagreement")):
        matrix[columns["student"], columns["no"]] = np.ma.filled(columns[name], np.nan)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(spreads, axis=0) / np.isfinite(spreads).sum(axis=0)
    failed = [no for (no,) in reader.rows(_FAILED)]
    return ItemScoreArrays(scores, mean, failed, dict(reader.rows(_FLAGGED)))


_FIGURES = """
SELECT no, list_position(?::VARCHAR[], student::VARCHAR) - 1 AS student, score::DOUBLE AS score,
       disagreement::DOUBLE AS disagreement
FROM answered
"""
_FAILED = "SELECT no FROM viewed WHERE failed OR no IN (SELECT no FROM answered WHERE failed > 0) ORDER BY no"
_FLAGGED = "SELECT flag, list(no ORDER BY no) FROM flagged GROUP BY flag"
_BINARY = f"""
SELECT factor::VARCHAR AS name FROM cell WHERE value IS NOT NULL GROUP BY factor
HAVING bool_and(value IN (0, 1)) AND bool_and(judge IS NULL OR judge::VARCHAR IN ('{EXACT_MATCH}', '{CHECK}'))
ORDER BY name
"""  # noqa: S608


_ATTRIBUTES = f"""
SELECT name, list(value ORDER BY value)[:{_MOST_VALUES}] FROM (
    SELECT DISTINCT entry.key AS name, entry.value AS value
    FROM (SELECT unnest(map_entries(attributes)) AS entry FROM viewed)
)
GROUP BY name ORDER BY name
"""  # noqa: S608
