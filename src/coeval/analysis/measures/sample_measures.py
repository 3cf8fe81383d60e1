"""What several answers to an item show, as a part of a run's measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from coeval.analysis.measures.measured import FILES, Entity, Measured, ShownAs
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.sampled_answers import sampled_scores
from coeval.analysis.sampled_scores import PassRate, SampledScore

WHOLE = "(whole answer)"
"""In the place of a factor, where the scores are those of whole answers."""


class FactorSamples(Entity, frozen=True):
    """A student's scores in a task over several answers to each item: of one factor or label, or of whole
    answers (`SampledScore`). ``pass_at`` and ``pass_all`` are those of all samples; none where scores are not
    right or wrong."""

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
    return {
        (one.student, one.task, one.factor or WHOLE): _measures(one) for one in sampled_scores(reader)
    } or None


def _measures(one: SampledScore) -> FactorSamples:
    mean = Measured(one.mean, one.low, one.high, one.n, None)
    found = FactorSamples(mean, one.samples, one.item_se, one.sample_sd)
    if not one.passes:
        return found
    at = {str(rate.k): _one(rate) for rate in one.passes}
    every = {str(rate.k): _all(rate) for rate in one.passes}
    last = one.passes[-1]
    return FactorSamples(mean, one.samples, one.item_se, one.sample_sd, _one(last), _all(last), at, every)


def _one(rate: PassRate) -> Measured:
    return Measured(rate.one, rate.one_low, rate.one_high, rate.n, None)


def _all(rate: PassRate) -> Measured:
    return Measured(rate.all, rate.all_low, rate.all_high, rate.n, None)
