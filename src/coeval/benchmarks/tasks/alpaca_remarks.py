"""When AlpacaEval's length control is to be read with care, though it is computed as published."""

from __future__ import annotations

from coeval.analysis.pairwise.length_control import FEW_PREFERENCES, LengthControl

EXTREME_ODDS_RATIO = 3.0
"""Of the 223 models on the leaderboard of alpaca-eval 0.6.6, two have odds further apart than this: one was
made to write 68 characters, one writes 296, where the baseline writes 2,000."""


def remarks_on(control: LengthControl | None, win_rate: float | None) -> tuple[str, ...]:
    """Sentences without an end; none where there is no length-controlled rate, or nothing to say.

    Parameters
    ----------
    control : the fit
    win_rate : the plain one, in percent
    """
    if control is None or win_rate is None:
        return ()
    remarks = []
    if not control.has_interval:
        remarks.append(
            f"length_controlled_winrate rests on {control.n} preferences; with fewer than {FEW_PREFERENCES} "
            "its fit often finds no effect of length, and is off by many points, so it has no interval"
        )
    controlled = control.win_rate.value
    ratio = _odds(controlled, control.n) / _odds(win_rate, control.n)
    apart = max(ratio, 1 / ratio)
    if apart > EXTREME_ODDS_RATIO:
        remarks.append(
            f"length_controlled_winrate ({controlled:.1f}) and win_rate ({win_rate:.1f}) differ extremely, "
            f"their odds by a factor of {apart:.1f}; those of 221 of the 223 published models differ by less "
            f"than {EXTREME_ODDS_RATIO:.0f}"
        )
    return tuple(remarks)


def _odds(percent: float, n: int) -> float:
    """Those of a rate that is half a preference away from 0 and 100 at the least."""
    share = min(max(percent / 100, 0.5 / n), 1 - 0.5 / n)
    return share / (1 - share)
