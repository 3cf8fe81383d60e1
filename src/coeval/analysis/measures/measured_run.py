"""Measure a folder: every part once, from the scores that count."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import NamedTuple

import msgspec

from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.benchmark_measures import benchmark_measures
from coeval.analysis.measures.conclusions import Conclusion, conclusions, task_leaders
from coeval.analysis.measures.judge_measures import (
    judge_agreement,
    judge_measures,
    judge_pairs,
    pair_measures,
    panel_measures,
)
from coeval.analysis.measures.label_measures import label_measures
from coeval.analysis.measures.measured import Measured, ModelTasks
from coeval.analysis.measures.pair_measures import measured_pairs, read_comparisons
from coeval.analysis.measures.ranking import ranking
from coeval.analysis.measures.robust_set import RobustSet, robust_measures, robust_set
from coeval.analysis.measures.run_measures import (
    MeasureOptions,
    Measures,
    OutputMeasures,
    RunMeasures,
    SampleSpread,
)
from coeval.analysis.measures.sample_measures import sample_measures
from coeval.analysis.measures.score_grid import ScoreGrid, levels_by_judge, score_grid
from coeval.analysis.measures.student_measures import check_measures, student_measures
from coeval.analysis.measures.teacher_measures import teacher_measures
from coeval.analysis.panel.d_study import d_study
from coeval.analysis.panel.g_study import g_study
from coeval.analysis.panel.output_judges import output_judges
from coeval.analysis.panel.own_judgments import without_own_measures
from coeval.analysis.panel.panel_findings import family_judges, panel_findings
from coeval.analysis.panel.panel_reading import biases_of, consistency_of, contrasts_of, families_of
from coeval.analysis.people.people_measures import people_measures, people_sentences
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import answer_findings
from coeval.analysis.scores import label_task_notes, student_scores, unscored_notes
from coeval.analysis.training.sample_figures import SampleFigure, sample_figures


class MeasuredRun(NamedTuple):
    """All measures of a run, the scores that they come of, the robust set, and what they come to."""

    measures: RunMeasures
    grid: ScoreGrid
    robust: RobustSet | None
    conclusions: tuple[Conclusion, ...]


@singledispatch
def measure(reader: Reader, options: MeasureOptions | None = None) -> Measures:  # noqa: ARG001
    """All measures of what is read."""
    raise TypeError(f"nobody measures what a {type(reader).__name__} reads")


@measure.register
def _(reader: RunReader, options: MeasureOptions | None = None) -> Measures:
    return measure_run(reader, options).measures


@measure.register
def _(reader: OutputReader, options: MeasureOptions | None = None) -> Measures:  # noqa: ARG001
    return measure_output(reader)


def measure_run(reader: RunReader, options: MeasureOptions | None = None) -> MeasuredRun:
    """All measures of a run, and what they come of."""
    robust_options, budget_usd = options or MeasureOptions()
    grid = score_grid(reader)
    reweighting = Reweighting(len(grid.items.ids), cluster=grid.items.alike)
    judged = grid.judged
    pairs = judge_pairs(judged, reweighting)
    agreement = judge_agreement(judged, pairs)
    bought, benchmark = d_study(reader, grid, budget_usd), benchmark_measures(reader, grid)
    students = student_measures(grid)
    robust = robust_set(grid, agreement, robust_options)
    measures = RunMeasures(
        findings=(),
        simulated=reader.simulated,
        units=int(grid.sums(alike=True).units.sum()),
        agreement=pair_measures(pairs),
        panel=panel_measures(judged, reweighting),
        judges=judge_measures(
            agreement,
            levels_by_judge(judged),
            biases_of(reader, judged),
            consistency_of(reader, judged, reweighting),
        ),
        length=contrasts_of(reader, judged),
        g_study=g_study(judged),
        next=bought.designs,
        best=bought.best,
        teachers=teacher_measures(grid, reweighting),
        students=students,
        ranking=ranking(grid, students),
        labels=label_measures(reader, grid.students),
        without_own=without_own_measures(grid),
        robust=robust_measures(grid, robust, robust_options),
        coverage=benchmark.coverage,
        leak=benchmark.leak,
        items=benchmark.items,
        checks=check_measures(grid, students),
        samples=sample_measures(reader),
        pairs=measured_pairs(read_comparisons(reader)),
        people=people_measures(reader, grid, reweighting),
    )
    found = tuple(_concluded(reader, grid, measures))
    texts = tuple(conclusion.text for conclusion in found)
    return MeasuredRun(msgspec.structs.replace(measures, findings=texts), grid, robust, found)


def _concluded(reader: RunReader, grid: ScoreGrid, measures: RunMeasures) -> Iterable[Conclusion]:
    ranks = measures.ranking
    related = family_judges(grid, measures.judges, ranks, families_of(reader, grid))
    notes = (*label_task_notes(reader), *unscored_notes(reader))
    yield from conclusions(measures, notes, related, task_leaders(grid, ranks), grid.looks)
    for text in people_sentences(measures.people) if measures.people is not None else ():
        yield Conclusion("leads", text)
    place = {name: at for at, name in enumerate(ranks.order)}
    scores = sorted(student_scores(reader), key=lambda score: place.get(score.student, len(place)))
    for text in answer_findings(scores):
        yield Conclusion("leads", text)


def measure_output(reader: OutputReader) -> OutputMeasures:
    """Metrics of ``eval-framework``, and what its judgments say of its judges."""
    sampled = sample_figures(reader)
    metrics: dict[str, ModelTasks[Measured]] = {}
    samples: dict[str, ModelTasks[SampleSpread]] = {}
    units: dict[str, dict[tuple[str, str], str]] = {}
    found: dict[tuple[str, str], dict[str, Measured]] = {}
    for metric in reader.metrics:
        if metric.task not in sampled.get(metric.model, {}):
            measured = Measured(metric.value, metric.low, metric.high, metric.n, metric.failed)
            found.setdefault((metric.model, metric.task), {})[metric.metric] = measured
        units.setdefault(metric.model, {})[metric.task, metric.metric] = metric.unit
    for model, tasks in sampled.items():
        for task, figures in tasks.items():
            found[model, task] = {name: _over_samples(one) for name, one in figures.items()}
            samples.setdefault(model, ModelTasks())[task] = {
                name: _spread(one) for name, one in figures.items()
            }
    for (model, task), of_task in found.items():
        metrics.setdefault(model, ModelTasks())[task] = of_task
    for model, of_model in metrics.items():
        of_model.units = units.get(model, {})
    [(count,)] = reader.rows("SELECT count(*) FROM scores WHERE value IS NOT NULL")
    judged = output_judges(reader)
    return OutputMeasures(
        findings=tuple(panel_findings(judged.judges)),
        units=count,
        agreement=judged.agreement,
        panel=judged.panel,
        judges=judged.judges,
        teachers={},
        students={},
        metrics=metrics,
        samples=samples,
    )


def _over_samples(figure: SampleFigure) -> Measured:
    low, high = figure.ci95 or (None, None)
    return Measured(figure.mean, low, high, figure.n, figure.failed)


def _spread(one: SampleFigure) -> SampleSpread:
    return SampleSpread(one.unit, one.std, one.sem, one.n_runs, tuple(one.per_run), one.item_se)
