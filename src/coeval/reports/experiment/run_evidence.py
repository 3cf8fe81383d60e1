"""All that a run's report is made of, read once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.measures.run_measures import MeasuredRun, measure_run
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import Results
from coeval.analysis.scores import results
from coeval.pipeline.plan.run_reading import reading
from coeval.pipeline.upkeep.quick_look import Missing, look_for_gaps
from coeval.store.rundir import RunDir

__all__ = ["RunEvidence", "evidence_of", "run_evidence"]


class RunEvidence(NamedTuple):
    """An open reader, what its scores come to, and what of the plan is missing."""

    reader: RunReader
    measured: MeasuredRun
    results: Results
    missing: Missing

    @property
    def students(self) -> list[str]:
        """Best first, by their score, or by the first label where there are only labels; those without
        either stand last, by name."""
        tree = self.measured.tree
        labels = (found["ranking"]["order"] for names in tree["labels"].values() for found in names.values())
        order: list[str] = tree["ranking"]["order"] or next(labels, [])
        return [*order, *(name for name in self.measured.grid.students if name not in order)]

    @property
    def labels(self) -> dict[str, str]:
        """By model, what the run's file says that pictures are to call it."""
        return {} if self.reader.planned is None else self.reader.planned.labels

    @property
    def models(self) -> list[str]:
        """All who take part, students first: so that each has one colour in every picture."""
        grid = self.measured.grid
        return list(dict.fromkeys((*self.students, *grid.judges, *grid.teachers)))


def evidence_of(reader: RunReader, measured: MeasuredRun, notes: tuple[str, ...]) -> RunEvidence:
    """Of a reader that is open already, and what was measured of it."""
    return RunEvidence(reader, measured, results(reader, notes), look_for_gaps(reader.run))


@contextmanager
def run_evidence(folder: RunDir, options: RobustOptions | None = None) -> Iterator[RunEvidence]:
    """
    Raises
    ------
    UsageError
        the folder is no run.
    StoreError
        a file cannot be read at all.
    """
    with reading(folder) as (reader, notes):
        yield evidence_of(reader, measure_run(reader, options), notes)
