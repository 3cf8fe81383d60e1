"""A student by several answers to an item."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class PassRate(msgspec.Struct, frozen=True):
    """Of k answers to an item that are drawn without replacement of its N: how often one of them passes, and
    how often all do.

    ``one`` is pass@k, ``1 − C(n − c, k) / C(n, k)`` with the c of an item's n answers that pass (Chen and
    others 2021), ``all`` is pass^k, ``C(c, k) / C(n, k)`` (Yao and others 2024): each the mean over the ``n``
    items that have k answers or more, with its 95% interval.
    """

    k: int
    n: int
    one: float
    one_low: float
    one_high: float
    all: float
    all_low: float
    all_high: float


@dataclass(frozen=True, slots=True)
class SampledScore:
    """A student's scores in a task over its ``samples`` answers to each of ``n`` items: of a ``factor`` or a
    label, or (None) of whole answers.

    ``mean`` is that over items of the mean over their answers (mean@N), with its 95% interval. ``item_se``
    is its standard error over items, None of fewer than two; ``sample_sd`` how far answers to one item lie
    apart (the root of the mean variance within items), None where no item has two. ``passes``: pass@k and
    pass^k for k = 1, 2, 4, … N; none where scores are not right or wrong.
    """

    student: str
    task: str
    factor: str | None
    samples: int
    n: int
    mean: float | None
    low: float | None
    high: float | None
    item_se: float | None
    sample_sd: float | None
    passes: tuple[PassRate, ...] = ()
