"""Arena-Hard: each answer is compared with the baseline's in both orders.

A strong verdict counts as three weak ones (Li et al. 2024), a tie as half a win. Verdicts on one
prompt are not independent, so the spread comes from a bootstrap over prompts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.pairwise.rates import Rate, draw_counts, fit_logistic, rate_with_spread
from coeval.analysis.special import expit

# --- Style control of pairwise verdicts
#
# The features and their normalised differences are those of Arena-Hard-Auto v2 with its length and markdown
# controls together: length, headers, list items, bold phrases.

FEATURES = ("length", "headers", "lists", "bold")

LEAST_PROMPTS = 10 * (1 + len(FEATURES))
"""Ten per coefficient (Peduzzi et al. 1996): below that the fit says little about style."""

# Of English prose. Features are relative and standardised, so a constant factor hardly matters.
_CHARACTERS_PER_TOKEN = 4
_CODE = re.compile(r"```[^`]*```")
_HEADER = re.compile(r"^#{1,6}\s", re.MULTILINE)
_LIST_ITEM = re.compile(r"^[^\S\n]*(?:\d+\.|[-*+])\s", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")


class Style(msgspec.Struct, frozen=True):
    """The length of an answer in tokens, and its counts of markdown elements."""

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
    """Count an answer's markdown elements, except inside fenced code, and estimate its length in tokens."""
    plain = _CODE.sub("``````", text)
    return Style(
        length=len(text) / _CHARACTERS_PER_TOKEN,
        headers=len(_HEADER.findall(plain)),
        lists=len(_LIST_ITEM.findall(plain)),
        bold=len(_BOLD.findall(plain)),
    )


def style_differences(pairs: Sequence[StyledPair]) -> Floats:
    """Compute (n, 4), model against baseline: ``(a − b)/(a + b)`` of lengths, ``(a − b)/(a + b + 1)`` of
    densities: counts per token of length, 0 for an empty answer; two empty answers do not differ."""
    rows = []
    for pair in pairs:
        a, b = _style_features(pair.model), _style_features(pair.baseline)
        total = a[0] + b[0]
        length = (a[0] - b[0]) / total if total else 0.0
        rows.append([length, *((x - y) / (x + y + 1) for x, y in zip(a[1:], b[1:], strict=True))])
    return np.array(rows, dtype=np.float64).reshape(-1, len(FEATURES))


def control_style_if_enough(
    pairs: Sequence[StyledPair], shares: Floats, weights: Floats, drawn: Floats
) -> StyleControl | None:
    """Fit the strength of the model against the baseline (Bradley–Terry) with coefficients for style.

    With one opponent the strengths' difference is the intercept of a logistic regression. None with fewer
    than `LEAST_PROMPTS` prompts. ``shares`` (n,): the model's weighted share of wins on each prompt;
    ``weights`` (n,): how many verdicts that share stands for, strong ones counted three times; ``drawn``
    (resamples, n): how often each prompt is drawn.
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
        win_rate=rate_with_spread(float(wins[0]), wins[1:], len(pairs)),
        win_rate_at_mean_style=100 * float(expit(fits[0, 0] + fits[0, 1:] @ (mean / scale))),
        coefficients=dict(zip(FEATURES, fits[0, 1:].tolist(), strict=True)),
        n=len(pairs),
    )


def _style_features(style: Style) -> list[float]:
    counts = (style.headers, style.lists, style.bold)
    return [style.length, *(count / style.length if style.length else 0.0 for count in counts)]


# How many weak verdicts a strong one counts for.
STRONG = 3

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
    ``baseline_first``: the baseline's answer was shown as A; ``model_first``: the model's was."""

    prompt: str
    category: str
    judge: str
    baseline_first: str | None
    model_first: str | None


class ArenaScore(msgspec.Struct, frozen=True):
    """The model's win rate in percent against the baseline.

    ``category`` None stands for all categories together (not an official score: their baselines differ),
    ``judge`` None for all judges. ``n`` counts prompts, ``n_judgments`` their judgments with both verdicts,
    ``n_failed`` the judgments that lack one: as officially, these are left out. ``win_rate`` is None at n =
    0. ``style`` is None without styles or with too few prompts.
    """

    category: str | None
    judge: str | None
    win_rate: Rate | None
    n: int
    n_judgments: int
    n_failed: int
    style: StyleControl | None = None


def score_by_judge_and_category(
    judgments: Iterable[ArenaJudgment], *, styles: Mapping[str, StyledPair] | None = None, seed: int = 0
) -> tuple[ArenaScore, ...]:
    """Score one model: per judge and category, then over all categories and over all judges, where there is
    more than one to put together. Of several judgments with the same judge and prompt the last counts;
    their order does not matter. ``styles``: of every judged prompt, for style control.
    """
    latest = {(judgment.judge, judgment.prompt): judgment for judgment in judgments}
    kept = [latest[key] for key in sorted(latest)]
    if styles is not None and (unstyled := {judgment.prompt for judgment in kept} - styles.keys()):
        raise ValueError(f"styles lack {len(unstyled)} judged prompts, such as {min(unstyled)!r}")
    scores = []
    for judge in _names_and_none_for_total({judgment.judge for judgment in kept}):
        for category in _names_and_none_for_total({judgment.category for judgment in kept}):
            chosen = [
                judgment
                for judgment in kept
                if judge in (None, judgment.judge) and category in (None, judgment.category)
            ]
            if chosen:
                scores.append(_score_one_judge_and_category(chosen, (category, judge), styles, seed))
    return tuple(scores)


def _names_and_none_for_total(names: set[str]) -> list[str | None]:
    return [*sorted(names), *([None] if len(names) > 1 else [])]


def _score_one_judge_and_category(
    judgments: list[ArenaJudgment],
    cell: tuple[str | None, str | None],
    styles: Mapping[str, StyledPair] | None,
    seed: int,
) -> ArenaScore:
    """Score the judgments of one (category, judge), None for all, leaving out those without both verdicts."""
    won: defaultdict[str, float] = defaultdict(float)
    counted: defaultdict[str, int] = defaultdict(int)
    failed = 0
    for judgment in judgments:
        if judgment.baseline_first is None or judgment.model_first is None:
            failed += 1
            continue
        baseline_wins, baseline_counts = _win_and_count_of_a(judgment.baseline_first, judgment)
        model_wins, model_counts = _win_and_count_of_a(judgment.model_first, judgment)
        won[judgment.prompt] += (1 - baseline_wins) * baseline_counts + model_wins * model_counts
        counted[judgment.prompt] += baseline_counts + model_counts
    prompts = sorted(counted)
    wins = np.array([won[prompt] for prompt in prompts])
    weights = np.array([counted[prompt] for prompt in prompts], dtype=np.float64)
    drawn = np.empty((0, len(prompts)))
    if len(prompts) > 1:
        drawn = draw_counts(len(prompts), np.random.default_rng(seed)).astype(np.float64)
    rate = None
    if prompts:  # resampled prompts bring all their verdicts along
        value, replicates = 100 * float(wins.sum() / weights.sum()), 100 * (drawn @ wins) / (drawn @ weights)
        rate = rate_with_spread(value, replicates, len(prompts))
    category, judge = cell
    return ArenaScore(
        category=category,
        judge=judge,
        win_rate=rate,
        n=len(prompts),
        n_judgments=len(judgments) - failed,
        n_failed=failed,
        style=control_style_if_enough([styles[prompt] for prompt in prompts], wins / weights, weights, drawn)
        if styles is not None
        else None,
    )


def _win_and_count_of_a(label: str, judgment: ArenaJudgment) -> tuple[float, int]:
    if label not in VERDICTS:
        raise ValueError(
            f"{label!r} (judge {judgment.judge}, prompt {judgment.prompt}) is not a verdict; "
            f"verdicts are {', '.join(VERDICTS)}"
        )
    return VERDICTS[label]
