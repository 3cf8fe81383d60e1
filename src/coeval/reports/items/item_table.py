"""A folder's items and scores as tables that answer in tens of milliseconds at a million judgments.

They are made once, beside the views of `coeval.analysis.load`, and hold no text: items by number, names as
codes of an ENUM. ``cell`` holds every score; ``answered`` what each student came to on each item,
``by_judge`` and ``by_factor`` the same by judge and by factor, so that no choice has to sum up all scores.

``shown`` marks the scores that an item's mean is made of where no factor is chosen: the rubric's, where a
task has any, else its labels' (1 right, 0 wrong); of a benchmark those of its headline metric.
``flagged`` and ``marked`` are filled by others. ``scale`` says whether all that is shown lies from 0 to 1.
"""

from __future__ import annotations

from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.core.records import EXACT_MATCH

__all__ = ["SPREAD", "make_item_tables"]

_ITEMS = """
CREATE TABLE viewed AS
    SELECT (row_number() OVER (ORDER BY task, item) - 1)::INTEGER AS no, item, task, teacher, attributes,
           [entry.key || '=' || entry.value FOR entry IN map_entries(attributes)] AS sampled, failed
    FROM items
"""

_NAMES = """
CREATE TABLE item_names AS
    SELECT DISTINCT name FROM (
        SELECT model AS name FROM answers UNION ALL SELECT model FROM scores UNION ALL
        SELECT judge FROM judgments UNION ALL SELECT judge FROM scores UNION ALL
        SELECT metric FROM scores {labels}
    )
    WHERE name IS NOT NULL ORDER BY name;
CREATE TYPE item_name AS ENUM (SELECT name FROM item_names)
"""

_CELLS = """
CREATE TABLE cell AS
    SELECT v.no, s.model::item_name AS student, s.judge::item_name AS judge, s.metric::item_name AS factor,
           s.value, coalesce(s.metric = h.metric, {shown_unless_told}) AS shown
    FROM scores s JOIN viewed v USING (task, item) LEFT JOIN headline h ON h.task = s.task
"""

_LABELS = f"""
INSERT INTO cell
    SELECT v.no, l.model::item_name, '{EXACT_MATCH}'::item_name, l.attribute::item_name,
           l.match::INTEGER::DOUBLE, t.task IS NULL
    FROM labels l JOIN viewed v USING (task, item)
        LEFT JOIN (SELECT DISTINCT task FROM scores WHERE value IS NOT NULL) t ON t.task = l.task
"""  # noqa: S608

SPREAD = (
    "CASE WHEN min(judge) FILTER (value IS NOT NULL) <> max(judge) FILTER (value IS NOT NULL) "
    "THEN max(value) - min(value) END"
)
"""Of scores in one factor: how far judges are apart; NULL with fewer than two."""

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
    SELECT f.no, f.student, s.score, d.disagreement, f.failed
    FROM failures f LEFT JOIN (
        SELECT no, student, avg(value) AS score FROM cell WHERE shown GROUP BY no, student
    ) s USING (no, student) LEFT JOIN (
        SELECT no, student, avg(high - low) AS disagreement FROM (
            SELECT no, student, factor, max(value) AS high, min(value) AS low
            FROM cell WHERE shown AND value IS NOT NULL
            GROUP BY no, student, factor HAVING count(DISTINCT judge) > 1
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
    FROM cell GROUP BY no, student, factor;
CREATE TABLE flagged (no INTEGER, flag VARCHAR);
CREATE TABLE marked (no INTEGER);
CREATE TABLE scale AS SELECT coalesce(bool_and(value BETWEEN 0 AND 1), true) AS shares FROM cell WHERE shown
"""  # noqa: S608


def make_item_tables(reader: Reader) -> None:
    """Make ``viewed`` (items), ``cell`` (scores) and ``answered`` (students by item) in a reader's database;
    raises as its queries do."""
    labels = "labels" in reader.views
    reader.rows(_ITEMS)
    also = f"UNION ALL SELECT attribute FROM labels UNION ALL SELECT '{EXACT_MATCH}'" if labels else ""  # noqa: S608
    for statement in _NAMES.format(labels=also).split(";"):
        reader.rows(statement)
    reader.rows("CREATE TABLE headline (task VARCHAR, metric VARCHAR)")
    for task, metric in _headlines(reader).items():
        reader.rows("INSERT INTO headline VALUES (?, ?)", [task, metric])
    reader.rows(_CELLS.format(shown_unless_told="true" if labels else "false"))
    if labels:
        reader.rows(_LABELS)
    for statement in _ANSWERED.split(";"):
        reader.rows(statement)


def _headlines(reader: Reader) -> dict[str, str]:
    """Each benchmark's first metric of which its items have scores."""
    if not isinstance(reader, OutputReader):
        return {}
    scored = {tuple(row) for row in reader.rows("SELECT DISTINCT task, metric FROM scores")}
    found: dict[str, str] = {}
    for metric in reader.metrics:
        if (metric.task, metric.metric) in scored:
            found.setdefault(metric.task, metric.metric)
    return found
