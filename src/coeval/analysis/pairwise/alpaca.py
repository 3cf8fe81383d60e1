"""AlpacaEval 2: one comparison per instruction, as a probability read off the judge's first token.

The judge sees the outputs as models ``m`` and ``M`` in an order drawn per instruction and names
the better one (Dubois et al. 2024). Preferences are on the published scale: 1 the baseline wins,
2 the model wins, 1.5 a draw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.pairwise.rates import RESAMPLES, Rate, draw_counts, fit_logistic, rate_with_spread
from coeval.analysis.special import expit
from coeval.core.errors import Unparsable

_BASELINE, _MODEL = "m", "M"
# What tokenisers put around a letter: white space, and their marks for a space and a line end.
_SPACES = " \t\r\n▁ĠĊ"


class WinRate(NamedTuple):
    """In percent. ``win_rate`` is None without preferences, ``standard_error`` with fewer than two."""

    win_rate: float | None
    standard_error: float | None


def switched_order(instruction: str) -> bool:
    """Check whether the published order shows this instruction's outputs swapped: the model as ``m``."""
    return random.Random("is_switched_outputs" + instruction + "0").choices([False, True])[0]


def alpaca_preference(top_logprobs: Mapping[str, float], switched: bool) -> float:
    """Return the preference for the model, 1 to 2: ``1 + P(M) / (P(m) + P(M))``, the order undone.

    As published, only the tokens ``m`` and ``M`` count (letter case is the answer), and one that
    is missing from the list has probability 0. Where the likeliest token of all that read m or M
    carries white space, as with some tokenisers, those with and without it are added up; the
    published judge never answers so. ``top_logprobs``: the natural-log probabilities of the likeliest first
    tokens; ``switched``: the model was shown as ``m``.

    Raises Unparsable: neither token is among them, so the judge did not answer.
    """
    answers = [
        (token, logprob)
        for token, logprob in top_logprobs.items()
        if token.strip(_SPACES) in (_BASELINE, _MODEL)
    ]
    likeliest = max(answers, key=lambda answer: answer[1], default=("", -math.inf))
    if likeliest[1] == -math.inf or math.isnan(likeliest[1]):
        likely = ", ".join(map(repr, top_logprobs)) or "nothing"
        raise Unparsable(f"the judge's first token is neither 'm' nor 'M'; the likeliest were {likely}")
    exact = likeliest[0] in (_BASELINE, _MODEL)
    mass = {_BASELINE: 0.0, _MODEL: 0.0}
    for token, logprob in answers:
        letter = token if exact else token.strip(_SPACES)
        if letter in mass:
            mass[letter] += math.exp(logprob - likeliest[1])
    share = mass[_MODEL] / (mass[_BASELINE] + mass[_MODEL])
    return 2 - share if switched else 1 + share


def alpaca_win_rate(preferences: Iterable[float]) -> WinRate:
    """Return the mean preference for the model and its standard error (``sd / √n``, sd with n − 1). What
    failed is left out by the caller, who reports how many."""
    wins = _win_shares_of_preferences(preferences)
    if not len(wins):
        return WinRate(None, None)
    error = 100 * float(wins.std(ddof=1)) / math.sqrt(len(wins)) if len(wins) > 1 else None
    return WinRate(100 * float(wins.mean()), error)


def _win_shares_of_preferences(preferences: Iterable[float]) -> Floats:
    """Convert preferences, each in 1 … 2 (0 is a draw, as in the oldest published annotations), to 0 … 1."""
    wins = np.array([0.5 if preference == 0 else preference - 1 for preference in preferences])
    if not ((wins >= 0) & (wins <= 1)).all():
        raise ValueError("preferences must lie in 1 … 2 (or be 0, a draw); leave out what failed")
    return wins


# --- AlpacaEval 2's length-controlled win rate
#
# A logistic regression explains the preference by the difference in length, by how hard the instruction is,
# and by the model; predicting with no difference in length takes its part out (Dubois, Galambosi, Liang and
# Hashimoto 2024). Three published variants: with difficulties and regularised by the baseline's own terse and
# verbose answers (v1, the leaderboard's), with difficulties only (noreg), and with neither (minimal).

LengthFormula: TypeAlias = Literal[
    "length_controlled_v1", "length_controlled_noreg", "length_controlled_minimal"
]

LENGTH, DIFFICULTY, MODEL = (
    "np.tanh(std_delta_len)",
    "instruction_difficulty",
    "not_gamed_baseline.astype(float)",
)
"""The columns under the names of the published weight tables."""

LENGTH_CONTROLLED = "length_controlled_winrate"
"""The metric's name in ``summary.json``."""

# Of samples of the published annotations, the fit leaves length out (weight 0) in up to a third of 50 and an
# eighth of 100; the rate's error is 5 to 13 points in those of 100 (``docs/benchmarks.md``). With fewer, the
# penalty decides the rate, and a bootstrap under the same penalty does not show how far off it is.
FEW_PREFERENCES = 100

# As AlpacaEval's own fit (``fit_LogisticRegressionCV``: five splits).
_FOLDS = 5
_INVERSE_PENALTIES: Floats = np.logspace(-4, 4, 10)
# λ = 0.2, shared by the two gamed baselines.
_GAMED_WEIGHT = 0.2 / 2
# Resamples are fitted in so many blocks: all at once would hold hundreds of megabytes.
_BLOCKS = 8


class GamedAnnotations(msgspec.Struct, frozen=True):
    """The judged terse and verbose answers of the baseline, the published regularisation data.

    Three equally long columns: preference as a win share 0 … 1, difference in length divided by
    its standard deviation (baseline − gamed), difficulty of the instruction.
    """

    win_shares: tuple[float, ...]
    std_delta_lengths: tuple[float, ...]
    difficulties: tuple[float, ...]


class LengthControl(msgspec.Struct, frozen=True):
    """A fitted length control.

    ``win_rate`` is in percent, its spread from a seeded bootstrap over instructions that refits
    the weights (the published ``lc_standard_error`` is that of the predictions alone, and smaller);
    ``inverse_penalty`` is the C that cross-validation chose; ``n`` counts the
    instructions with a preference. Only ``length_controlled_v1`` is the leaderboard's number.
    """

    formula: LengthFormula
    weights: dict[str, float]
    win_rate: Rate
    inverse_penalty: float
    n: int

    @property
    def has_interval(self) -> bool:
        """Check whether there are enough preferences (`FEW_PREFERENCES`) for the spread of ``win_rate``."""
        return self.n >= FEW_PREFERENCES

    def as_plain(self) -> dict[str, Any]:
        """Return plain data by field; a rate without an interval has its value alone."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if not self.has_interval:
            plain["win_rate"] = {**dict.fromkeys(plain["win_rate"]), "value": self.win_rate.value}
        return plain


def fit_length_control(
    preferences: Sequence[float | None],
    lengths: ArrayLike,
    baseline_lengths: ArrayLike,
    difficulties: ArrayLike | None = None,
    *,
    gamed: GamedAnnotations | None = None,
    seed: int = 0,
) -> LengthControl | None:
    """Fit the regression as published; None with fewer than five preferences, too few to validate.

    The weights are L1-penalised (no intercept); the penalty is chosen of ten by the log loss in
    five-fold cross-validation. The published solver stops early and its folds depend on the
    machine, so published weights are met closely, not to the last digit.

    ``preferences`` (n,) are on the scale 1 … 2, 0 a draw; an instruction without one (None) counts in the
    lengths' deviation and in the prediction, not in the fit. ``lengths`` and ``baseline_lengths`` (n,) are in
    characters. Without ``difficulties`` (n,) the minimal formula is fitted; the ``gamed`` data need them.
    """
    lengths_apart = np.asarray(baseline_lengths, dtype=np.float64) - np.asarray(lengths, dtype=np.float64)
    count = len(preferences)
    hard = np.zeros(count) if difficulties is None else np.asarray(difficulties, dtype=np.float64)
    if not lengths_apart.shape == hard.shape == (count,):
        raise ValueError(
            f"preferences, lengths and difficulties must be equally long: "
            f"{count}, {len(lengths_apart)}, {len(hard)}"
        )
    if gamed is not None and difficulties is None:
        raise ValueError("gamed annotations need the difficulties of the instructions as well")
    scored = np.array([preference is not None for preference in preferences], dtype=bool)
    if scored.sum() < _FOLDS:
        return None
    wins = _win_shares_of_preferences(preference for preference in preferences if preference is not None)
    deviation = float(lengths_apart.std(ddof=1))
    pull = np.tanh(lengths_apart / deviation) if deviation > 0 else np.zeros(count)
    data = _Data(np.column_stack([pull, hard, np.ones(count)])[scored], wins, gamed)
    return _fit_and_resample_win_rate(data, hard, scored, with_difficulty=difficulties is not None, seed=seed)


class _Data:
    """The rows of the fit: the gamed ones, which never are resampled, then the model's own."""

    def __init__(self, features: Floats, wins: Floats, gamed: GamedAnnotations | None) -> None:
        self.regularised = gamed is not None
        self.own = len(wins)
        if gamed is None:
            self.features, self.targets, self.weights = features, wins, np.ones(len(wins))
            return
        pull, hard = np.tanh(gamed.std_delta_lengths), np.array(gamed.difficulties)
        self.features = np.vstack([np.column_stack([pull, hard, np.zeros(len(hard))]), features])
        self.targets = np.concatenate([gamed.win_shares, wins])
        self.weights = np.repeat([_GAMED_WEIGHT, 1.0], [len(gamed.win_shares), len(wins)])


def _fit_and_resample_win_rate(
    data: _Data, difficulties: Floats, scored: NDArray[np.bool_], *, with_difficulty: bool, seed: int
) -> LengthControl:
    """Choose the penalty, fit the weights, and bootstrap the win rate at equal length."""
    inverse_penalty = _cross_validate_inverse_penalty(data)
    fitted = fit_logistic(data.features, data.targets, data.weights[None, :], l1=1 / inverse_penalty)[0]
    value = 100 * float(expit(fitted[2] + fitted[1] * difficulties).mean())
    generator = np.random.default_rng(seed)
    replicates: list[Floats] = []
    for _ in range(_BLOCKS):
        drawn = draw_counts(len(difficulties), generator, resamples=RESAMPLES // _BLOCKS).astype(np.float64)
        drawn_weights = np.hstack([np.tile(data.weights[: -data.own], (len(drawn), 1)), drawn[:, scored]])
        again = fit_logistic(data.features, data.targets, drawn_weights, l1=1 / inverse_penalty)
        shares = expit(again[:, [2]] + again[:, [1]] * difficulties)
        replicates.append(100 * (drawn * shares).sum(axis=1) / len(difficulties))
    weights = dict(zip((LENGTH, DIFFICULTY, MODEL), fitted.tolist(), strict=True))
    formula: LengthFormula = "length_controlled_v1" if data.regularised else "length_controlled_noreg"
    if not with_difficulty:
        del weights[DIFFICULTY]
        formula = "length_controlled_minimal"
    return LengthControl(
        formula=formula,
        weights=weights,
        win_rate=rate_with_spread(value, np.concatenate(replicates), data.own),
        inverse_penalty=inverse_penalty,
        n=data.own,
    )


def _cross_validate_inverse_penalty(data: _Data) -> float:
    """Choose the C whose fits predict the left-out fifths best, by weighted log loss; the smaller of equals.
    Folds take the rows in turn, from the last one on."""
    count = len(data.targets)
    fold = (count - 1 - np.arange(count)) % _FOLDS
    left_out = fold == np.arange(_FOLDS)[:, None]
    losses = []
    for inverse_penalty in _INVERSE_PENALTIES:
        fitted = fit_logistic(data.features, data.targets, data.weights * ~left_out, l1=1 / inverse_penalty)
        margins = fitted @ data.features.T
        loss = data.weights * (np.logaddexp(0.0, margins) - data.targets * margins)
        losses.append(float(((loss * left_out).sum(axis=1) / left_out.sum(axis=1)).mean()))
    return float(_INVERSE_PENALTIES[int(np.argmin(losses))])
