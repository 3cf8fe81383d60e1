"""Is the benchmark any good?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode

import msgspec
import numpy as np

from coeval.analysis.measures.benchmark_measures import ItemMeasures, TaskCoverage
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.teacher_measures import TeacherMeasures
from coeval.core.text import join_names, pluralize
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_columns,
    make_section,
)
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import of_few_values
from coeval.reports.measure_table import TableHeading, measure_table
from coeval.reports.plots import HeatMap, heat_map, item_dots

# Of dots: of more items, those with a flag and a sample of the others.
_MOST_ITEMS = 1_000
# Rows of a heat map or a table that is still looked through.
_MOST_STRATA = 40
_FINE, _ALL_PASS, _ALL_FAIL, _REVERSED, _TWIN = (
    "nothing wrong",
    "all students pass",
    "all students fail",
    "better students do worse",
    "near duplicate",
)
_FLAGS = (_FINE, _ALL_PASS, _ALL_FAIL, _REVERSED, _TWIN)
_WORDS: dict[str, Callable[[TaskCoverage], int]] = {
    "{} that all students pass": lambda task: task.all_pass,
    "{} that all fail": lambda task: task.all_fail,
    "{} on which better students do worse": lambda task: task.reversed,
    "{} nearly the same as another": lambda task: task.near_duplicates,
}


def benchmark_section(evidence: RunEvidence) -> ReportSection:
    measures, grid = evidence.measured.measures, evidence.measured.grid
    items, strata = _items(measures.items), _strata(measures.coverage, grid)
    pictures = []
    if any(row[3] is not None for row in items.rows):
        pictures.append(
            Picture(
                "dots",
                "Items by difficulty and discrimination. Discrimination: the correlation of the scores on an "
                "item with those on all others.",
                items.name,
                item_dots(items.name, _FLAGS),
            )
        )
    if names := of_few_values(dict.fromkeys(str(row[0]) for row in strata.rows)):
        shown = HeatMap(
            strata, "value", "teacher", "items", names[:_MOST_STRATA], list(grid.teachers), format="d"
        )
        title = "Items by what they are about. Of every declared value, by teacher."
        pictures.append(heat_map("space", title, shown))
    tables = (
        task_table(measures.coverage),
        teacher_table(measures.teachers),
        _dubious(measures.items),
        items,
        strata,
    )
    return make_section(
        "benchmark",
        "Is the benchmark any good?",
        [Sentence(text, "tasks") for text in coverage_sentences(measures.coverage)],
        pictures,
        tables,
    )


def task_table(coverage: Mapping[str, TaskCoverage]) -> ReportTable:
    return measure_table(TableHeading("tasks", "Tasks", ("Task",), "task"), TaskCoverage, coverage)


def teacher_table(teachers: Mapping[str, TeacherMeasures]) -> ReportTable:
    named = TableHeading(
        "teachers", "Teachers: how far their items tell students apart", ("Teacher",), "teacher"
    )
    return measure_table(named, TeacherMeasures, teachers)


def coverage_sentences(coverage: Mapping[str, TaskCoverage]) -> Iterator[str]:
    items = sum(found.acr.n or 0 for found in coverage.values())
    scored = sum(found.scored for found in coverage.values())
    ranked = sum(found.discrimination.n or 0 for found in coverage.values())
    counted = {words: sum(map(count, coverage.values())) for words, count in _WORDS.items()}
    reported = [words.format(f"{count:,}") for words, count in counted.items() if count]
    if reported:
        verb = "is" if next(filter(None, counted.values())) == 1 else "are"
        yield f"Of {pluralize(items, 'item')}, there {verb} {join_names(reported)}."
        if any(found.near_duplicates for found in coverage.values()):
            yield "Items that nearly repeat each other count as one in every interval and test."
    elif items:
        ruled_out = ["passed or failed by all"] * (scored > 0) + ["reversed"] * (ranked > 0)
        said = " or ".join(filter(None, (", ".join(ruled_out), "nearly a duplicate")))
        yield f"None of {pluralize(items, 'item')} is {said}."
    if items and not scored:
        yield "No answer has been scored, so which items are too easy or too hard is unknown."
    elif scored < items:
        yield f"{pluralize(items - scored, 'item')} without a score may be too easy or too hard."
    if scored and not ranked:
        yield (
            "Items on which better students do worse cannot be found: that takes three students or more, "
            "with scores that differ."
        )
    absent = [f"{value} ({task})" for task, found in coverage.items() for value in found.absent]
    if absent:
        yield f"Declared, but in no item: {join_names(absent)}."
    elif any(found.acr.value is not None for found in coverage.values()):
        yield "Every declared value of an attribute occurs in some item."


def _flag(found: ItemMeasures) -> str:
    if found.near_duplicate_of is not None:
        return _TWIN
    if found.all_pass:
        return _ALL_PASS
    if found.all_fail:
        return _ALL_FAIL
    return _REVERSED if found.is_reversed else _FINE


def _items(items: Mapping[str, ItemMeasures]) -> ReportTable:
    flagged = [name for name, found in items.items() if _flag(found) != _FINE]
    fine = [name for name, found in items.items() if _flag(found) == _FINE]
    random = np.random.default_rng(0)
    room = max(_MOST_ITEMS - len(flagged), _MOST_ITEMS // 2)
    if len(fine) > room:
        fine = [fine[place] for place in np.sort(random.choice(len(fine), room, replace=False))]
    flagged = flagged[:_MOST_ITEMS]
    kept = {*fine, *flagged}
    names = [name for name in items if name in kept]
    left = len(items) - len(names)
    note = f"{left:,} items more are left out here: a sample; coeval analyze items has all." if left else ""
    return item_table("items-shown", "Items", items, names, note)


def _dubious(items: Mapping[str, ItemMeasures]) -> ReportTable:
    """Those that say nothing of students, or the opposite: the worst discrimination first."""
    names = [name for name, found in items.items() if _flag(found) != _FINE]
    worst = sorted(names, key=lambda name: (items[name].discrimination or 0.0, name))
    note = f"The first {_MOST_STRATA} of {len(worst):,}." if len(worst) > _MOST_STRATA else ""
    return item_table("dubious", "Items to look at", items, worst[:_MOST_STRATA], note)


def item_table(
    name: str, title: str, items: Mapping[str, ItemMeasures], names: list[str], note: str = ""
) -> ReportTable:
    flag = {ReportColumn("flag", "What is wrong"): _flag}
    chosen = {each: items[each] for each in names}
    table = measure_table(TableHeading(name, title, ("Item",), "item"), ItemMeasures, chosen, further=flag)
    return msgspec.structs.replace(table, note=note)


def _strata(coverage: Mapping[str, TaskCoverage], grid: ScoreGrid) -> ReportTable:
    """Items by ``attribute=value`` and teacher; declared values that occur nowhere stand first, with 0."""
    absent = dict.fromkeys(value for found in coverage.values() for value in found.absent)
    rows: list[tuple[Cell, ...]] = [
        (value, teacher, 0)
        for value in absent
        if value not in grid.items.attributes
        for teacher in grid.teachers
    ]
    links: dict[int, str] = {}
    for value, items in grid.items.attributes.items():
        counts = np.bincount(grid.items.teacher[items], minlength=len(grid.teachers))
        for teacher, count in zip(grid.teachers, counts.tolist(), strict=True):
            links[len(rows)] = urlencode({"attribute": value, "teacher": teacher})
            rows.append((value, teacher, count))
    return ReportTable(
        "strata",
        "Values of attributes",
        (
            *make_columns("Value", "Teacher"),
            ReportColumn("items", "Items", "count"),
        ),
        tuple(rows),
        links=links,
    )
