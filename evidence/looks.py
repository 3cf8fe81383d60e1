"""``python -m evidence.looks``: how often somebody who looks ten times at a run that grows is fooled, and
what differences the test that holds at any look finds.

Draws the scores of two students on 200 items, looked at after every 20; and runs that are finished, looked at
and extended, nine times. Writes ``docs/evidence/looks.md``; seeded, so that it is the same every time (a few
minutes).

    python -m evidence.looks                 the page as it is kept
    python -m evidence.looks --repeats 200   a quick look, on the terminal
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr

from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA, Floats, Looks, p_value_at_any_look
from evidence.page import write_page
from evidence.paired import KINDS, Kind, draw

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "looks.md"
REPEATS = 2000
PLANNED, EACH = 200, 20
MEANS = (0.5, 0.8, 0.95)
# Standard deviations of an item's difference: 0.2 is what 200 items find four times in five.
EFFECTS = (0.1, 0.2, 0.3, 0.5)
EXTENSIONS = 9
# Normal quantile that a test at any look needs at the planned number of items.
NEEDED = 3.03


class Found(NamedTuple):
    """Shares of runs that call two students different: by the fixed test at the last look alone, at any of
    ten looks, and by the test that holds at any look."""

    once: float
    peeking: float
    anytime: float


def found(a: Floats, b: Floats) -> Found:
    """Of runs (R, 200), looked at after every 20 items."""
    stops = range(EACH, PLANNED + 1, EACH)
    fixed, anytime = np.empty((len(a), len(stops))), np.empty((len(a), len(stops)))
    for row, (one, other) in enumerate(zip(a, b, strict=True)):
        for at, n in enumerate(stops):
            p = paired_difference([PairedScores(one[:n], other[:n], np.ones(n))]).p
            fixed[row, at] = 1.0 if p is None else p
            anytime[row, at] = p_value_at_any_look(
                fixed[row, at], Looks(at + 1, n / PLANNED, growing=n < PLANNED)
            )
    return Found(
        float((fixed[:, -1] < ALPHA).mean()),
        float((fixed < ALPHA).any(axis=1).mean()),
        float((anytime < ALPHA).any(axis=1).mean()),
    )


def equal(kind: Kind, mean: float, repeats: int) -> Found:
    """Of two students of the same mean."""
    generator = np.random.default_rng([25, int(1e4 * mean)])
    return found(*draw(kind, (mean, mean), (repeats, PLANNED), generator))


def apart(effect: float, repeats: int) -> Found:
    """Of students whose items' differences are normal, their mean so many standard deviations."""
    generator = np.random.default_rng([26, int(1e4 * effect)])
    d = 0.1 * (effect + generator.standard_normal((repeats, PLANNED)))
    return found(0.5 - d / 2, 0.5 + d / 2)


class Extended(NamedTuple):
    """Shares of runs that call two equal students different: by the fixed test when the run is finished; at
    any later look, with the mixture tuned to the plan of that run, to the first plan that extends it, and to
    each plan; and at the first look or a later one, tuned to the first extension."""

    first: float
    finished_plan: float
    first_extension: float
    each_plan: float
    all_looks: float


def by_as_many(n: Floats, z: Floats) -> Floats:
    return n + EACH


def by_doubling(n: Floats, z: Floats) -> Floats:
    return 2 * n


def by_what_was_seen(n: Floats, z: Floats) -> Floats:
    """As many as the seen difference takes to be significant; twice as many at most tenfold."""
    times = np.clip(np.ceil((NEEDED / np.maximum(z, 1e-6)) ** 2), 2, 10)
    return np.asarray(n * times, dtype=np.float64)


WAYS: tuple[tuple[str, Callable[[Floats, Floats], Floats]], ...] = (
    ("20 more each time", by_as_many),
    ("doubled each time", by_doubling),
    ("by what was seen, 2 to 10 times as many", by_what_was_seen),
)


def extended(grow: Callable[[Floats, Floats], Floats], repeats: int) -> Extended:
    """Of runs of 20 items with normal differences that are extended whatever they showed."""
    generator = np.random.default_rng([27, int(grow(np.array([20.0]), np.array([1.0]))[0])])
    n, total, squares = np.full(repeats, float(EACH)), np.zeros(repeats), np.zeros(repeats)
    more, ps, plans = n, [], []
    for _ in range(EXTENSIONS + 1):
        block = np.sqrt(more) * generator.standard_normal(repeats)
        total += block
        squares += generator.chisquare(more - 1) + block**2 / more
        error = np.sqrt((squares - total**2 / n) / (n - 1) / n)
        p = 2 * stdtr(n - 1, -np.abs(total / n) / error)
        ps.append(p)
        plans.append(n)
        longer = np.floor(grow(n, -ndtri(p / 2)))
        more, n = longer - n, longer
    fixed, at = np.array(ps).T, np.array(plans).T
    first = fixed[:, 0] < ALPHA
    found = [_later(fixed, at / tuned) for tuned in (at[:, :1], at[:, 1:2], at)]
    finished, once, each = (float(one.mean()) for one in found)
    return Extended(float(first.mean()), finished, once, each, float((first | found[1]).mean()))


def _later(fixed: Floats, shares: Floats) -> NDArray[np.bool_]:
    """Whether any look but the first is significant at any look; both (R, looks)."""
    anytime = [
        [
            p_value_at_any_look(p, Looks(at + 2, share))
            for at, (p, share) in enumerate(zip(row, of, strict=True))
        ]
        for row, of in zip(fixed[:, 1:], shares[:, 1:], strict=True)
    ]
    return np.asarray((np.array(anytime) < ALPHA).any(axis=1))


def page(repeats: int) -> str:
    """Markdown."""
    false = [(f"{kind.said} | {mean}", equal(kind, mean, repeats)) for kind in KINDS for mean in MEANS]
    false.append(("normal differences | 0.5", apart(0.0, repeats)))
    lines = [
        "| scores | mean | one look, after 200 | fixed test, ten looks | at any look |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {said} | {_percent(one.once)} | {_percent(one.peeking)} | {_percent(one.anytime)} |"
        for said, one in false
    ]
    powers = ["| difference, sd | fixed test after 200 | at any look |", "|---|---|---|"]
    for effect in EFFECTS:
        one = apart(effect, repeats)
        powers.append(f"| {effect} | {_percent(one.once)} | {_percent(one.anytime)} |")
    grown = [(said, extended(grow, 10 * repeats)) for said, grow in WAYS]
    lengthened = [
        "| extended | first look | finished plan | **first extension** | each plan | first or later |",
        "|---|---|---|---|---|---|",
        *(f"| {said} | {' | '.join(map(_percent, one))} |" for said, one in grown),
    ]
    most = _percent(max(one.anytime for _, one in false))
    fooled = [one.peeking for _, one in false]
    begun = INTRODUCTION.format(
        repeats=f"{repeats:,}", most=most, low=_percent(min(fooled)), high=_percent(max(fooled))
    )
    longer = EXTENSION.format(
        repeats=f"{10 * repeats:,}",
        later=_percent(max(one.first_extension for _, one in grown)),
        whole=_percent(max(one.all_looks for _, one in grown)),
    )
    parts = [begun, "\n".join(lines), POWER, "\n".join(powers), longer, "\n".join(lengthened)]
    return "\n\n".join(parts) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


INTRODUCTION = """\
# Looks at a run that grows

Written by `python -m evidence.looks`, which draws two students' scores on 200 items and looks after every 20;
each line is of {repeats} runs. From the first look at a run at work, tests are those of a normal mixture that
is tuned to the planned items ([how](../intervals.md#looks-at-a-run-that-grows)).

## Equal students

Of a hundred runs, so many call equal students different at any of ten looks: {low} to {high} by the fixed
test, {most} at most by the test that holds at any look; 5 may be. Chance leaves ± 1."""

POWER = """\
## Different students

Of a hundred runs, so many find the difference by 200 items. At 0.2 the fixed test finds it in four of five
runs; the test that holds at any look finds it in fewer: that is the price of looking."""

EXTENSION = """\
## A finished run that is extended

A run of 20 items ends, its results are shown, and it is extended nine times, whatever it showed; each line is
of {repeats} runs of equal students. The first look was a fixed test at 5%: nobody knew that it would not be
the last. All later looks together, tuned to the first plan that extends the run, call {later} of a hundred
runs different at most; whoever counts the first look, too, is at {whole}. The other columns tune the mixture
to the finished run's plan, and again to each plan
([why the first](../decisions/0016-by-this-panel-or-in-truth.md#looks))."""


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "runs of each line")
