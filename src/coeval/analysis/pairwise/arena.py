"""Arena-Hard: each answer is compared with the baseline's in both orders.

A strong verdict counts as three weak ones (Li et al. 2024), a tie as half a win. Verdicts on one
prompt are not independent, so the spread comes from a bootstrap over prompts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.pairwise.rates import Rate, draws, rate
from coeval.analysis.pairwise.style import StyleControl, StyledPair, style_control

STRONG = 3
"""How many weak verdicts a strong one counts for."""

VERDICTS: dict[str, tuple[float, int]] = {
    "A>>B": (1.0, STRONG),
    "A>B": (1.0, 1),
    "A=B": (0.5, 1),
    "A<B": (0.0, 1),
    "A<<B": (0.0, STRONG),
    "B>>A": (0.0, STRONG),
    "B>A": (0.0, 1),
    "B=A": (0.5, 1),
    "B<A": (1.0, 1),
    "B<<A": (1.0, STRONG),
}
"""Label → A's win, and how often it counts."""


class ArenaJudgment(msgspec.Struct, frozen=True):
    """A judge's two verdicts on one prompt, as labels of `VERDICTS`; None where the judge gave none.

    ``baseline_first``: the baseline's answer was shown as A; ``model_first``: the model's was.
    """

    prompt: str
    category: str
    judge: str
    baseline_first: str | None
    model_first: str | None


class ArenaScore(msgspec.Struct, frozen=True):
    """The model's win rate in percent against the baseline.

    ``category`` None stands for all categories together (not an official score: their baselines
    differ), ``judge`` None for all judges. ``n`` counts prompts, ``n_judgments`` their judgments
    with both verdicts, ``n_failed`` the judgments that lack one: as officially, these are left
    out. ``win_rate`` is None at n = 0. ``style`` is None without
    styles or with too few prompts.
    """

    category: str | None
    judge: str | None
    win_rate: Rate | None
    n: int
    n_judgments: int
    n_failed: int
    style: StyleControl | None = None


def arena_scores(
    judgments: Iterable[ArenaJudgment], *, styles: Mapping[str, StyledPair] | None = None, seed: int = 0
) -> tuple[ArenaScore, ...]:
    """Scores of one model: per judge and category, then of all categories and of all judges together.

    A table of all appears only where there is more than one to put together. Of several judgments
    with the same judge and prompt the last counts.

    Parameters
    ----------
    judgments : of one model; none at all give no scores
    styles : by prompt, for style control; every judged prompt must be there
    seed : of the bootstrap over prompts; the result does not depend on the order of the judgments
    """
    latest = {(judgment.judge, judgment.prompt): judgment for judgment in judgments}
    kept = [latest[key] for key in sorted(latest)]
    if styles is not None:
        unstyled = {judgment.prompt for judgment in kept} - styles.keys()
        if unstyled:
            raise ValueError(f"styles lack {len(unstyled)} judged prompts, such as {min(unstyled)!r}")
    scores = []
    for judge in _each_and_all({judgment.judge for judgment in kept}):
        for category in _each_and_all({judgment.category for judgment in kept}):
            chosen = [
                judgment
                for judgment in kept
                if judge in (None, judgment.judge) and category in (None, judgment.category)
            ]
            if chosen:
                scores.append(_score(chosen, (category, judge), styles, seed))
    return tuple(scores)


def _each_and_all(names: set[str]) -> list[str | None]:
    return [*sorted(names), *([None] if len(names) > 1 else [])]


def _score(
    judgments: list[ArenaJudgment],
    cell: tuple[str | None, str | None],
    styles: Mapping[str, StyledPair] | None,
    seed: int,
) -> ArenaScore:
    won: defaultdict[str, float] = defaultdict(float)
    counted: defaultdict[str, int] = defaultdict(int)
    failed = 0
    for judgment in judgments:
        if judgment.baseline_first is None or judgment.model_first is None:
            failed += 1
            continue
        baseline_wins, baseline_counts = _verdict(judgment.baseline_first, judgment)
        model_wins, model_counts = _verdict(judgment.model_first, judgment)
        won[judgment.prompt] += (1 - baseline_wins) * baseline_counts + model_wins * model_counts
        counted[judgment.prompt] += baseline_counts + model_counts
    prompts = sorted(counted)
    wins = np.array([won[prompt] for prompt in prompts])
    weights = np.array([counted[prompt] for prompt in prompts], dtype=np.float64)
    drawn = _drawn(len(prompts), seed)
    category, judge = cell
    return ArenaScore(
        category=category,
        judge=judge,
        win_rate=_win_rate(wins, weights, drawn),
        n=len(prompts),
        n_judgments=len(judgments) - failed,
        n_failed=failed,
        style=style_control([styles[prompt] for prompt in prompts], wins / weights, weights, drawn)
        if styles is not None
        else None,
    )


def _verdict(label: str, judgment: ArenaJudgment) -> tuple[float, int]:
    if label not in VERDICTS:
        raise ValueError(
            f"{label!r} (judge {judgment.judge}, prompt {judgment.prompt}) is no verdict; "
            f"verdicts are {', '.join(VERDICTS)}"
        )
    return VERDICTS[label]


def _drawn(count: int, seed: int) -> Floats:
    if count < 2:
        return np.empty((0, count))
    return draws(count, np.random.default_rng(seed)).astype(np.float64)


def _win_rate(wins: Floats, weights: Floats, drawn: Floats) -> Rate | None:
    """Weighted share of wins, in percent; resampled prompts bring all their verdicts along."""
    if not len(wins):
        return None
    return rate(100 * float(wins.sum() / weights.sum()), 100 * (drawn @ wins) / (drawn @ weights), len(wins))
