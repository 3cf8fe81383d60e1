"""Style control of pairwise verdicts: what would the win rate be if both answers looked alike?

The features and their normalised differences are those of Arena-Hard-Auto v2 with its length and
markdown controls together: length, headers, list items, bold phrases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.special import expit

from coeval.analysis.intervals import Floats
from coeval.analysis.pairwise.logistic import fit_logistic
from coeval.analysis.pairwise.rates import Rate, rate

FEATURES = ("length", "headers", "lists", "bold")

LEAST_PROMPTS = 10 * (1 + len(FEATURES))
"""Ten per coefficient (Peduzzi et al. 1996): below that the fit says little about style."""

_CHARACTERS_PER_TOKEN = 4
_CODE = re.compile(r"```[^`]*```")
_HEADER = re.compile(r"^#{1,6}\s", re.MULTILINE)
_LIST_ITEM = re.compile(r"^[^\S\n]*(?:\d+\.|[-*+])\s", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")


class Style(msgspec.Struct, frozen=True):
    """How an answer looks: its length in tokens, and how many markdown elements it has."""

    length: float
    headers: int = 0
    lists: int = 0
    bold: int = 0


class StyledPair(msgspec.Struct, frozen=True):
    """The styles of the two answers to one prompt."""

    model: Style
    baseline: Style


class StyleControl(msgspec.Struct, frozen=True):
    """A style-controlled win rate, in percent.

    ``win_rate`` is the one at equal style. ``win_rate_at_mean_style`` is what the official
    configuration gives on this model alone: it centres the features on the mean of all battles it
    is given, those of a whole leaderboard, so that on one model it holds style at the model's own
    and controls nothing. ``coefficients``: log-odds per standard deviation of the feature.
    """

    win_rate: Rate
    win_rate_at_mean_style: float
    coefficients: dict[str, float]
    n: int


def markdown_style(text: str) -> Style:
    """The style of an answer; elements inside fenced code do not count.

    The length is estimated at four characters a token: features are relative and standardised, so
    that a constant factor hardly matters.
    """
    plain = _CODE.sub("``````", text)
    return Style(
        length=len(text) / _CHARACTERS_PER_TOKEN,
        headers=len(_HEADER.findall(plain)),
        lists=len(_LIST_ITEM.findall(plain)),
        bold=len(_BOLD.findall(plain)),
    )


def style_differences(pairs: Sequence[StyledPair]) -> Floats:
    """(n, 4), model against baseline: ``(a − b)/(a + b)`` of lengths, ``(a − b)/(a + b + 1)`` of densities.

    A density is a count per token of length, 0 for an empty answer; two empty answers do not differ.
    """
    rows = []
    for pair in pairs:
        a, b = _features(pair.model), _features(pair.baseline)
        total = a[0] + b[0]
        length = (a[0] - b[0]) / total if total else 0.0
        rows.append(
            [length, *((x - y) / (x + y + 1) for x, y in zip(a[1:], b[1:], strict=True))],
        )
    return np.array(rows, dtype=np.float64).reshape(-1, len(FEATURES))


def style_control(
    pairs: Sequence[StyledPair], shares: Floats, weights: Floats, drawn: Floats
) -> StyleControl | None:
    """Bradley–Terry strength of the model against the baseline, beside the features' coefficients.

    With one opponent the strengths' difference is the intercept of a logistic regression. None
    with fewer than `LEAST_PROMPTS` prompts.

    Parameters
    ----------
    pairs : (n,) one per prompt
    shares : (n,) the model's weighted share of wins on the prompt
    weights : (n,) how many verdicts that share stands for, strong ones counted three times
    drawn : (resamples, n) how often each prompt is drawn
    """
    if len(pairs) < LEAST_PROMPTS:
        return None
    differences = style_differences(pairs)
    mean = weights @ differences / weights.sum()
    deviation = np.sqrt(weights @ (differences - mean) ** 2 / (weights.sum() - 1))
    varies = deviation > 0
    scale = np.where(varies, deviation, 1.0)
    # A feature that is the same on every prompt cannot be told from the intercept: it is left out.
    columns = np.where(varies, differences / scale, 0.0)
    features = np.column_stack([np.ones(len(pairs)), columns])
    fits = fit_logistic(features, shares, np.vstack([weights, drawn * weights]))
    wins = 100 * expit(fits[:, 0])
    return StyleControl(
        win_rate=rate(float(wins[0]), wins[1:], len(pairs)),
        win_rate_at_mean_style=100 * float(expit(fits[0, 0] + fits[0, 1:] @ (mean / scale))),
        coefficients=dict(zip(FEATURES, fits[0, 1:].tolist(), strict=True)),
        n=len(pairs),
    )


def _features(style: Style) -> list[float]:
    counts = (style.headers, style.lists, style.bold)
    return [style.length, *(count / style.length if style.length else 0.0 for count in counts)]
