"""Any folder of ours as the same views, in DuckDB; nothing else reads results.

A run folder of ``coeval`` and an output folder of ``eval-framework`` show (ids and names are VARCHAR):

``items``      item, task, teacher, attributes MAP(VARCHAR, VARCHAR), failed
``answers``    answer, item, task, teacher, sample, model, failed, truncated (it was cut off), empty (it has
               no text, or only blanks)
``judgments``  judgment, answer, item, task, teacher, sample, model, judge, failed
``scores``     answer, item, task, teacher, sample, model, judge, metric, value, weight, failed
``labels``     of a run: one per (answer, label): answer, item, task, teacher, sample, model, attribute,
               expected, predicted (NULL: none of the labels), match; never among the scores

Beside them, for whoever compares folders: ``contents`` (task, item, and hashes: ``content`` of what was
asked, and of a run's items ``reference``, their reference answer, and ``made_for``, their attributes) and
``methods`` (task, model, judge, method: a hash of how it judged).

``item`` is unique in a task, ``answer`` in a task and sample. ``sample`` is an INTEGER from 0. ``teacher``
and ``attributes`` are NULL where a benchmark supplies the items, ``judge`` where rules score them.

A run's scores are one for each factor that a good judgment was asked for: the metric is the factor, the
value High 1, Medium ½, Low 0, NULL where it was not scored. Those of a benchmark are its own, one for each
item and metric, in the metric's unit; ``weight`` is 1, but for metrics that are no plain mean of items.
``failed``: there is no value, or its answer is no good one. Whether a record is good, and which of an id's
lines counts, says `coeval.core.records`.
"""

from __future__ import annotations

from pathlib import Path

from coeval.analysis.planned_names import Planned
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.store.output_folder import JUDGMENTS, RESPONSES, SCORES, SUMMARY, list_output_tasks
from coeval.store.rundir import RECORD_FILES, RunDir


def load(folder: str | Path, planned: Planned | None = None) -> Reader:
    """The reader of a folder; ``planned``: of a run, what counts of it.

    Raises UsageError: the folder is none of ours; StoreError: a file cannot be read at all.
    """
    if not RunDir(folder).is_run() and list_output_tasks(Path(folder)):
        return OutputReader(folder)
    return RunReader(folder, planned)


def is_readable(folder: Path) -> bool:
    """Whether a folder is a run, or holds results of ``eval-framework``."""
    return RunDir(folder).is_run() or bool(list_output_tasks(folder))


def need_run(folder: Path, what: str) -> RunDir:
    """Return the run in a folder that `is_readable`.

    Raises UsageError: it holds results of ``eval-framework``, which have no ``what``.
    """
    if not RunDir(folder).is_run():
        raise UsageError(f"{folder} holds results of eval-framework, which have no {what}")
    return RunDir(folder)


def record_files(folder: Path) -> list[Path]:
    """The files from which all that `load` shows of a folder follows, whether or not they are there."""
    run = RunDir(folder)
    if run.is_run():
        return [
            *(file for kind in RECORD_FILES for file in run.files(kind)),
            run.config,
            run.inherited,
        ]
    files = []
    for task in list_output_tasks(folder):
        files += [task / RESPONSES, task / SCORES, task / SUMMARY, *sorted(task.glob(JUDGMENTS))]
    return files


def writer_of(folder: Path) -> int | None:
    """The process that is at work in a folder, if any is."""
    places = [folder] if RunDir(folder).is_run() else list_output_tasks(folder)
    return next((pid for place in places if (pid := RunDir(place).writer()) is not None), None)
