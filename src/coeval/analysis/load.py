"""Any folder of ours as the same views, in DuckDB; nothing else reads results.

A run folder of ``coeval`` and an output folder of ``eval-framework`` show (ids and names are VARCHAR):

``items``      item, task, teacher, attributes MAP(VARCHAR, VARCHAR), failed
``answers``    answer, item, task, teacher, sample, model, failed, truncated (it was cut off), empty (it has
               no text, or only blanks)
``judgments``  judgment, answer, item, task, teacher, sample, model, judge, failed
``scores``     answer, item, task, teacher, sample, model, judge, metric, value, weight, failed
``labels``     of a run: one per (answer, label): answer, item, task, teacher, sample, model, attribute,
               expected, predicted (NULL: none of the labels), match; never among the scores

For comparisons of folders there are also ``contents`` (task, item, and hashes: ``content`` of the prompt,
and of a run's items ``reference``, the reference answer, and ``made_for``, the attributes) and ``methods``
(task, model, judge, method: a hash of how it judged).

``item`` is unique in a task, ``answer`` in a task and sample. ``sample`` is an INTEGER from 0. ``teacher``
and ``attributes`` are NULL where a benchmark supplies the items, ``judge`` where rules score them.

A run has a score for each factor that a good judgment was to score: the metric is the factor, the value
High 1, Medium ½, Low 0, NULL where it was not scored. A benchmark has its own scores, one for each item
and metric, in the metric's unit; ``weight`` is 1, except for metrics that are no plain mean of items.
``failed``: there is no value, or its answer is not good. `coeval.core.records` says whether a record is
good, and which of an id's lines counts.
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


def open_reader(folder: str | Path, planned: Planned | None = None) -> Reader:
    """Open the reader of a folder. ``planned``: which records of a run count. Raises UsageError: the folder
    is none of ours; StoreError: a file cannot be read at all."""
    if not RunDir(folder).is_run() and list_output_tasks(Path(folder)):
        return OutputReader(folder)
    return RunReader(folder, planned)


def is_readable(folder: Path) -> bool:
    """Check whether a folder is a run, or holds results of ``eval-framework``."""
    return RunDir(folder).is_run() or bool(list_output_tasks(folder))


def require_run_not_outputs(folder: Path, lacking_results: str) -> RunDir:
    """Return the run in a folder that `is_readable`. Raises UsageError: it holds results of
    ``eval-framework``, which have no ``lacking_results``."""
    if not RunDir(folder).is_run():
        raise UsageError(f"{folder} holds results of eval-framework, which have no {lacking_results}")
    return RunDir(folder)


def list_possible_source_files(folder: Path) -> list[Path]:
    """List the files from which everything that `open_reader` shows of a folder follows, existing or not."""
    run = RunDir(folder)
    if run.is_run():
        return [*(file for kind in RECORD_FILES for file in run.files(kind)), run.config, run.inherited]
    files = []
    for task in list_output_tasks(folder):
        files += [task / RESPONSES, task / SCORES, task / SUMMARY, *sorted(task.glob(JUDGMENTS))]
    return files


def find_writer_pid(folder: Path) -> int | None:
    folders = [folder] if RunDir(folder).is_run() else list_output_tasks(folder)
    return next((pid for path in folders if (pid := RunDir(path).writer_pid()) is not None), None)
