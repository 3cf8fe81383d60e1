"""What the report of an output folder of ``eval-framework`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from urllib.parse import urlencode

import msgspec

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.run_measures import OutputMeasures, SampleSpread
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.run_results import MetricScore, sum_costs
from coeval.core.plain import escape_line
from coeval.core.shown_names import short_names
from coeval.core.text import join_names, pluralize
from coeval.reports.charts.plots import interval_plot
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
    link_rows,
    make_columns,
)
from coeval.reports.costs import cost_table
from coeval.reports.experiment.judges_section import make_judges_section
from coeval.reports.experiment.leading_section import FRONT, SCORE_TITLE
from coeval.reports.measure_table import column_of_field, metric_as_share, metric_error_as_share
from coeval.reports.result_tables import Results, read_results

# --- Trust in the judges of ``eval-framework``


def output_judges_section(measures: OutputMeasures, models: Sequence[str]) -> Iterator[ReportSection]:
    """Yield the section on judges, if any judged; ``models`` are those judged."""
    judges = list(measures.judges)
    if judges:
        sentences = [escape_line(text) for text in measures.findings or _no_findings_sentences(judges)]
        section = make_judges_section(measures, sentences, [*models, *judges])
        # One judge cannot be compared; and a link chooses items by their scores, which not every judgment is.
        tables = tuple(
            msgspec.structs.replace(table, links={})
            for table in section.tables
            if len(judges) > 1 or table.name != "panel"
        )
        yield msgspec.structs.replace(section, tables=tables)


def _no_findings_sentences(judges: Sequence[str]) -> list[str]:
    if len(judges) == 1:
        return ["Only one judge was used, so agreement cannot be measured."]
    return ["No judge is significantly stricter than the others, and no bias tested is significant."]


def evaluation_report(reader: OutputReader, measures: OutputMeasures, notes: Sequence[str] = ()) -> Report:
    """Make the report of an output folder of ``eval-framework``."""
    results = read_results(reader, notes)
    models = list(dict.fromkeys(metric.model for metric in results.metrics))
    tasks = list(dict.fromkeys(metric.task for metric in results.metrics))
    first = _first_known_metric_by_model_and_task(results.metrics)
    lead = tuple(islice(_best_models_and_finding_sentences(first, measures), _MOST_SENTENCES))
    judges = output_judges_section(measures, models)
    return Report(
        kind="evaluation",
        title=escape_line(join_names(models) or reader.folder.resolve().name),
        facts=tuple(_list_counts_and_cost(results, tasks, reader)),
        lead=lead or (Sentence("No score yet."),),
        sections=(_scores_section(results.metrics, measures), *judges, _notes_and_cost_section(results)),
        alerts=tuple(Alert(f"{escape_line(note)}.") for note in results.notes[:_MOST_ALERTS]),
        front=_first_metrics_table(first, many_models=len(models) > 1),
        labels=short_names([*models, *measures.judges]),
    )


def _list_counts_and_cost(results: Results, tasks: Sequence[str], reader: OutputReader) -> Iterator[str]:
    yield pluralize(len(tasks), "task")
    [(answers, failed)] = reader.rows("SELECT count(*), count(*) FILTER (failed) FROM answers")
    yield pluralize(answers, "answer") + (f", {failed:,} failed" if failed else "")
    [(judgments, lost)] = reader.rows("SELECT count(*), count(*) FILTER (failed) FROM judgments")
    if judgments:
        yield pluralize(judgments, "judgment") + (f", {lost:,} failed" if lost else "")
    if cost := sum_costs(results.costs):
        yield str(cost)
    yield escape_line(reader.folder.resolve().name)


def _first_known_metric_by_model_and_task(metrics: Sequence[MetricScore]) -> list[MetricScore]:
    first: dict[tuple[str, str], MetricScore] = {}
    for metric in metrics:
        if metric.value is not None:
            first.setdefault((metric.model, metric.task), metric)
    return list(first.values())


def _format_metric(metric: MetricScore) -> str:
    """Format a metric as ``48.0 [40.2, 55.9]``."""
    return format_cell(metric_as_share(metric.value, (metric.low, metric.high), metric.unit), "points")


# Sentences of the first screen, and lines above it; the last section has all of these if there are more.
_MOST_SENTENCES, _MOST_ALERTS = 3, 2
_MOST_TASKS = 3


def _best_models_and_finding_sentences(
    first: Sequence[MetricScore], measures: OutputMeasures
) -> Iterator[Sentence]:
    """Yield a single model's scores, or the best model of each task, then the first finding on judges."""
    if not first:
        return
    tasks = dict.fromkeys(metric.task for metric in first)
    if len({metric.model for metric in first}) == 1:
        scores = join_names((f"{_format_metric(metric)} in {metric.task}" for metric in first), _MOST_TASKS)
        yield Sentence(f"{first[0].model} scores {scores}.", "scores")
    else:
        for task in list(tasks)[: _MOST_SENTENCES - 1]:
            best = max(
                (metric for metric in first if metric.task == task), key=lambda metric: metric.value or 0.0
            )
            yield Sentence(f"{best.model} has the highest score in {task}: {_format_metric(best)}.", "scores")
    if measures.judges:
        finding, *_ = measures.findings or _no_findings_sentences(list(measures.judges))
        yield Sentence(escape_line(finding), "judges")


def _first_metrics_table(first: Sequence[MetricScore], *, many_models: bool) -> ReportTable | None:
    """Make the table of benchmarks with their first metrics, or None without any."""
    scaled = [metric for metric in first if metric.unit]
    names = (f"{metric.task}, {metric.metric.replace('_', ' ')}" for metric in scaled)
    rows = tuple(
        (f"{name} · {metric.model}" if many_models else name, _metric_share(metric), metric.n, metric.failed)
        for name, metric in zip(names, scaled, strict=True)
    )
    links = {index: urlencode({"task": metric.task}) for index, metric in enumerate(scaled)}
    columns = (
        ReportColumn("benchmark", "Benchmark, first metric"),
        ReportColumn("score", SCORE_TITLE, "points", "0 to 100, with its 95% interval over prompts"),
        ReportColumn("n", "Prompts", "count"),
        ReportColumn("failed", "Failed", "count", "Records without a value"),
    )
    return ReportTable(FRONT, "Benchmarks", columns, rows, links=links) if rows else None


def _metric_share(metric: MetricScore) -> Measured:
    """Return a metric with its interval as shares of its scale, or nothing if its scale is unknown."""
    if not metric.unit:
        return Measured(None, None, None, metric.n, None)
    return metric_as_share(metric.value, (metric.low, metric.high), metric.unit, metric.n)


# Units whose figures as published are these points, or hundredths of them; of others the table has both.
_WHOLE = ("share", "percent")
_OWN = "On the published scale: WritingBench's 1 to 10 are 0 to 100 points"


def _scores_section(metrics: Sequence[MetricScore], measures: OutputMeasures) -> ReportSection:
    """Make the section of all metrics, with their own scale where that is not points."""
    several = len({metric.model for metric in metrics}) > 1
    has_own = any(metric.unit not in _WHOLE for metric in metrics)
    rows: list[tuple[Cell, ...]] = []
    for metric in metrics:
        row = f"{metric.task} · {metric.metric}"
        row = f"{metric.model} · {row}" if several else row
        own = None
        if metric.unit not in _WHOLE:
            own = Measured(metric.value, metric.low, metric.high, metric.n, metric.failed)
        names = (row, metric.model, metric.task, metric.metric)
        values = (_metric_share(metric), *([own] if has_own else []))
        rows.append((*names, *values, metric.n, metric.expected, metric.failed, True))
    columns = (
        ReportColumn("row", "Metric"),
        *make_columns("Model", "Task", "Metric"),
        ReportColumn("shown", "Points", "points", "With its 95% interval"),
        *([ReportColumn("own", "On its own scale", "coefficient", _OWN)] if has_own else []),
        ReportColumn("n", "n", "count"),
        ReportColumn("expected", "Expected", "count", "Prompts, judgments or scores that the metric needs"),
        ReportColumn("failed", "Failed", "count"),
        ReportColumn("sure", "Known"),
    )
    table = ReportTable("metrics", "Metrics", columns, tuple(rows), links=link_rows(rows, task=2))
    shares = [str(row[0]) for row, metric in zip(rows, metrics, strict=True) if metric.unit]
    plot = interval_plot(table.name, shares)
    picture = Picture("metrics-plot", "Metrics with their 95% intervals.", table.name, plot)
    tables = (table, all_metrics_table(measures, only_repeated=True)) if measures.samples else (table,)
    return ReportSection("scores", "What did it score?", (), (picture,) if shares else (), tables)


def all_metrics_table(measures: OutputMeasures, *, only_repeated: bool = False) -> ReportTable:
    """Make a table of every metric over all samples of its prompts, or only of tasks with several samples."""
    rows: list[tuple[Cell, ...]] = []
    for model, tasks in measures.metrics.items():
        for task, metrics in tasks.items():
            spreads = measures.samples[model].get(task, {}) if model in measures.samples else {}
            for metric, value in metrics.items() if spreads or not only_repeated else ():
                unit = tasks.units.get((task, metric), "share")
                spread = spreads.get(metric)
                item_se, std, runs = (
                    (None, None, None) if spread is None else (spread.item_se, spread.std, spread.n_runs)
                )
                share = metric_as_share(value.value, (value.low, value.high), unit, value.n)
                errors = (metric_error_as_share(error, unit) for error in (item_se, std))
                rows.append((model, task, metric, share, value.n, *errors, runs))
    columns = (
        *make_columns("Model", "Task", "Metric"),
        ReportColumn("value", "Points", "points", "Mean over the samples", "value"),
        ReportColumn("prompts", "Prompts", "count", terminal="n"),
        *(
            msgspec.structs.replace(column_of_field(SampleSpread, field), kind="points")
            for field in ("item_se", "std")
        ),
        column_of_field(SampleSpread, "n_runs"),
    )
    title = "Over all samples" if only_repeated else "Metrics"
    return ReportTable("samples", title, columns, tuple(rows), links=link_rows(rows, task=1), names=3)


def _notes_and_cost_section(results: Results) -> ReportSection:
    all_are_alerts = results.notes[:_MOST_ALERTS] == tuple(results.notes)
    texts = [] if all_are_alerts else [f"{note}." for note in results.notes]
    if not results.notes:
        texts = ["Nothing is missing, and nothing prevents a comparison."]
    question = "What is missing, and what did it cost?"
    return ReportSection.with_rows("cost", question, map(escape_line, texts), (), [cost_table(results.costs)])
