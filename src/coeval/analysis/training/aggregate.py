"""A task at a checkpoint over the samples of each prompt, as ``summary_agg.json`` holds it.

Samples of a prompt are alike, so it is the prompts that are random, not only the runs: the standard error
over runs (``sem``) says how far sampling moves the figure, ``item_se`` how far other prompts would. A single
sample has no spread: ``std`` and ``sem`` are null then, and only the intervals over prompts are left.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from glob import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coeval import __version__
from coeval.analysis.intervals import Scale, clustered_mean, clustered_standard_error, scale_of_unit
from coeval.analysis.pairwise.rates import draw_counts, rate_with_spread
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import SampleMetricFigure
from coeval.analysis.run_results import MetricScore
from coeval.analysis.training.checkpoint_scores import (
    AGGREGATE,
    ChosenRuns,
    ItemColumn,
    JudgedBy,
    LeftOutRun,
    RunFacts,
    choose_task_runs,
    read_item_columns,
)
from coeval.core.errors import UsageError
from coeval.core.figures import share_of_scale
from coeval.core.text import join_names
from coeval.store.jsonl import store_error, write_json_atomic
from coeval.store.output_folder import list_task_folders
from coeval.store.rundir import refuse_foreign, utc_now

# --- Metrics over the samples


class SampleFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over the samples of a task, in its ``unit``.

    ``mean``, ``std`` (ddof 1) and ``sem`` are over the ``n_runs`` samples that have a value, ``per_run`` by
    sample; a single one has neither ``std`` nor ``sem``. ``item_se`` is ``√(MSB / (n_items · N))`` over
    ``n_items`` prompts with N samples of each (`coeval.analysis.intervals.clustered_standard_error`), and
    ``ci95`` the interval of the prompts' means; of Arena-Hard's win rates that of a bootstrap over prompts,
    and of a single sample the benchmark's own where it has one. A figure that is fitted to all prompts (a
    length-controlled win rate) has no scores of prompts: its ``item_se`` is None, and ``ci95`` is the mean of
    the samples' own, each of which already holds what other prompts would change.
    """

    mean: float
    std: float | None
    sem: float | None
    n_runs: int
    per_run: tuple[float, ...]
    item_se: float | None
    ci95: tuple[float, float] | None
    n_items: int
    unit: str


class TaskFigures(NamedTuple):
    """A task over the samples that count, as every view of a folder shows it: its ``metrics``, the
    benchmark's headline first, and the scores of its ``items``."""

    runs: ChosenRuns
    metrics: dict[str, SampleFigure]
    items: dict[str, ItemColumn]

    @property
    def headline(self) -> str:
        return next(iter(self.metrics))


def compute_figures_of_counted_runs(
    reader: OutputReader, chosen: Sequence[ChosenRuns] | None = None
) -> dict[str, TaskFigures]:
    """Compute the figures of each task that has any, by the task's name in its records. ``chosen``: the
    samples that count; None: those of `choose_task_runs`."""
    by_task = {}
    for runs in choose_task_runs(reader.folder) if chosen is None else chosen:
        if runs.runs:
            items = read_item_columns(reader, runs)
            samples: dict[str, list[SampleMetricFigure]] = {}
            for sample in reader.metrics:
                if sample.task == runs.recorded_task and sample.sample in runs.runs:
                    samples.setdefault(sample.metric, []).append(sample)
            figures = {
                name: figure
                for name, of_metric in samples.items()
                if (figure := _compute_figure(of_metric, items.get(name)))
            }
            by_task[runs.recorded_task] = TaskFigures(runs, figures, items)
    return by_task


def list_metric_scores(reader: OutputReader, figures: Mapping[str, TaskFigures]) -> tuple[MetricScore, ...]:
    """List the metrics of a folder by task, over the samples that count, including those without a value."""
    of_metric: dict[str, dict[tuple[str, str], list[SampleMetricFigure]]] = {}
    for sample in reader.metrics:
        figure = figures.get(sample.task)
        if figure is None or sample.sample in figure.runs.runs:
            of_metric.setdefault(sample.task, {}).setdefault((sample.model, sample.metric), []).append(sample)
    return tuple(
        _build_metric_score(samples, figures[task].metrics.get(metric) if task in figures else None)
        for task, metrics in of_metric.items()
        for (_, metric), samples in metrics.items()
    )


def _build_metric_score(samples: Sequence[SampleMetricFigure], figure: SampleFigure | None) -> MetricScore:
    """Build a metric's score: over several samples from ``figure``, else as the benchmark reports it."""
    first = samples[0]
    low, high = (figure.ci95 if figure is not None else None) or (None, None)
    several = figure is not None and figure.n_runs > 1
    return MetricScore(
        model=first.model,
        task=first.task,
        samples=len(samples),
        metric=first.metric,
        value=None if figure is None else figure.mean,
        low=low,
        high=high,
        standard_error=figure.item_se if figure is not None and several else first.standard_error,
        n=figure.n_items if figure is not None and several else first.n,
        unit=first.unit,
        counted=first.counted,
        expected=sum(sample.expected for sample in samples),
        failed=sum(sample.failed for sample in samples),
        not_measured=first.not_measured,
    )


def mean_headline_share(headlines: Iterable[tuple[float, str]]) -> float:
    """Return the mean of tasks' headlines as a share; each is a value with its unit, and counts alike."""
    return fmean(share_of_scale(value, unit) for value, unit in headlines)


def _compute_figure(metrics: Sequence[SampleMetricFigure], items: ItemColumn | None) -> SampleFigure | None:
    """Compute a metric's mean, spread and interval over samples; None if no sample has a value."""
    per_run = tuple(metric.value for metric in metrics if metric.value is not None)
    if not per_run:
        return None
    unit, runs = metrics[0].unit, len(per_run)
    mean, std = fmean(per_run), stdev(per_run) if runs > 1 else None
    bounds, error, n = _average_sample_bounds(metrics), None, max(metric.n for metric in metrics)
    if items is not None:
        scale = scale_of_unit(unit)
        wide = Scale(min(scale.least, items.least), max(scale.most, items.most))
        item, means = np.arange(len(items.sums)), items.values
        error, n = clustered_standard_error(means, item, items.totals), len(item)
        if bounds is None or runs > 1:
            # a win rate whose prompts count by their verdicts, as Arena-Hard's
            if unit == "percent" and len(item) > 1 and len(np.unique(items.totals)) > 1:
                bounds = _bootstrap_ratio_bounds(items)
            else:
                interval = clustered_mean(means, item, wide, items.totals)
                if interval.low is not None and interval.high is not None:
                    # single scores of HealthBench may lie below its scale; its mean does not
                    bounds = max(interval.low, scale.least), max(interval.high, scale.least)
    return SampleFigure(
        mean=mean,
        std=std,
        sem=None if std is None else std / runs**0.5,
        n_runs=runs,
        per_run=per_run,
        item_se=error,
        ci95=bounds and (min(bounds[0], mean), max(bounds[1], mean)),
        n_items=n,
        unit=unit,
    )


def _bootstrap_ratio_bounds(items: ItemColumn) -> tuple[float, float]:
    """Return the 95% interval that the benchmark itself gives such a rate (`coeval.analysis.pairwise.rates`):
    its prompts are resampled, each with the verdicts of all samples."""
    drawn = draw_counts(len(items.sums), np.random.default_rng(0))
    value = float(items.sums.sum() / items.totals.sum())
    bootstrap = rate_with_spread(value, (drawn @ items.sums) / (drawn @ items.totals), len(items.sums))
    return bootstrap.low_95, bootstrap.high_95


def _average_sample_bounds(metrics: Sequence[SampleMetricFigure]) -> tuple[float, float] | None:
    """Average the samples' own intervals: their errors are those of the same prompts, so they add up."""
    lows = [metric.low for metric in metrics if metric.low is not None]
    highs = [metric.high for metric in metrics if metric.high is not None]
    return (fmean(lows), fmean(highs)) if lows and len(lows) == len(highs) else None


# --- Checkpoint folders of a training run

STEP = "{step}"
PATTERN = f"step_{STEP}"


class EvaluatedStep(NamedTuple):
    """A step of training, and the output folder of what was evaluated there."""

    step: int
    folder: Path


def find_evaluated_steps(
    root: Path, pattern: str = PATTERN, steps: Collection[int] | None = None, required_step: int | None = None
) -> tuple[EvaluatedStep, ...]:
    """Find the checkpoints below ``root`` whose folders hold results, by step; ``steps``: only these;
    ``pattern``: the folders' name or path, with ``{step}`` once; ``required_step``: to be among them.

    Raises UsageError: the pattern cannot be used, nothing fits it, two folders are of one step, or that step
    is missing; StoreError: a folder cannot be read.
    """
    if pattern.count(STEP) != 1 or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(f"{pattern!r} is not a folder pattern: it must hold {STEP} once, as {PATTERN} does")
    if not root.is_dir():
        raise UsageError(f"there is no folder {root}")
    before, after = pattern.split(STEP)
    pattern_with_step = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    try:
        paths = sorted(root.glob(f"{escape(before)}*{escape(after)}"))
    except OSError as error:
        raise store_error("read", root, error) from error
    folders: dict[int, Path] = {}
    for path in paths:
        step_of = pattern_with_step.fullmatch(path.relative_to(root).as_posix())
        if step_of is None or not list_task_folders(path):
            continue
        step = int(step_of[1])
        if step in folders:
            raise UsageError(f"{folders[step]} and {path} are both of step {step}; move one of them away")
        folders[step] = path
    if not folders:
        raise UsageError(
            f"{root} holds no results in folders {pattern}; name theirs with --name-pattern, for example "
            f"--name-pattern 'global_step_{STEP}'"
        )
    chosen = sorted(folders.keys() & set(folders if steps is None else steps))
    if not chosen:
        none = f"{root} has no results for the steps {join_names(map(str, steps or ()))}"
        raise UsageError(f"{none}; it has {join_names(map(str, sorted(folders)))}")
    if required_step is not None and required_step not in chosen:
        steps_found = join_names(map(str, chosen))
        raise UsageError(f"--base {required_step}: {root} has no results for this step; it has {steps_found}")
    return tuple(EvaluatedStep(step, folders[step]) for step in chosen)


class TaskAggregate(SampleFigure, frozen=True, kw_only=True):
    """A task's ``summary_agg.json``: the headline ``metric`` at the top, all of them in ``metrics``.

    ``runs`` are the samples that count, ``left_out`` those that do not; ``expected_runs`` is how many were
    asked for, where that is known. ``missing`` counts answers and judgments without a value. ``how`` is a
    hash of how the answers were made and judged, but for the seed: checkpoints are held against each other
    where it is the same. ``complete``: the samples asked for are all there, with all their records.
    """

    task: str
    step: int
    model: str
    metric: str
    judge: JudgedBy | None
    sampling: dict[str, Any]
    how: tuple[str, str]
    runs: tuple[int, ...]
    expected_runs: int | None
    left_out: tuple[LeftOutRun, ...]
    missing: int
    complete: bool
    notes: tuple[str, ...]
    metrics: dict[str, SampleFigure]
    coeval_version: str
    written_at: str


class CheckpointAggregate(NamedTuple):
    """A checkpoint's tasks over their samples; ``unscored``: by task, why there is no figure; ``items``: by
    task, the scores behind conclusions, of the first metric that items have scores in; ``facts``: how its
    samples were made and judged."""

    checkpoint: EvaluatedStep
    tasks: dict[str, TaskAggregate]
    unscored: dict[str, tuple[str, ...]]
    items: dict[str, ItemColumn]
    facts: dict[str, RunFacts]


def aggregate_checkpoint(
    checkpoint: EvaluatedStep, tasks: Sequence[str] | None = None, requested: Mapping[str, int] | None = None
) -> CheckpointAggregate:
    """Aggregate the samples of a checkpoint's tasks (``tasks``: only these), without writing anything.
    ``requested``: how many samples, by task; None: as many as at the last aggregation.

    Raises StoreError: a file cannot be read at all.
    """
    all_runs = choose_task_runs(checkpoint.folder, tasks, requested)
    by_task: dict[str, TaskFigures] = {}
    if chosen := [runs for runs in all_runs if runs.runs]:
        with OutputReader(checkpoint.folder) as reader:
            by_task = {own.runs.task: own for own in compute_figures_of_counted_runs(reader, chosen).values()}
    return CheckpointAggregate(
        checkpoint,
        {task: _build_task_aggregate(checkpoint.step, figures) for task, figures in by_task.items()},
        {runs.task: runs.notes for runs in all_runs if not runs.runs},
        {task: next(iter(figures.items.values())) for task, figures in by_task.items() if figures.items},
        {task: figures.runs.facts[0] for task, figures in by_task.items()},
    )


def aggregate_all_checkpoints(root: Path, requested: Mapping[str, int]) -> list[CheckpointAggregate]:
    """Aggregate every checkpoint below ``root``, by step, for the tasks and sample counts ``requested``;
    empty if nothing is scored.

    Raises UsageError if two folders are of one step; StoreError if a file cannot be read at all.
    """
    if not any(root.glob(f"{PATTERN.replace(STEP, '*')}/run_*/*/summary.json")):
        return []
    return [
        aggregate_checkpoint(checkpoint, list(requested), requested)
        for checkpoint in find_evaluated_steps(root)
    ]


def write_aggregates(aggregate: CheckpointAggregate) -> list[Path]:
    """Write ``<checkpoint>/<task>/summary_agg.json`` for each task, replaced whole. Raises StoreError: a file
    cannot be written."""
    written = []
    for task, task_aggregate in aggregate.tasks.items():
        path = aggregate.checkpoint.folder / task / AGGREGATE
        refuse_foreign(aggregate.checkpoint.folder, [task])
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise store_error("write", path, error) from error
        write_json_atomic(path, task_aggregate)
        written.append(path)
    return written


def _build_task_aggregate(step: int, figures: TaskFigures) -> TaskAggregate:
    """Build the record of ``summary_agg.json`` from a task's figures."""
    runs, expected = figures.runs, figures.runs.expected
    made = runs.facts[0].inference
    return TaskAggregate(
        **msgspec.structs.asdict(figures.metrics[figures.headline]),
        task=runs.task,
        step=step,
        model=runs.facts[0].model,
        metric=figures.headline,
        judge=runs.judge,
        sampling={} if made is None else made.sampling,
        how=runs.recipe_hashes,
        runs=runs.runs,
        expected_runs=expected,
        left_out=runs.left_out,
        missing=runs.missing,
        complete=not runs.missing and len(runs.runs) >= (expected or 1),
        notes=runs.notes,
        metrics=figures.metrics,
        coeval_version=__version__,
        written_at=utc_now(),
    )
