"""Tests that are valid at any look at a growing run, whenever one stops.

A p-value is valid once. Looked at ten times while items come, one of two equal students is ahead at 5% in a
fifth of all runs. A normal mixture (Robbins 1970; as a sequence of intervals: Howard and others 2021) pays
for all looks at once: it may be looked at after every item, and is narrowest at the number of items that is
planned. ``python -m evidence.looks`` measures it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, ndtri_exp, stdtrit

from coeval.analysis.intervals import ALPHA, LEVEL, Bounds

# The mixture's variance, times the planned items, that makes the interval narrowest there: Howard and others
# (2021), equation 3.7, ``−2 log α + log(1 − 2 log α)``.
_TUNED = -2 * float(np.log(ALPHA)) + float(np.log(1 - 2 * np.log(ALPHA)))
# Standard errors up to which t has a quantile of the same tail in floating point.
_FARTHEST = 8.0
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class Looks(NamedTuple):
    """The look that is being taken at a run: its ``number``, and the ``share`` of the planned items that have
    scores. ``growing``: the run is at work or was interrupted, so this look will hardly be the last."""

    number: int
    share: float
    growing: bool = False

    @property
    def many(self) -> bool:
        """Whether it is one of several, or will be."""
        return self.growing or self.number > 1

    @property
    def name(self) -> str:
        """``third look``"""
        number = self.number
        return f"{_ORDINALS[number - 1]} look" if number <= len(_ORDINALS) else f"look {number}"


def joined(looks: Iterable[Looks | None]) -> Looks | None:
    """Return the look at two runs that are held against each other: as many as at the one looked at most, and
    as early as in the one that has least. None: only one look was taken at either."""
    several = [one for one in looks if one is not None and one.many]
    if not several:
        return None
    return Looks(
        max(one.number for one in several),
        min(one.share for one in several),
        any(one.growing for one in several),
    )


def p_at_any_look(p: float, looks: Looks | None) -> float:
    """Return the p-value that holds at any look, for one that holds once: 1/E with the mixture's
    ``E = exp(z² r / (2 (1 + r))) / √(1 + r)``, z the normal quantile of p and r the share of the planned
    items, times what makes the sequence narrowest at all of them. One look: p itself."""
    if looks is None or not looks.many:
        return p
    r = _TUNED * looks.share
    z = -float(ndtri_exp(np.log(max(p, 1e-300) / 2)))
    return max(p, min(1.0, float(np.exp(0.5 * np.log1p(r) - z**2 * r / (2 * (1 + r))))))


def alpha_at_any_look(alpha: float, looks: Looks | None) -> float:
    """Return the one-sided level of a single test that holds at any look at ``alpha``: `p_at_any_look`
    inverted."""
    if looks is None or not looks.many:
        return alpha
    return float(ndtr(-_mixture_quantile(2 * alpha, looks.share)))


def detectable_at_any_look(least: float, looks: Looks, *, power: float, family: int) -> float:
    """Return the true difference that is found with this power at any look, for the ``least`` one that a test
    that holds once finds so: it takes the mixture's quantile in place of the normal one, both at 5 % shared
    out evenly among the ``family``."""
    alpha, more = ALPHA / family, float(ndtri(power))
    stretch = (_mixture_quantile(alpha, looks.share) + more) / (float(-ndtri(alpha / 2)) + more)
    return min(least * stretch, 1.0)


def _mixture_quantile(alpha: float, share: float) -> float:
    r = _TUNED * share
    return float(np.sqrt((1 + r) / r * (np.log1p(r) - 2 * np.log(alpha))))


def bounds_at_any_look(middle: float, bounds: Bounds, degrees: float, looks: Looks) -> Bounds:
    """Return the interval of a difference in the sequence that holds the truth at all looks in 95 of 100
    runs: the fixed one, which has these ``degrees`` of freedom, widened from its quantile to the mixture's;
    within −1 and 1."""
    most = _mixture_quantile(ALPHA, looks.share)
    near = min(most, _FARTHEST)
    far = -float(stdtrit(degrees, ndtr(-near))) * most / near
    wider = far / float(stdtrit(degrees, (1 + LEVEL) / 2))
    low, high = middle - (middle - bounds.low) * wider, middle + (bounds.high - middle) * wider
    return Bounds(max(low, -1.0), min(high, 1.0))
