"""What a run's report is made of, opened for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coeval.analysis.measures.compute import compute_run_measures
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.reports.experiment.run_evidence import RunEvidence, read_evidence
from coeval.store.rundir import RunDir


@contextmanager
def run_evidence(folder: RunDir) -> Iterator[RunEvidence]:
    with open_run_reader(folder) as (reader, notes):
        yield read_evidence(reader, compute_run_measures(reader), notes)
