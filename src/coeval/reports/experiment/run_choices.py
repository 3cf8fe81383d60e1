"""What a run's report says of a choice of its scores: of one task, one judge, or any combination.

The same functions measure a choice and the whole run; a page holds the figures of single choices, and `coeval
view` computes those of combinations when a reader chooses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coeval.analysis.answer_costs import AnswerFigures, answer_figures
from coeval.analysis.measures.leaders import Context, partial_sentences, score_opening
from coeval.analysis.measures.ranking import OthersAlone, Ranking, ranking, without_own_measures
from coeval.analysis.measures.score_choice import ChosenScores, chosen_scores, score_choice, single_choices
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import student_measures
from coeval.analysis.run_results import label_tasks_sentence
from coeval.core.plain import plain
from coeval.core.text import numbered
from coeval.reports.content import Report, ReportSection, ReportTable, Sentence
from coeval.reports.experiment.cost_section import value_table
from coeval.reports.experiment.leading_section import (
    WholeRun,
    difference_table,
    score_front,
    standings,
    student_table,
    whole_run,
)
from coeval.reports.experiment.run_evidence import RunEvidence, ScoredStudents
from coeval.reports.experiment.where_section import where_tables


class ChoiceFigures(NamedTuple):
    """``report``: the sentences and tables that follow a choice, and as its fact what is chosen; ``order``:
    students, best first; ``students``: in the order of the whole run, that of their colours; ``is_empty``: no
    student has a score."""

    report: Report
    order: Sequence[str]
    students: Sequence[str]
    is_empty: bool


class RunChoices(NamedTuple):
    """A run's scores, and what else its choices are reported with. ``single``: the choices of one name, as
    pairs of a dimension and a name; ``tables``: those of the run's report, by name; ``own``: whether it has a
    ranking without self-judgments."""

    grid: ScoreGrid
    answers: AnswerFigures
    single: Sequence[tuple[str, str]]
    labels: Mapping[str, str]
    tables: frozenset[str]
    own: bool
    students: Sequence[str]
    beside: WholeRun

    def figures(self, pairs: Iterable[tuple[str, str]]) -> ChoiceFigures:
        """Measure a choice, as pairs of a dimension and a name.

        Raises UsageError: there is no such dimension or name.
        """
        chosen = chosen_scores(self.grid, score_choice(self.grid, pairs))
        grid = chosen.grid
        ranks, scores = ranking(grid)
        students, others = student_measures(grid, scores), without_own_measures(grid)
        order = [*ranks.order, *(name for name in grid.students if name not in ranks.order)]
        of = {name: students[name] for name in order}
        costs = self.answers.by_student(chosen.items)
        # if nobody who judged itself is chosen, nothing is left out
        same = self.own and not others.judges
        shown = OthersAlone(True, (), scores, ranks) if same else others
        scored = ScoredStudents(grid, of, ranks, shown, costs, order)
        front = score_front(scored)
        context = Context(others.ranking.order, None, grid.looks is not None and grid.looks.many)
        said = [plain(text) for text in score_opening(students, ranks, context)]
        report = Report(
            kind="experiment",
            title="",
            facts=(" ".join(self._facts(chosen, ranks)),),
            lead=tuple(map(Sentence, said, _anchors(ranks))),
            sections=tuple(self._sections(scored, front)),
            front=front if front.rows else None,
            labels=self.labels,
        )
        return ChoiceFigures(report, order, self.students, not ranks.order)

    def _facts(self, chosen: ChosenScores, ranks: Ranking) -> Iterator[str]:
        yield f"Chosen: {len(chosen.grid.items.ids):,} of {numbered(len(self.grid.items.ids), 'item')}."
        yield from partial_sentences(ranks)
        counts = np.bincount(chosen.grid.items.task, minlength=len(self.grid.tasks)).tolist()
        of_tasks = list(zip(self.grid.tasks, self.grid.designs, chosen.grid.designs, counts, strict=True))
        scored = sum(count for _, _, design, count in of_tasks if design.scores)
        alone = {task: count for task, design, _, count in of_tasks if count and not design.scores}
        if scored and alone:
            yield label_tasks_sentence(scored, alone)

    def _sections(self, scored: ScoredStudents, front: ReportTable) -> Iterator[ReportSection]:
        of_sections: Mapping[str, Sequence[ReportTable]] = {
            "leads": (
                student_table(scored, self.beside),
                difference_table(scored.ranking),
                standings(scored),
            ),
            "value": (value_table(front),),
            "where": where_tables(scored),
        }
        for anchor, tables in of_sections.items():
            shown = tuple(table for table in tables if table.name in self.tables)
            yield ReportSection(anchor, "", (), (), shown)


def run_choices(evidence: RunEvidence, report: Report) -> RunChoices | None:
    """Prepare the choices of a run that has scores; None: it has none."""
    grid = evidence.measured.grid
    if not grid.scored.any():
        return None
    return RunChoices(
        grid,
        answer_figures(evidence.reader, grid.items.ids, grid.students),
        single_choices(grid),
        report.labels,
        frozenset(table.name for section in report.sections for table in section.tables),
        evidence.measured.measures.without_own.applicable,
        evidence.students,
        whole_run(evidence),
    )


def _anchors(ranks: Ranking) -> Sequence[str]:
    """Of the sentences, the tables that show their figures."""
    if len(ranks.order) > 1 and ranks.differences:
        return ("differences", "standings", "differences")
    return ("students",) * 3
