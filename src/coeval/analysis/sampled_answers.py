"""What several samples of an answer show: how much a student's answers vary, how often one of k passes, and
how often all of k do.

Samples of an item are pooled within it; items are what is random. Figures are of students that gave more than
one answer to an item.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from coeval.analysis.intervals import Floats, Interval, clustered_error, mean_over_strata
from coeval.analysis.measures.measured import FILES, Entity, Measured, ShownAs, of_interval
from coeval.analysis.readers.run_reader import RunReader

WHOLE = "(whole answer)"
"""In the place of a factor, where the scores are those of whole answers."""


class FactorSamples(Entity, frozen=True):
    """A student's scores in a task over several answers to each item: of one factor or label, or of whole
    answers. Of k answers drawn without replacement of an item's n, of which c pass, ``pass_at`` (pass@k) is
    how often one passes, ``1 − C(n − c, k) / C(n, k)`` (Chen and others 2021), ``pass_all`` (pass^k) how
    often all do, ``C(c, k) / C(n, k)`` (Yao and others 2024): of all samples, and by k. None where scores are
    not right or wrong."""

    mean: Annotated[
        Measured, ShownAs("Mean over items of the mean over their answers (mean@N)", "mean@N", "mean@N")
    ]
    samples: Annotated[int, ShownAs("Answers to an item", "Answers to an item (N)", "N", "count")]
    item_se: Annotated[
        float | None, ShownAs("How far other items would move the mean", "Item s.e.", "item s.e.", "points")
    ]
    sample_sd: Annotated[
        float | None, ShownAs("How far answers to one item lie apart", "Sd in item", "sd in item", "points")
    ]
    pass_at: Annotated[
        Measured | None, ShownAs("How often at least one of N answers passes", "pass@N", "pass@N", "points")
    ] = None
    pass_all: Annotated[
        Measured | None, ShownAs("How often all of N answers pass", "pass^N", "pass^N", "points")
    ] = None
    pass_at_k: Annotated[Mapping[str, Measured] | None, ShownAs("pass@k by k", elsewhere=FILES)] = None
    pass_all_k: Annotated[Mapping[str, Measured] | None, ShownAs("pass^k by k", elsewhere=FILES)] = None


def sample_measures(reader: RunReader) -> dict[tuple[str, str, str], FactorSamples] | None:
    """Results by student, task and factor, whole answers first; None without several answers."""
    often = [student for student, samples in reader.samples.items() if samples > 1]
    return dict(_measured(reader, often)) if often else None


class _ItemSums(NamedTuple):
    """By item: how many answers there are, how many pass, of how many the judges are evenly divided, the sum
    of their scores, and of the squares."""

    n: Floats
    passed: Floats
    halves: Floats
    total: Floats
    squares: Floats
    clusters: NDArray[np.int64] | None

    def mean(self, values: Floats, some: NDArray[np.bool_] | None = None) -> Interval:
        """Average over items, or over some."""
        clusters = np.arange(len(self.n)) if self.clusters is None else self.clusters
        if some is not None:
            values, clusters = values[some], clusters[some]
        return mean_over_strata([values], clusters=None if self.clusters is None else [clusters])


def _measured(
    reader: RunReader, often: Sequence[str]
) -> Iterator[tuple[tuple[str, str, str], FactorSamples]]:
    for task, student, factor, is_label, sharp, names, *found in reader.rows(
        _BY_ITEM.format(names=reader.names_sql), [often] * 3
    ):
        n, passed, halves, total, squares = (np.array(each, np.float64) for each in found)
        items = _ItemSums(n, passed, halves, total, squares, reader.clusters_of(names))
        means = items.total / items.n
        several = items.n > 1
        within = (items.squares - items.total * means)[several] / (items.n[several] - 1)
        mean = items.mean(means)
        place = np.arange(len(means)) if items.clusters is None else items.clusters
        samples = reader.samples[student]
        passes = is_label or (sharp and factor is not None and _is_binary(reader, task, factor))
        at, every = _pass_rates(items, samples) if passes else (None, None)
        yield (
            (student, task, factor or WHOLE),
            FactorSamples(
                mean=of_interval(mean, None),
                samples=samples,
                item_se=clustered_error(means, place),
                sample_sd=float(np.sqrt(max(within.mean(), 0.0))) if several.any() else None,
                pass_at=_last(at),
                pass_all=_last(every),
                pass_at_k=at,
                pass_all_k=every,
            ),
        )


def _is_binary(reader: RunReader, task: str, factor: str) -> bool:
    """Whether a factor passes or not: a check, or one on a scale of two levels."""
    plan = reader.planned.tasks.get(task) if reader.planned is not None else None
    if plan is None:
        return False
    return factor in (plan.checks or ()) or (factor in plan.scales and len(plan.scales[factor].levels) == 2)


def _pass_rates(items: _ItemSums, samples: int) -> tuple[dict[str, Measured], dict[str, Measured]]:
    """Return pass@k and pass^k for k = 1, 2, 4, … and all samples, over the items that have k answers."""
    doubled = itertools.takewhile(lambda k: k < samples, (1 << power for power in itertools.count()))
    at, every = {}, {}
    for k in (*doubled, samples):
        enough = items.n >= k
        if enough.any():
            counts = items.n, items.passed, items.halves
            at[str(k)] = of_interval(items.mean(pass_at(*counts, k), enough), None)
            every[str(k)] = of_interval(items.mean(pass_all(*counts, k), enough), None)
    return at, every


def _last(rates: Mapping[str, Measured] | None) -> Measured | None:
    return list(rates.values())[-1] if rates else None


def pass_at(n: Floats, passed: Floats, halves: Floats, k: int) -> Floats:
    """Estimate (unbiased) how often one of k answers passes, item by item: ``1 − C(n − c, k) / C(n, k)``;
    meaningless where n < k. ``halves``: answers that pass half of the time, as if a coin were thrown."""
    return 1 - pass_all(n, n - passed - halves, halves, k)


def pass_all(n: Floats, passed: Floats, halves: Floats, k: int) -> Floats:
    """Estimate (unbiased) how often all of k answers pass, item by item: ``C(c, k) / C(n, k)``; ``halves``
    as in `pass_at`."""
    drawn, every = np.arange(k)[:, None], np.zeros(len(n))
    for heads in range(int(halves.max(initial=0)) + 1):  # one by one: together they take gigabytes
        # in logarithms, and factor by factor: binomials of 1,000 are beyond floats
        ways = gammaln(halves + 1) - gammaln(heads + 1) - gammaln(halves - heads + 1) - halves * np.log(2)
        with np.errstate(divide="ignore", invalid="ignore"):
            every += np.exp(ways) * np.prod(np.maximum(passed + heads - drawn, 0) / (n - drawn), axis=0)
    return every


# Several judges of an answer decide by majority: above a half it passes, and at a half it does half.
_BY_ITEM = """
WITH answer AS (
    SELECT task, model, metric AS factor, false AS is_label, item, sample, avg(value) AS value,
           bool_and(value IN (0, 1)) AS sharp
    FROM scores WHERE value IS NOT NULL AND list_contains(?::VARCHAR[], model) GROUP BY ALL
    UNION ALL
    SELECT task, model, NULL, false, item, sample, sum(value * share) / sum(share), false
    FROM weighed_scores WHERE value IS NOT NULL AND share IS NOT NULL
        AND list_contains(?::VARCHAR[], model) GROUP BY ALL
    UNION ALL
    SELECT task, model, attribute, true, item, sample, match::INTEGER::DOUBLE, true
    FROM labels WHERE list_contains(?::VARCHAR[], model)
), of_item AS (
    SELECT task, model, factor, is_label, item, bool_and(sharp) AS sharp, count(*) AS n,
           count(*) FILTER (value > 0.5) AS passed, count(*) FILTER (value = 0.5) AS halves,
           sum(value) AS total, sum(value * value) AS squares
    FROM answer GROUP BY task, model, factor, is_label, item
)
SELECT task, model, factor, is_label, bool_and(sharp), {names}, list(n ORDER BY item),
       list(passed ORDER BY item), list(halves ORDER BY item),
       list(total ORDER BY item), list(squares ORDER BY item)
FROM of_item GROUP BY task, model, factor, is_label ORDER BY task, factor NULLS FIRST, model
"""
