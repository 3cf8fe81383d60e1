"""Repeated answers: how much a student's answers vary, how often one of k passes, and how often all of k do.

Samples of an item are pooled within it; items are the random unit. Figures are of students that gave more
than one answer to an item.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats, clustered_standard_error, mean_over_strata
from coeval.analysis.measures.measure_tree import FILES, Entity, Measured, ShownAs
from coeval.analysis.measures.score_grid import Codes, ScoreGrid, read_grid_with_removed
from coeval.analysis.measures.value_grid import read_label_grid
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.special import gammaln

WHOLE = "(whole answer)"
"""In the place of a factor, where the scores are those of whole answers."""


class FactorSamples(Entity, frozen=True):
    """A student's scores in a task over several answers to each item: of one factor or label, or of whole
    answers.

    Of k answers drawn without replacement of an item's n, of which c pass, ``pass_at`` (pass@k) is how
    often one passes, ``1 − C(n − c, k) / C(n, k)`` (Chen and others 2021), ``pass_all`` (pass^k) how often
    all do, ``C(c, k) / C(n, k)`` (Yao and others 2024): of all samples, and by k. None where scores are
    not right or wrong.
    """

    mean: Annotated[
        Measured, ShownAs("Mean over items of the mean over their answers (mean@N)", "mean@N", "mean@N")
    ]
    samples: Annotated[int, ShownAs("Answers to an item", "Answers to an item (N)", "N", "count")]
    item_se: Annotated[float | None, ShownAs("Standard error over items", "Item s.e.", "item s.e.")]
    sample_sd: Annotated[
        float | None, ShownAs("Standard deviation over answers to one item", "Sd in item", "sd in item")
    ]
    pass_at: Annotated[
        Measured | None, ShownAs("How often at least one of N answers passes", "pass@N", "pass@N")
    ] = None
    pass_all: Annotated[Measured | None, ShownAs("How often all of N answers pass", "pass^N", "pass^N")] = (
        None
    )
    pass_at_k: Annotated[Mapping[str, Measured] | None, ShownAs("pass@k by k", elsewhere=FILES)] = None
    pass_all_k: Annotated[Mapping[str, Measured] | None, ShownAs("pass^k by k", elsewhere=FILES)] = None


class SampledPart(NamedTuple):
    """Whose repeated answers are measured: a student's in a task, by one factor or label, or `WHOLE`."""

    student: str
    task: str
    factor: str


SamplesByPart: TypeAlias = Mapping[SampledPart, FactorSamples]


def measure_samples(reader: RunReader) -> SamplesByPart | None:
    """Measure repeated answers by student, task and factor, whole answers first; None if there are none."""
    if not reader.has_samples:
        return None
    grid = read_grid_with_removed(reader)
    labels = read_label_grid(reader, grid)
    by_key = {
        SampledPart(student, grid.tasks[rows.task], rows.factor or WHOLE): measured
        for student_code, student in enumerate(grid.students)
        if student in grid.samples
        for rows in (*_group_answer_scores(grid, student_code), *_group_answer_labels(labels, student_code))
        if (measured := _measure_answers(rows, student, grid)) is not None
    }
    order = sorted(by_key, key=lambda part: (part.task, part.factor != WHOLE, part.factor, part.student))
    return {key: by_key[key] for key in order} or None


class _Answers(NamedTuple):
    """A student's answers in a task, by item, with the score of each in one factor or label, or as a whole;
    NaN where it has none. ``passes``: each either passes or fails."""

    task: int
    factor: str | None
    item: Codes
    score: Floats
    passes: bool


def _group_answer_scores(grid: ScoreGrid, student: int) -> Iterator[_Answers]:
    for task_code in range(len(grid.tasks)):
        own = grid.select_rows((grid.student == student) & (grid.task == task_code))
        answers, first, at = np.unique(own.answer, return_index=True, return_inverse=True)
        sums = own.sum_scores()
        with np.errstate(invalid="ignore"):
            totals = (np.bincount(at, column, len(answers)) for column in (sums.total, sums.share))
            whole = np.divide(*totals)
        yield _Answers(task_code, None, own.item[first], whole, passes=False)
        for factor in np.unique(own.factor).tolist():
            rows = own.select_rows(own.factor == factor)
            sums, name = rows.sum_scores(equal_weights=True), grid.factors[factor]
            scores = rows.values[rows.levels[rows.valid]]
            if rows.checked is not None:
                scores = np.append(scores, rows.checked[np.isfinite(rows.checked)])
            is_binary = bool(np.isin(scores, (0.0, 1.0)).all())
            passes = is_binary and _is_pass_or_fail_factor(grid, task_code, name)
            yield _Answers(task_code, name, rows.item, sums.total / sums.units, passes)


def _group_answer_labels(labels: ScoreGrid, student: int) -> Iterator[_Answers]:
    own = labels.select_rows(labels.student == student)
    for task_code in range(len(labels.tasks)):
        for factor, name in enumerate(labels.factors):
            rows = own.select_rows((own.factor == factor) & (own.task == task_code))
            if rows.checked is not None:
                yield _Answers(task_code, name, rows.item, rows.checked, passes=True)


def _measure_answers(answers: _Answers, student: str, grid: ScoreGrid) -> FactorSamples | None:
    """Measure how a student's answers vary; None where no answer has a score."""
    has_score = np.isfinite(answers.score)
    score = answers.score[has_score]
    if not len(score):
        return None
    numbers, at = np.unique(answers.item[has_score], return_inverse=True)
    columns = (np.ones(len(score)), score > _HALF, score == _HALF, score, score**2)
    n, passed, halves, total, squares = (
        np.bincount(at, column, len(numbers)).astype(np.float64) for column in columns
    )
    clusters = None if grid.items.alike is None else grid.items.alike[numbers]

    def mean_over_items(values: Floats, enough: NDArray[np.bool_]) -> Measured:
        items_clusters = None if clusters is None else [clusters[enough]]
        return Measured.from_interval(mean_over_strata([values[enough]], clusters=items_clusters))

    samples, pass_rates, all_rates = grid.samples[student], dict[str, Measured](), dict[str, Measured]()
    doubled = itertools.takewhile(lambda k: k < samples, (1 << power for power in itertools.count()))
    for k in (*doubled, samples) if answers.passes else ():
        if (enough := n >= k).any():
            pass_rates[str(k)] = mean_over_items(estimate_pass_at(n, passed, halves, k), enough)
            all_rates[str(k)] = mean_over_items(estimate_pass_all(n, passed, halves, k), enough)
    means, has_several = total / n, n > 1
    within = (squares - total * means)[has_several] / (n[has_several] - 1)
    return FactorSamples(
        mean=mean_over_items(means, n > 0),
        samples=samples,
        item_se=clustered_standard_error(means, np.arange(len(means)) if clusters is None else clusters),
        sample_sd=float(np.sqrt(max(within.mean(), 0.0))) if has_several.any() else None,
        pass_at=list(pass_rates.values())[-1] if pass_rates else None,
        pass_all=list(all_rates.values())[-1] if all_rates else None,
        pass_at_k=pass_rates if answers.passes else None,
        pass_all_k=all_rates if answers.passes else None,
    )


# Several judges of an answer decide by majority: above a half it passes, and at a half it does half.
_HALF = 0.5


def _is_pass_or_fail_factor(grid: ScoreGrid, task: int, factor: str) -> bool:
    """Check whether a factor passes or fails: a check, or one on a scale of two levels."""
    plan = grid.planned.tasks.get(grid.tasks[task]) if grid.planned is not None else None
    if plan is None:
        return False
    return factor in (plan.checks or ()) or (factor in plan.scales and len(plan.scales[factor].levels) == 2)


def estimate_pass_at(n: Floats, passed: Floats, halves: Floats, k: int) -> Floats:
    """Estimate (unbiased) how often one of k answers passes, item by item: ``1 − C(n − c, k) / C(n, k)``;
    meaningless where n < k. ``halves``: answers that pass half of the time, as by the toss of a coin."""
    return 1 - estimate_pass_all(n, n - passed - halves, halves, k)


def estimate_pass_all(n: Floats, passed: Floats, halves: Floats, k: int) -> Floats:
    """Estimate (unbiased) how often all of k pass, ``C(c, k) / C(n, k)``; arguments as `estimate_pass_at`."""
    drawn, total = np.arange(k)[:, None], np.zeros(len(n))
    for heads in range(int(halves.max(initial=0)) + 1):  # one by one: together they take gigabytes
        # in logarithms, and factor by factor: binomials of 1,000 are beyond floats
        ways = gammaln(halves + 1) - gammaln(heads + 1) - gammaln(halves - heads + 1) - halves * np.log(2)
        with np.errstate(divide="ignore", invalid="ignore"):
            total += np.exp(ways) * np.prod(np.maximum(passed + heads - drawn, 0) / (n - drawn), axis=0)
    return total
