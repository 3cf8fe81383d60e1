"""What AlpacaEval publishes for its length control: how hard instructions are, and what regularises it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from coeval.analysis.pairwise.pairwise_models import GamedAnnotations
from coeval.benchmarks.assets.library import Library, read_records

BASELINE, DIFFICULTY, GAMED = "alpaca-eval/baseline", "alpaca-eval/difficulty", "alpaca-eval/gamed"


class PublishedLengths(NamedTuple):
    """``difficulties`` are by the instruction's number in the benchmark, from 0; empty without a table."""

    gamed: GamedAnnotations | None
    difficulties: dict[int, float]


def published_lengths(assets: Mapping[str, Path]) -> PublishedLengths:
    """What is there of it; nothing with other instructions than the official ones, which it is about.

    The table of gamed baselines holds the difficulties too; the other one has a row per instruction,
    in the benchmark's order.
    """
    if not Library().is_official(BASELINE, assets[BASELINE]):
        return PublishedLengths(None, {})
    if GAMED in assets:
        rows = list(read_records(assets[GAMED]))
        gamed = GamedAnnotations(
            tuple(float(row["preference"]) for row in rows),
            tuple(float(row["std_delta_len"]) for row in rows),
            tuple(float(row["instruction_difficulty"]) for row in rows),
        )
        return PublishedLengths(
            gamed, {int(row["index"]): float(row["instruction_difficulty"]) for row in rows}
        )
    if DIFFICULTY in assets:
        table = read_records(assets[DIFFICULTY])
        return PublishedLengths(
            None, {number: float(row["instruction_difficulty"]) for number, row in enumerate(table)}
        )
    return PublishedLengths(None, {})
