"""All measures of a folder as tables and sentences, part by part, for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

import msgspec

from coeval.analysis.measures.pair_measures import PairMeasures, PairRate
from coeval.analysis.measures.robust_set import RobustMeasures
from coeval.analysis.measures.run_measures import OutputMeasures, RunMeasures
from coeval.analysis.people.people_measures import people_leader_sentences
from coeval.core.text import join_names
from coeval.reports.content import Cell, ReportColumn, ReportTable, Sentence, make_columns
from coeval.reports.difference_table import leader_differences_table
from coeval.reports.evaluation_report import all_metrics_table
from coeval.reports.experiment.benchmark_section import (
    TASK_TABLE,
    TEACHER_TABLE,
    item_problem_and_coverage_sentences,
    item_table,
)
from coeval.reports.experiment.cost_section import scatter_by_source_table
from coeval.reports.experiment.experiment_report import pairs_section, people_section
from coeval.reports.experiment.judges_section import (
    AGREEMENT_TABLE,
    JUDGE_TABLE,
    LENGTH_BIAS_TABLE,
    bias_table,
    judge_contribution_table,
    score_reliability_table,
    self_agreement_table,
)
from coeval.reports.experiment.leading_section import score_ranking_table, student_table
from coeval.reports.experiment.where_section import confusion_or_mistakes_table, count_mistakes, label_table
from coeval.reports.measure_table import MeasureTable
from coeval.reports.result_tables import SAMPLE_TABLE

TableOrSentence: TypeAlias = ReportTable | Sentence

# Rows of a screen; the most doubtful items come first.
_MOST_ITEMS = 20
_OVER_JUDGES = (
    "Intervals treat items as a sample of what these teachers write; the second interval treats judges as a "
    "sample too. "
)
_BOUNDS = "least, most: bounds of the score, with all missing ones counted as 0, or as 100."


def ranked_scores_table(measures: RunMeasures) -> ReportTable:
    return score_ranking_table("Scores", measures.students, measures.ranking)


def run_part_tables(measures: RunMeasures, parts: Collection[str]) -> Iterator[TableOrSentence]:
    """Yield the tables and sentences of the named parts, except the scores."""
    if "pairs" in parts and measures.pairs is not None:
        yield from _pair_tables(measures.pairs)
    if "students" in parts:
        yield from _student_tables_besides_scores(measures)
    if "labels" in parts:
        yield from _label_tables(measures, with_confusions="students" not in parts)
    yield from _judge_tables(measures, parts)
    if "length" in parts:
        yield LENGTH_BIAS_TABLE.fill(measures.length)
    if "teachers" in parts:
        yield TEACHER_TABLE.fill(measures.teachers)
    if "g_study" in parts:
        yield score_reliability_table(measures.g_study)
        yield scatter_by_source_table(measures.g_study)
        yield judge_contribution_table(measures.g_study)
    if "robust" in parts and (measures.units or "students" not in parts):
        yield from _robust_tables(measures.robust)
    if "coverage" in parts:
        yield TASK_TABLE.fill(measures.coverage)
        yield from map(Sentence, item_problem_and_coverage_sentences(measures.coverage))
    if "items" in parts:
        values = [(item.discrimination, name) for name, item in measures.items.items()]
        worst = sorted((value, name) for value, name in values if value is not None)[:_MOST_ITEMS]
        yield item_table("items", "Least discriminating items", measures.items, [name for _, name in worst])
    if "people" in parts and measures.people is not None:
        yield from map(Sentence, people_leader_sentences(measures.people) if "students" not in parts else ())
        yield from people_section(measures.people).tables
        yield Sentence("Scores and bias in points; λ: weight of judged scores (PPI++). docs/people.md")


def output_part_tables(measures: OutputMeasures, parts: Collection[str]) -> Iterator[TableOrSentence]:
    """Yield the tables of the named parts of an output folder of ``eval-framework``."""
    yield from _judge_tables(measures, parts)
    if "metrics" in parts:
        yield all_metrics_table(measures)


def _pair_tables(pairs: PairMeasures) -> Iterator[TableOrSentence]:
    strengths, _, *judges = pairs_section(pairs, without_lead=True).tables
    yield strengths
    title = "Win rates, the stronger against the weaker"
    yield MeasureTable("win-rates", title, ("Student", "Against"), PairRate).fill(pairs.rates)
    yield from judges
    yield Sentence("Points: a tie is half a win. docs/pairs.md")


def _student_tables_besides_scores(measures: RunMeasures) -> Iterator[TableOrSentence]:
    yield _student_details_table(measures)
    yield leader_differences_table(measures.ranking.leader_differences)
    if measures.without_own.applicable:
        yield score_ranking_table(
            "Without self-judgments", measures.without_own.students, measures.without_own.ranking
        )
    if measures.samples is not None:
        yield SAMPLE_TABLE.fill(measures.samples)
    rows: list[tuple[Cell, ...]] = [
        (f"{task} · {name}", student, mean, mean.n, mean.missing)
        for (task, name), check in (measures.checks or {}).items()
        for student, mean in check.mean.items()
    ]
    figures = (ReportColumn("mean", "Mean", "points"), *make_columns("n", "Missing", kind="count"))
    yield ReportTable("checks", "Checks", (*make_columns("Check", "Student"), *figures), tuple(rows), names=2)


def _student_details_table(measures: RunMeasures) -> ReportTable:
    """Make a table of what is known of students besides their scores; empty if nobody has a score or lacks
    one."""
    students, ranking = measures.students, measures.ranking
    order = (*ranking.order, *sorted(students.keys() - set(ranking.order)))
    table = student_table(measures, order)
    columns = [
        msgspec.structs.replace(column, terminal="") if column.name in ("ranks", "score", "n") else column
        for column in table.columns
    ]
    columns.append(ReportColumn("mean_recorded", "Mean of recorded", "points"))
    means = [students[name].mean_recorded if ranking.adjusted else None for name in order]
    rows = tuple((*row, mean) for row, mean in zip(table.rows, means, strict=True))
    has_scores = any(
        student.score.value is not None or student.score.missing for student in students.values()
    )
    bounded = any(row[-2] is not None for row in rows)
    over = any(table.columns[at].name == "over_judges" for at in table.terminal_columns)
    note = (_OVER_JUDGES * over + _BOUNDS * bounded).strip()
    return msgspec.structs.replace(
        table, columns=tuple(columns), rows=rows if has_scores else (), note=note, links={}
    )


def _label_tables(measures: RunMeasures, *, with_confusions: bool) -> Iterator[TableOrSentence]:
    """Yield accuracies, then all confusion matrices if ``with_confusions``, else the commonest mistakes."""
    table = label_table(measures.labels)
    yield table.reorder_columns("task", "label", "student")
    for task, attributes in measures.labels.items():
        for attribute, label in attributes.items():
            yield leader_differences_table(label.ranking.leader_differences, f" in {task} ({attribute})")
            scored = {name: student for name, student in label.students.items() if student.accuracy.n}
            if with_confusions:
                for name, student in scored.items():
                    yield confusion_or_mistakes_table(f"{task} {attribute}, {name}", student)
            elif worst := count_mistakes(scored.values())[:3]:
                clauses = [
                    f"{mistake.stated} for {mistake.expected} ({mistake.answers:,} of "
                    f"{sum(student.expected[mistake.expected] for student in scored.values()):,})"
                    for mistake in worst
                ]
                yield Sentence(f"Most frequent mistakes in {task} ({attribute}): {join_names(clauses)}.")


def _judge_tables(
    measures: RunMeasures | OutputMeasures, parts: Collection[str]
) -> Iterator[TableOrSentence]:
    if "agreement" in parts:
        table = AGREEMENT_TABLE.fill(measures.agreement)
        yield table
        weights = None if measures.panel is None else measures.panel.kappa_weights
        if weights is not None and any(table.columns[at].name == "kappa" for at in table.terminal_columns):
            yield Sentence("kappa: Cohen's weighted κ, linear in the values of levels.")
    if "judges" in parts:
        yield JUDGE_TABLE.fill(measures.judges)
        yield bias_table(measures.judges)
        yield self_agreement_table(measures.judges)


def _robust_tables(robust: RobustMeasures) -> Iterator[TableOrSentence]:
    if not robust.applicable:
        yield Sentence(f"No robust set: {robust.reason}.")
        return
    title = f"Robust set: {robust.datapoints or 0:,} of {robust.of_datapoints or 0:,} items"
    note = (
        f"Items on which the best-agreeing judges agree: judges {join_names(robust.judges or ())}; teachers "
        f"{join_names(robust.teachers or ())}. The same scores selected these items: no ranks or p-values."
    )
    yield msgspec.structs.replace(score_ranking_table(title, robust.students, robust.ranking), note=note)
