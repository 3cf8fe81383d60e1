"""Measures of an output folder of ``eval-framework``: its metrics, and what judgments say of its judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import Floats, clustered_mean
from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import (
    JudgeMeasures,
    PairAgreement,
    PanelMeasures,
    judge_agreement,
    judge_measures,
    judge_pairs,
    pair_measures,
    panel_measures,
)
from coeval.analysis.measures.measured import Measured, ModelTasks
from coeval.analysis.measures.run_measures import OutputMeasures, SampleSpread
from coeval.analysis.measures.score_grid import (
    UNSCORED,
    Codes,
    GridItems,
    ScoreGrid,
    TaskDesign,
    levels_by_judge,
)
from coeval.analysis.panel.bias_ledger import UNKNOWN, Bias, judge_biases, severities
from coeval.analysis.panel.panel_findings import panel_findings
from coeval.analysis.panel.panel_reading import RequestedTwice, consistency
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.sample_figures import SampleFigure, sample_figures

# --- What the judgments of an output folder of ``eval-framework`` say of its judges
#
# Judges who were shown the very same words agree or not, as in a run; a level is what a rubric's factor was
# given, whether a criterion is met, or whether the answer lost, drew or won against the baseline. What has no
# such levels (points from 1 to 10) is in no agreement. Where several samples of a prompt were judged, they
# are answers of their own, and the prompt is what they have in common.

# --- Position bias
#
# The value is how much larger an answer's share of a win (a win 1, a tie ½, a loss 0) is where it is shown
# first than where it is shown second: 0 where a judge minds the answers alone, 1 where it always takes the
# first.
#
# Where a judge saw each pair in both orders, its two verdicts on an answer are paired (`paired_difference`).
# Where it saw each pair once, in an order that was drawn, the prompts of both orders are two random halves;
# the means of these are compared, with their intervals combined as those of independent means are (MOVER; Zou
# and Donner 2008) and Welch's test.

# One value has no variance.
_FEWEST = 2


def shown_both_ways(first: Sequence[Floats], second: Sequence[Floats]) -> Bias:
    """Of T tasks the items' shares, (n_t,) each, where the model's answer was shown first, and second."""
    strata = [
        PairedScores(then, now, np.ones(len(now)))
        for now, then in zip(first, second, strict=True)
        if len(now)
    ]
    if sum(len(stratum.a) for stratum in strata) < _FEWEST:
        return UNKNOWN
    found = paired_difference(strata)
    return Bias(found.difference, found.low, found.high, found.p)


def shown_one_way(first: Floats, second: Floats) -> Bias:
    """Of the items whose answer was shown first, and of the others: (n,) and (m,)."""
    if min(len(first), len(second)) < _FEWEST:
        return UNKNOWN
    now, then = (clustered_mean(shares, np.arange(len(shares))) for shares in (first, second))
    value = float(first.mean() - second.mean())
    down = _apart(now.mean, now.low, then.mean, then.high)
    up = _apart(now.mean, now.high, then.mean, then.low)
    return Bias(value, max(value - down, -1.0), min(value + up, 1.0), _welch(first, second, value))


def _apart(one: float | None, bound: float | None, other: float | None, far: float | None) -> float:
    return float(np.hypot((one or 0.0) - (bound or 0.0), (other or 0.0) - (far or 0.0)))


def _welch(first: Floats, second: Floats, value: float) -> float:
    """Welch's p-value (1947)."""
    variances = [float(shares.var(ddof=1)) / len(shares) for shares in (first, second)]
    total = sum(variances)
    if total == 0:
        return float(value == 0)
    spent = sum(v**2 / (len(s) - 1) for v, s in zip(variances, (first, second), strict=True))
    return 2 * float(stdtr(total**2 / spent, -abs(value) / total**0.5))


class OutputJudges(NamedTuple):
    """As those of a run; ``panel`` is None of a single judge."""

    agreement: dict[tuple[str, str], PairAgreement]
    panel: PanelMeasures | None
    judges: dict[str, JudgeMeasures]


def output_judges(reader: OutputReader) -> OutputJudges:
    """Of all who judged."""
    units = _units(reader)
    grid = _grid(units)
    reweighting = Reweighting(len(grid.items.ids))
    pairs = judge_pairs(grid, reweighting)
    ledger = {
        judge: {"severity": severity, "position": _position(reader, judge)}
        for judge, severity in severities(grid).items()
    }
    question = units.requested * len(units.judges) + units.judge
    requested = RequestedTwice(units.item, units.judge, question, units.level)
    itself = consistency(grid.judges, requested, reweighting)
    return OutputJudges(
        pair_measures(pairs),
        panel_measures(grid, reweighting) if len(grid.judges) > 1 else None,
        judge_measures(judge_agreement(grid, pairs), levels_by_judge(grid), judge_biases(ledger), itself),
    )


class _Units(NamedTuple):
    """U levels. ``requested`` numbers what was shown, for one factor; ``stands``: it is of the judge's recipe
    that counts. ``items`` are (task, item), ``students`` (model, sample), all in order."""

    item: Codes
    student: Codes
    factor: Codes
    judge: Codes
    requested: Codes
    level: Codes
    stands: NDArray[np.bool_]
    items: list[tuple[str, str]]
    students: list[tuple[str, int]]
    factors: tuple[str, ...]
    judges: tuple[str, ...]


_UNITS = """
SELECT task, item, model, sample, factor, judge, level, stands,
       dense_rank() OVER (ORDER BY task, item) - 1 AS place,
       dense_rank() OVER (ORDER BY model, sample) - 1 AS student,
       dense_rank() OVER (ORDER BY content, factor) - 1 AS asked
FROM graded WHERE content IS NOT NULL AND level IS NOT NULL
"""


def _units(reader: OutputReader) -> _Units:
    found = {name: np.asarray(column) for name, column in reader.columns(_UNITS).items()}
    factors, factor = np.unique(found["factor"].astype(str), return_inverse=True)
    judges, judge = np.unique(found["judge"].astype(str), return_inverse=True)
    _, items = np.unique(found["place"], return_index=True)
    _, students = np.unique(found["student"], return_index=True)
    return _Units(
        item=found["place"],
        student=found["student"],
        factor=factor,
        judge=judge,
        requested=found["asked"],
        level=found["level"],
        stands=found["stands"].astype(bool),
        items=[(found["task"][at], found["item"][at]) for at in items],
        students=[(str(found["model"][at]), int(found["sample"][at])) for at in students],
        factors=tuple(factors.tolist()),
        judges=tuple(judges.tolist()),
    )


def _grid(units: _Units) -> ScoreGrid:
    """A row for each question that was put to judges, a column for each judge."""
    keys = np.stack([units.item, units.student, units.factor, units.requested], axis=1)[units.stands]
    rows, row = np.unique(keys, axis=0, return_inverse=True)
    levels = np.full((len(rows), len(units.judges)), UNSCORED, np.int8)
    levels[row.reshape(-1), units.judge[units.stands]] = units.level[units.stands]
    tasks, task = np.unique([task for task, _ in units.items], return_inverse=True)
    samples = Counter(model for model, _ in units.students)
    ids = [f"{task}/{item}" for task, item in units.items]
    of_task = task[units.item]
    return ScoreGrid(
        item=rows[:, 0],
        student=rows[:, 1],
        factor=rows[:, 2],
        levels=levels,
        items=GridItems(ids, task, np.zeros(len(ids), np.int64), {}),
        students=tuple(
            f"{model}/run_{sample}" if samples[model] > 1 else model for model, sample in units.students
        ),
        judges=units.judges,
        factors=units.factors,
        tasks=tuple(tasks.tolist()),
        teachers=("",),
        designs=tuple(_design(units, of_task == place) for place in range(len(tasks))),
    )


def _design(units: _Units, here: NDArray[np.bool_]) -> TaskDesign:
    return TaskDesign(
        frozenset(units.judges[place] for place in np.unique(units.judge[here])),
        frozenset(units.factors[place] for place in np.unique(units.factor[here])),
    )


_BOTH = """
SELECT task, item, avg(share) FILTER (first) AS first, avg(share) FILTER (NOT first) AS second
FROM compared WHERE stands AND judge = ? GROUP BY ALL ORDER BY task, item
"""


def _position(reader: OutputReader, judge: str) -> Bias:
    """Of the prompts that it saw in both orders, if there are any; else of the others. The samples of a
    prompt are one."""
    found: dict[str, Any] = reader.columns(_BOTH, [judge])
    first, second = (_filled(found[name]) for name in ("first", "second"))
    tasks, task = np.unique(found["task"].astype(str), return_inverse=True)
    both = np.isfinite(first) & np.isfinite(second)
    if both.any():
        of_tasks = [both & (task == place) for place in range(len(tasks))]
        return shown_both_ways([first[of] for of in of_tasks], [second[of] for of in of_tasks])
    return shown_one_way(first[np.isfinite(first)], second[np.isfinite(second)])


def _filled(column: Any) -> Floats:
    """NaN for NULL."""
    return np.ma.filled(np.ma.asarray(column, np.float64), np.nan)


def measure_output(reader: OutputReader) -> OutputMeasures:
    """Metrics of ``eval-framework``, and what its judgments say of its judges."""
    sampled = sample_figures(reader)
    metrics: dict[str, ModelTasks[Measured]] = {}
    samples: dict[str, ModelTasks[SampleSpread]] = {}
    units: dict[str, dict[tuple[str, str], str]] = {}
    found: dict[tuple[str, str], dict[str, Measured]] = {}
    failed = Counter[tuple[str, str, str]]()
    for metric in reader.metrics:
        failed[metric.model, metric.task, metric.metric] += metric.failed
        if metric.task not in sampled.get(metric.model, {}):
            measured = Measured(metric.value, metric.low, metric.high, metric.n, metric.failed)
            found.setdefault((metric.model, metric.task), {})[metric.metric] = measured
        units.setdefault(metric.model, {})[metric.task, metric.metric] = metric.unit
    for model, tasks in sampled.items():
        for task, figures in tasks.items():
            found[model, task] = {
                name: Measured(one.mean, low, high, one.n_items, failed[model, task, name])
                for name, one in figures.items()
                for low, high in [one.ci95 or (None, None)]
            }
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


def _spread(one: SampleFigure) -> SampleSpread:
    return SampleSpread(one.unit, one.std, one.sem, one.n_runs, one.per_run, one.item_se)
