"""What trackers get of a folder: headline figures with interval, n and failures, its page and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import eq
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

import msgspec

from coeval.analysis.training.aggregate import CheckpointAggregate, aggregate_checkpoint, find_evaluated_steps
from coeval.analysis.training.sweep_comparison import compare_checkpoints
from coeval.analysis.training.training_curves import read_training_curves
from coeval.core.text import digest, join_names
from coeval.exchange.exporting import open_export
from coeval.reports.site.report_file import write_report_and_measures
from coeval.reports.training_files import PAGE, write_sweep_page
from coeval.store.jsonl import read_json, write_bytes_atomic, write_json_atomic
from coeval.store.output_folder import is_sweep, list_output_tasks
from coeval.sweeps.sweep import JobPlan, sweep_folder

Rows: TypeAlias = dict[int, dict[str, float]]
"""By step: figures by name."""

_FILE = "tracked.json"


class _TrackingFile(msgspec.Struct, frozen=True):
    """The folder's ``tracked.json``: its unique key, and by tracker the hash of what was sent completely.
    ``place``: hashes of its path and inode, ``judged_by`` its judges' recipes, ``name`` its run's."""

    key: str
    sent: dict[str, str] = {}
    place: tuple[str, ...] = ()
    judged_by: dict[str, str] = {}
    name: str = ""

    def explain_new_tracker_run(self, folder_hashes: tuple[str, ...], judged_by: Mapping[str, str]) -> str:
        """Say why the folder must start a new run; "" if it is the same one, moved or grown."""
        if self.place and not any(map(eq, self.place, folder_hashes)):
            return "the folder is a copy of one that was already logged"
        changed = [name for name, recipe in judged_by.items() if self.judged_by.get(name, recipe) != recipe]
        return f"since the last log, the judging has changed: {join_names(changed, 3)}" if changed else ""


class TrackedFolder:
    """A folder's figures for trackers. A copy of a logged folder starts a new run there, and so does a folder
    judged with other recipes: ``notice`` says so. Raises UsageError: it holds no results; StoreError: it
    cannot be read, or its key not be written."""

    def __init__(self, folder: Path) -> None:
        """Read the figures, compare the folder with its ``tracked.json``, and write the file if changed."""
        self._folder = folder.resolve()
        self._steps = _aggregate_checkpoints(self._folder) if is_sweep(self._folder) else []
        self.rows = _figures_by_step(self._steps) if self._steps else {0: _folder_figures(self._folder)}
        last = self._steps[-1].checkpoint.folder if self._steps else self._folder
        with open_export(last) as export:
            parameters, judged_by = export.collect_parameters(), export.recipes_by_task_and_judge()
        self.parameters = {_clean_name(name): value for name, value in parameters.items()}
        location = digest(str(self._folder)), digest(str(self._folder.stat().st_ino))
        before = read_json(self._folder / _FILE, _TrackingFile, missing=_TrackingFile(token_hex(8)))
        reason = before.explain_new_tracker_run(location, judged_by)
        self.notice = f"{self._folder.name} starts a new run: {reason}" if reason else ""
        key, sent = (token_hex(8), {}) if reason else (before.key, before.sent)
        self.name = ("" if reason else before.name) or _clean_name(self._folder.name)
        self._tracked = _TrackingFile(key, sent, location, before.judged_by | judged_by, self.name)
        if self._tracked != before or not before.place:
            write_json_atomic(self._folder / _FILE, self._tracked)
        self.key = key

    @property
    def content_hash_by_tracker(self) -> dict[str, str]:
        return self._tracked.sent

    def mark_sent(self, tracker: str, content: str) -> None:
        """Record that the tracker has all of this content."""
        sent = self._tracked.sent | {tracker: content}
        self._tracked = msgspec.structs.replace(self._tracked, sent=sent)
        write_json_atomic(self._folder / _FILE, self._tracked)

    def write_page_and_figures(self, out: Path) -> list[Path]:
        """Write the page and the figures as JSON; return the files."""
        if not self._steps:
            write_report_and_measures(self._folder, out)
            return sorted(out.iterdir())
        runs = read_training_curves({self._folder.name: self._folder})
        write_sweep_page(runs, compare_checkpoints(runs), out / PAGE)
        content = msgspec.json.encode([task for step in self._steps for task in step.tasks.values()])
        write_bytes_atomic(out / "figures.json", content)
        return sorted(out.iterdir())


def _folder_figures(folder: Path) -> dict[str, float]:
    """Return figures by ``task/model/metric``; the model is omitted if a benchmark scored only one."""
    with open_export(folder) as export:
        figures = export.figures(overall=True)
    several = len({figure.model for figure in figures}) > 1 or not list_output_tasks(folder)
    row: dict[str, float] = {}
    for figure in (figure for figure in figures if figure.value is not None or figure.failed):
        parts = (figure.task or "overall", *((figure.model,) if several else ()), figure.metric)
        _add_figure(row, parts, (figure.value, figure.low, figure.high, figure.n, figure.failed))
    return row


def _clean_name(text: str) -> str:
    """Make a part of a figure's name that all trackers accept."""
    name = re.sub(r"[^\w.\- :]", "_", text).strip(" .") or "_"
    return name if len(name) <= 70 else f"{name[:60]}~{digest(text)[:8]}"


def _add_figure(row: dict[str, float], name_parts: Iterable[str], values: Iterable[float | None]) -> None:
    whole = tuple(name_parts)
    name = "/".join(map(_clean_name, whole))
    if name in row or f"{name}_n" in row:
        name += f"~{digest(*whole)[:8]}"
    for end, value in zip(("", "_low", "_high", "_n", "_failed"), values, strict=True):
        if value is not None:
            row[name + end] = value


def _aggregate_checkpoints(folder: Path) -> list[CheckpointAggregate]:
    try:
        expected = JobPlan.read(sweep_folder(folder)).samples
    except FileNotFoundError:
        expected = {}
    return [
        aggregate_checkpoint(step, list(expected) or None, expected) for step in find_evaluated_steps(folder)
    ]


def _figures_by_step(steps: Iterable[CheckpointAggregate]) -> Rows:
    rows: Rows = {}
    for step in steps:
        row = rows[step.checkpoint.step] = {}
        for task, whole in step.tasks.items():
            for name, figure in whole.metrics.items():
                low, high = figure.ci95 or (None, None)
                _add_figure(row, (task, name), (figure.mean, low, high, figure.n_items, whole.missing))
    return rows
