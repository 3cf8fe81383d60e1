"""``python -m evidence.gate``: how often a gate passes what it should not, and what it should.

Draws the scores of a base and a candidate on the same items, the candidate worse by exactly what is allowed,
and counts how often each rule says GO and NO-GO; then candidates that are no worse, and far worse. Writes
``docs/evidence/gate.md``; seeded, so that it is the same every time (some minutes).

    python -m evidence.gate                 the page as it is kept
    python -m evidence.gate --repeats 200   a quick look, on the terminal
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from coeval.analysis.comparison.lower_bound import (
    ONE_SIDED,
    p_value_of_loss_within_allowed,
    probability_at_most_zero,
)
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA, Floats
from evidence.page import write_page
from evidence.paired import KINDS, Kind, draw

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "gate.md"
REPEATS = 4000
ITEMS = (10, 20, 50, 100, 200, 500)
# Means of the base, from the middle of the scale to where hardly anything fails.
MEANS = (0.5, 0.8, 0.95, 0.99)
DROPS = (0.02, 0.05)
# Shares of items that a candidate loses whole and the base never, beside scores that are all alike.
RARE = Kind("alike, but for items lost whole", lambda luck, mean, generator: (luck < mean).astype(np.float64))


class Passed(NamedTuple):
    """Shares of experiments that each rule calls GO."""

    ours: float
    t: float


def passed(kind: Kind, mean: float, loss: float, drop: float, items: int, repeats: int) -> Passed:
    """Of candidates that lose ``loss`` where ``drop`` is allowed."""
    generator = np.random.default_rng([7, int(1e4 * mean), int(1e4 * loss), int(1e4 * drop), items])
    if kind is RARE:
        a = np.ones((repeats, items))
        b = (generator.random((repeats, items)) >= loss).astype(np.float64)
    else:
        a, b = draw(kind, (mean, mean - loss), (repeats, items), generator)
    d = b - a
    # The rule of a peer: the paired t interval, of no width where no pair differs.
    half = stdtrit(items - 1, 0.975) * d.std(axis=1, ddof=1) / np.sqrt(items)
    ours = _p_values(d, drop) <= ONE_SIDED
    return Passed(float(ours.mean()), float((d.mean(axis=1) - half >= -drop).mean()))


class Stopped(NamedTuple):
    """Shares of experiments that are called NO-GO: by a loss that is significantly more than allowed, and, as
    once, by a significant loss that is seen to be more."""

    beyond: float
    any_loss: float


def stopped(kind: Kind, mean: float, loss: float, drop: float, items: int, repeats: int) -> Stopped:
    """Of candidates that lose ``loss`` where ``drop`` is allowed."""
    generator = np.random.default_rng([8, int(1e4 * mean), int(1e4 * loss), int(1e4 * drop), items])
    a, b = draw(kind, (mean, mean - loss), (repeats, items), generator)
    once, found = np.ones(items), []
    for pair in zip(a, b, strict=True):
        strata = [PairedScores(*pair, once)]
        one = paired_difference(strata)
        worse = (one.p or 1.0) < ALPHA and one.difference < -drop
        found.append((worse and p_value_of_loss_within_allowed(strata, drop) < ALPHA, worse))
    return Stopped(*np.mean(found, axis=0).tolist())


def stopped_rows(repeats: int, beyond: float) -> list[tuple[str, list[Stopped]]]:
    """Where the loss is ``beyond`` what is allowed: a line for each kind of scores, mean and allowed drop."""
    return [
        (
            f"{kind.said} | {mean} | {100 * drop:.0f}",
            [stopped(kind, mean, drop + beyond, drop, items, repeats) for items in ITEMS],
        )
        for drop in DROPS
        for kind in KINDS
        for mean in (0.5, 0.8, 0.95)
    ]


def _stopped_table(rows: list[tuple[str, list[Stopped]]]) -> str:
    lines = [f"| scores | mean of the base | points allowed | NO-GO | {' | '.join(map(str, ITEMS))} |"]
    lines.append("|---|---|---|---|" + "---|" * len(ITEMS))
    for said, cells in rows:
        for name, shares in (
            ("ours", [one.beyond for one in cells]),
            ("any", [one.any_loss for one in cells]),
        ):
            shown = " | ".join(f"{100 * share:.1f}" for share in shares)
            lines.append(f"| {said if name == 'ours' else ' | | '} | {name} | {shown} |")
    return "\n".join(lines)


def _p_values(differences: Floats, drop: float) -> Floats:
    """Of each experiment, of "the candidate loses ``drop`` or more"; equal ones are tested once."""
    found: dict[bytes, float] = {}
    p_values = []
    for each in np.sort(differences, axis=1):
        if (key := each.tobytes()) not in found:
            values, counts = np.unique(each, return_counts=True)
            found[key] = probability_at_most_zero(np.append(values, -1.0) + drop, np.append(counts, 1.0))
        p_values.append(found[key])
    return np.array(p_values)


def false_rows(repeats: int) -> list[tuple[str, list[Passed]]]:
    """At the margin: a line for each kind of scores, mean and allowed drop."""
    rows = []
    for drop in DROPS:
        for kind in KINDS:
            for mean in MEANS:
                cells = [passed(kind, mean, drop, drop, items, repeats) for items in ITEMS]
                rows.append((f"{kind.said} | {mean} | {100 * drop:.0f}", cells))
        cells = [passed(RARE, 1.0, drop, drop, items, repeats) for items in ITEMS]
        rows.append((f"{RARE.said} | 1 | {100 * drop:.0f}", cells))
    return rows


def both_rows(repeats: int) -> list[tuple[str, list[Passed]]]:
    """Power: of candidates that are as good as the base."""
    rows = []
    for drop in DROPS:
        for kind in KINDS:
            for mean in (0.5, 0.8, 0.95):
                cells = [passed(kind, mean, 0.0, drop, items, repeats) for items in ITEMS]
                rows.append((f"{kind.said} | {mean} | {100 * drop:.0f}", cells))
    return rows


def _table(rows: list[tuple[str, list[Passed]]]) -> str:
    lines = [f"| scores | mean of the base | points allowed | rule | {' | '.join(map(str, ITEMS))} |"]
    lines.append("|---|---|---|---|" + "---|" * len(ITEMS))
    for said, cells in rows:
        for rule, shares in (("ours", [one.ours for one in cells]), ("t", [one.t for one in cells])):
            shown = " | ".join(f"{100 * share:.1f}" for share in shares)
            lines.append(f"| {said if rule == 'ours' else ' | | '} | {rule} | {shown} |")
    return "\n".join(lines)


def page(repeats: int) -> str:
    """Markdown."""
    false, both = false_rows(repeats), both_rows(repeats)
    every = [one for _, cells in false for one in cells]
    few = [one.t for _, cells in false for one in cells[: ITEMS.index(100) + 1]]
    worst = INTRODUCTION.format(
        repeats=f"{repeats:,}",
        most=100 * max(one.ours for one in every),
        cells=len(every),
        mean=100 * float(np.mean([one.ours for one in every])),
        least_t=100 * min(few),
        most_t=100 * max(few),
        over_t=sum(one.t > 0.025 + 2 * np.sqrt(0.025 * 0.975 / repeats) for one in every),
    )
    margin = _stopped_table(stopped_rows(repeats // 4, 0.0))
    more = _stopped_table(stopped_rows(repeats // 4, 0.1))
    return "\n\n".join([worst, _table(false), POWER, _table(both), NO_GO, margin, FOUND, more]) + "\n"


INTRODUCTION = """\
# The gate: what passes at the margin, and what passes that should

Written by `python -m evidence.gate`, which draws the scores of a base and a candidate on the same items.
*Ours* is the rule of `coeval gate` ([how it is made](../gate.md)): GO where the lower bound of the difference
lies above the allowed loss. *t* is the rule of a peer: the lower end of the paired t interval, which has no
width where no pair differs. Columns are items; each cell is of {repeats} experiments.

## False GO

Of a hundred candidates that lose exactly what is allowed, so many are called GO; 2.5 may be. Ours: {mean:.1f}
on average over {cells} cells, {most:.1f} at most (chance leaves ± 0.5 of a figure near 2.5). Of the t rule,
{over_t} of {cells} cells lie above what chance explains; with up to 100 items it passes {least_t:.0f} to
{most_t:.0f} of a hundred."""

POWER = """\
## Power

Of a hundred candidates that are exactly as good as the base, so many are called GO. What the bound costs
beside t is the item that was not drawn and may lose the whole scale; it is what keeps the first table below
2.5, and little where items are many. A figure of t counts only where its line above holds."""


NO_GO = """\
## False NO-GO

Of a hundred candidates that lose exactly what is allowed (a quarter of the experiments), so many are called
NO-GO. *Ours*: the loss is significantly more than allowed. *any*: it is significant and seen to be more,
which stops a candidate that may well be allowed."""

FOUND = """\
## NO-GO where it is due

The same of candidates that lose ten points more than is allowed."""


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "experiments of each cell")
