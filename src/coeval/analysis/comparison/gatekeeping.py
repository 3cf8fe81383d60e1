"""One error rate for a page of comparisons: what lies below is tested where what lies above is significant.

A page is a tree: the overall difference of each pair, below it its tasks, below each task its factors and
metrics; labels, which are in no score, are a branch of their own. Each subtree has its share of the 5%:
where its root is truly no difference, the root lets through a false claim that seldom; where it is one, the
root may be significant as often as it likes, and what is below it shares the same 5%. So any false claim of
a page, whatever is true, is made in at most 5 of 100 pages (Dmitrienko, Offen and Westfall 2003; as a
graph: Bretz, Maurer, Brannath and Posch 2009).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from coeval.analysis.comparison.paired_difference import holm


def gatekept(
    p_values: Sequence[float | None], above: Sequence[int | None], branches: Sequence[Hashable] = ()
) -> list[float | None]:
    """Adjusted p-values of a tree, in the order given; None where there is none.

    Tests beside each other share the level of what is above: evenly where they have tests below, by Holm's
    adjustment where none has. None is below the p-value of what is above it.

    Parameters
    ----------
    p_values : (m,)
    above : (m,) of each, the place of the test that must be significant first; None: none must
    branches : (m,) of each with nothing above, its branch; branches share the level evenly; empty: one
    """
    roots, below = defaultdict[Hashable, list[int]](list), defaultdict[int, list[int]](list)
    for place, parent in enumerate(above):
        if p_values[place] is None:
            continue
        if parent is None:
            roots[branches[place] if branches else None].append(place)
        else:
            below[parent].append(place)
    found: list[float | None] = [None] * len(p_values)
    waiting = [(beside, len(roots), 0.0) for beside in roots.values()]
    while waiting:
        beside, shared, least = waiting.pop()
        for place, raised in _raised(p_values, beside, below).items():
            adjusted = min(max(least, shared * raised), 1.0)
            found[place] = adjusted
            waiting.append((below.get(place, []), shared * len(beside), adjusted))
    return found


def _raised(
    p_values: Sequence[float | None], beside: Sequence[int], below: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    own = [p_values[place] or 0.0 for place in beside]
    if any(below.get(place) for place in beside):
        return {place: len(beside) * p for place, p in zip(beside, own, strict=True)}
    return dict(zip(beside, holm(own), strict=True))
