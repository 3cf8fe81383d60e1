"""The reader of what ``eval-framework`` wrote: the views of `coeval.analysis.load`, and the figures.

``scores`` are those that each benchmark gives an item, by metric: the mean of ``value`` weighted by
``weight`` is that metric in ``summary.json`` (HealthBench's is clipped to its scale). Where a benchmark
scores a prompt that was not answered (IFEval: nothing is followed), ``failed`` says so beside the value. Of
judgments, those of the recipe that was scored last are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from coeval.analysis.readers.output_tables import PLACES, STAGES, VIEWS
from coeval.analysis.readers.reader import Reader
from coeval.analysis.run_results import MetricScore
from coeval.core.errors import StoreError, UsageError
from coeval.core.text import listed
from coeval.store.jsonl import read_json
from coeval.store.output_folder import JUDGMENTS, RESPONSES, SCORES, SUMMARY, output_tasks, sample_of
from coeval.store.own import refuse_foreign


class _Figure(msgspec.Struct, frozen=True):
    value: float | None = None
    standard_error: float | None = None
    ci95: tuple[float, float] | None = None
    n: int = 0
    unit: str = ""


class _Judge(msgspec.Struct, frozen=True):
    model: str = ""
    recipe: str = ""


class _Summary(msgspec.Struct, frozen=True):
    """What is read of a ``summary.json``."""

    task: str = ""
    model: str = ""
    metrics: dict[str, _Figure] = {}
    n_expected: int = 0
    n_failed: dict[str, int] = {}
    counted: str = ""
    comparable: bool = True
    compared_with: str = ""
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    missing: dict[str, int] = {}
    judge: _Judge | None = None


class OutputReader(Reader):
    """The records of an output folder, or of one task's folder in it.

    Raises
    ------
    UsageError
        the folder is neither.
    StoreError
        a file cannot be read at all.
    """

    views: ClassVar = ("items", "answers", "judgments", "scores")
    stages: ClassVar = STAGES
    view_sql: ClassVar = VIEWS

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder)
        found = output_tasks(path)
        sampled = {task.name for task in found if task.parent != path}
        self._tasks = [task for task in found if task.parent != path or task.name not in sampled]
        self._beside = [task for task in found if task not in self._tasks] if found != [path] else []
        if not self._tasks:
            raise UsageError(f"{path} holds no results of eval-framework")
        for task in self._tasks:
            refuse_foreign(task, ())
        self._unread: list[str] = []
        self._summaries = {task: self._summary(task) for task in self._tasks}
        super().__init__(path)
        with self._loading():
            self._load(
                {
                    "answers": [task / RESPONSES for task in self._tasks if (task / RESPONSES).is_file()],
                    "judgments": [path for task in self._tasks for path in sorted(task.glob(JUDGMENTS))],
                    "scores": [task / SCORES for task in self._tasks if (task / SCORES).is_file()],
                }
            )

    @property
    def metrics(self) -> tuple[MetricScore, ...]:
        """By task and sample; the benchmark's headline first."""
        return tuple(
            MetricScore(
                model=summary.model,
                task=_name(task, summary),
                sample=sample_of(task),
                metric=name,
                value=figure.value,
                low=figure.ci95[0] if figure.ci95 is not None else None,
                high=figure.ci95[1] if figure.ci95 is not None else None,
                standard_error=figure.standard_error,
                n=figure.n,
                unit=figure.unit,
                counted=summary.counted,
                expected=summary.n_expected,
                failed=sum(summary.n_failed.values()),
            )
            for task, summary in self._summaries.items()
            for name, figure in summary.metrics.items()
        )

    def notes(self) -> tuple[str, ...]:
        notes = [*super().notes(), *self._unread]
        notes += [
            f"{self._called(task)} is left out: it holds one sample of each prompt; run_0/ and the following "
            "hold others; name that folder to see it"
            for task in self._beside
        ]
        for task, summary in self._summaries.items():
            label = self._called(task)
            if not summary.metrics:
                notes.append(
                    f"{label}: no figures yet; the command that asked for the answers makes them, without "
                    "--inference-only"
                )
            if summary.missing:
                reasons = listed(f"{count:,} {reason}" for reason, count in summary.missing.items())
                notes.append(f"{label}: records without a value: {reasons}")
            notes += [f"{label}: {remark}" for remark in summary.remarks]
            if summary.metrics and not summary.comparable:
                reasons = "; ".join(summary.reasons)
                notes.append(f"{label} is not comparable with {summary.compared_with}: {reasons}")
        return tuple(notes)

    def _summary(self, task: Path) -> _Summary:
        try:
            return read_json(task / SUMMARY, _Summary)
        except FileNotFoundError:
            return _Summary()
        except StoreError as error:
            self._unread.append(f"{error}; its figures are left out")
            return _Summary()

    def _begin(self, origins: Mapping[str, Path]) -> None:
        rows = []
        for read, path in origins.items():
            task = path.parent
            summary = self._summaries[task]
            judge = summary.judge or _Judge()
            whose = (summary.model or None, judge.model or None, judge.recipe or None)
            rows.append((read, str(task), _name(task, summary), sample_of(task), *whose))
        self.rows(PLACES, [list(column) for column in zip(*rows, strict=True)] or [[]] * 7)

    def _called(self, path: Path) -> str:
        return str(path.relative_to(self.folder)) if path != self.folder else path.name


def _name(task: Path, summary: _Summary) -> str:
    return summary.task or task.name
