"""Means of scores by groups, each with an interval that is clustered by datapoint.

The mean of a group is over its units, that is its (response, factor, judge) scores. Units of one datapoint
depend on each other, so the interval is that of `coeval.analysis.intervals.clustered_mean` with datapoints as
clusters (Liang and Zeger 1986); those that nearly repeat each other are one. Scores are whole numbers of
halves, so all sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coeval.analysis.intervals import Clusters, Floats, Interval, mean_of_clusters
from coeval.analysis.measures.score_grid import Codes

__all__ = ["Grouping", "Sums", "group_means"]

_HALVES = 2.0


@dataclass(frozen=True, slots=True)
class Sums:
    """Levels (0, 1, 2) and how many there are, by row: (R,)."""

    total: Codes
    count: Codes


@dataclass(frozen=True, slots=True)
class Grouping:
    """To which group, and to which datapoint, each row belongs: (R,); how many groups there are, and the
    cluster of each datapoint, (I,). A row whose group is below 0 is in none."""

    group: Codes
    item: Codes
    groups: int
    cluster: Codes


def group_means(parts: Grouping, sums: Sums) -> list[Interval]:
    """The mean of each group, 0 to 1, with its datapoints, or groups of such, as clusters."""
    counts = (parts.group >= 0) & (sums.count > 0)
    most = max(len(parts.cluster), int(parts.cluster.max(initial=0)) + 1)
    own = parts.group[counts].astype(np.int64) * most
    items = np.bincount(np.unique(own + parts.item[counts]) // most, minlength=parts.groups)
    clusters, which = np.unique(own + parts.cluster[parts.item[counts]], return_inverse=True)
    total = np.bincount(which, sums.total[counts], len(clusters)) / _HALVES
    count = np.bincount(which, sums.count[counts], len(clusters)).astype(np.float64)
    group = clusters // most

    def summed(values: Floats) -> Floats:
        return np.bincount(group, values, parts.groups).astype(np.float64)

    units, squares, cross = summed(count), summed(total**2), summed(total * count)
    found, scores, sizes = np.bincount(group, minlength=parts.groups), summed(total), summed(count**2)
    return [
        mean_of_clusters(
            Clusters(
                int(items[place]),
                int(found[place]),
                int(units[place]),
                float(scores[place]),
                float(squares[place]),
                float(cross[place]),
                float(sizes[place]),
            )
        )
        for place in range(parts.groups)
    ]
