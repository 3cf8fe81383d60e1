"""How far a judge agrees with itself: with what it said when it was asked the very same once more.

A judgment is a repeat of another one where the same judge was shown the same words. Nobody need ask twice for
that: students often give the same answer to an item, samples of one do, judgments of earlier settings are
kept, and a model may be listed as a judge under two names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import LEVELS
from coeval.analysis.measures.judge_measures import judge_pair, measures_of_pair
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.reweighting import Reweighting
from coeval.analysis.measures.score_grid import Codes

__all__ = ["AskedTwice", "consistency"]


class AskedTwice(NamedTuple):
    """E levels (0 to 2), each of a ``judge`` (its place), about a datapoint (``item``), in answer to a
    ``question``: equal numbers are the same words put to the same model."""

    item: Codes
    judge: Codes
    question: Codes
    level: Codes


def consistency(
    judges: Sequence[str], asked: AskedTwice, reweighting: Reweighting
) -> dict[str, Branch | None]:
    """By judge: ``spa``, ``wpa`` and ``kappa`` as between two judges, over the ``count`` of pairs of repeats;
    of a question that was put N times these are N(N − 1)/2. None where nothing was asked twice."""
    found: dict[str, Branch | None] = {}
    for place, judge in enumerate(judges):
        mine = np.isin(asked.question, asked.question[asked.judge == place])
        of_judge = AskedTwice(*(column[mine] for column in asked))
        found[judge] = _of_judge(judge, of_judge, reweighting) if len(of_judge.item) else None
    return found


def _of_judge(judge: str, asked: AskedTwice, reweighting: Reweighting) -> Branch | None:
    _, first, question = np.unique(asked.question, return_index=True, return_inverse=True)
    counts = np.zeros((len(first), LEVELS))
    np.add.at(counts, (question, asked.level), 1)
    of_questions: Floats = (counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(LEVELS)) / 2
    several = counts.sum(axis=1) > 1
    if not several.any():
        return None
    item = asked.item[first]
    tables = np.zeros((reweighting.blocks, LEVELS, LEVELS))
    np.add.at(tables, reweighting.block[item], of_questions)
    shared = np.zeros(reweighting.items, bool)
    shared[item[several]] = True
    return measures_of_pair(judge_pair((judge, judge), tables, shared, 0, reweighting))
