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
from coeval.reports.charts.plots import HeatMap, heat_map, item_difficulty_plot
from coeval.reports.content import Cell, Picture, ReportColumn, ReportSection, ReportTable, make_columns
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import drop_values_of_large_attributes
from coeval.reports.measure_table import MeasureTable

# Of dots: of more items, those with a flag and a sample of the others.
_MOST_ITEMS = 1_000
# Rows of a heat map or a table that is still looked through.
_MOST_STRATA = 40
_FINE, _ALL_PASS, _ALL_FAIL, _REVERSED, _TWIN = (
    "no problem",
    "all students pass",
    "all students fail",
    "stronger students score lower",
    "near duplicate",
)
_FLAGS = (_FINE, _ALL_PASS, _ALL_FAIL, _REVERSED, _TWIN)
_PROBLEMS: dict[str, Callable[[TaskCoverage], int]] = {
    "all students pass {}": lambda task: task.all_pass,
    "all students fail {}": lambda task: task.all_fail,
    "stronger students score lower on {}": lambda task: task.reversed,
    "{} nearly repeat another": lambda task: task.near_duplicates,
}


def benchmark_section(evidence: RunEvidence) -> ReportSection:
    """Make the section on how well the items measure: difficulty, discrimination, coverage and duplicates."""
    measures, grid = evidence.measured.measures, evidence.measured.grid
    items = _flagged_and_sampled_items_table(measures.items)
    strata = _items_by_value_and_teacher_table(measures.coverage, grid)
    pictures = []
    if any(row[3] is not None for row in items.rows):
        title = (
            "Items by difficulty and discrimination. Discrimination: the correlation of the scores on an "
            "item with those on all others."
        )
        pictures.append(Picture("dots", title, items.name, item_difficulty_plot(items.name, _FLAGS)))
    if names := drop_values_of_large_attributes(dict.fromkeys(str(row[0]) for row in strata.rows)):
        values_by_teacher = HeatMap(
            strata, "value", "teacher", "items", names[:_MOST_STRATA], list(grid.teachers), format="d"
        )
        pictures.append(heat_map("space", "Items by attribute value and teacher.", values_by_teacher))
    tables = (
        TASK_TABLE.fill(measures.coverage),
        TEACHER_TABLE.fill(measures.teachers),
        _dubious_items_table(measures.items),
        items,
        strata,
    )
    texts = item_problem_and_coverage_sentences(measures.coverage)
    return ReportSection.with_rows(
        "benchmark", "Is the benchmark any good?", texts, pictures, tables, TASK_TABLE.name
    )


TASK_TABLE = MeasureTable("tasks", "Tasks", ("Task",), TaskCoverage, "task")
TEACHER_TABLE = MeasureTable(
    "teachers", "Teachers by item discrimination", ("Teacher",), TeacherMeasures, "teacher"
)


def item_problem_and_coverage_sentences(coverage: Mapping[str, TaskCoverage]) -> Iterator[str]:
    """Yield sentences on problems of items and on declared values that no item has."""
    items = sum(task.acr.n or 0 for task in coverage.values())
    scored = sum(task.scored for task in coverage.values())
    ranked = sum(task.discrimination.n or 0 for task in coverage.values())
    counted = {words: sum(map(count, coverage.values())) for words, count in _PROBLEMS.items()}
    reported = [words.format(f"{count:,}") for words, count in counted.items() if count]
    if reported:
        yield f"Of {pluralize(items, 'item')}, {join_names(reported)}."
        if any(task.near_duplicates for task in coverage.values()):
            yield "Items that nearly repeat each other count as one in every interval and test."
    elif items:
        ruled_out = ["passed or failed by all"] * (scored > 0) + ["reversed"] * (ranked > 0)
        problems = " or ".join(filter(None, (", ".join(ruled_out), "nearly a duplicate")))
        yield f"None of {pluralize(items, 'item')} is {problems}."
    if items and not scored:
        yield "No answer has been scored, so which items are too easy or too hard is unknown."
    elif scored < items:
        yield f"{pluralize(items - scored, 'item')} without a score may be too easy or too hard."
    if scored and not ranked:
        yield (
            "Finding items on which stronger students score lower takes at least three students with "
            "different scores."
        )
    absent = [f"{value} ({name})" for name, task in coverage.items() for value in task.absent]
    if absent:
        yield f"Declared values in no item: {join_names(absent)}."
    elif any(task.acr.value is not None for task in coverage.values()):
        yield "Every declared value of an attribute occurs in some item."


def _classify_item_problem(item: ItemMeasures) -> str:
    if item.near_duplicate_of is not None:
        return _TWIN
    if item.all_pass:
        return _ALL_PASS
    if item.all_fail:
        return _ALL_FAIL
    return _REVERSED if item.is_reversed else _FINE


def _flagged_and_sampled_items_table(items: Mapping[str, ItemMeasures]) -> ReportTable:
    """Make a table of items: those with a problem first, then a sample of the others, kept in their order."""
    flagged = [name for name, item in items.items() if _classify_item_problem(item) != _FINE]
    fine = [name for name, item in items.items() if _classify_item_problem(item) == _FINE]
    random = np.random.default_rng(0)
    most_fine = max(_MOST_ITEMS - len(flagged), _MOST_ITEMS // 2)
    if len(fine) > most_fine:
        fine = [fine[index] for index in np.sort(random.choice(len(fine), most_fine, replace=False))]
    flagged = flagged[:_MOST_ITEMS]
    kept = {*fine, *flagged}
    names = [name for name in items if name in kept]
    omitted = len(items) - len(names)
    note = f"A sample: {omitted:,} more items are left out here; coeval analyze items has all."
    return item_table("items-shown", "Items", items, names, note * bool(omitted))


def _dubious_items_table(items: Mapping[str, ItemMeasures]) -> ReportTable:
    """Make a table of items that discriminate badly or nearly repeat another, the worst first."""
    names = [name for name, item in items.items() if _classify_item_problem(item) != _FINE]
    worst = sorted(names, key=lambda name: (items[name].discrimination or 0.0, name))
    note = f"The first {_MOST_STRATA} of {len(worst):,}." if len(worst) > _MOST_STRATA else ""
    return item_table("dubious", "Items to check", items, worst[:_MOST_STRATA], note)


def item_table(
    name: str, title: str, items: Mapping[str, ItemMeasures], names: list[str], note: str = ""
) -> ReportTable:
    problem = (ReportColumn("flag", "Problem"), _classify_item_problem)
    table = MeasureTable(name, title, ("Item",), ItemMeasures, "item", further=(problem,))
    return msgspec.structs.replace(table.fill({item_id: items[item_id] for item_id in names}), note=note)


def _items_by_value_and_teacher_table(coverage: Mapping[str, TaskCoverage], grid: ScoreGrid) -> ReportTable:
    """Count items by ``attribute=value`` and teacher; declared values without items come first, with 0."""
    absent = dict.fromkeys(value for task in coverage.values() for value in task.absent)
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
    columns = (*make_columns("Value", "Teacher"), *make_columns("Items", kind="count"))
    return ReportTable("strata", "Values of attributes", columns, tuple(rows), links=links)
