"""All that a run's report is made of, read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from coeval.analysis.answer_costs import AnswerCost, AnswerFigures, answer_figures
from coeval.analysis.measures.compute import AnalyzedRun
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.shown_names import short_names
from coeval.pipeline.upkeep.repair import MissingRecords, find_missing_records
from coeval.reports.result_tables import Results, results


class RunEvidence(NamedTuple):
    """An open reader, what its scores come to, or a choice of them (`RunChoices`), and what of the plan is
    missing."""

    reader: RunReader
    measured: AnalyzedRun
    results: Results
    missing: MissingRecords
    answers: AnswerFigures
    costs: Mapping[str, AnswerCost]
    is_choice: bool = False

    @property
    def students(self) -> list[str]:
        """Best first, by their score, or by the first label where there are only labels; those without
        either stand last, by name."""
        measures = self.measured.measures
        labels = (found.ranking.order for names in measures.labels.values() for found in names.values())
        order = measures.ranking.order or next(labels, ())
        return [*order, *(name for name in self.measured.grid.students if name not in order)]

    @property
    def labels(self) -> dict[str, str]:
        """By model, what people read in place of its name: the label of the run's file, or as short a name as
        is unique."""
        planned = self.reader.planned
        return short_names(self.models, labels=None if planned is None else planned.labels)

    @property
    def models(self) -> list[str]:
        """All who take part, students first: so that each has one colour in every picture."""
        grid = self.measured.grid
        return list(dict.fromkeys((*self.students, *grid.judges, *grid.teachers)))


def evidence_of(reader: RunReader, measured: AnalyzedRun, notes: tuple[str, ...]) -> RunEvidence:
    """Of a reader that is open already, and what was measured of it."""
    found, missing = results(reader, notes, measured), find_missing_records(reader.run)
    items = measured.grid.items.ids
    answers = answer_figures(reader, items, measured.grid.students)
    costs = answers.by_student(np.ones(len(items), bool))
    return RunEvidence(reader, measured, found, missing, answers, costs)
