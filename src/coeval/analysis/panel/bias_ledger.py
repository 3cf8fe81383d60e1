"""What each judge leans on, held against the other judges of the same answers.

``severity`` is how much lower a judge scores than the others do, over the (answer, factor) that it has in
common with them: the others' mean less its own. ``family`` and ``self`` are how much higher it scores answers
of its own family (its own among them), and its own, than the others lead one to expect; ``length`` the same
for an answer of twice the length, compared with the middle one of the other judges. All are in units of a
score from 0 to 1. The latter three come of `coeval.analysis.panel.judge_model`, which tells a leaning from
strictness. ``position`` needs pairs (`coeval.analysis.panel.order_bias`): a run has none, and it is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from coeval.analysis.comparison.multiplicity import holm
from coeval.analysis.intervals import LEVEL, Floats
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.judge_model import JudgedRows, JudgeFit, fit_judges

__all__ = ["BIASES", "UNKNOWN", "Bias", "bias_ledger", "bias_of", "plain_ledger", "severities"]

BIASES = ("severity", "family", "self", "length", "position")
_FAMILY, _SELF, _LENGTH = range(3)
_MOST_SCORES = 6_000
"""So many show what matters, in a second; of more, whole datapoints are drawn, always the same."""
_FEWEST_ITEMS = 6
_NEARLY = 1e-6


class Bias(NamedTuple):
    """A bias with its 95 % interval and p-value; all None where nothing can be told."""

    value: float | None
    low: float | None
    high: float | None
    p: float | None

    @property
    def is_sure(self) -> bool:
        """Whether its interval leaves zero out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


UNKNOWN = Bias(None, None, None, None)


def plain_ledger(ledger: Mapping[str, Mapping[str, Bias]]) -> dict[str, dict[str, Any]]:
    """By judge and bias ``{"value", "ci95", "p_adjusted"}``; the latter is Holm's, over the judges of whom it
    can be told."""
    found: dict[str, dict[str, Any]] = {judge: {} for judge in ledger}
    for name in BIASES:
        of = {judge: biases[name] for judge, biases in ledger.items()}
        known = [judge for judge, bias in of.items() if bias.p is not None]
        adjusted = dict(zip(known, holm([of[judge].p or 0.0 for judge in known]), strict=True))
        for judge, bias in of.items():
            bounds = None if bias.low is None else [bias.low, bias.high]
            found[judge][name] = {
                "value": bias.value,
                "ci95": bounds,
                "p_adjusted": adjusted.get(judge),
            }
    return found


def bias_ledger(grid: ScoreGrid, lengths: Floats, families: Mapping[str, str]) -> dict[str, dict[str, Bias]]:
    """By judge and name of a bias.

    Parameters
    ----------
    lengths : (C,) characters of the answer of each row, NaN where it is not known
    families : of students and judges
    """
    found = {judge: dict.fromkeys(BIASES, UNKNOWN) for judge in grid.judges}
    for judge, severity in severities(grid).items():
        found[judge]["severity"] = severity
    whole = _drawn(grid, grid.valid.sum(axis=1) > 1)
    if len(np.unique(grid.cluster[whole])) < _FEWEST_ITEMS:
        return found
    rows, deviation = _rows(grid, whole, lengths, families)
    known = [_tellable(rows, leaning) for leaning in range(len(rows.leanings))]
    fit = fit_judges(rows)
    for place, judge in enumerate(grid.judges):
        if known[_SELF][place]:
            found[judge]["self"] = _of_own(rows, fit, place, own_only=True)
        if known[_FAMILY][place] or (known[_SELF][place] and not rows.leanings[_FAMILY][:, place].any()):
            found[judge]["family"] = _of_own(rows, fit, place, own_only=False)
        if known[_LENGTH][place]:
            found[judge]["length"] = _of_length(fit, place, known[_LENGTH], deviation)
    return found


def severities(grid: ScoreGrid) -> dict[str, Bias]:
    """By judge."""
    several = grid.valid.sum(axis=1) > 1
    return {
        judge: _severity(grid, place, several & grid.valid[:, place])
        for place, judge in enumerate(grid.judges)
    }


def _severity(grid: ScoreGrid, place: int, rows: NDArray[np.bool_]) -> Bias:
    """A mean over units, clustered by datapoint, or group of such (Liang and Zeger 1986)."""
    levels = np.where(grid.valid[rows], grid.levels[rows], 0) / 2
    own = levels[:, place]
    others = (levels.sum(axis=1) - own) / (grid.valid[rows].sum(axis=1) - 1)
    clusters, at = np.unique(grid.cluster[rows], return_inverse=True)
    if len(clusters) < _FEWEST_ITEMS:
        return UNKNOWN
    value = float((others - own).mean())
    distances = np.bincount(at, others - own - value)
    error = float(np.sqrt((distances @ distances) * len(clusters) / (len(clusters) - 1))) / len(at)
    return bias_of(value, error, len(clusters) - 1)


def bias_of(value: float, error: float, degrees: float) -> Bias:
    """With t's interval and p-value; unknown where nothing differs, and so no spread is there to judge by."""
    if error < _NEARLY:
        return UNKNOWN
    half = float(stdtrit(degrees, (1 + LEVEL) / 2)) * error
    return Bias(value, value - half, value + half, 2 * float(stdtr(degrees, -abs(value) / error)))


def _drawn(grid: ScoreGrid, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """All rows, or those of some datapoints where there are many."""
    scores = int(grid.valid[rows].sum())
    if scores <= _MOST_SCORES:
        return rows
    items = np.unique(grid.item[rows])
    taken = max(_FEWEST_ITEMS, int(len(items) * _MOST_SCORES / scores))
    chosen = np.random.default_rng(0).choice(items, min(taken, len(items)), replace=False)
    return np.asarray(rows & np.isin(grid.item, chosen))


def _rows(
    grid: ScoreGrid, whole: NDArray[np.bool_], lengths: Floats, families: Mapping[str, str]
) -> tuple[JudgedRows, float]:
    """And the standard deviation of the binary logarithms of the lengths, 0 where they do not differ."""
    answer = grid.item[whole].astype(np.int64) * len(grid.students) + grid.student[whole]
    order = np.argsort(answer, kind="stable")
    _, start = np.unique(answer[order], return_index=True)
    first = np.flatnonzero(whole)[order][start]
    students = grid.student[first]
    group = np.unique(grid.task[first].astype(np.int64) * len(grid.students) + students, return_inverse=True)[
        1
    ]
    own = np.array([[one == judge for judge in grid.judges] for one in grid.students], np.float64)
    kin = np.array(
        [[families.get(one) == families.get(judge) for judge in grid.judges] for one in grid.students],
        np.float64,
    )
    logs = np.log2(lengths[first] + 1)
    told = np.isfinite(logs)
    deviation = float(logs[told].std()) if told.any() else 0.0
    standard = (
        np.where(told, (logs - logs[told].mean()) / deviation, 0.0) if deviation > _NEARLY else 0 * logs
    )
    long = np.repeat(np.nan_to_num(standard)[:, None], len(grid.judges), axis=1)
    rows = JudgedRows(
        levels=grid.levels[whole][order],
        start=start,
        group=group,
        cluster=np.unique(grid.cluster[first], return_inverse=True)[1],
        factor=np.unique(grid.factor[whole][order], return_inverse=True)[1],
        leanings=((kin * (1 - own))[students], own[students], long),
    )
    return rows, deviation


def _tellable(rows: JudgedRows, leaning: int) -> NDArray[np.bool_]:
    """(J,): whether a judge's leaning shows in differences between judges of the same answers.

    Of what all of them may lean on alike (length), only differences between them can be told: two judges with
    scores suffice. Else the judge must have scored answers of both kinds, in company.
    """
    x = rows.leanings[leaning]
    valid = np.logical_or.reduceat(rows.levels >= 0, rows.start, axis=0)
    both = valid & (valid.sum(axis=1, keepdims=True) > 1)
    if leaning == _LENGTH:
        varies = np.array([len(np.unique(x[of, judge])) > 1 for judge, of in enumerate(both.T)])
        return np.asarray(varies & (varies.sum() > 1))
    others = (valid & (x == 0)).sum(axis=1, keepdims=True) > 0
    leaned = (both & (x > 0) & others).any(axis=0)
    kin = rows.leanings[_FAMILY] if leaning == _FAMILY else 0
    not_leaned = (both & (rows.leanings[_SELF] + kin == 0)).any(axis=0)
    return np.asarray(leaned & not_leaned)


def _of_own(rows: JudgedRows, fit: JudgeFit, place: int, *, own_only: bool) -> Bias:
    """The mean over the answers of itself, or of its whole family, of what these gain."""
    judges = fit.leanings.shape[1]
    weights, answers = np.zeros(fit.leanings.size), 0
    for leaning in (_SELF,) if own_only else (_FAMILY, _SELF):  # no answer is in both
        of = (rows.leanings[leaning][:, place] > 0) & np.isfinite(fit.slopes[:, place])
        weights[leaning * judges + place] = float(fit.slopes[of, place].sum())
        answers += int(of.sum())
    strangers = rows.leanings[_FAMILY][:, place] + rows.leanings[_SELF][:, place] == 0
    if own_only and not strangers.any():  # all are kin: itself against these
        weights[_FAMILY * judges + place] = -weights[_SELF * judges + place]
    return _contrast(fit, weights / answers)


def _of_length(fit: JudgeFit, place: int, known: NDArray[np.bool_], deviation: float) -> Bias:
    """Against the middle one of the other judges; of two in the middle, the one that is nearer."""
    judges = fit.leanings.shape[1]
    lean = fit.leanings[_LENGTH]
    others = sorted((e for e in np.flatnonzero(known).tolist() if e != place), key=lambda e: float(lean[e]))
    middle = others[(len(others) - 1) // 2 : len(others) // 2 + 1]
    other = min(middle, key=lambda e: abs(float(lean[e]) - float(lean[place])))
    weights = np.zeros(fit.leanings.size)
    slope = float(np.nanmean(fit.slopes[:, place])) / deviation
    weights[_LENGTH * judges + place], weights[_LENGTH * judges + other] = slope, -slope
    return _contrast(fit, weights)


def _contrast(fit: JudgeFit, weights: Floats) -> Bias:
    value = float(weights @ fit.leanings.ravel())
    error = max(float(weights @ fit.covariance @ weights), 0.0) ** 0.5
    return bias_of(value, error, fit.blocks - 1)
