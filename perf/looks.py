"""``python -m perf.looks``: how often somebody who looks ten times at a run that grows is fooled, and what
stopping at the first sure look saves.

Draws the scores of two students on 200 items, looked at after every 20. Writes ``docs/evidence/looks.md``;
seeded, so that it is the same every time (a few minutes).

    python -m perf.looks                 the page as it is kept
    python -m perf.looks --repeats 200   a quick look, on the terminal
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coeval.analysis.anytime import Looks, p_at_any_look
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA, Floats
from perf.paired import KINDS, Kind, draw

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "looks.md"
REPEATS = 2000
PLANNED, EACH = 200, 20
MEANS = (0.5, 0.8, 0.95)
# Standard deviations of an item's difference: 0.2 is what 200 items find four times in five.
EFFECTS = (0.1, 0.2, 0.3, 0.5)


class Found(NamedTuple):
    """Shares of runs that call two students different: by the fixed test at the last look alone, at any of
    ten looks, and by the test that holds at any look; and the items that whoever stops there has asked for,
    of those planned."""

    once: float
    peeking: float
    anytime: float
    asked: float


def found(a: Floats, b: Floats) -> Found:
    """Of runs (R, 200), looked at after every 20 items."""
    stops = range(EACH, PLANNED + 1, EACH)
    fixed, anytime = np.empty((len(a), len(stops))), np.empty((len(a), len(stops)))
    for row, (one, other) in enumerate(zip(a, b, strict=True)):
        for at, n in enumerate(stops):
            p = paired_difference([PairedScores(one[:n], other[:n], np.ones(n))]).p
            fixed[row, at] = 1.0 if p is None else p
            anytime[row, at] = p_at_any_look(fixed[row, at], Looks(at + 1, n / PLANNED, growing=n < PLANNED))
    sure = anytime < ALPHA
    first = np.where(sure.any(axis=1), sure.argmax(axis=1), len(stops) - 1)
    return Found(
        float((fixed[:, -1] < ALPHA).mean()),
        float((fixed < ALPHA).any(axis=1).mean()),
        float(sure.any(axis=1).mean()),
        float(((first + 1) * EACH / PLANNED).mean()),
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
    powers = ["| difference, sd | fixed test after 200 | at any look | calls asked for | saved |"]
    powers.append("|---|---|---|---|---|")
    for effect in EFFECTS:
        one = apart(effect, repeats)
        shown = (one.once, one.anytime, one.asked, 1 - one.asked)
        powers.append(f"| {effect} | {' | '.join(map(_percent, shown))} |")
    most = _percent(max(one.anytime for _, one in false))
    fooled = [one.peeking for _, one in false]
    begun = INTRODUCTION.format(
        repeats=f"{repeats:,}", most=most, low=_percent(min(fooled)), high=_percent(max(fooled))
    )
    return "\n\n".join([begun, "\n".join(lines), POWER, "\n".join(powers)]) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


INTRODUCTION = """\
# Looks at a run that grows

Written by `python -m perf.looks`, which draws two students' scores on 200 items and looks after every 20;
each line is of {repeats} runs. From the first look at a run at work, tests are those of a normal mixture that
is tuned to the planned items ([how](../intervals.md#looks-at-a-run-that-grows)).

## Equal students

Of a hundred runs, so many call equal students different at any of ten looks: {low} to {high} by the fixed
test, {most} at most by the test that holds at any look; 5 may be. Chance leaves ± 1."""

POWER = """\
## Different students

Of a hundred runs, so many find the difference; whoever stops at the first sure look asks for so many of a
hundred planned calls on average. At 0.2 the fixed test finds four in five of 200 items: the sequence finds
fewer by the end, which is the price of looking, and saves calls where the difference is larger."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of each line")
    repeats = parser.parse_args().repeats
    written = page(repeats)
    if repeats == REPEATS:
        PAGE.write_text(written, encoding="utf-8")
    else:
        print(written)


if __name__ == "__main__":
    main()
