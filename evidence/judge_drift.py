"""``python -m evidence.judge_drift``: how often a check of a judge finds drift, and how often it is wrong.

Draws anchors whose three answers to each item have two factors of three levels. Judged again, a tenth of the
scores is drawn anew, and with drift some go down one level. Writes ``docs/evidence/judge-drift.md``; seeded,
so that it is the same every time (a minute).

    python -m evidence.judge_drift                 the page as it is kept
    python -m evidence.judge_drift --repeats 200   a quick look, on the terminal
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from coeval.analysis.intervals import ALPHA, Floats
from coeval.analysis.panel.judge_drift import ScoreKey, compare_with_anchor
from evidence.page import write_page

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "judge-drift.md"
REPEATS = 2000
ITEMS = (20, 60, 120)
DRIFTS = (0.0, 0.05, 0.10)
ANSWERS, FACTORS, REDRAWN = 3, 2, 0.1
LEVELS = np.array([0.0, 0.5, 1.0])


class Checked(NamedTuple):
    """Shares of checks that call a shift, and that the stated detectable shift lets expect; the mean of that
    shift; and how often the interval holds the truth."""

    alarms: float
    expected: float
    detectable: float
    covered: float


def draws(rng: np.random.Generator, items: int, drift: float) -> tuple[Floats, Floats]:
    """(items, answers × factors) scores, at first and again; items differ in what is likely."""
    shape = (items, ANSWERS * FACTORS)
    quality = rng.beta(2, 2, size=(items, 1))
    first = rng.binomial(2, np.broadcast_to(quality, shape)) / 2
    anew = rng.binomial(2, np.broadcast_to(quality, shape)) / 2
    again = np.where(rng.random(shape) < REDRAWN, anew, first)
    # Of scores above the lowest level, so many go down half a point: 0.7 of all are above it.
    above = 0.7
    falls = (rng.random(shape) < drift / (0.5 * above)) & (again > 0)
    return first, again - 0.5 * falls


def checked(items: int, drift: float, repeats: int) -> Checked:
    rng = np.random.default_rng([items, round(1000 * drift)])
    alarms, powers, least, covered = 0, [], [], 0
    places = [
        ScoreKey("task", f"{item}", f"{item}-{at // FACTORS}", f"{at % FACTORS}")
        for item in range(items)
        for at in range(ANSWERS * FACTORS)
    ]
    for _ in range(repeats):
        first, again = draws(rng, items, drift)
        found = compare_with_anchor(
            "judge",
            dict(zip(places, first.ravel().tolist(), strict=True)),
            dict(zip(places, again.ravel().tolist(), strict=True)),
        )
        shift = found.shift
        alarms += found.significantly_exceeds(0.0)
        covered += shift.low <= -drift <= shift.high
        if shift.minimum_detectable is not None:
            least.append(shift.minimum_detectable)
            # 2.80 standard errors are found four times in five.
            powers.append(float(ndtr(2.80 * drift / shift.minimum_detectable - 1.96)))
    return Checked(alarms / repeats, float(np.mean(powers)), float(np.mean(least)), covered / repeats)


def page(repeats: int) -> str:
    headings = (
        "items",
        "drift, points",
        "checks that find it",
        "as stated",
        "found four times in five",
        "covered",
    )
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    false = []
    for items in ITEMS:
        for drift in DRIFTS:
            one = checked(items, drift, repeats)
            expected = "" if not drift else f"{100 * one.expected:.0f}%"
            if not drift:
                false.append(one.alarms)
            lines.append(
                f"| {items} | {100 * drift:g} | {100 * one.alarms:.1f}% | {expected} "
                f"| {100 * one.detectable:.1f} | {100 * one.covered:.1f}% |"
            )
    return TEXT.format(
        repeats=f"{repeats:,}", false=f"{100 * max(false):.1f}", alpha=f"{100 * ALPHA:g}"
    ) + "\n".join(["", *lines, ""])


TEXT = """\
# Judges that drift

Written by `python -m evidence.judge_drift`: {repeats} checks of each line, on anchors with three answers to
an item and two factors of three levels. A judge that is asked again draws a tenth of its scores anew; with
drift, its mean falls by so many points. Without drift, {false}% of the checks at most call a shift; {alpha}%
may.
"As stated" is the power that follows from the shift which each check says it finds four times in five.
"""


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "checks of each line")
