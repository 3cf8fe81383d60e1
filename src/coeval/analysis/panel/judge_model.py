"""What judges see in answers, as a model: each has its own thresholds and its own leanings.

Differences of scores cannot tell a leaning from mere strictness: where all give an excellent answer full
marks, a strict judge looks as kind as the others, and so kinder to whoever writes excellent answers. The
graded response model (Samejima 1969) knows that levels end. An answer has a quality, normal around the mean
of its task and student; a judge gives at least Medium, and High, with the probabilities

    σ(s_j (q + φ_f + Σ_c β_jc x_jc − m_j))  and  σ(s_j (q + φ_f + Σ_c β_jc x_jc − h_j)),

where φ_f is how easy a factor is, and x_jc says what the judge may lean on (the answer is of its family; it
is long). Qualities are integrated out by quadrature, parameters found by maximum likelihood with scoring
steps, and their errors are those of a sandwich that is clustered by datapoint (White 1982).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import expit

from coeval.analysis.intervals import Floats

__all__ = ["JudgeFit", "JudgedRows", "fit_judges"]

_NODES, _WEIGHTS = hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_RIDGE = 1e-2
"""A weak pull to zero, for what the scores say nothing about; …"""
_SHAPE_RIDGE = 1.0
"""… and one on how steep a judge is and how far its thresholds lie apart, which a judge without noise would
drive to infinity."""
_STEPS = 60
_ENOUGH = 1e-6
_SMALL = 1e-4

Codes = NDArray[np.integer[Any]]


class JudgedRows(NamedTuple):
    """R rows of scored (answer, factor), those of an answer together.

    ``levels`` is (R, J), 0 to 2 and below 0 where there is none; ``start`` the first row of each of A
    answers; ``group`` (A,) its task and student, ``cluster`` (A,) its datapoint, ``factor`` (R,);
    ``leanings`` C arrays of (A, J).
    """

    levels: NDArray[np.int8]
    start: Codes
    group: Codes
    cluster: Codes
    factor: Codes
    leanings: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class JudgeFit:
    """``leanings`` (C, J) in units of quality's standard deviation, ``covariance`` (C·J, C·J) in that order;
    ``slopes`` (A, J): what a step of one is worth in score, 0 to 1, at each answer; ``clusters``: how many
    datapoints this rests on."""

    leanings: Floats
    covariance: Floats
    slopes: Floats
    clusters: int


class _ModelState(NamedTuple):
    likelihood: float
    scores: Floats
    slopes: Floats


def fit_judges(rows: JudgedRows) -> JudgeFit:
    """Fit the model; rows with scores of one judge only count too, and say little."""
    model = _GradedModel(rows)
    parameters = model.start()
    state = model.at(parameters)
    for _ in range(_STEPS):
        gradient = state.scores.sum(axis=0) - model.ridge * parameters
        step = np.linalg.solve(state.scores.T @ state.scores + np.diag(model.ridge), gradient)
        gain = float(gradient @ step)
        parameters, state, moved = model.moved(parameters, state, step)
        if gain < _ENOUGH * max(1.0, abs(state.likelihood)) or not moved:
            break
    return model.fitted(parameters, state)


class _GradedModel:
    def __init__(self, rows: JudgedRows) -> None:
        self._rows = rows
        _, self._judges = rows.levels.shape
        self._answer = np.repeat(np.arange(len(rows.start)), np.diff(np.append(rows.start, len(rows.levels))))
        sizes = [self._judges] * 3 + [int(rows.group.max()) + 1, int(rows.factor.max()) + 1]
        sizes += [self._judges] * len(rows.leanings)
        self._ends = np.cumsum([0, *sizes])
        self.ridge = np.full(int(self._ends[-1]), _RIDGE)
        self.ridge[self._judges : 3 * self._judges] = _SHAPE_RIDGE
        level = rows.levels[..., None]
        self._none, self._high, self._medium = level < 0, level == 2, level == 1

    def start(self) -> Floats:
        found = np.zeros(int(self._ends[-1]))
        found[: self._judges] = -0.5
        found[self._judges : 3 * self._judges] = 0.5
        return found

    def at(self, parameters: Floats) -> _ModelState:
        """Log-likelihood, the answers' scores (its gradient by answer: (A, P)), and slopes."""
        medium, gap, steep, group, factor, *leanings = np.split(parameters, self._ends[1:-1])
        rows, width, slope = self._rows, np.exp(gap), np.exp(steep)
        shift = group[rows.group][:, None] + sum(
            (x * beta for x, beta in zip(rows.leanings, leanings, strict=True)),
            np.zeros((len(rows.group), self._judges)),
        )
        place = (shift[self._answer] + factor[rows.factor][:, None] - medium)[..., None] + _NODES
        at_medium = slope[:, None] * place
        at_high = at_medium - (slope * width)[:, None]
        p_medium, p_high = expit(at_medium), expit(at_high)
        chance = np.where(self._high, p_high, np.where(self._medium, p_medium - p_high, 1 - p_medium))
        chance = np.where(self._none, 1.0, np.maximum(chance, 1e-12))
        log_chance = np.add.reduceat(np.log(chance).sum(axis=1), rows.start, axis=0)
        most = log_chance.max(axis=1, keepdims=True)
        weight = np.exp(log_chance - most) * _WEIGHTS
        total = weight.sum(axis=1, keepdims=True)
        posterior = (weight / total)[self._answer][:, None, :]
        d_medium, d_high = p_medium * (1 - p_medium), p_high * (1 - p_high)
        from_medium = np.where(self._high, 0, np.where(self._medium, d_medium / chance, -p_medium))
        from_high = np.where(self._high, 1 - p_high, np.where(self._medium, -d_high / chance, 0))
        from_medium = np.where(self._none, 0, from_medium) * posterior
        from_high = np.where(self._none, 0, from_high) * posterior
        by_place = ((from_medium + from_high) * slope[:, None]).sum(axis=-1)
        by_answer = np.add.reduceat(by_place, rows.start, axis=0)
        steepness = (from_medium * at_medium + from_high * at_high).sum(axis=-1)
        scores = np.zeros((len(rows.start), len(parameters)))
        parts = np.split(scores, self._ends[1:-1], axis=1)
        parts[0][:] = -by_answer
        parts[1][:] = -np.add.reduceat(from_high.sum(axis=-1), rows.start, axis=0) * slope * width
        parts[2][:] = np.add.reduceat(steepness, rows.start, axis=0)
        parts[3][np.arange(len(rows.group)), rows.group] = by_answer.sum(axis=1)
        np.add.at(parts[4], (self._answer, rows.factor), by_place.sum(axis=1))
        for part, x in zip(parts[5:], rows.leanings, strict=True):
            part[:] = by_answer * x
        worth = ((d_medium + d_high) / 2 * slope[:, None] * posterior).sum(axis=-1)
        counts = np.diff(np.append(rows.start, len(worth)))[:, None]
        slopes = np.add.reduceat(worth, rows.start, axis=0) / counts
        likelihood = float((np.log(total) + most).sum()) - float(self.ridge @ parameters**2) / 2
        return _ModelState(likelihood, scores, slopes)

    def moved(self, parameters: Floats, state: _ModelState, step: Floats) -> tuple[Floats, _ModelState, bool]:
        """As far along the step as the likelihood rises: whole, or half, or …"""
        for halvings in range(12):
            tried = parameters + step / 2**halvings
            found = self.at(tried)
            if found.likelihood > state.likelihood:
                return tried, found, True
        return parameters, state, False

    def fitted(self, parameters: Floats, state: _ModelState) -> JudgeFit:
        begin = int(self._ends[5])
        gradient = state.scores.sum(axis=0)
        hessian = np.empty((len(parameters), len(parameters)))
        for place in range(len(parameters)):
            tried = parameters.copy()
            tried[place] += _SMALL
            hessian[place] = (gradient - self.at(tried).scores.sum(axis=0)) / _SMALL
        hessian = (hessian + hessian.T) / 2 + np.diag(self.ridge)
        clusters = int(self._rows.cluster.max()) + 1
        by_cluster = np.zeros((clusters, len(parameters)))
        np.add.at(by_cluster, self._rows.cluster, state.scores)
        bread = np.linalg.pinv(hessian)
        covariance = bread @ (by_cluster.T @ by_cluster) @ bread * clusters / max(clusters - 1, 1)
        return JudgeFit(
            parameters[begin:].reshape(-1, self._judges), covariance[begin:, begin:], state.slopes, clusters
        )
