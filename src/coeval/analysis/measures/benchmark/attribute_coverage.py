"""How much of the declared space of attributes a task's datapoints cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

__all__ = ["Coverage", "Space", "attribute_coverage"]

Space: TypeAlias = Mapping[str, Sequence[str]]
"""Attribute → its declared values."""

Stratum: TypeAlias = tuple[str, ...]
"""``attribute=value``, or two of them in order."""


class Coverage(NamedTuple):
    """Over strata, that is ``attribute=value``: ``acr`` = those declared that occur / all declared; ``rar`` =
    those declared that occur once or twice / those that occur at most twice (None where there are none). The
    same over pairs of values of two attributes. None where nothing is declared. ``absent``: the strata that
    do not occur."""

    acr: float | None
    rar: float | None
    pairwise_acr: float | None
    pairwise_rar: float | None
    absent: tuple[str, ...]


_RARE = 2


def attribute_coverage(declared: Space, sampled: Iterable[Sequence[str]]) -> Coverage:
    """``sampled``: the strata of each datapoint, ``attribute=value``; what is not declared does not count.
    Either may hold a ``=`` of its own: strata are compared as they stand, and never taken apart."""
    single: Counter[Stratum] = Counter()
    double: Counter[Stratum] = Counter()
    for strata_of in sampled:
        single.update((stratum,) for stratum in strata_of)
        double.update(combinations(sorted(strata_of), 2))
    strata: list[Stratum] = [
        (f"{name}={value}",) for name, values in declared.items() for value in dict.fromkeys(values)
    ]
    pairs: list[Stratum] = [
        (min(a, b), max(a, b))
        for one, other in combinations(sorted(declared), 2)
        for a in (f"{one}={value}" for value in dict.fromkeys(declared[one]))
        for b in (f"{other}={value}" for value in dict.fromkeys(declared[other]))
    ]
    absent = tuple(stratum[0] for stratum in strata if not single[stratum])
    return Coverage(*_ratios(strata, single), *_ratios(pairs, double), absent)


def _ratios(declared: Sequence[Stratum], found: Counter[Stratum]) -> tuple[float | None, float | None]:
    counts = [found[stratum] for stratum in declared]
    if not counts:
        return None, None
    scarce = [count for count in counts if count <= _RARE]
    rare = sum(1 for count in scarce if count)
    return sum(1 for count in counts if count) / len(counts), rare / len(scarce) if scarce else None
