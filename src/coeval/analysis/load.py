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
from coeval.store.output_folder import list_output_tasks
from coeval.store.rundir import RunDir


def open_reader(folder: str | Path, planned: Planned | None = None) -> Reader:
    """Open the reader of a folder. ``planned``: which records of a run count. Raises UsageError: the folder
    is none of ours; StoreError: a file cannot be read at all."""
    if not RunDir(folder).is_run() and list_output_tasks(Path(folder)):
        return OutputReader(folder)
    return RunReader(folder, planned)
