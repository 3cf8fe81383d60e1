"""What of a folder goes into a tracker: its headlines with interval, n and failures, its page and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import eq
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

import msgspec

from coeval.analysis.training.aggregate import CheckpointAggregate, aggregate_checkpoint, find_evaluated_steps
from coeval.analysis.training.sweep_comparison import compare_runs
from coeval.analysis.training.training_curves import read_training_curves
from coeval.core.text import digest, join_names
from coeval.exchange.exporting import export_of
from coeval.reports.site.report_file import write_report
from coeval.reports.training_files import PAGE, write_sweep_page
from coeval.store.jsonl import read_json, write_bytes_atomic, write_json_atomic
from coeval.store.output_folder import is_sweep, list_output_tasks
from coeval.sweeps.sweep import JobPlan, sweep_folder

Rows: TypeAlias = dict[int, dict[str, float]]
"""By step: figures by name."""

_FILE = "tracked.json"


class _Tracked(msgspec.Struct, frozen=True):
    """The folder's ``tracked.json``: a key that only it has, and by tracker what was sent whole. ``place``:
    hashes of its path and file number, ``judged_by`` its judges' recipes, ``name`` its run's."""

    key: str
    sent: dict[str, str] = {}
    place: tuple[str, ...] = ()
    judged_by: dict[str, str] = {}
    name: str = ""

    def is_of(self, place: tuple[str, ...], judged_by: Mapping[str, str]) -> str:
        """Say why a folder is another run of a tracker; "" where it is this one, moved or grown."""
        if self.place and not any(map(eq, self.place, place)):
            return "the folder is a copy of one that was already logged"
        changed = [name for name, recipe in judged_by.items() if self.judged_by.get(name, recipe) != recipe]
        return f"since the last log, the judging has changed: {join_names(changed, 3)}" if changed else ""


class Tracking:
    """A folder's figures for trackers. A copy of the folder is another run there, and so is the folder where
    other recipes judged it: ``news`` says so.

    Raises UsageError: it holds no results; StoreError: it cannot be read, or its key not be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._steps = _checkpoints(self._folder) if is_sweep(self._folder) else []
        self.rows = _rows(self._steps) if self._steps else {0: _row(self._folder)}
        last = self._steps[-1].checkpoint.folder if self._steps else self._folder
        with export_of(last) as found:
            parameters, judged_by = found.parameters(), found.judged_by()
        self.parameters = {_clean(name): value for name, value in parameters.items()}
        place = digest(str(self._folder)), digest(str(self._folder.stat().st_ino))
        before = read_json(self._folder / _FILE, _Tracked, missing=_Tracked(token_hex(8)))
        reason = before.is_of(place, judged_by)
        self.news = f"{self._folder.name} starts a new run: {reason}" if reason else ""
        key, sent = (token_hex(8), {}) if reason else (before.key, before.sent)
        self.name = ("" if reason else before.name) or _clean(self._folder.name)
        self._tracked = _Tracked(key, sent, place, before.judged_by | judged_by, self.name)
        if self._tracked != before or not before.place:
            write_json_atomic(self._folder / _FILE, self._tracked)
        self.key = key

    @property
    def seals(self) -> dict[str, str]:
        return self._tracked.sent

    def seal(self, tracker: str, content: str) -> None:
        """Record that the tracker has all of this content."""
        sent = self._tracked.sent | {tracker: content}
        self._tracked = msgspec.structs.replace(self._tracked, sent=sent)
        write_json_atomic(self._folder / _FILE, self._tracked)

    def write_files(self, out: Path) -> list[Path]:
        """Write the page, and the figures as JSON."""
        if not self._steps:
            write_report(self._folder, out)
            return sorted(out.iterdir())
        runs = read_training_curves({self._folder.name: self._folder})
        write_sweep_page(runs, compare_runs(runs), out / PAGE)
        content = msgspec.json.encode([task for one in self._steps for task in one.tasks.values()])
        write_bytes_atomic(out / "figures.json", content)
        return sorted(out.iterdir())


def _row(folder: Path) -> dict[str, float]:
    """Names are task, model and metric; without the model where a benchmark scored only one."""
    with export_of(folder) as found:
        figures = found.figures(overall=True)
    several = len({figure.model for figure in figures}) > 1 or not list_output_tasks(folder)
    row: dict[str, float] = {}
    for one in (each for each in figures if each.value is not None or each.failed):
        parts = (one.task or "overall", *((one.model,) if several else ()), one.metric)
        _add(row, parts, (one.value, one.low, one.high, one.n, one.failed))
    return row


def _clean(text: str) -> str:
    """Make a part of a figure's name that all trackers take."""
    name = re.sub(r"[^\w.\- :]", "_", text).strip(" .") or "_"
    return name if len(name) <= 70 else f"{name[:60]}~{digest(text)[:8]}"


def _add(row: dict[str, float], parts: Iterable[str], values: Iterable[float | None]) -> None:
    whole = tuple(parts)
    name = "/".join(map(_clean, whole))
    if name in row or f"{name}_n" in row:
        name += f"~{digest(*whole)[:8]}"
    for end, value in zip(("", "_low", "_high", "_n", "_failed"), values, strict=True):
        if value is not None:
            row[name + end] = value


def _checkpoints(folder: Path) -> list[CheckpointAggregate]:
    try:
        expected = JobPlan.read(sweep_folder(folder)).samples
    except FileNotFoundError:
        expected = {}
    return [
        aggregate_checkpoint(one, list(expected) or None, expected) for one in find_evaluated_steps(folder)
    ]


def _rows(steps: Iterable[CheckpointAggregate]) -> Rows:
    found: Rows = {}
    for one in steps:
        row = found[one.checkpoint.step] = {}
        for task, whole in one.tasks.items():
            for name, figure in whole.metrics.items():
                low, high = figure.ci95 or (None, None)
                _add(row, (task, name), (figure.mean, low, high, figure.n_items, whole.missing))
    return found
