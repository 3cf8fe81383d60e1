"""Is the benchmark any good?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

import numpy as np

from coeval.analysis.measures.measured import Branch, Measured
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.panel_findings import is_named
from coeval.core.text import listed, numbered
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    section_of,
)
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.plots import HeatMap, heat_map, item_dots

__all__ = ["benchmark_section"]

# Of dots: of more items, those with a flag and a sample of the others.
_MOST_ITEMS = 3_000
# Rows of a heat map or a table that is still looked through.
_MOST_STRATA = 40
_FINE, _ALL_PASS, _ALL_FAIL, _REVERSED, _TWIN = (
    "nothing wrong",
    "all students pass",
    "all students fail",
    "better students do worse",
    "near duplicate",
)
_DIFFICULTY = "1 less the mean score over students; with labels alone, less the share of right labels"
_FLAGS = (_FINE, _ALL_PASS, _ALL_FAIL, _REVERSED, _TWIN)
_WORDS = {
    "all_pass": "{} that all students pass",
    "all_fail": "{} that all fail",
    "reversed": "{} on which better students do worse",
    "near_duplicates": "{} nearly the same as another",
}


def benchmark_section(evidence: RunEvidence) -> ReportSection:
    tree, grid = evidence.measured.tree, evidence.measured.grid
    items, tasks, teachers = _items(tree["items"]), _tasks(tree["coverage"]), _teachers(tree["teachers"])
    strata = _strata(tree["coverage"], grid)
    pictures = []
    if any(row[3] is not None for row in items.rows):
        pictures.append(
            Picture(
                "dots",
                "Items by difficulty and discrimination. How hard each is, and how well it tells students "
                "apart: the correlation of the scores on it with those on all others.",
                items.name,
                item_dots(items.name, _FLAGS),
            )
        )
    if strata.rows:
        names = list(dict.fromkeys(str(row[0]) for row in strata.rows))
        columns = HeatMap(
            table=strata.name,
            row="value",
            column="teacher",
            value="items",
            shade="items",
            rows=names[:_MOST_STRATA],
            columns=list(grid.teachers),
            most=strata.largest("items"),
            format="d",
        )
        pictures.append(
            Picture(
                "space",
                "Items by what they are about. Of every declared value, by teacher.",
                strata.name,
                heat_map(columns),
            )
        )
    tables = (tasks, teachers, _leak(tree["leak"]), _dubious(tree["items"]), items, strata)
    return section_of(
        "benchmark",
        "Is the benchmark any good?",
        [Sentence(text, "tasks") for text in _said(tree["coverage"])],
        pictures,
        tables,
    )


def _said(coverage: Branch) -> Iterator[str]:
    items = sum(found["acr"].n or 0 for found in coverage.values())
    scored = sum(found["scored"] for found in coverage.values())
    ranked = sum(found["discrimination"].n or 0 for found in coverage.values())
    counted = {name: sum(found[name] for found in coverage.values()) for name in _WORDS}
    told = [words.format(f"{counted[name]:,}") for name, words in _WORDS.items() if counted[name]]
    if told:
        yield f"Of {numbered(items, 'item')}, there are {listed(told)}."
        if counted["near_duplicates"]:
            yield "Items that nearly repeat each other count as one in every interval and test."
    elif items:
        ruled_out = ["passed or failed by all"] * (scored > 0) + ["reversed"] * (ranked > 0)
        said = " or ".join(filter(None, (", ".join(ruled_out), "nearly a duplicate")))
        yield f"None of {numbered(items, 'item')} is {said}."
    if items and not scored:
        yield "No answer has been scored, so which items are too easy or too hard cannot be told."
    elif scored < items:
        yield f"{numbered(items - scored, 'item')} without a score may be too easy or too hard."
    if scored and not ranked:
        yield (
            "On which items better students do worse cannot be told: that takes three students or more, "
            "with scores that differ."
        )
    absent = [f"{value} ({task})" for task, found in coverage.items() for value in found["absent"]]
    if absent:
        yield f"Declared, but in no item: {listed(absent)}."
    elif any(found["acr"].value is not None for found in coverage.values()):
        yield "Every declared value of an attribute occurs in some item."


def _tasks(coverage: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = [
        (
            task,
            found["acr"].n,
            found["acr"].value,
            found["pairwise_acr"].value,
            found["rar"].value,
            found["surface_bias"].value,
            found["difficulty"].value,
            found["discrimination"].value,
            *(found[name] for name in _WORDS),
        )
        for task, found in coverage.items()
    ]
    return ReportTable(
        "tasks",
        "Tasks",
        (
            ReportColumn("task", "Task"),
            ReportColumn("items", "Items", "count"),
            ReportColumn("acr", "Values covered", "share", "Declared values that occur, of all declared"),
            ReportColumn("pairs", "Pairs covered", "share", "The same of pairs of two attributes' values"),
            ReportColumn(
                "rar", "Rare values", "share", "Of values that occur at most twice, those that occur at all"
            ),
            ReportColumn(
                "likeness", "Prompts alike", "share", "Mean Jaccard similarity of two prompts' 3-grams"
            ),
            ReportColumn("difficulty", "Difficulty", "share", _DIFFICULTY),
            ReportColumn("discrimination", "Discrimination", "share", "Mean item–rest correlation"),
            ReportColumn("all_pass", "All pass", "count"),
            ReportColumn("all_fail", "All fail", "count"),
            ReportColumn("reversed", "Reversed", "count"),
            ReportColumn("twins", "Near duplicates", "count"),
        ),
        tuple(rows),
        links={place: urlencode({"task": task}) for place, task in enumerate(coverage)},
    )


def _teachers(teachers: Branch) -> ReportTable:
    return ReportTable(
        "teachers",
        "Teachers: how far their items tell students apart",
        (
            ReportColumn("teacher", "Teacher"),
            ReportColumn(
                "v1", "Variance", "score", "Mean over tasks and factors of the variance over students"
            ),
            ReportColumn("s2", "Deviation", "score", "The root of it"),
            ReportColumn("r3", "Range", "score", "Mean of the highest student's mean less the lowest's"),
            ReportColumn("n", "Items", "count"),
        ),
        tuple(
            (name, found["v1"], found["s2"], found["r3"], found["v1"].n) for name, found in teachers.items()
        ),
        links={place: urlencode({"teacher": name}) for place, name in enumerate(teachers)},
    )


def _leak(leak: Branch) -> ReportTable:
    """Of whom it can be told, families first."""
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for kind, whose in (("families", "family"), ("students", "student")):
        for name, found in leak[kind].items():
            if found["value"] is None or found["ci95"] is None:
                continue
            if kind == "students":
                links[len(rows)] = urlencode({"student": name})
            low, high = found["ci95"]
            gain = Measured(found["value"], low, high, found["items"], None)
            rows.append((name, whose, gain, is_named(found), found["items"]))
    return ReportTable(
        "leak",
        "What students gain on items that teachers of their own family wrote",
        (
            ReportColumn("name", "Who"),
            ReportColumn("kind", "A student, or all of a family"),
            ReportColumn("gain", "Gain", "score", "Of a score from 0 to 1; below zero they lose"),
            ReportColumn("sure", "Sure", "text", "Below 5 % by Holm's p-value, over all of that kind"),
            ReportColumn("items", "Items", "count", "Those that their own family's teachers wrote"),
        ),
        tuple(rows),
        links=links,
    )


def _flag(found: Mapping[str, object]) -> str:
    discrimination = found["discrimination"]
    if found["near_duplicate_of"] is not None:
        return _TWIN
    if found["all_pass"]:
        return _ALL_PASS
    if found["all_fail"]:
        return _ALL_FAIL
    if isinstance(discrimination, float) and discrimination < 0:
        return _REVERSED
    return _FINE


_ITEM_COLUMNS = (
    ReportColumn("item", "Item"),
    ReportColumn("task", "Task"),
    ReportColumn("teacher", "Teacher"),
    ReportColumn("difficulty", "Difficulty", "share"),
    ReportColumn("discrimination", "Discrimination", "share"),
    ReportColumn("flag", "What is wrong"),
)


def _items(items: Branch) -> ReportTable:
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
    return _item_table("items-shown", "Items", items, names, note)


def _dubious(items: Branch) -> ReportTable:
    """Those that say nothing of students, or the opposite: the worst discrimination first."""
    names = [name for name, found in items.items() if _flag(found) != _FINE]
    worst = sorted(names, key=lambda name: (items[name]["discrimination"] or 0.0, name))
    note = f"The first {_MOST_STRATA} of {len(worst):,}." if len(worst) > _MOST_STRATA else ""
    return _item_table("dubious", "Items to look at", items, worst[:_MOST_STRATA], note)


def _item_table(name: str, title: str, items: Branch, names: list[str], note: str) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for each in names:
        found = items[each]
        numbers = (found["difficulty"], found["discrimination"])
        rows.append((each, found["task"], found["teacher"], *numbers, _flag(found)))
    links = {place: urlencode({"item": each}) for place, each in enumerate(names)}
    return ReportTable(name, title, _ITEM_COLUMNS, tuple(rows), note, links)


def _strata(coverage: Branch, grid: ScoreGrid) -> ReportTable:
    """Items by ``attribute=value`` and teacher; declared values that occur nowhere stand first, with 0."""
    absent = dict.fromkeys(value for found in coverage.values() for value in found["absent"])
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
            ReportColumn("value", "Value"),
            ReportColumn("teacher", "Teacher"),
            ReportColumn("items", "Items", "count"),
        ),
        tuple(rows),
        links=links,
    )
