"""Measure a folder: each part that is asked for once, from the scores that count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, singledispatch
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from scipy.special import stdtr

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import Floats, clustered_mean
from coeval.analysis.measures.agreement import LEVELS, Reweighting
from coeval.analysis.measures.benchmark_measures import benchmark_measures
from coeval.analysis.measures.judge_measures import (
    FEWEST_COMMON,
    JudgeMeasures,
    judge_agreement,
    judge_measures,
    judge_pairs,
    pair_measures,
    panel_measures,
)
from coeval.analysis.measures.label_measures import label_measures
from coeval.analysis.measures.leaders import (
    label_sentences,
    leader_sentences,
    partial_sentences,
    place_sentences,
)
from coeval.analysis.measures.measure_tree import NOT_MEASURED, Analysis, Measured, ModelTasks
from coeval.analysis.measures.pair_measures import (
    compute_pair_measures,
    pair_sentences,
    read_pair_comparisons,
)
from coeval.analysis.measures.ranking import (
    NOBODY,
    OthersAlone,
    Ranking,
    ranking,
    task_verdict,
    without_own_measures,
)
from coeval.analysis.measures.removed_measures import answer_counts, removed_measures
from coeval.analysis.measures.robust_set import RobustMeasures, RobustOptions, robust_measures
from coeval.analysis.measures.run_measures import (
    OutputMeasures,
    RunMeasures,
    SampleSpread,
    analysis_part_names,
)
from coeval.analysis.measures.score_grid import (
    GridItems,
    ScoreGrid,
    TaskDesign,
    levels_by_judge,
    no_levels,
    score_grid,
)
from coeval.analysis.measures.student_measures import (
    StudentMeasures,
    StudentScores,
    check_measures,
    student_measures,
)
from coeval.analysis.measures.teacher_measures import teacher_measures
from coeval.analysis.panel.bias_ledger import UNKNOWN, Bias, judge_biases, length_findings, severities
from coeval.analysis.panel.g_study import g_study
from coeval.analysis.panel.panel_findings import family_judges, family_teachers, panel_findings, reliability
from coeval.analysis.panel.panel_reading import (
    RequestedTwice,
    biases_of,
    consistency,
    consistency_of,
    contrasts_of,
    families_of,
)
from coeval.analysis.people.people_measures import people_measures, people_sentences
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.result_rows import student_rows
from coeval.analysis.run_results import answer_notes, answer_warnings
from coeval.analysis.sampled_answers import sample_measures
from coeval.analysis.score_notes import label_task_notes, unscored_notes
from coeval.analysis.training.sample_figures import metric_scores, task_figures
from coeval.core.figures import figure_with_interval, format_points, kappa_word
from coeval.core.text import join_names, pluralize

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


def position_bias_both_orders(first: Sequence[Floats], second: Sequence[Floats]) -> Bias:
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


def position_bias_one_order(first: Floats, second: Floats) -> Bias:
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


# ``stands``: the level is of the judge's recipe that counts; ``question``: what was shown, for one factor.
_GRADED = """
SELECT task, task || '/' || item AS id, factor, judge, level, stands,
       model || if(min(sample) OVER own < max(sample) OVER own, '/run_' || sample, '') AS name,
       dense_rank() OVER (ORDER BY task, item) - 1 AS item,
       dense_rank() OVER (ORDER BY model, sample) - 1 AS student,
       dense_rank() OVER (ORDER BY content, factor) - 1 AS question
FROM graded WHERE content IS NOT NULL AND level IS NOT NULL WINDOW own AS (PARTITION BY model)
"""


def _graded(reader: OutputReader) -> tuple[ScoreGrid, RequestedTwice]:
    """Return the levels that count, with a row for each question that was put to judges and a column for each
    judge; and all levels, by question."""
    found = {name: np.asarray(column) for name, column in reader.columns(_GRADED).items()}
    item, student, question, level = (found[name] for name in ("item", "student", "question", "level"))
    (tasks, task), (factors, factor), (judges, judge) = (
        np.unique(found[name].astype(str), return_inverse=True) for name in ("task", "factor", "judge")
    )
    stands = found["stands"].astype(bool)
    keys = np.stack([item, student, factor, question], axis=1)[stands]
    rows, row = np.unique(keys, axis=0, return_inverse=True)
    levels = no_levels((len(rows), len(judges)), LEVELS)
    levels[row.reshape(-1), judge[stands]] = level[stands]
    of_items, of_students = (np.unique(codes, return_index=True)[1] for codes in (item, student))
    grid = ScoreGrid(
        item=rows[:, 0],
        student=rows[:, 1],
        factor=rows[:, 2],
        levels=levels,
        items=GridItems(
            found["id"][of_items].tolist(), task[of_items], np.zeros(len(of_items), np.int64), {}
        ),
        students=tuple(found["name"][of_students].tolist()),
        judges=tuple(judges.tolist()),
        factors=tuple(factors.tolist()),
        tasks=tuple(tasks.tolist()),
        teachers=("",),
        designs=tuple(
            TaskDesign(frozenset(judges[judge[here]].tolist()), frozenset(factors[factor[here]].tolist()))
            for here in (task == place for place in range(len(tasks)))
        ),
    )
    return grid, RequestedTwice(item, judge, question * len(judges) + judge, level)


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
        return position_bias_both_orders([first[of] for of in of_tasks], [second[of] for of in of_tasks])
    return position_bias_one_order(first[np.isfinite(first)], second[np.isfinite(second)])


def _filled(column: Any) -> Floats:
    """NaN for NULL."""
    return np.ma.filled(np.ma.asarray(column, np.float64), np.nan)


# --- Conclusions
#
# What the measures of a run come to, in sentences: who leads, in which tasks somebody else does, and how
# sure that is.

Topic: TypeAlias = Literal["leads", "where", "judges", "cost"]
"""The question that a conclusion answers: who leads, where, whether judges are to be trusted, what is
missing."""


class Conclusion(NamedTuple):
    topic: Topic
    text: str


_Part = TypeVar("_Part")


def conclusions(reader: RunReader, grid: ScoreGrid, measures: RunMeasures) -> Iterator[Conclusion]:
    """Sentences for people, the most important first."""
    students, ranks, labels = measures.students, measures.ranking, measures.labels
    compared, people, families = measures.pairs, measures.people, families_of(reader, grid)
    weighted = measures.panel is not None and measures.panel.kappa_weights is not None
    kappa = "weighted κ" if weighted else "κ"
    of_judges = list(_judges(measures.judges, kappa, one=ranks.one_judge)) if ranks.order else []
    bare = not ranks.order and (labels or compared is not None)
    leads = () if bare else tuple(leader_sentences(students, ranks, grid.looks))
    rows = student_rows(measures, reader.planned)
    said: tuple[tuple[Topic, Iterable[str]], ...] = (
        ("leads", pair_sentences(compared) if compared is not None else ()),
        ("leads", (text for text in leads if text not in of_judges)),
        ("leads", label_task_notes(grid, labels)),
        ("leads", unscored_notes(reader, grid)),
        ("leads", label_sentences(labels)),
        ("leads", family_judges(grid, ranks, families)),
        ("leads", place_sentences(ranks)),
        ("leads", partial_sentences(ranks)),
        ("where", task_leaders(grid, students, ranks)),
        ("where", family_teachers(grid, ranks, families)),
        ("judges", of_judges),
        ("judges", panel_findings(measures.judges)),
        ("judges", length_findings(measures.length)),
        ("judges", reliability(measures.g_study)),
        ("cost", _missing(students, adjusted=ranks.adjusted)),
        ("leads", people_sentences(people) if people is not None else ()),
        ("leads", answer_warnings(rows)),
        ("leads", answer_notes(rows)),
    )
    return (Conclusion(topic, text) for topic, texts in said for text in texts)


def _judges(judges: Mapping[str, JudgeMeasures], kappa: str, *, one: bool) -> Iterator[str]:
    if len(judges) < 2 or one:
        if judges:
            yield "Only one judge was used, so agreement cannot be measured."
        return
    kappas = {name: found.kappa_mean for name, found in judges.items() if not found.degenerate}
    known = {name: found.value for name, found in kappas.items() if found.value is not None}
    if not known:
        yield f"Agreement between the judges cannot be measured: {_why_unknown(judges)}."
        return
    mean = sum(known.values()) / len(known)
    worst = min(known, key=lambda name: (known[name], name))
    lowest = f"{kappa} {figure_with_interval('coefficient', known[worst], *kappas[worst][1:3])}"
    of = f"lowest {worst}, " if len(known) > 2 else ""
    yield f"Agreement between the judges is {kappa_word(mean)} ({of}{lowest})."


def _why_unknown(judges: Mapping[str, JudgeMeasures]) -> str:
    if any(not found.degenerate for found in judges.values()):
        return "those with enough scores in common gave a single level"
    most = max(found.count for found in judges.values())
    return f"they have at most {pluralize(most, 'score')} in common, fewer than {FEWEST_COMMON}"


def _missing(students: Mapping[str, StudentMeasures], *, adjusted: bool) -> Iterator[str]:
    lacking = {name: found.score.missing or 0 for name, found in students.items()}
    total = sum(lacking.values())
    if not total:
        return
    possible = total + sum(found.valid_evals for found in students.values())
    named = [f"{name} {count:,}" for name, count in sorted(lacking.items(), key=lambda one: -one[1]) if count]
    yield f"Missing: {total:,} of {pluralize(possible, 'score')} ({join_names(named)})."
    if adjusted:
        yield "Students have different items or judges: scores are adjusted for those that a student lacks."


def task_leaders(grid: ScoreGrid, students: Mapping[str, StudentScores], ranks: Ranking) -> Iterator[str]:
    """A sentence on who has the highest score in each task; the verdict is the family's (`task_verdict`)."""
    if len(ranks.order) < 2:
        return
    leader, elsewhere = ranks.order[0], []
    tasks = {task: own.value for task, own in students[leader].score_by_task.items() if own.value is not None}
    for task, own_score in tasks.items():
        known = {name: students[name].score_by_task.get(task, NOT_MEASURED).value for name in ranks.order}
        best, _, name = max(
            (value, name == leader, name) for name, value in known.items() if value is not None
        )
        if name != leader:
            verdict = task_verdict(grid, ranks, leader, name, task) or "not tested"
            elsewhere.append(
                f"{name} in {task} ({format_points(best)}, {leader} {format_points(own_score)}: {verdict})"
            )
    if elsewhere:
        why = (
            "; tasks are tested where the overall gap is significant" if "not tested" in elsewhere[0] else ""
        )
        yield f"Other students have the highest score in some tasks: {join_names(elsewhere)}{why}."
    elif len(tasks) > 1:
        every = "both tasks" if len(tasks) == 2 else f"all {len(tasks)} tasks"
        yield f"{leader} has the highest score in {every}."


# --- Measured run


class AnalyzedFolder(NamedTuple):
    """What an analysis shows of a folder, and all ``models`` that take part, whether or not it shows them."""

    measures: RunMeasures | OutputMeasures
    models: tuple[str, ...]


class AnalyzedRun(NamedTuple):
    """All measures of a run, the scores that they come of, and what they come to."""

    measures: RunMeasures
    grid: ScoreGrid
    conclusions: tuple[Conclusion, ...]

    @property
    def shown(self) -> AnalyzedFolder:
        grid = self.grid
        return AnalyzedFolder(self.measures, (*grid.students, *grid.judges, *grid.teachers))


@singledispatch
def compute_measures(reader: Reader, *_: object, **__: object) -> AnalyzedFolder:
    """Measure what an analysis (default: all) shows; ``options`` are those of the robust filter."""
    raise TypeError(f"nobody measures what a {type(reader).__name__} reads")


@compute_measures.register
def _(reader: RunReader, analysis: Analysis = "all", options: RobustOptions | None = None) -> AnalyzedFolder:
    return compute_run_measures(reader, analysis_part_names(RunMeasures, analysis), options).shown


@compute_measures.register
def _(reader: OutputReader, *_: object, **__: object) -> AnalyzedFolder:
    return analyze_output(compute_output_measures(reader))


def analyze_output(measures: OutputMeasures) -> AnalyzedFolder:
    return AnalyzedFolder(measures, (*measures.metrics, *measures.judges))


def compute_run_measures(
    reader: RunReader, parts: Collection[str] | None = None, options: RobustOptions | None = None
) -> AnalyzedRun:
    """Measure ``parts`` of a run, the fields of `RunMeasures` by name (None: all), and nothing else: the
    others are as those of a run of which nothing is known."""
    grid, how = score_grid(reader), options or RobustOptions()
    judged, again = grid.judge_scores, Reweighting(len(grid.items.ids), cluster=grid.items.alike)
    pairs = cache(lambda: judge_pairs(judged, again))
    agreement = cache(lambda: judge_agreement(judged, pairs()))
    benchmark = cache(lambda: benchmark_measures(reader, grid))
    ranked = cache(lambda: ranking(grid))
    counts = cache(lambda: answer_counts(reader))
    students = cache(lambda: student_measures(grid, ranked().scores, counts()))

    def part(name: str, compute: Callable[[], _Part], nothing: _Part) -> _Part:
        return compute() if parts is None or name in parts else nothing

    measures = RunMeasures(
        findings=(),
        simulated=reader.simulated,
        units=int(grid.sum_scores(equal_weights=True).units.sum()),
        agreement=part("agreement", lambda: pair_measures(pairs()), {}),
        panel=part("panel", lambda: panel_measures(judged, again), None),
        judges=part(
            "judges",
            lambda: judge_measures(
                agreement(),
                levels_by_judge(judged),
                biases_of(reader, judged),
                consistency_of(reader, judged, again),
            ),
            {},
        ),
        length=part("length", lambda: contrasts_of(reader, judged), {}),
        g_study=part("g_study", lambda: g_study(judged), None),
        teachers=part("teachers", lambda: teacher_measures(grid, again), {}),
        students=part("students", students, {}),
        ranking=part("ranking", lambda: ranked().ranking, NOBODY),
        labels=part("labels", lambda: label_measures(reader, grid), {}),
        without_own=part(
            "without_own", lambda: without_own_measures(grid), OthersAlone(False, (), {}, NOBODY)
        ),
        robust=part("robust", lambda: robust_measures(grid, agreement(), how), RobustMeasures(False, how)),
        coverage=part("coverage", lambda: benchmark().coverage, {}),
        items=part("items", lambda: benchmark().items, {}),
        checks=part("checks", lambda: check_measures(grid, students()), None),
        samples=part("samples", lambda: sample_measures(reader), None),
        pairs=part("pairs", lambda: compute_pair_measures(read_pair_comparisons(reader)), None),
        people=part("people", lambda: people_measures(reader, grid, again), None),
        removed=part("removed", lambda: removed_measures(reader, grid, counts()), None),
    )
    found = part("findings", lambda: tuple(conclusions(reader, grid, measures)), tuple[Conclusion, ...]())
    texts = tuple(conclusion.text for conclusion in found)
    return AnalyzedRun(msgspec.structs.replace(measures, findings=texts), grid, found)


def compute_output_measures(reader: OutputReader) -> OutputMeasures:
    """Metrics of ``eval-framework``, and what its judgments say of its judges."""
    figures = task_figures(reader)
    metrics: dict[str, ModelTasks[Measured]] = {}
    samples: dict[str, ModelTasks[SampleSpread]] = {}
    units: dict[str, dict[tuple[str, str], str]] = {}
    for one in metric_scores(reader, figures):
        of_tasks = metrics.setdefault(one.model, ModelTasks())
        measured = Measured(one.value, one.low, one.high, one.n, one.failed)
        of_tasks[one.task] = {**of_tasks.get(one.task, {}), one.metric: measured}
        units.setdefault(one.model, {})[one.task, one.metric] = one.unit
        if one.samples > 1 and one.value is not None:
            over = figures[one.task].metrics[one.metric]
            spread = SampleSpread(over.unit, over.std, over.sem, over.n_runs, over.per_run, over.item_se)
            spreads = samples.setdefault(one.model, ModelTasks())
            spreads[one.task] = {**spreads.get(one.task, {}), one.metric: spread}
    for model, of_model in metrics.items():
        of_model.units = units[model]
    [(count,)] = reader.rows("SELECT count(*) FROM scores WHERE value IS NOT NULL")
    grid, requested = _graded(reader)
    again = Reweighting(len(grid.items.ids))
    pairs = judge_pairs(grid, again)
    ledger = {
        judge: {"severity": severity, "position": _position(reader, judge)}
        for judge, severity in severities(grid).items()
    }
    judges = judge_measures(
        judge_agreement(grid, pairs),
        levels_by_judge(grid),
        judge_biases(ledger),
        consistency(grid.judges, requested, again),
    )
    return OutputMeasures(
        findings=tuple(panel_findings(judges)),
        units=count,
        agreement=pair_measures(pairs),
        panel=panel_measures(grid, again) if len(grid.judges) > 1 else None,
        judges=judges,
        teachers={},
        students={},
        metrics=metrics,
        samples=samples,
    )
