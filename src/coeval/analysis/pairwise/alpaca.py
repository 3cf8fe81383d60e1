"""AlpacaEval 2: one comparison per instruction, as a probability read off the judge's first token.

The judge sees the outputs as models ``m`` and ``M`` in an order drawn per instruction and names
the better one (Dubois et al. 2024). Preferences are on the published scale: 1 the baseline wins,
2 the model wins, 1.5 a draw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from coeval.core.errors import Unparsable

_BASELINE, _MODEL = "m", "M"
_SPACES = " \t\r\n▁ĠĊ"
"""What tokenisers put around a letter: white space, and their marks for a space and a line end."""


class WinRate(NamedTuple):
    """In percent. ``win_rate`` is None without preferences, ``standard_error`` with fewer than two."""

    win_rate: float | None
    standard_error: float | None


def switched_order(instruction: str) -> bool:
    """Whether the published order shows this instruction's outputs swapped: the model as ``m``."""
    return random.Random("is_switched_outputs" + instruction + "0").choices([False, True])[0]


def alpaca_preference(
    top_logprobs: Mapping[str, float] | Iterable[Mapping[str, Any]], switched: bool
) -> float:
    """Preference for the model, 1 to 2: ``1 + P(M) / (P(m) + P(M))``, the order undone.

    As published, only the tokens ``m`` and ``M`` count (letter case is the answer), and one that
    is missing from the list has probability 0. Where the likeliest token of all that read m or M
    carries white space, as with some tokenisers, those with and without it are added up; the
    published judge never answers so.

    Parameters
    ----------
    top_logprobs : the likeliest first tokens, as token → natural-log probability or as a list of
        ``{"token": …, "logprob": …}``
    switched : whether the model was shown as ``m``

    Raises
    ------
    Unparsable : neither token is in the list, so the judge did not answer
    """
    if isinstance(top_logprobs, Mapping):
        tokens = [(str(token), float(logprob)) for token, logprob in top_logprobs.items()]
    else:
        tokens = [(str(entry["token"]), float(entry["logprob"])) for entry in top_logprobs]
    answers = [(token, logprob) for token, logprob in tokens if token.strip(_SPACES) in (_BASELINE, _MODEL)]
    likeliest = max(answers, key=lambda answer: answer[1], default=("", -math.inf))
    if likeliest[1] == -math.inf or math.isnan(likeliest[1]):
        shown = ", ".join(repr(token) for token, _ in tokens) or "nothing"
        raise Unparsable(f"the judge's first token is neither 'm' nor 'M'; the likeliest were {shown}")
    exact = likeliest[0] in (_BASELINE, _MODEL)
    mass = {_BASELINE: 0.0, _MODEL: 0.0}
    for token, logprob in answers:
        letter = token if exact else token.strip(_SPACES)
        if letter in mass:
            mass[letter] += math.exp(logprob - likeliest[1])
    share = mass[_MODEL] / (mass[_BASELINE] + mass[_MODEL])
    return 2 - share if switched else 1 + share


def alpaca_win_rate(preferences: Iterable[float]) -> WinRate:
    """Mean preference for the model and its standard error (``sd / √n``, sd with n − 1).

    Parameters
    ----------
    preferences : each in 1 … 2; 0 is a draw, as in the oldest published annotations. What failed
        is left out by the caller, who reports how many.
    """
    wins = np.array([0.5 if preference == 0 else preference - 1 for preference in preferences])
    if not ((wins >= 0) & (wins <= 1)).all():
        raise ValueError("preferences must lie in 1 … 2 (or be 0, a draw); leave out what failed")
    if not len(wins):
        return WinRate(None, None)
    error = 100 * float(wins.std(ddof=1)) / math.sqrt(len(wins)) if len(wins) > 1 else None
    return WinRate(100 * float(wins.mean()), error)
