"""Experimental: what a judge leans on, by a graded-response model of all judges of the same answers.

``family`` is how much higher a judge scores answers of its own family (its own among them) than expected,
given all judges' strictness and students' levels; ``self`` the same for its own answers, and ``length`` for
an answer of twice the length, compared with the middle one of the other judges. Units are those of a score, 0
to 1.
The model tells a leaning from strictness, which differences of scores cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import Codes, ScoreGrid
from coeval.analysis.panel.bias_ledger import FEWEST_ITEMS, NEARLY, Bias, bias_of
from coeval.core.records import model_of

# --- Judges' leanings as a graded response model
#
# Differences of scores cannot tell a leaning from mere strictness: where all give an excellent answer full
# marks, a strict judge looks as kind as the others, and so kinder to whoever writes excellent answers. The
# graded response model (Samejima 1969) knows that levels end. An answer has a quality, normal around the mean
# of its task and student; a judge gives at least Medium, and High, with the probabilities
#
#     σ(s_j (q + φ_f + Σ_c β_jc x_jc − m_j))  and  σ(s_j (q + φ_f + Σ_c β_jc x_jc − h_j)),
#
# where φ_f is how easy a factor is, and x_jc says what the judge may lean on (the answer is of its family; it
# is long). Qualities are integrated out by quadrature, parameters found by maximum likelihood (BFGS). Errors
# are those of a jackknife over datapoints, by one Newton step each: the small-sample form of a sandwich that
# is clustered by datapoint (CR3; Bell and McCaffrey 2002). White's own (1982) is too small where they are
# few.

_NODES = np.linspace(-4, 4, 27)
# Near to each other: where judges see well, an answer's quality is known to a fifth of its standard
# deviation, and between nodes that lie further apart the likelihood would have tops of its own.
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()
# A weak pull to zero, for what the scores say nothing about; …
_RIDGE = 1e-2
# … and one on how steep a judge is and how far its thresholds lie apart, which a judge without noise would
# drive to infinity.
_SHAPE_RIDGE = 1.0
# BFGS needs some steps per parameter, of which a panel has dozens; a fit that fails to converge must end.
_STEPS = 300
# The largest slope of the log-likelihood that counts as its top.
_FLAT = 1e-3
# Step of a one-sided difference: near √ε (1e-8) rounding grows, above 1e-3 curvature does.
_SMALL = 1e-4
# Keeps logarithms and quotients finite where a level's probability underflows.
_LEAST_CHANCE = 1e-12
# Of datapoints, which the jackknife leaves out one after the other.
_MOST_BLOCKS = 100


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
    ``slopes`` (A, J): what a step of one is worth in score, 0 to 1, at each answer, NaN where
    the judge scored none; ``blocks``: how many parts of the datapoints were left out one by one."""

    leanings: Floats
    covariance: Floats
    slopes: Floats
    blocks: int


class _ModelState(NamedTuple):
    """The log-likelihood; its gradient by answer, (A, P); how likely each node is for an answer, (A, Q)."""

    likelihood: float
    scores: Floats
    posterior: Floats


def fit_judges(rows: JudgedRows) -> JudgeFit:
    """Fit the model; rows with scores of one judge only count too, and say little."""
    model = _GradedModel(rows)

    def falling(parameters: Floats) -> tuple[float, Floats]:
        state = model.at(parameters)
        return -state.likelihood, model.ridge * parameters - state.scores.sum(axis=0)

    start = model.start()
    scores = model.at(start).scores
    guess = np.linalg.inv(scores.T @ scores + np.diag(model.ridge))
    options = {"hess_inv0": (guess + guess.T) / 2, "gtol": _FLAT, "maxiter": _STEPS}
    return model.fitted(minimize(falling, start, jac=True, method="BFGS", options=options).x)


class _GradedModel:
    """Scores stand as E entries in order of their levels, so that each level is one slice."""

    def __init__(self, rows: JudgedRows) -> None:
        self._rows = rows
        _, self._judges = rows.levels.shape
        answer = np.repeat(np.arange(len(rows.start)), np.diff(np.append(rows.start, len(rows.levels))))
        row, judge = np.nonzero(rows.levels >= 0)
        level = rows.levels[row, judge]
        order = np.argsort(level, kind="stable")
        row, self._judge = row[order], judge[order]
        self._answer, self._factor = answer[row], rows.factor[row]
        self._low, self._medium, self._high = (
            slice(*np.searchsorted(level[order], [which, which + 1]).tolist()) for which in range(3)
        )
        entries = np.arange(len(row))
        self._sums = csr_array((np.ones(len(row)), (self._answer, entries)), (len(rows.start), len(row)))
        sizes = [self._judges] * 3 + [int(rows.group.max()) + 1, int(rows.factor.max()) + 1]
        sizes += [self._judges] * len(rows.leanings)
        self._ends = np.cumsum([0, *sizes])
        self.ridge = np.full(int(self._ends[-1]), _RIDGE)
        self.ridge[self._judges : 3 * self._judges] = _SHAPE_RIDGE

    def start(self) -> Floats:
        found = np.zeros(int(self._ends[-1]))
        found[: self._judges] = -0.5
        found[self._judges : 3 * self._judges] = 0.5
        return found

    def at(self, parameters: Floats) -> _ModelState:
        rows, judge, low, medium, high = self._rows, self._judge, self._low, self._medium, self._high
        at_medium, at_high = self._places(parameters)
        log_chance, from_medium, from_high = (np.zeros_like(at_medium) for _ in range(3))
        p_low, p_high = expit(at_medium[low]), expit(at_high[high])
        log_chance[low] = np.log(np.maximum(1 - p_low, _LEAST_CHANCE))
        log_chance[high] = np.log(np.maximum(p_high, _LEAST_CHANCE))
        from_medium[low], from_high[high] = -p_low, 1 - p_high
        p_medium, p_more = expit(at_medium[medium]), expit(at_high[medium])
        chance = np.maximum(p_medium - p_more, _LEAST_CHANCE)
        log_chance[medium] = np.log(chance)
        from_medium[medium] = p_medium * (1 - p_medium) / chance
        from_high[medium] = -p_more * (1 - p_more) / chance
        of_answers = self._sums @ log_chance
        most = of_answers.max(axis=1, keepdims=True)
        weight = np.exp(of_answers - most) * _WEIGHTS
        total = weight.sum(axis=1, keepdims=True)
        posterior = weight / total
        expected = posterior[self._answer]
        from_medium *= expected
        from_high *= expected
        by_high = from_high.sum(axis=1)
        slope, width = self._shape(parameters)
        by_place = (from_medium.sum(axis=1) + by_high) * slope[judge]
        steepness = np.einsum("eq,eq->e", from_medium, at_medium) + np.einsum("eq,eq->e", from_high, at_high)
        scores = np.zeros((len(rows.start), len(parameters)))
        parts = np.split(scores, self._ends[1:-1], axis=1)
        by_judge = self._by_judge(by_place)
        parts[0][:] = -by_judge
        parts[1][:] = -self._by_judge(by_high) * slope * width
        parts[2][:] = self._by_judge(steepness)
        parts[3][np.arange(len(rows.group)), rows.group] = by_judge.sum(axis=1)
        np.add.at(parts[4], (self._answer, self._factor), by_place)
        for part, x in zip(parts[5:], rows.leanings, strict=True):
            part[:] = by_judge * x
        likelihood = float((np.log(total) + most).sum()) - float(self.ridge @ parameters**2) / 2
        return _ModelState(likelihood, scores, posterior)

    def _shape(self, parameters: Floats) -> tuple[Floats, Floats]:
        """How steep each judge is, and how far its thresholds lie apart: (J,)."""
        _, gap, steep, *_ = np.split(parameters, self._ends[1:-1])
        return np.exp(steep), np.exp(gap)

    def _places(self, parameters: Floats) -> tuple[Floats, Floats]:
        """(E, Q): what goes into σ for Medium and for High, at each quality."""
        medium, _, _, group, factor, *leanings = np.split(parameters, self._ends[1:-1])
        rows, judge = self._rows, self._judge
        slope, width = self._shape(parameters)
        shift = np.repeat(group[rows.group][:, None], self._judges, axis=1)
        for x, beta in zip(rows.leanings, leanings, strict=True):
            shift += x * beta
        place = shift[self._answer, judge] + factor[self._factor] - medium[judge]
        at_medium = slope[judge][:, None] * (place[:, None] + _NODES)
        return at_medium, at_medium - (slope * width)[judge][:, None]

    def _by_judge(self, values: Floats) -> Floats:
        """(A, J): the sums of (E,) by answer and judge."""
        shape = (len(self._rows.start), self._judges)
        sums = np.bincount(self._answer * self._judges + self._judge, values, shape[0] * shape[1])
        return np.asarray(sums.reshape(shape), np.float64)

    def _slopes(self, parameters: Floats, posterior: Floats) -> Floats:
        """(A, J): what a step of one is worth in score, the mean over the factors that a judge scored."""
        slope, _ = self._shape(parameters)
        p_medium, p_high = (expit(places) for places in self._places(parameters))
        worth = (p_medium * (1 - p_medium) + p_high * (1 - p_high)) / 2 * slope[self._judge][:, None]
        sums = self._by_judge(np.einsum("eq,eq->e", worth, posterior[self._answer]))
        counts = self._by_judge(np.ones(len(self._judge)))
        with np.errstate(invalid="ignore"):
            return np.where(counts > 0, sums / counts, np.nan)

    def fitted(self, parameters: Floats) -> JudgeFit:
        begin = int(self._ends[5])
        state = self.at(parameters)
        clusters = int(self._rows.cluster.max()) + 1
        blocks = min(clusters, _MOST_BLOCKS)
        block = np.random.default_rng(0).permutation(np.arange(clusters) % blocks)[self._rows.cluster]
        scores = _by_block(state.scores, block, blocks)
        information = np.empty((blocks, len(parameters), len(parameters)))
        for place in range(len(parameters)):
            tried = parameters.copy()
            tried[place] += _SMALL
            information[:, place] = (scores - _by_block(self.at(tried).scores, block, blocks)) / _SMALL
        information = (information + information.transpose(0, 2, 1)) / 2
        without = information.sum(axis=0) + np.diag(self.ridge) - information
        moved = (np.linalg.pinv(without, hermitian=True) @ scores[..., None])[:, begin:, 0]
        moved -= moved.mean(axis=0)
        covariance = moved.T @ moved * (blocks - 1) / blocks
        leanings = parameters[begin:].reshape(-1, self._judges)
        return JudgeFit(leanings, covariance, self._slopes(parameters, state.posterior), blocks)


def _by_block(scores: Floats, block: Codes, blocks: int) -> Floats:
    found = np.zeros((blocks, scores.shape[1]))
    np.add.at(found, block, scores)
    return found


_FAMILY, _SELF, _LENGTH = range(3)
# So many show what matters, in a second; of more, whole datapoints are drawn, always the same.
_MOST_SCORES = 6_000


def leanings(grid: ScoreGrid, lengths: Floats, families: Mapping[str, str]) -> dict[str, dict[str, Bias]]:
    """By judge and name, ``family``, ``self`` and ``length``: those of them that can be told; none where a
    factor has another scale than High, Medium and Low.

    Parameters
    ----------
    lengths : (C,) characters of the answer of each row, NaN where it is not known
    families : of students and judges
    """
    found: dict[str, dict[str, Bias]] = {judge: {} for judge in grid.judges}
    if not grid.three_levels:
        return found
    whole = _drawn(grid, grid.valid.sum(axis=1) > 1)
    if len(np.unique(grid.cluster[whole])) < FEWEST_ITEMS:
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


def _drawn(grid: ScoreGrid, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """All rows, or those of some datapoints where there are many."""
    scores = int(grid.valid[rows].sum())
    if scores <= _MOST_SCORES:
        return rows
    items = np.unique(grid.item[rows])
    taken = max(FEWEST_ITEMS, int(len(items) * _MOST_SCORES / scores))
    chosen = np.random.default_rng(0).choice(items, min(taken, len(items)), replace=False)
    return np.asarray(rows & np.isin(grid.item, chosen))


def _rows(
    grid: ScoreGrid, whole: NDArray[np.bool_], lengths: Floats, families: Mapping[str, str]
) -> tuple[JudgedRows, float]:
    """And the standard deviation of the binary logarithms of the lengths, 0 where they do not differ."""
    answer = grid.answer[whole]
    order = np.argsort(answer, kind="stable")
    _, start = np.unique(answer[order], return_index=True)
    first = np.flatnonzero(whole)[order][start]
    students = grid.student[first]
    group = np.unique(grid.task[first].astype(np.int64) * len(grid.students) + students, return_inverse=True)[
        1
    ]
    own = np.array([[model_of(one) == judge for judge in grid.judges] for one in grid.students], np.float64)
    related = np.array(
        [[families.get(one) == families.get(judge) for judge in grid.judges] for one in grid.students],
        np.float64,
    )
    logs = np.log2(lengths[first] + 1)
    reported = np.isfinite(logs)
    deviation = float(logs[reported].std()) if reported.any() else 0.0
    standard = (
        np.where(reported, (logs - logs[reported].mean()) / deviation, 0.0)
        if deviation > NEARLY
        else 0 * logs
    )
    long = np.repeat(np.nan_to_num(standard)[:, None], len(grid.judges), axis=1)
    rows = JudgedRows(
        levels=grid.levels[whole][order],
        start=start,
        group=group,
        cluster=np.unique(grid.cluster[first], return_inverse=True)[1],
        factor=np.unique(grid.factor[whole][order], return_inverse=True)[1],
        leanings=((related * (1 - own))[students], own[students], long),
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
    related = rows.leanings[_FAMILY] if leaning == _FAMILY else 0
    not_leaned = (both & (rows.leanings[_SELF] + related == 0)).any(axis=0)
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
    if own_only and not strangers.any():  # all are of one family: itself against these
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
