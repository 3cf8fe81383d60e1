"""Compute the measures of a folder, each requested part once, and draw conclusions from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, singledispatch
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import Floats, clustered_mean
from coeval.analysis.measures import leaders
from coeval.analysis.measures.agreement import LEVELS, Reweighting
from coeval.analysis.measures.benchmark_measures import measure_benchmark
from coeval.analysis.measures.judge_measures import (
    FEWEST_COMMON,
    JudgeMeasures,
    combine_judge_measures,
    compare_judge_pairs,
    mean_agreement_by_judge,
    measure_judge_pairs,
    measure_panel,
)
from coeval.analysis.measures.label_measures import measure_planned_labels, measure_removed_labels
from coeval.analysis.measures.measure_tree import NOT_MEASURED, Analysis, Measured, ModelTasks
from coeval.analysis.measures.pair_measures import (
    compute_pair_measures,
    read_pair_comparisons,
    strength_and_bias_sentences,
)
from coeval.analysis.measures.ranking import (
    EMPTY_RANKING,
    ExcludingSelfJudgments,
    Ranking,
    rank_excluding_self_judgments,
    rank_students,
    task_verdict,
)
from coeval.analysis.measures.robust_set import RobustMeasures, RobustOptions, measure_robust_set
from coeval.analysis.measures.run_measures import (
    OutputMeasures,
    RemovedMeasures,
    RunMeasures,
    SampleSpread,
    analysis_part_names,
)
from coeval.analysis.measures.score_grid import (
    GridItems,
    ScoreGrid,
    TaskDesign,
    is_planned_task,
    read_grid_with_removed,
    read_score_grid,
    unscored_levels,
)
from coeval.analysis.measures.student_measures import (
    StudentAnswers,
    StudentCounts,
    StudentMeasures,
    StudentScores,
    measure_checks,
    measure_students,
    sum_student_item_scores,
    unadjusted_scores,
)
from coeval.analysis.measures.teacher_measures import measure_teachers
from coeval.analysis.panel import panel_findings, panel_reading
from coeval.analysis.panel.bias_ledger import (
    UNKNOWN,
    Bias,
    adjust_biases_by_judge,
    estimate_severities,
    judge_length_contrast_sentences,
)
from coeval.analysis.panel.g_study import estimate_g_study
from coeval.analysis.people.people_measures import measure_people, people_leader_sentences
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.result_rows import BY_TASK, student_overall_and_task_rows
from coeval.analysis.run_results import lacking_task_and_cut_off_sentences, missing_cut_off_or_empty_warnings
from coeval.analysis.sampled_answers import measure_samples
from coeval.analysis.special import stdtr
from coeval.analysis.training.aggregate import compute_figures_of_counted_runs, list_metric_scores
from coeval.core.figures import figure_with_interval, format_points, kappa_word
from coeval.core.text import join_names, pluralize

# --- Judges of an output folder of ``eval-framework``
#
# Agreement is measured as in a run, over judges who were shown the very same text. A level is that of a
# rubric's factor, whether a criterion is met, or whether the answer lost, drew or won against the baseline;
# points from 1 to 10 have no such levels and enter no agreement. Several samples of a prompt are separate
# answers in one cluster.

# --- Position bias
#
# An answer's mean share of a win (win 1, tie ½, loss 0) when shown first, minus that when shown second: 0 for
# an unbiased judge, 1 for one that always picks the first.
#
# Where a judge saw each pair in both orders, its two verdicts on an answer are paired (`paired_difference`).
# Where it saw each pair once, in a random order, the prompts of both orders are random halves, with their
# means compared by MOVER (Zou and Donner 2008) and Welch's test.

# One value has no variance.
_FEWEST_ITEMS = 2


def position_bias_within_items(shown_first: Sequence[Floats], shown_second: Sequence[Floats]) -> Bias:
    """Estimate position bias from each task's win shares, (n_t,), of the same answers in both orders."""
    strata = [
        PairedScores(when_second, when_first, np.ones(len(when_first)))
        for when_first, when_second in zip(shown_first, shown_second, strict=True)
        if len(when_first)
    ]
    if sum(len(stratum.a) for stratum in strata) < _FEWEST_ITEMS:
        return UNKNOWN
    result = paired_difference(strata)
    return Bias(result.difference, result.low, result.high, result.p)


def position_bias_between_items(shares_shown_first: Floats, shares_shown_second: Floats) -> Bias:
    """Estimate position bias from win shares of (n,) items with the answer shown first, and (m,) others."""
    if min(len(shares_shown_first), len(shares_shown_second)) < _FEWEST_ITEMS:
        return UNKNOWN
    (mean, low, high, _), (other_mean, other_low, other_high, _) = (
        msgspec.structs.astuple(clustered_mean(shares, np.arange(len(shares))))
        for shares in (shares_shown_first, shares_shown_second)
    )
    value = float(shares_shown_first.mean() - shares_shown_second.mean())
    down = float(np.hypot(mean - low, other_mean - other_high))
    up = float(np.hypot(mean - high, other_mean - other_low))
    p = _welch_p_value(shares_shown_first, shares_shown_second, value)
    return Bias(value, max(value - down, -1.0), min(value + up, 1.0), p)


def _welch_p_value(first: Floats, second: Floats, difference: float) -> float:
    """Compute the two-sided p-value of Welch's test (1947) on the difference of the two means."""
    variances = [float(shares.var(ddof=1)) / len(shares) for shares in (first, second)]
    total = sum(variances)
    if total == 0:
        return float(difference == 0)
    spent = sum(v**2 / (len(s) - 1) for v, s in zip(variances, (first, second), strict=True))
    return 2 * float(stdtr(total**2 / spent, -abs(difference) / total**0.5))


# ``stands``: the level is of the judge's current recipe; ``question``: the text shown, for one factor.
_JUDGED_LEVELS = """
SELECT task, task || '/' || item AS id, factor, judge, level, stands,
       model || if(min(sample) OVER own < max(sample) OVER own, '/run_' || sample, '') AS name,
       dense_rank() OVER (ORDER BY task, item) - 1 AS item,
       dense_rank() OVER (ORDER BY model, sample) - 1 AS student,
       dense_rank() OVER (ORDER BY content, factor) - 1 AS question
FROM graded WHERE content IS NOT NULL AND level IS NOT NULL WINDOW own AS (PARTITION BY model)
"""


def _read_judged_levels(reader: OutputReader) -> tuple[ScoreGrid, panel_reading.RepeatedJudgments]:
    """Return the grid of the levels that count, with a row for each question that judges were asked, and all
    levels by question and judge, to see whether a judge answers a repeated question alike."""
    columns = {name: np.asarray(column) for name, column in reader.columns(_JUDGED_LEVELS).items()}
    item, student, question, level = (columns[name] for name in ("item", "student", "question", "level"))
    (tasks, task), (factors, factor), (judges, judge) = (
        np.unique(columns[name].astype(str), return_inverse=True) for name in ("task", "factor", "judge")
    )
    stands = columns["stands"].astype(bool)
    keys = np.stack([item, student, factor, question], axis=1)[stands]
    rows, row = np.unique(keys, axis=0, return_inverse=True)
    levels = unscored_levels((len(rows), len(judges)), LEVELS)
    levels[row.reshape(-1), judge[stands]] = level[stands]
    of_items, of_students = (np.unique(codes, return_index=True)[1] for codes in (item, student))
    grid = ScoreGrid(
        item=rows[:, 0],
        student=rows[:, 1],
        factor=rows[:, 2],
        levels=levels,
        items=GridItems(
            columns["id"][of_items].tolist(), task[of_items], np.zeros(len(of_items), np.int64), {}
        ),
        students=tuple(columns["name"][of_students].tolist()),
        judges=tuple(judges.tolist()),
        factors=tuple(factors.tolist()),
        tasks=tuple(tasks.tolist()),
        teachers=("",),
        designs=tuple(
            TaskDesign(frozenset(judges[judge[rows]].tolist()), frozenset(factors[factor[rows]].tolist()))
            for rows in (task == code for code in range(len(tasks)))
        ),
    )
    return grid, panel_reading.RepeatedJudgments(item, judge, question * len(judges) + judge, level)


_SHARES_BY_ORDER = """
SELECT task, item, avg(share) FILTER (first) AS first, avg(share) FILTER (NOT first) AS second
FROM compared WHERE stands AND judge = ? GROUP BY ALL ORDER BY task, item
"""


def _position_bias(reader: OutputReader, judge: str) -> Bias:
    """Estimate a judge's position bias from the prompts it saw in both orders, or else from the others."""
    columns: dict[str, Any] = reader.columns(_SHARES_BY_ORDER, [judge])
    first, second = (
        np.ma.filled(np.ma.asarray(columns[name], np.float64), np.nan) for name in ("first", "second")
    )
    tasks, task = np.unique(columns["task"].astype(str), return_inverse=True)
    both = np.isfinite(first) & np.isfinite(second)
    if both.any():
        rows_by_task = [both & (task == code) for code in range(len(tasks))]
        return position_bias_within_items(
            [first[rows] for rows in rows_by_task], [second[rows] for rows in rows_by_task]
        )
    return position_bias_between_items(first[np.isfinite(first)], second[np.isfinite(second)])


# --- Conclusions
#
# What the measures of a run come to, in sentences.

Topic: TypeAlias = Literal["leads", "where", "judges", "cost"]
"""The question that a conclusion answers: who leads, where, how good the judges are, what is missing."""


class Conclusion(NamedTuple):
    """A sentence for people, and the question that it answers."""

    topic: Topic
    text: str


_NO_CONCLUSIONS: tuple[Conclusion, ...] = ()
_PartT = TypeVar("_PartT")


def draw_conclusions(reader: RunReader, grid: ScoreGrid, measures: RunMeasures) -> tuple[Conclusion, ...]:
    """Say in sentences what the measures come to, the most important first."""
    students, ranks, labels = measures.students, measures.ranking, measures.labels
    compared, people, panel = measures.pairs, measures.people, measures.panel
    families = panel_reading.read_model_families(reader, grid)
    kappa = "weighted κ" if panel is not None and panel.kappa_weights is not None else "κ"
    agreement_sentences = (
        list(_agreement_or_reason(measures.judges, kappa, only_one=ranks.one_judge)) if ranks.order else []
    )
    bare = not ranks.order and (labels or compared is not None)
    leads = () if bare else tuple(leaders.leader_tie_and_judges_sentences(students, ranks, grid.looks))
    rows = student_overall_and_task_rows(measures, reader.planned)
    sentences: tuple[tuple[Topic, Iterable[str]], ...] = (
        ("leads", strength_and_bias_sentences(compared) if compared is not None else ()),
        ("leads", (text for text in leads if text not in agreement_sentences)),
        ("leads", leaders.label_only_notes(grid, labels)),
        ("leads", leaders.failed_or_factor_unscored_notes(reader, grid)),
        ("leads", leaders.label_leader_and_missing_sentences(labels)),
        ("leads", panel_findings.leader_family_sentence(grid, ranks, families)),
        ("leads", leaders.significant_pair_count_sentences(ranks)),
        ("leads", leaders.some_tasks_only_sentences(ranks)),
        ("where", highest_score_by_task_sentence(grid, students, ranks)),
        ("where", panel_findings.teacher_family_sentence(grid, ranks, families)),
        ("judges", agreement_sentences),
        ("judges", panel_findings.judge_bias_sentences(measures.judges)),
        ("judges", judge_length_contrast_sentences(measures.length)),
        ("judges", panel_findings.reliability_sentences(measures.g_study)),
        ("cost", _missing_scores_sentences(students, adjusted=ranks.adjusted)),
        ("leads", people_leader_sentences(people) if people is not None else ()),
        ("leads", missing_cut_off_or_empty_warnings(rows)),
        ("leads", lacking_task_and_cut_off_sentences(rows)),
    )
    return tuple(Conclusion(topic, text) for topic, texts in sentences for text in texts)


def _agreement_or_reason(judges: Mapping[str, JudgeMeasures], kappa: str, *, only_one: bool) -> Iterator[str]:
    """Say how far the judges agree (``kappa``: the statistic's name), or why that cannot be measured."""
    if len(judges) < 2 or only_one:
        if judges:
            yield "Only one judge was used, so agreement cannot be measured."
        return
    kappas = {name: judge.kappa_mean for name, judge in judges.items() if not judge.degenerate}
    values = {name: judge.value for name, judge in kappas.items() if judge.value is not None}
    if not values:
        yield f"Agreement between the judges cannot be measured: {_why_agreement_unknown(judges)}."
        return
    mean = sum(values.values()) / len(values)
    worst = min(values, key=lambda name: (values[name], name))
    lowest = f"{kappa} {figure_with_interval('coefficient', values[worst], *kappas[worst][1:3])}"
    prefix = f"lowest {worst}, " if len(values) > 2 else ""
    yield f"Agreement between the judges is {kappa_word(mean)} ({prefix}{lowest})."


def _why_agreement_unknown(judges: Mapping[str, JudgeMeasures]) -> str:
    if any(not judge.degenerate for judge in judges.values()):
        return "those with enough scores in common gave a single level"
    most = max(judge.count for judge in judges.values())
    return f"they have at most {pluralize(most, 'score')} in common, fewer than {FEWEST_COMMON}"


def _missing_scores_sentences(students: Mapping[str, StudentMeasures], *, adjusted: bool) -> Iterator[str]:
    lacking = {name: student.score.missing or 0 for name, student in students.items()}
    total = sum(lacking.values())
    if not total:
        return
    possible = total + sum(student.valid_evals for student in students.values())
    named = [
        f"{name} {count:,}" for name, count in sorted(lacking.items(), key=lambda item: -item[1]) if count
    ]
    yield f"Missing: {total:,} of {pluralize(possible, 'score')} ({join_names(named)})."
    if adjusted:
        yield "Students have different items or judges: scores are adjusted for those that a student lacks."


def highest_score_by_task_sentence(
    grid: ScoreGrid, students: Mapping[str, StudentScores], ranks: Ranking
) -> Iterator[str]:
    """Say who has the highest score in each task; verdicts are those of the family of tests."""
    if len(ranks.order) < 2:
        return
    leader, elsewhere = ranks.order[0], []
    tasks = {task: own.value for task, own in students[leader].score_by_task.items() if own.value is not None}
    for task, own_score in tasks.items():
        scores = {name: students[name].score_by_task.get(task, NOT_MEASURED).value for name in ranks.order}
        best, _, name = max(
            (value, name == leader, name) for name, value in scores.items() if value is not None
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


# --- What the configuration has lost


def count_answers_by_student_and_task(reader: RunReader) -> StudentCounts:
    """Count the answers of all students on record, removed ones included."""
    counts_by_student: defaultdict[str, dict[str, StudentAnswers]] = defaultdict(dict)
    for task, student, *counts in reader.rows(_COUNTS):
        counts_by_student[student][task] = StudentAnswers(*counts)
    return counts_by_student


def measure_removed(reader: RunReader, grid: ScoreGrid, counts: StudentCounts) -> RemovedMeasures | None:
    """Measure what ``grid`` leaves out of a run, by plain means; None where nothing is removed."""
    whole_grid = read_grid_with_removed(reader)
    students = {} if whole_grid is grid else _measure_students_with_removed_tasks(reader, whole_grid, counts)
    labels = measure_removed_labels(reader, whole_grid, grid.students)
    return RemovedMeasures(students, labels) if students or labels else None


def _measure_students_with_removed_tasks(
    reader: RunReader, whole_grid: ScoreGrid, counts: StudentCounts
) -> dict[str, StudentMeasures]:
    """Measure all students, removed tasks included by task but not in overall scores."""
    planned = [at for at, task in enumerate(whole_grid.tasks) if is_planned_task(reader.planned, task)]
    whole = _unadjusted_measures(whole_grid.select_items(np.isin(whole_grid.items.task, planned)), counts)
    return {
        name: msgspec.structs.replace(
            whole[name],
            **{
                field: getattr(student, field)
                for field in student.__struct_fields__
                if field.endswith(BY_TASK)
            },
        )
        for name, student in _unadjusted_measures(whole_grid, counts).items()
    }


def _unadjusted_measures(grid: ScoreGrid, counts: StudentCounts) -> dict[str, StudentMeasures]:
    return measure_students(grid, unadjusted_scores(grid, sum_student_item_scores(grid)), counts)


_COUNTS = """
SELECT task, model, sum(answer)::BIGINT, sum(failed)::BIGINT, sum(truncated)::BIGINT,
       sum(windowed)::BIGINT, sum(empty)::BIGINT, sum(empty_truncated)::BIGINT
FROM (
    SELECT task, model, failed::INTEGER AS failed, (NOT failed)::INTEGER AS answer,
           (truncated AND NOT failed)::INTEGER AS truncated,
           (windowed AND NOT failed)::INTEGER AS windowed, (empty AND NOT failed)::INTEGER AS empty,
           (empty AND truncated AND NOT failed)::INTEGER AS empty_truncated
    FROM answers
    UNION ALL
    SELECT task, model, 1, 0, 0, 0, 0, 0 FROM judgments WHERE failed
)
GROUP BY ALL ORDER BY ALL
"""


# --- Measured run


class AnalyzedFolder(NamedTuple):
    """The measures that an analysis shows of a folder, and all ``models`` that take part, shown or not."""

    measures: RunMeasures | OutputMeasures
    models: tuple[str, ...]


class AnalyzedRun(NamedTuple):
    """A run's measures with the scores they are computed from, and the conclusions drawn from them."""

    measures: RunMeasures
    grid: ScoreGrid
    conclusions: tuple[Conclusion, ...]

    @property
    def analyzed_folder(self) -> AnalyzedFolder:
        grid = self.grid
        return AnalyzedFolder(self.measures, (*grid.students, *grid.judges, *grid.teachers))


@singledispatch
def compute_measures(reader: Reader, *_: object, **__: object) -> AnalyzedFolder:
    """Compute what an analysis (default: all) shows of a folder. ``options``: those of the robust filter."""
    raise TypeError(f"nobody measures what a {type(reader).__name__} reads")


@compute_measures.register
def _(reader: RunReader, analysis: Analysis = "all", options: RobustOptions | None = None) -> AnalyzedFolder:
    return compute_run_measures(reader, analysis_part_names(RunMeasures, analysis), options).analyzed_folder


@compute_measures.register
def _(reader: OutputReader, *_: object, **__: object) -> AnalyzedFolder:
    return analyze_output(compute_output_measures(reader))


def analyze_output(measures: OutputMeasures) -> AnalyzedFolder:
    return AnalyzedFolder(measures, (*measures.metrics, *measures.judges))


def compute_run_measures(
    reader: RunReader, parts: Collection[str] | None = None, options: RobustOptions | None = None
) -> AnalyzedRun:
    """Compute ``parts`` of `RunMeasures`, named by field (None: all); the other parts stay empty."""
    grid, robust_options = read_score_grid(reader), options or RobustOptions()
    judge_scores, reweighting = grid.judge_scores, Reweighting(len(grid.items.ids), cluster=grid.items.alike)
    pairs = cache(lambda: compare_judge_pairs(judge_scores, reweighting))
    agreement = cache(lambda: mean_agreement_by_judge(judge_scores, pairs()))
    benchmark = cache(lambda: measure_benchmark(reader, grid))
    ranked = cache(lambda: rank_students(grid))
    counts = cache(lambda: count_answers_by_student_and_task(reader))
    students = cache(lambda: measure_students(grid, ranked().scores, counts()))

    def measure(name: str, compute: Callable[[], _PartT], default: _PartT) -> _PartT:
        return compute() if parts is None or name in parts else default

    measures = RunMeasures(
        findings=(),
        simulated=reader.simulated,
        units=int(grid.sum_scores(equal_weights=True).units.sum()),
        agreement=measure("agreement", lambda: measure_judge_pairs(pairs()), {}),
        panel=measure("panel", lambda: measure_panel(judge_scores, reweighting), None),
        judges=measure(
            "judges",
            lambda: combine_judge_measures(
                judge_scores,
                agreement(),
                panel_reading.read_judge_biases(reader, judge_scores),
                panel_reading.read_judge_consistency(reader, judge_scores, reweighting),
            ),
            {},
        ),
        length=measure("length", lambda: panel_reading.read_judge_pair_contrasts(reader, judge_scores), {}),
        g_study=measure("g_study", lambda: estimate_g_study(judge_scores), None),
        teachers=measure("teachers", lambda: measure_teachers(grid, reweighting), {}),
        students=measure("students", students, {}),
        ranking=measure("ranking", lambda: ranked().ranking, EMPTY_RANKING),
        labels=measure("labels", lambda: measure_planned_labels(reader, grid), {}),
        without_own=measure(
            "without_own",
            lambda: rank_excluding_self_judgments(grid),
            ExcludingSelfJudgments(False, (), {}, EMPTY_RANKING),
        ),
        robust=measure(
            "robust",
            lambda: measure_robust_set(grid, agreement(), robust_options),
            RobustMeasures(False, robust_options),
        ),
        coverage=measure("coverage", lambda: benchmark().coverage, {}),
        items=measure("items", lambda: benchmark().items, {}),
        checks=measure("checks", lambda: measure_checks(grid, students()), None),
        samples=measure("samples", lambda: measure_samples(reader), None),
        pairs=measure("pairs", lambda: compute_pair_measures(read_pair_comparisons(reader)), None),
        people=measure("people", lambda: measure_people(reader, grid, reweighting), None),
        removed=measure("removed", lambda: measure_removed(reader, grid, counts()), None),
    )
    conclusions = measure("findings", lambda: draw_conclusions(reader, grid, measures), _NO_CONCLUSIONS)
    texts = tuple(conclusion.text for conclusion in conclusions)
    return AnalyzedRun(msgspec.structs.replace(measures, findings=texts), grid, conclusions)


def compute_output_measures(reader: OutputReader) -> OutputMeasures:
    """Compute the metrics of an output folder of ``eval-framework``, and measure its judges."""
    figures = compute_figures_of_counted_runs(reader)
    metrics: dict[str, ModelTasks[Measured]] = {}
    samples: dict[str, ModelTasks[SampleSpread]] = {}
    units: dict[str, dict[tuple[str, str], str]] = {}
    for score in list_metric_scores(reader, figures):
        of_tasks = metrics.setdefault(score.model, ModelTasks())
        measured = Measured(score.value, score.low, score.high, score.n, score.failed)
        of_tasks[score.task] = {**of_tasks.get(score.task, {}), score.metric: measured}
        units.setdefault(score.model, {})[score.task, score.metric] = score.unit
        if score.samples > 1 and score.value is not None:
            figure = figures[score.task].metrics[score.metric]
            spread = SampleSpread(
                figure.unit, figure.std, figure.sem, figure.n_runs, figure.per_run, figure.item_se
            )
            spreads = samples.setdefault(score.model, ModelTasks())
            spreads[score.task] = {**spreads.get(score.task, {}), score.metric: spread}
    for model, of_model in metrics.items():
        of_model.units = units[model]
    [(count,)] = reader.rows("SELECT count(*) FROM scores WHERE value IS NOT NULL")
    grid, requested = _read_judged_levels(reader)
    reweighting = Reweighting(len(grid.items.ids))
    pairs = compare_judge_pairs(grid, reweighting)
    ledger = {
        judge: {"severity": severity, "position": _position_bias(reader, judge)}
        for judge, severity in estimate_severities(grid).items()
    }
    judges = combine_judge_measures(
        grid,
        mean_agreement_by_judge(grid, pairs),
        adjust_biases_by_judge(ledger),
        panel_reading.measure_consistency(grid.judges, requested, reweighting),
    )
    return OutputMeasures(
        findings=tuple(panel_findings.judge_bias_sentences(judges)),
        units=count,
        agreement=measure_judge_pairs(pairs),
        panel=measure_panel(grid, reweighting) if len(grid.judges) > 1 else None,
        judges=judges,
        teachers={},
        students={},
        metrics=metrics,
        samples=samples,
    )
