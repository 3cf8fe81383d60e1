"""What the report of an output folder of ``eval-framework`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from urllib.parse import urlencode

import msgspec

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.run_measures import OutputMeasures, SampleSpread
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.run_results import MetricScore, bill
from coeval.core.plain import escape_line
from coeval.core.shown_names import short_names
from coeval.core.text import join_names, pluralize
from coeval.reports.content import (
    Alert,
    Cell,
    Picture,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    format_cell,
    make_columns,
)
from coeval.reports.experiment.judges_section import section_of_judges
from coeval.reports.experiment.leading_section import FRONT, SCORE_TITLE
from coeval.reports.measure_table import column_of_field, metric_error_in_points, metric_in_points
from coeval.reports.plots import interval_plot
from coeval.reports.result_tables import Results, cost_table, results

# --- Trust in the judges of ``eval-framework``


def output_judges_section(measures: OutputMeasures, models: Sequence[str]) -> Iterator[ReportSection]:
    """Nothing where no judgment can be held against another; ``models`` were judged."""
    judges = list(measures.judges)
    if judges:
        said = map(escape_line, measures.findings or _unsure(judges))
        section = section_of_judges(measures, list(said), [*models, *judges])
        # Of one judge there is nothing to compare; not every judgment is a score that an item is chosen by.
        shown = [table for table in section.tables if len(judges) > 1 or table.name != "panel"]
        tables = tuple(msgspec.structs.replace(table, links={}) for table in shown)
        yield msgspec.structs.replace(section, tables=tables)


def _unsure(judges: Sequence[str]) -> list[str]:
    if len(judges) == 1:
        return ["Only one judge was used, so agreement cannot be measured."]
    return ["No judge is significantly stricter than the others, and no bias tested is significant."]


def evaluation_report(reader: OutputReader, measures: OutputMeasures, notes: Sequence[str] = ()) -> Report:
    found = results(reader, notes)
    models = list(dict.fromkeys(metric.model for metric in found.metrics))
    tasks = list(dict.fromkeys(metric.task for metric in found.metrics))
    first = _first_metrics(found.metrics)
    lead = tuple(islice(_lead(first, measures), _MOST_SAID))
    judges = output_judges_section(measures, models)
    return Report(
        kind="evaluation",
        title=escape_line(join_names(models) or reader.folder.resolve().name),
        facts=tuple(_facts(found, tasks, reader)),
        lead=lead or (Sentence("Nothing is scored yet."),),
        sections=(_scores(found.metrics, measures), *judges, _spent(found)),
        alerts=tuple(Alert(f"{escape_line(note)}.") for note in found.notes[:_MOST_ALERTS]),
        front=_front(first, several=len(models) > 1),
        labels=short_names([*models, *measures.judges]),
    )


def _facts(found: Results, tasks: Sequence[str], reader: OutputReader) -> Iterator[str]:
    yield pluralize(len(tasks), "task")
    [(answers, failed)] = reader.rows("SELECT count(*), count(*) FILTER (failed) FROM answers")
    yield pluralize(answers, "answer") + (f", {failed:,} failed" if failed else "")
    [(judgments, lost)] = reader.rows("SELECT count(*), count(*) FILTER (failed) FROM judgments")
    if judgments:
        yield pluralize(judgments, "judgment") + (f", {lost:,} failed" if lost else "")
    if reported := bill(found.costs):
        yield str(reported)
    yield escape_line(reader.folder.resolve().name)


def _first_metrics(metrics: Sequence[MetricScore]) -> list[MetricScore]:
    """The first metric of each model's task that has a value."""
    first: dict[tuple[str, str], MetricScore] = {}
    for metric in metrics:
        if metric.value is not None:
            first.setdefault((metric.model, metric.task), metric)
    return list(first.values())


def _text(metric: MetricScore) -> str:
    """``48.0 [40.2, 55.9]``"""
    return format_cell(metric_in_points(metric.value, (metric.low, metric.high), metric.unit), "points")


# Sentences of the first screen, and lines above it; the last section has all of these if there are more.
_MOST_SAID, _MOST_ALERTS = 3, 2
_MOST_TASKS = 3


def _lead(first: Sequence[MetricScore], measures: OutputMeasures) -> Iterator[Sentence]:
    """What it scores; of several models, who is best in each task. Then the judges."""
    if not first:
        return
    tasks = dict.fromkeys(one.task for one in first)
    if len({one.model for one in first}) == 1:
        shown = join_names((f"{_text(one)} in {one.task}" for one in first), _MOST_TASKS)
        yield Sentence(f"{first[0].model} scores {shown}.", "scores")
    else:
        for task in list(tasks)[: _MOST_SAID - 1]:
            best = max((one for one in first if one.task == task), key=lambda one: one.value or 0.0)
            yield Sentence(f"{best.model} has the highest score in {task}: {_text(best)}.", "scores")
    if measures.judges:
        yield Sentence(escape_line(next(iter(measures.findings or _unsure(list(measures.judges))))), "judges")


def _front(first: Sequence[MetricScore], *, several: bool) -> ReportTable | None:
    """The benchmarks with their first metrics; None: there is none."""
    rows: list[tuple[Cell, ...]] = []
    links = {}
    for metric in (one for one in first if one.unit):
        links[len(rows)] = urlencode({"task": metric.task})
        name = f"{metric.task}, {metric.metric.replace('_', ' ')}"
        name += f" · {metric.model}" if several else ""
        rows.append((name, _share(metric), metric.n, metric.failed))
    return (
        ReportTable(
            FRONT,
            "Benchmarks",
            (
                ReportColumn("benchmark", "Benchmark, first metric"),
                ReportColumn("score", SCORE_TITLE, "points", "0 to 100, with its 95% interval over prompts"),
                ReportColumn("n", "Prompts", "count"),
                ReportColumn("failed", "Failed", "count", "Records without a value"),
            ),
            tuple(rows),
            links=links,
        )
        if rows
        else None
    )


def _share(metric: MetricScore) -> Measured:
    """A metric with its interval as shares of its scale; nothing where its scale is not known."""
    if not metric.unit:
        return Measured(None, None, None, metric.n, None)
    return metric_in_points(metric.value, (metric.low, metric.high), metric.unit, metric.n)


# Units whose figures as published are these points, or hundredths of them; of others the table has both.
_WHOLE = ("share", "percent")
_OWN = "As published: WritingBench scores from 1 to 10, which are 0 and 100 points"


def _scores(metrics: Sequence[MetricScore], measures: OutputMeasures) -> ReportSection:
    several = len({metric.model for metric in metrics}) > 1
    has_own = any(metric.unit not in _WHOLE for metric in metrics)
    rows: list[tuple[Cell, ...]] = []
    for metric in metrics:
        row = f"{metric.task} · {metric.metric}"
        row = f"{metric.model} · {row}" if several else row
        own = None
        if metric.unit not in _WHOLE:
            own = Measured(metric.value, metric.low, metric.high, metric.n, metric.failed)
        counts = (metric.n, metric.expected, metric.failed)
        rows.append(
            (
                row,
                metric.model,
                metric.task,
                metric.metric,
                _share(metric),
                *([own] if has_own else []),
                *counts,
                True,
            )
        )
    table = ReportTable(
        "metrics",
        "Metrics",
        (
            ReportColumn("row", "Of"),
            *make_columns("Model", "Task", "Metric"),
            ReportColumn("shown", "Points", "points", "With its 95% interval"),
            *([ReportColumn("own", "On its own scale", "coefficient", _OWN)] if has_own else []),
            ReportColumn("n", "n", "count"),
            ReportColumn("expected", "Expected", "count", "Prompts, judgments or scores that it is made of"),
            ReportColumn("failed", "Failed", "count"),
            ReportColumn("sure", "Known"),
        ),
        tuple(rows),
        links={place: urlencode({"task": metric.task}) for place, metric in enumerate(metrics)},
    )
    shares = [str(row[0]) for row, metric in zip(rows, metrics, strict=True) if metric.unit]
    picture = Picture(
        "metrics-plot",
        "Metrics with their 95% intervals.",
        table.name,
        interval_plot(table.name, shares),
    )
    tables = (table, metric_table(measures, sampled=True)) if measures.samples else (table,)
    return ReportSection("scores", "What did it score?", (), (picture,) if shares else (), tables)


def metric_table(measures: OutputMeasures, *, sampled: bool = False) -> ReportTable:
    """Every metric over all samples of its prompts; ``sampled``: of the tasks alone that have several."""
    rows: list[tuple[Cell, ...]] = []
    links = {}
    for model, tasks in measures.metrics.items():
        for task, metrics in tasks.items():
            spreads = measures.samples[model].get(task, {}) if model in measures.samples else {}
            for metric, value in metrics.items() if spreads or not sampled else ():
                links[len(rows)] = urlencode({"task": task})
                unit = tasks.units.get((task, metric), "share")
                spread = spreads.get(metric)
                errors = (None, None) if spread is None else (spread.item_se, spread.std)
                scaled = (metric_error_in_points(each, unit) for each in errors)
                runs = None if spread is None else spread.n_runs
                rows.append(
                    (
                        model,
                        task,
                        metric,
                        metric_in_points(value.value, (value.low, value.high), unit, value.n),
                        value.n,
                        *scaled,
                        runs,
                    )
                )
    return ReportTable(
        "samples",
        "Over all samples" if sampled else "Metrics",
        (
            *make_columns("Model", "Task", "Metric"),
            ReportColumn("value", "Points", "points", "Mean over the samples", "value"),
            ReportColumn("prompts", "Prompts", "count", terminal="n"),
            *(
                msgspec.structs.replace(column_of_field(SampleSpread, field), kind="points")
                for field in ("item_se", "std")
            ),
            column_of_field(SampleSpread, "n_runs"),
        ),
        tuple(rows),
        links=links,
        names=3,
    )


def _spent(found: Results) -> ReportSection:
    above = found.notes[:_MOST_ALERTS] == tuple(found.notes)
    said = [] if above else [f"{note}." for note in found.notes]
    if not found.notes:
        said = ["Nothing is missing, and nothing rules out comparing it."]
    sentences = tuple(Sentence(escape_line(text)) for text in said)
    question = "What is missing, and what did it cost?"
    return ReportSection("cost", question, sentences, (), (cost_table(found.costs),) if found.costs else ())
