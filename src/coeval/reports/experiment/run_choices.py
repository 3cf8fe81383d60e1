"""A run's report on a choice of its scores: of one task, one judge, or any combination.

Choices are measured and reported by the same code as the whole run. A page holds the figures of single
choices, and `coeval view` computes those of combinations when a reader chooses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from coeval.analysis.measures.leaders import label_only_notes, opening_sentences, some_tasks_only_sentences
from coeval.analysis.measures.ranking import (
    ExcludingSelfJudgments,
    rank_excluding_self_judgments,
    rank_students,
)
from coeval.analysis.measures.score_choice import (
    find_chosen_items,
    make_score_choice,
    offered_dimension_names,
    select_chosen_scores,
)
from coeval.analysis.measures.student_measures import measure_students
from coeval.core.plain import escape_line
from coeval.core.text import pluralize
from coeval.reports.content import Report, Sentence
from coeval.reports.experiment.cost_section import value_section
from coeval.reports.experiment.leading_section import front_table, leading_section, opening_anchors
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import where_students_differ_section


class RunChoices(NamedTuple):
    """A run's evidence, from which any choice is measured. ``single``: the choices of one name, as pairs of a
    dimension and a name; ``labelled``: the tasks with labels."""

    evidence: RunEvidence
    report: Report
    single: Sequence[tuple[str, str]]
    labelled: Collection[str]

    def report_choice(self, dimension_name_pairs: Iterable[tuple[str, str]]) -> Report:
        """Report a choice of scores, given as pairs of a dimension and a name, described in the report's
        fact. Raises UsageError: a dimension or name does not exist."""
        chosen = self._measure_choice(dimension_name_pairs)
        measures, front = chosen.measured.measures, front_table(chosen)
        texts = map(escape_line, opening_sentences(measures, chosen.measured.grid.looks))
        value = None if front is None else value_section(chosen, front)
        return msgspec.structs.replace(
            self.report,
            facts=(" ".join(self._chosen_count_sentences(chosen)),),
            lead=tuple(map(Sentence, texts, opening_anchors(measures.ranking))),
            sections=(
                leading_section(chosen),
                *([] if value is None else [value]),
                where_students_differ_section(chosen),
            ),
            front=front,
        )

    def _measure_choice(self, dimension_name_pairs: Iterable[tuple[str, str]]) -> RunEvidence:
        """Measure the chosen scores and return their evidence."""
        run = self.evidence.measured
        choice = make_score_choice(run.grid, dimension_name_pairs)
        grid = select_chosen_scores(run.grid, choice)
        ranks, scores = rank_students(grid)
        others = rank_excluding_self_judgments(grid)
        # if nobody who judged itself is chosen, nothing is left out
        same = run.measures.without_own.applicable and not others.judges
        measures = msgspec.structs.replace(
            run.measures,
            students=measure_students(grid, scores),
            ranking=ranks,
            without_own=ExcludingSelfJudgments(True, (), scores, ranks) if same else others,
            judges={name: judge for name, judge in run.measures.judges.items() if name in grid.judges},
        )
        costs = self.evidence.answers.costs_by_student(find_chosen_items(run.grid, choice))
        measured = run._replace(measures=measures, grid=grid)
        return self.evidence._replace(measured=measured, costs=costs, is_choice=True)

    def _chosen_count_sentences(self, chosen: RunEvidence) -> Iterator[str]:
        whole, grid = self.evidence.measured.grid, chosen.measured.grid
        yield f"Chosen: {len(grid.items.ids):,} of {pluralize(len(whole.items.ids), 'item')}."
        yield from some_tasks_only_sentences(chosen.measured.measures.ranking)
        yield from label_only_notes(grid, self.labelled)


def prepare_choices(evidence: RunEvidence, report: Report) -> RunChoices | None:
    """Prepare the choices of a run, or return None if it has no scores."""
    measured = evidence.measured
    if not measured.grid.scored.any():
        return None
    # labels, comparisons and samples are of the whole run; what is measured of items is large
    measures = msgspec.structs.replace(measured.measures, labels={}, pairs=None, samples=None, items={})
    kept = evidence._replace(measured=measured._replace(measures=measures, conclusions=()))
    return RunChoices(kept, report, offered_dimension_names(measured.grid), measured.measures.labels.keys())
