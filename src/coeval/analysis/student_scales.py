"""A student on other scales than judged scores, as results are handed on: of people, of comparisons, and of
several answers to an item."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from coeval.core.figures import MISSING, points_text


@dataclass(frozen=True, slots=True)
class HumanScore:
    """A student's mean on the ``scale`` of all factors, or of the one that people labelled, 0 to 1.

    ``judged`` is that of the judges over all answers; ``mean`` that on the human scale, by so many
    ``labels`` of its answers and the judged scores of the others (PPI++), each with its 95% interval. None
    where there are too few labels.
    """

    student: str
    scale: str
    judged: float | None
    judged_low: float | None
    judged_high: float | None
    mean: float | None
    low: float | None
    high: float | None
    labels: int

    @property
    def judged_points(self) -> str:
        """By judges, with the interval; empty where there is none."""
        return points_text(self.judged, self.judged_low, self.judged_high) or ""

    @property
    def points(self) -> str:
        """On the human scale, with the interval; empty where there is none."""
        return points_text(self.mean, self.low, self.high) or ""


@dataclass(frozen=True, slots=True)
class PairStrength:
    """How likely a student wins against one of the others, 0 to 1, by Bradley–Terry with its 95% interval.

    ``ranks`` are the best and the worst that it may have; ``win_rate`` its wins in so many ``comparisons``,
    of which ``ties`` count half.
    """

    student: str
    strength: float | None
    low: float | None
    high: float | None
    ranks: tuple[int, int]
    win_rate: float | None
    ties: int
    comparisons: int

    @property
    def rank(self) -> str:
        """``2``, or ``2–4`` where it is not certain."""
        return "–".join(str(rank) for rank in dict.fromkeys(self.ranks))

    @property
    def points(self) -> str:
        """The strength with its interval."""
        return points_text(self.strength, self.low, self.high) or MISSING


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
