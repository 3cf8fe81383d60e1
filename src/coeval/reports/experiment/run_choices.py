"""What a run's report says of a choice of its scores: of one task, one judge, or any combination.

A choice is measured, and its tables are made, by what measures and reports the whole run; a page holds the
figures of single choices, and `coeval view` computes those of combinations when a reader chooses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from coeval.analysis.measures.leaders import opening, partial_sentences
from coeval.analysis.measures.ranking import OthersAlone, ranking, without_own_measures
from coeval.analysis.measures.score_choice import chosen_items, chosen_scores, score_choice, single_choices
from coeval.analysis.measures.student_measures import student_measures
from coeval.analysis.score_notes import label_task_notes
from coeval.core.plain import escape_line
from coeval.core.text import pluralize
from coeval.reports.content import Report, Sentence
from coeval.reports.experiment.cost_section import value_section
from coeval.reports.experiment.leading_section import front_table, leading_section, score_anchors
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import where_section


class RunChoices(NamedTuple):
    """A run's evidence, from which any choice is measured. ``single``: the choices of one name, as pairs of a
    dimension and a name; ``labelled``: the tasks with labels."""

    evidence: RunEvidence
    report: Report
    single: Sequence[tuple[str, str]]
    labelled: Collection[str]

    def report_of(self, pairs: Iterable[tuple[str, str]]) -> Report:
        """Report a choice, as pairs of a dimension and a name: its fact says what is chosen.

        Raises UsageError: there is no such dimension or name.
        """
        chosen = self._evidence(pairs)
        measures, front = chosen.measured.measures, front_table(chosen)
        said = map(escape_line, opening(measures, chosen.measured.grid.looks))
        value = None if front is None else value_section(chosen, front)
        return msgspec.structs.replace(
            self.report,
            facts=(" ".join(self._facts(chosen)),),
            lead=tuple(map(Sentence, said, score_anchors(measures.ranking))),
            sections=(leading_section(chosen), *([] if value is None else [value]), where_section(chosen)),
            front=front,
        )

    def _evidence(self, pairs: Iterable[tuple[str, str]]) -> RunEvidence:
        """Return the evidence of a choice."""
        run = self.evidence.measured
        choice = score_choice(run.grid, pairs)
        grid = chosen_scores(run.grid, choice)
        ranks, scores = ranking(grid)
        others = without_own_measures(grid)
        # if nobody who judged itself is chosen, nothing is left out
        same = run.measures.without_own.applicable and not others.judges
        measures = msgspec.structs.replace(
            run.measures,
            students=student_measures(grid, scores),
            ranking=ranks,
            without_own=OthersAlone(True, (), scores, ranks) if same else others,
            judges={name: one for name, one in run.measures.judges.items() if name in grid.judges},
        )
        costs = self.evidence.answers.by_student(chosen_items(run.grid, choice))
        measured = run._replace(measures=measures, grid=grid)
        return self.evidence._replace(measured=measured, costs=costs, is_choice=True)

    def _facts(self, chosen: RunEvidence) -> Iterator[str]:
        whole, grid = self.evidence.measured.grid, chosen.measured.grid
        yield f"Chosen: {len(grid.items.ids):,} of {pluralize(len(whole.items.ids), 'item')}."
        yield from partial_sentences(chosen.measured.measures.ranking)
        yield from label_task_notes(grid, self.labelled)


def run_choices(evidence: RunEvidence, report: Report) -> RunChoices | None:
    """Prepare the choices of a run that has scores; None: it has none."""
    measured = evidence.measured
    if not measured.grid.scored.any():
        return None
    # labels, comparisons and samples are of the whole run; what is measured of items is large
    measures = msgspec.structs.replace(measured.measures, labels={}, pairs=None, samples=None, items={})
    kept = evidence._replace(measured=measured._replace(measures=measures, conclusions=()))
    return RunChoices(kept, report, single_choices(measured.grid), measured.measures.labels.keys())
