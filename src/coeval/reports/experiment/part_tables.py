"""All measures of a folder as tables and sentences, part by part, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

import msgspec

from coeval.analysis.measures.pair_measures import PairMeasures, PairRate
from coeval.analysis.measures.robust_set import RobustMeasures
from coeval.analysis.measures.run_measures import OutputMeasures, RunMeasures
from coeval.analysis.people.people_measures import people_sentences
from coeval.core.text import join_names
from coeval.reports.content import Cell, ReportColumn, ReportTable, Sentence, make_columns
from coeval.reports.evaluation_report import metric_table
from coeval.reports.experiment.benchmark_section import (
    coverage_sentences,
    item_table,
    task_table,
    teacher_table,
)
from coeval.reports.experiment.cost_section import variance_table
from coeval.reports.experiment.experiment_report import pairs_section, people_section
from coeval.reports.experiment.judges_section import (
    agreement_table,
    bias_table,
    itself_table,
    judge_table,
    length_table,
    reliability_table,
    worth_table,
)
from coeval.reports.experiment.leading_section import standing_table, student_table
from coeval.reports.experiment.where_section import confusion_table, label_table, mistakes
from coeval.reports.measure_table import TableHeading, measure_table
from coeval.reports.result_tables import sample_table

Shown: TypeAlias = ReportTable | Sentence

# Rows of a screen; the most doubtful items come first.
_MOST_ITEMS = 20
_OVER_JUDGES = (
    "Scores are by these judges, over items, a sample of what these teachers write; over items, judges: "
    "judges are a sample too. "
)
_BOUNDS = "least, most (missing at 0, at 100): bounds of the score, with all that is missing counted so."


def scores_table(measures: RunMeasures) -> ReportTable:
    """Students, best first."""
    return standing_table("Scores", measures.students, measures.ranking)


def run_tables(measures: RunMeasures, shown: Collection[str]) -> Iterator[Shown]:
    """What there is of the parts ``shown`` but the scores."""
    if "pairs" in shown and measures.pairs is not None:
        yield from _of_pairs(measures.pairs)
    if "students" in shown:
        yield from _of_students(measures)
    if "labels" in shown:
        yield from _of_labels(measures, whole="students" not in shown)
    yield from _of_judges(measures, shown)
    if "length" in shown:
        yield length_table(measures.length)
    if "teachers" in shown:
        yield teacher_table(measures.teachers)
    if "g_study" in shown:
        yield reliability_table(measures.g_study)
        yield variance_table(measures.g_study)
        yield worth_table(measures.g_study)
    if "robust" in shown and (measures.units or "students" not in shown):
        yield from _of_robust(measures.robust)
    if "coverage" in shown:
        yield task_table(measures.coverage)
        yield from map(Sentence, coverage_sentences(measures.coverage))
    if "items" in shown:
        known = [(one.discrimination, name) for name, one in measures.items.items()]
        worst = sorted((value, name) for value, name in known if value is not None)[:_MOST_ITEMS]
        title = "Datapoints that tell students apart least"
        yield item_table("items", title, measures.items, [name for _, name in worst])
    if "people" in shown and measures.people is not None:
        yield from map(Sentence, people_sentences(measures.people) if "students" not in shown else ())
        yield from people_section(measures.people).tables
        yield Sentence("Scores and bias in points; λ: how far judged scores are used (PPI++). docs/people.md")


def output_tables(measures: OutputMeasures, shown: Collection[str]) -> Iterator[Shown]:
    """The same of an output folder of ``eval-framework``."""
    yield from _of_judges(measures, shown)
    if "metrics" in shown:
        yield metric_table(measures)


def _of_pairs(found: PairMeasures) -> Iterator[Shown]:
    strengths, _, *judges = pairs_section(found, opened=True).tables
    yield strengths
    named = TableHeading("win-rates", "Win rates, the stronger against the weaker", ("Student", "Against"))
    yield measure_table(named, PairRate, found.rates)
    yield from judges
    yield Sentence("Points: a tie is half a win. docs/pairs.md")


def _of_students(measures: RunMeasures) -> Iterator[Shown]:
    yield _beside_scores(measures)
    if measures.without_own.applicable:
        title = "Without the scores that students gave themselves"
        yield standing_table(title, measures.without_own.students, measures.without_own.ranking)
    if measures.samples is not None:
        yield sample_table(measures.samples)
    rows: list[tuple[Cell, ...]] = [
        (f"{task} · {name}", student, one, one.n, one.missing)
        for (task, name), found in (measures.checks or {}).items()
        for student, one in found.mean.items()
    ]
    figures = (ReportColumn("mean", "Mean", "points"), *make_columns("n", "Missing", kind="count"))
    yield ReportTable("checks", "Checks", (*make_columns("Check", "Student"), *figures), tuple(rows), names=2)


def _beside_scores(measures: RunMeasures) -> ReportTable:
    """What else is known of their scores; nothing where nobody has one, and none is known to be missing."""
    students, ranking = measures.students, measures.ranking
    order = (*ranking.order, *sorted(students.keys() - set(ranking.order)))
    table = student_table(measures, order)
    columns = [
        msgspec.structs.replace(one, terminal="") if one.name in ("ranks", "score", "n") else one
        for one in table.columns
    ]
    columns.append(ReportColumn("mean_recorded", "Mean of recorded", "points"))
    means = [students[name].mean_recorded if ranking.adjusted else None for name in order]
    rows = tuple((*row, mean) for row, mean in zip(table.rows, means, strict=True))
    known = any(one.score.value is not None or one.score.missing for one in students.values())
    bounded = any(row[-2] is not None for row in rows)
    over = any(table.columns[at].name == "over_judges" for at in table.used_columns)
    note = (_OVER_JUDGES * over + _BOUNDS * bounded).strip()
    return msgspec.structs.replace(
        table, columns=tuple(columns), rows=rows if known else (), note=note, links={}
    )


def _of_labels(measures: RunMeasures, *, whole: bool) -> Iterator[Shown]:
    """``whole``: for each student what is taken for what, else the commonest mistakes."""
    table = label_table(measures.labels)
    yield table.reorder_columns("task", "label", "student")
    for task, attributes in measures.labels.items():
        for attribute, found in attributes.items():
            scored = {name: one for name, one in found.students.items() if one.accuracy.n}
            if whole:
                for name, student in scored.items():
                    yield confusion_table(f"{task} {attribute}, {name}", student)
            elif worst := mistakes(scored.values())[:3]:
                due = {value: sum(one.expected[value] for one in scored.values()) for value, *_ in worst}
                said = (f"{stated} for {value} ({n:,} of {due[value]:,})" for value, stated, n in worst)
                yield Sentence(f"Most often mistaken in {task} ({attribute}): {join_names(said)}.")


def _of_judges(measures: RunMeasures | OutputMeasures, shown: Collection[str]) -> Iterator[Shown]:
    if "agreement" in shown:
        table = agreement_table(measures.agreement)
        yield table
        weights = None if measures.panel is None else measures.panel.kappa_weights
        if weights is not None and any(table.columns[at].name == "kappa" for at in table.used_columns):
            yield Sentence("kappa: Cohen's weighted κ, linear in the values of levels.")
    if "judges" in shown:
        yield judge_table(measures.judges)
        yield bias_table(measures.judges)
        yield itself_table(measures.judges)


def _of_robust(robust: RobustMeasures) -> Iterator[Shown]:
    if not robust.applicable:
        yield Sentence(f"No robust set: {robust.reason}.")
        return
    title = f"Robust set: {robust.datapoints or 0:,} of {robust.of_datapoints or 0:,} items"
    whose = f"judges {join_names(robust.judges or ())}; teachers {join_names(robust.teachers or ())}"
    note = (
        f"Where the judges who agree best agree: {whose}. These items were selected by the same scores, so "
        "there are no ranks or p-values."
    )
    yield msgspec.structs.replace(standing_table(title, robust.students, robust.ranking), note=note)
