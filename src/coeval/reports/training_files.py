"""Training curves as files: a picture of each task, one of all, and a page with the items behind them."""

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
from coeval.analysis.readers.whole_items import ItemDetail, ShownAnswer
from coeval.analysis.training.aggregate import (
    CheckpointAggregate,
    TaskAggregate,
    aggregate_all_checkpoints,
    write_aggregates,
)
from coeval.analysis.training.sweep_comparison import SweepComparison, compare_runs
from coeval.analysis.training.training_curves import TaskCurve, TrainingRun, build_training_run
from coeval.reports.files import write_figures
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import ItemFacets, ItemRow
from coeval.reports.items.item_selection import ItemSelection, shortened
from coeval.reports.site.page import write_page
from coeval.reports.training_report import ErrorBar, checkpoint_name, overview_report, training_report
from coeval.store.jsonl import write_bytes_atomic

# --- Items behind a training curve

# Of a run and task: more columns nobody reads side by side.
MOST_CHECKPOINTS = 8
# Of a task.
_MOST_ITEMS = 60


class ShownCheckpoint(NamedTuple):
    """A checkpoint whose answers a page holds; ``name`` is what they stand under."""

    name: str
    task: str
    folder: Path


def shown_checkpoints(runs: Sequence[TrainingRun]) -> list[ShownCheckpoint]:
    """The first, the last and the highest of each run and task, and others spread over the rest."""
    labels = [run.label for run in runs]
    return [
        ShownCheckpoint(checkpoint_name(run.label, point.step, labels), task, run.folders[point.step])
        for run in runs
        for task, curve in run.curves.items()
        for point in _spread(curve.points)
    ]


def _spread(points: Sequence[TaskAggregate]) -> list[TaskAggregate]:
    if len(points) <= MOST_CHECKPOINTS:
        return list(points)
    highest = max(range(len(points)), key=lambda place: points[place].mean)
    evenly = np.linspace(0, len(points) - 1, MOST_CHECKPOINTS - 1).round().astype(int)
    return [points[place] for place in sorted({*evenly.tolist(), highest})]


def select_checkpoint_items(
    runs: Sequence[TrainingRun], checkpoints: Sequence[ShownCheckpoint]
) -> ItemSelection | None:
    """The items that changed most, until they take `_ITEM_BYTES`, each compressed by itself; of several
    samples the first. None: no checkpoint has scores by item.

    Raises StoreError: a file cannot be read.
    """
    tasks = list(dict.fromkeys(shown.task for shown in checkpoints))
    by_task = [[(task, item) for item in _most_changed(task, runs)] for task in tasks]
    turns = (key for turn in zip_longest(*by_task) for key in turn if key is not None)
    rows: list[ItemRow] = []
    details: list[ItemDetail] = []
    left = _ITEM_BYTES
    with ExitStack() as stack:
        browsers = _browsers(checkpoints, stack)
        for task, item in turns:
            detail = _detail(item, task, browsers.get(task, {}))
            if detail is None:
                continue
            row = _row(len(rows), detail)
            left -= len(zlib.compress(msgspec.json.encode([row, detail]), 1))
            if left < 0:
                break
            rows.append(row)
            details.append(detail)
    if not rows:
        return None
    curves = [(task, curve) for run in runs for task, curve in run.curves.items()]
    total = len(
        {(task, key[0]) for task, curve in curves for one in curve.columns.values() for key in one.keys}
    )
    return ItemSelection(rows, details, total, _facets(total, tasks, checkpoints, details))


def _browsers(checkpoints: Sequence[ShownCheckpoint], stack: ExitStack) -> dict[str, dict[str, ItemBrowser]]:
    """By task and by checkpoint's name."""
    found: dict[str, dict[str, ItemBrowser]] = {}
    for shown in checkpoints:
        folders = sorted(shown.folder.glob(f"run_*/{shown.task}")) or [shown.folder / shown.task]
        reader = stack.enter_context(OutputReader(folders[0]))
        found.setdefault(shown.task, {})[shown.name] = ItemBrowser(reader)
    return found


def _most_changed(task: str, runs: Sequence[TrainingRun]) -> list[str]:
    """Items that were lost and items that were gained, in turn, the largest changes first."""
    changes: dict[str, float] = {}
    for curve in (run.curves[task] for run in runs if task in run.curves):
        for item, change in _changes(curve).items():
            if abs(change) > abs(changes.get(item, 0.0)) or item not in changes:
                changes[item] = change
    order = sorted(changes, key=changes.__getitem__)
    turns = zip(order, reversed(order), strict=True)
    return list(dict.fromkeys(item for turn in turns for item in turn))[:_MOST_ITEMS]


def _changes(curve: TaskCurve) -> dict[str, float]:
    """Of each item, from the first checkpoint to the last; 0 where one of them lacks it."""
    columns = [dict(zip(one.keys, one.values.tolist(), strict=True)) for one in curve.columns.values()]
    if not columns:
        return {}
    keys = dict.fromkeys(key for column in columns for key in column)
    first, last = columns[0], columns[-1]
    return {key[0]: last[key] - first[key] if key in first and key in last else 0.0 for key in keys}


def _detail(item: str, task: str, browsers: Mapping[str, ItemBrowser]) -> ItemDetail | None:
    answers: list[ShownAnswer] = []
    whole: ItemDetail | None = None
    for name, browser in browsers.items():
        found = browser.detail(item)
        if found is None or not found.answers:
            continue
        whole = whole or found
        answers.append(msgspec.structs.replace(found.answers[0], student=name))
    if whole is None:
        return None
    return shortened(msgspec.structs.replace(whole, task=task, answers=answers))


def _row(number: int, detail: ItemDetail) -> ItemRow:
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


def _facets(
    total: int, tasks: list[str], checkpoints: Sequence[ShownCheckpoint], details: Sequence[ItemDetail]
) -> ItemFacets:
    judges = {
        judgment.judge for detail in details for answer in detail.answers for judgment in answer.judgments
    }
    students = list(dict.fromkeys(shown.name for shown in checkpoints))
    return ItemFacets(total, students, tasks, [], sorted(judges), [], {})


PAGE = "curves.html"
# Compressed: so much of the page is items.
_ITEM_BYTES = 900_000


def write_curves(
    runs: Sequence[TrainingRun], found: SweepComparison, out: Path, error_bar: ErrorBar = "ci95"
) -> Iterator[Path]:
    """Write ``<task>.png`` and ``.svg``, ``all_tasks.png`` and ``.svg``, and ``curves.html``; each file as
    it is written, in place of an older one.

    Raises StoreError: results cannot be read, or a file not be written.
    """
    for drawn in (training_report(runs, found, error_bar), overview_report(runs, error_bar)):
        yield from write_figures(drawn, out)
    write_sweep_page(runs, found, out / PAGE, error_bar)
    yield out / PAGE


def write_sweep_page(
    runs: Sequence[TrainingRun], found: SweepComparison, file: Path, error_bar: ErrorBar = "ci95"
) -> None:
    """Write the page of the runs alone, with the items behind it.

    Raises StoreError: results cannot be read, or the file not be written.
    """
    checkpoints = shown_checkpoints(runs)
    held = {(shown.task, shown.name) for shown in checkpoints}
    items = select_checkpoint_items(runs, checkpoints)
    write_bytes_atomic(file, write_page(training_report(runs, found, error_bar, held), items=items))


class TrainingFiles(NamedTuple):
    """The samples of each checkpoint put together, and their curves with what they say and the files that
    show them; None where nothing is scored yet."""

    found: list[CheckpointAggregate]
    run: TrainingRun | None
    compared: SweepComparison | None
    written: list[Path]


def put_together(out: Path, expected: Mapping[str, int]) -> TrainingFiles:
    """Write the aggregates and the curves of all checkpoints in a sweep's folder, for the tasks of which so
    many samples were ``expected``.

    Raises StoreError: results cannot be read, or a file not be written.
    """
    found = aggregate_all_checkpoints(out, expected)
    if not sum(len(write_aggregates(one)) for one in found):
        return TrainingFiles(found, None, None, [])
    run = build_training_run(out.absolute().name or "run", out, found, list(expected))
    compared = compare_runs([run])
    return TrainingFiles(found, run, compared, list(write_curves([run], compared, out / "plots")))
