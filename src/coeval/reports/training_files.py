"""Files of training curves: a picture of each task, one of all, and a page with the items behind them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.whole_items import ItemDetail
from coeval.analysis.training.aggregate import (
    CheckpointAggregate,
    TaskAggregate,
    aggregate_all_checkpoints,
    write_aggregates,
)
from coeval.analysis.training.sweep_comparison import SweepComparison, compare_checkpoints
from coeval.analysis.training.training_curves import TaskCurve, TrainingRun, build_training_run
from coeval.reports.files import write_figures
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import ItemFacets, ItemRow
from coeval.reports.items.item_selection import ItemSelection, shorten_detail
from coeval.reports.site.page import make_page
from coeval.reports.training_report import ErrorBar, all_tasks_report, checkpoint_name, training_report
from coeval.store.jsonl import write_bytes_atomic

# --- Items behind a training curve

# Of a run and task: more columns nobody reads side by side.
MOST_CHECKPOINTS = 8
# Of a task.
_MOST_ITEMS = 60


class ChosenCheckpoint(NamedTuple):
    """A checkpoint whose answers a page holds, under ``name``."""

    name: str
    task: str
    folder: Path


def choose_checkpoints(runs: Sequence[TrainingRun]) -> list[ChosenCheckpoint]:
    """Choose the first, last and highest checkpoint of each run and task, and others evenly between."""
    labels = [run.label for run in runs]
    return [
        ChosenCheckpoint(checkpoint_name(run.label, point.step, labels), task, run.folders[point.step])
        for run in runs
        for task, curve in run.curves.items()
        for point in _choose_highest_and_evenly_spread(curve.points)
    ]


def _choose_highest_and_evenly_spread(points: Sequence[TaskAggregate]) -> list[TaskAggregate]:
    if len(points) <= MOST_CHECKPOINTS:
        return list(points)
    highest = max(range(len(points)), key=lambda index: points[index].mean)
    evenly = np.linspace(0, len(points) - 1, MOST_CHECKPOINTS - 1).round().astype(int)
    return [points[index] for index in sorted({*evenly.tolist(), highest})]


def select_checkpoint_items(
    runs: Sequence[TrainingRun], checkpoints: Sequence[ChosenCheckpoint]
) -> ItemSelection | None:
    """Select the items that changed most, up to `_ITEM_BYTES` when each is compressed by itself, with the
    first of several samples; None: no checkpoint has scores by item. Raises StoreError: a file cannot be
    read."""
    tasks = list(dict.fromkeys(checkpoint.task for checkpoint in checkpoints))
    by_task = [[(task, item) for item in _most_lost_and_gained_items(task, runs)] for task in tasks]
    turns = (key for turn in zip_longest(*by_task) for key in turn if key is not None)
    rows: list[ItemRow] = []
    details: list[ItemDetail] = []
    bytes_left = _ITEM_BYTES
    with ExitStack() as stack:
        browsers = _open_browsers(checkpoints, stack)
        for task, item in turns:
            detail = _merge_first_answers(item, task, browsers.get(task, {}))
            if detail is None:
                continue
            row = _item_row(len(rows), detail)
            bytes_left -= len(zlib.compress(msgspec.json.encode([row, detail]), 1))
            if bytes_left < 0:
                break
            rows.append(row)
            details.append(detail)
    if not rows:
        return None
    curves = [(task, curve) for run in runs for task, curve in run.curves.items()]
    total = len(
        {(task, key[0]) for task, curve in curves for column in curve.columns.values() for key in column.keys}
    )
    return ItemSelection(rows, details, total, _make_facets(total, tasks, checkpoints, details))


def _open_browsers(
    checkpoints: Sequence[ChosenCheckpoint], stack: ExitStack
) -> dict[str, dict[str, ItemBrowser]]:
    browsers: dict[str, dict[str, ItemBrowser]] = {}
    for checkpoint in checkpoints:
        samples = sorted(checkpoint.folder.glob(f"run_*/{checkpoint.task}"))
        first = samples[0] if samples else checkpoint.folder / checkpoint.task
        reader = stack.enter_context(OutputReader(first))
        browsers.setdefault(checkpoint.task, {})[checkpoint.name] = ItemBrowser(reader)
    return browsers


def _most_lost_and_gained_items(task: str, runs: Sequence[TrainingRun]) -> list[str]:
    """Return lost and gained items in turn, the largest changes first."""
    changes: dict[str, float] = {}
    for curve in (run.curves[task] for run in runs if task in run.curves):
        for item, change in _total_change_by_item(curve).items():
            if abs(change) > abs(changes.get(item, 0.0)) or item not in changes:
                changes[item] = change
    order = sorted(changes, key=changes.__getitem__)
    turns = zip(order, reversed(order), strict=True)
    return list(dict.fromkeys(item for turn in turns for item in turn))[:_MOST_ITEMS]


def _total_change_by_item(curve: TaskCurve) -> dict[str, float]:
    """Return each item's change from the first checkpoint to the last; 0 if one of them lacks it."""
    columns = [
        dict(zip(column.keys, column.values.tolist(), strict=True)) for column in curve.columns.values()
    ]
    if not columns:
        return {}
    keys = dict.fromkeys(key for column in columns for key in column)
    first, last = columns[0], columns[-1]
    return {key[0]: last[key] - first[key] if key in first and key in last else 0.0 for key in keys}


def _merge_first_answers(item: str, task: str, browsers: Mapping[str, ItemBrowser]) -> ItemDetail | None:
    """Join the first answers of all checkpoints to an item under the checkpoints' names; None without any."""
    details = {name: browser.read_detail(item) for name, browser in browsers.items()}
    answered = {name: detail for name, detail in details.items() if detail is not None and detail.answers}
    if not answered:
        return None
    answers = [msgspec.structs.replace(detail.answers[0], student=name) for name, detail in answered.items()]
    first = next(iter(answered.values()))
    return shorten_detail(msgspec.structs.replace(first, task=task, answers=answers))


def _item_row(number: int, detail: ItemDetail) -> ItemRow:
    return ItemRow(
        row=number,
        item=detail.item,
        task=detail.task,
        teacher=detail.teacher,
        attributes=detail.attributes,
        difficulty=None,
        disagreement=None,
        scores={answer.student: answer.score for answer in detail.answers},
        failed=sum(answer.failed for answer in detail.answers),
        flags=[],
    )


def _make_facets(
    total: int, tasks: list[str], checkpoints: Sequence[ChosenCheckpoint], details: Sequence[ItemDetail]
) -> ItemFacets:
    judges = {
        judgment.judge for detail in details for answer in detail.answers for judgment in answer.judgments
    }
    students = list(dict.fromkeys(checkpoint.name for checkpoint in checkpoints))
    return ItemFacets(total, students, tasks, [], sorted(judges), [], {})


PAGE = "curves.html"
# Compressed: so much of the page is items.
_ITEM_BYTES = 900_000


def write_curve_pictures_and_page(
    runs: Sequence[TrainingRun], comparison: SweepComparison, out: Path, error_bar: ErrorBar = "ci95"
) -> Iterator[Path]:
    """Write ``<task>.png`` and ``.svg``, ``all_tasks.png`` and ``.svg``, and ``curves.html``, replacing older
    files; yield each path once written. Raises StoreError: results cannot be read, or a file not be
    written."""
    for report in (training_report(runs, comparison, error_bar), all_tasks_report(runs, error_bar)):
        yield from write_figures(report, out)
    write_sweep_page(runs, comparison, out / PAGE, error_bar)
    yield out / PAGE


def write_sweep_page(
    runs: Sequence[TrainingRun], comparison: SweepComparison, file: Path, error_bar: ErrorBar = "ci95"
) -> None:
    """Write the page of runs, with the items behind it; raises as `write_curve_pictures_and_page`."""
    checkpoints = choose_checkpoints(runs)
    with_items = {(checkpoint.task, checkpoint.name) for checkpoint in checkpoints}
    items = select_checkpoint_items(runs, checkpoints)
    report = training_report(runs, comparison, error_bar, with_items)
    write_bytes_atomic(file, make_page(report, items=items))


class TrainingFiles(NamedTuple):
    """A sweep's aggregated checkpoints, their curves and comparison (None without scores), and the files of
    them."""

    aggregates: list[CheckpointAggregate]
    run: TrainingRun | None
    comparison: SweepComparison | None
    paths: list[Path]


def aggregate_and_write_sweep(out: Path, samples_by_task: Mapping[str, int]) -> TrainingFiles:
    """Aggregate the samples of all checkpoints in a sweep's folder, and write aggregates and curves;
    raises as `write_curve_pictures_and_page`."""
    aggregates = aggregate_all_checkpoints(out, samples_by_task)
    if not sum(len(write_aggregates(aggregate)) for aggregate in aggregates):
        return TrainingFiles(aggregates, None, None, [])
    run = build_training_run(out.absolute().name or "run", out, aggregates, list(samples_by_task))
    comparison = compare_checkpoints([run])
    paths = list(write_curve_pictures_and_page([run], comparison, out / "plots"))
    return TrainingFiles(aggregates, run, comparison, paths)
