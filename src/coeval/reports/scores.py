"""What each student scored: the result of a run.

Where it is known what the run's configuration plans, only that is in the scores of planned tasks.
Students and tasks that it no longer names keep their figures, marked; a task of these is in no
overall score.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import msgspec

from coeval.analysis.measures.leaders import leader_sentences
from coeval.analysis.measures.measured_run import MeasuredRun, measure_run
from coeval.analysis.measures.pair_measures import group_sentences
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.result_rows import label_rows, pair_rows, people_rows, sample_rows, student_rows
from coeval.analysis.run_results import model_costs
from coeval.analysis.score_notes import label_task_notes, unscored_notes
from coeval.analysis.training.sample_figures import metric_scores, task_figures
from coeval.core.errors import StoreError
from coeval.core.records import CHECK
from coeval.reports.result_tables import Results


def results(reader: Reader, notes: Sequence[str] = (), measured: MeasuredRun | None = None) -> Results:
    """The scores of what is read, and perhaps ``measured``; ``notes``: what else is to be known of them."""
    try:
        costs = model_costs(reader.folder / "usage.json")
    except StoreError as error:
        costs, notes = (), (*notes, f"its cost is unknown: {error}")
    found = _scored(reader, measured)
    return msgspec.structs.replace(found, notes=(*found.notes, *notes), costs=costs, served=reader.served())


@singledispatch
def _scored(reader: Reader, *_: object) -> Results:
    raise NotImplementedError(type(reader).__name__)


@_scored.register
def _(reader: OutputReader, *_: object) -> Results:
    """A benchmark's own figures."""
    figures = task_figures(reader)
    scored = {(one.task, one.sample) for one in reader.metrics if one.value is not None}
    left_out = [
        f"run_{left.run} {task} is left out: {left.why}"
        for task, found in figures.items()
        for left in found.runs.left_out
        if (task, left.run) in scored
    ]
    notes, metrics = (*reader.notes(), *left_out), metric_scores(reader, figures)
    return Results((), (), simulated=reader.simulated, notes=notes, metrics=metrics)


@_scored.register
def _(reader: RunReader, measured: MeasuredRun | None) -> Results:
    measures, grid, _ = measured or measure_run(reader, _PARTS)
    ranks, pairs = measures.ranking, measures.pairs
    leads = leader_sentences(measures.students, ranks, grid.looks) if ranks.order else ()
    return Results(
        students=student_rows(measures, reader.planned),
        labels=label_rows(measures, reader.planned),
        sampled=tuple(sample_rows(measures.samples)),
        pairs=pair_rows(pairs),
        people=people_rows(measures.people),
        leads=(*(group_sentences(pairs) if pairs is not None else ()), *leads),
        simulated=reader.simulated,
        notes=(*label_task_notes(grid, measures.labels), *unscored_notes(reader, grid), *reader.notes()),
        left_out=reader.left_out,
        beyond_total=reader.beyond_total,
        checks_alone=reader.rows(_ALL_CHECKED) == [(True,)],
    )


_PARTS = ("students", "ranking", "labels", "samples", "pairs", "people", "removed")
_ALL_CHECKED = f"SELECT bool_and(judge = '{CHECK}') FROM scores WHERE value IS NOT NULL"  # noqa: S608 - ours
