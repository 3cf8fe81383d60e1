"""The statistics of the judged benchmarks, by the name of the benchmark they belong to.

Preferences and win rates of AlpacaEval 2 with length control, scores of Arena-Hard with style
control, and HealthBench's share of points. Each is documented where it is defined.
"""

from __future__ import annotations

from coeval.analysis.pairwise.alpaca import WinRate, alpaca_preference, alpaca_win_rate, switched_order
from coeval.analysis.pairwise.arena import VERDICTS, ArenaJudgment, ArenaScore, arena_scores
from coeval.analysis.pairwise.clipped_mean import ClippedMean, clipped_mean, healthbench_score
from coeval.analysis.pairwise.length_control import (
    GamedAnnotations,
    LengthControl,
    alpaca_length_controlled,
    fit_length_control,
)
from coeval.analysis.pairwise.style import Style, StyleControl, StyledPair, markdown_style

__all__ = [
    "VERDICTS",
    "ArenaJudgment",
    "ArenaScore",
    "ClippedMean",
    "GamedAnnotations",
    "LengthControl",
    "Style",
    "StyleControl",
    "StyledPair",
    "WinRate",
    "alpaca_length_controlled",
    "alpaca_preference",
    "alpaca_win_rate",
    "arena_scores",
    "clipped_mean",
    "fit_length_control",
    "healthbench_score",
    "markdown_style",
    "switched_order",
]
