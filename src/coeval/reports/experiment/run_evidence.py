"""Everything that a run's report is made from, read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from coeval.analysis.answer_costs import AnswerCost, CostsAndTimes, read_costs_and_seconds
from coeval.analysis.measures.compute import AnalyzedRun
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.shown_names import short_names
from coeval.pipeline.upkeep.repair import MissingRecords, find_missing_records
from coeval.reports.result_tables import Results, read_results


class RunEvidence(NamedTuple):
    """An open reader, its measures and results, of the whole run or of a choice of scores (`RunChoices`), and
    the missing parts of the plan."""

    reader: RunReader
    measured: AnalyzedRun
    results: Results
    missing: MissingRecords
    answers: CostsAndTimes
    costs: Mapping[str, AnswerCost]
    is_choice: bool = False

    @property
    def students(self) -> list[str]:
        """Return students, best first, by score or without scores by the first label; unranked ones last, by
        name."""
        measures = self.measured.measures
        labels = (label.ranking.order for names in measures.labels.values() for label in names.values())
        order = measures.ranking.order or next(labels, ())
        return [*order, *(name for name in self.measured.grid.students if name not in order)]

    @property
    def short_names_by_model(self) -> dict[str, str]:
        """Return by model what people read in place of its name: the label in the file, or the shortest
        unique name."""
        planned = self.reader.planned
        return short_names(self.models, labels=None if planned is None else planned.labels)

    @property
    def models(self) -> list[str]:
        """Return all models, students first, so that each has one colour in every picture."""
        grid = self.measured.grid
        return list(dict.fromkeys((*self.students, *grid.judges, *grid.teachers)))


def read_evidence(reader: RunReader, measured: AnalyzedRun, notes: tuple[str, ...]) -> RunEvidence:
    """Read what a report needs besides the measures, from a reader that is open."""
    results, missing = read_results(reader, notes, measured), find_missing_records(reader.run)
    items = measured.grid.items.ids
    answers = read_costs_and_seconds(reader, items, measured.grid.students)
    costs = answers.costs_by_student(np.ones(len(items), bool))
    return RunEvidence(reader, measured, results, missing, answers, costs)
