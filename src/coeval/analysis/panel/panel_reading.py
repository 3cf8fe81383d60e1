"""What the measures of a panel take from a run, beside its scores: lengths of answers, families of models,
and what a judge was asked more than once."""

from __future__ import annotations

from typing import Any

import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.reweighting import Reweighting
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import bias_ledger, plain_ledger
from coeval.analysis.panel.consistency import AskedTwice, consistency
from coeval.analysis.panel.model_families import model_families
from coeval.analysis.readers.run_reader import RunReader

__all__ = ["biases_of", "consistency_of", "families_of"]


def biases_of(reader: RunReader, grid: ScoreGrid) -> dict[str, dict[str, Any]]:
    """By judge, each bias as ``{"value", "ci95", "p_adjusted"}``."""
    return plain_ledger(bias_ledger(grid, _lengths(reader, grid), families_of(reader, grid)))


def families_of(reader: RunReader, grid: ScoreGrid) -> dict[str, str]:
    """Of students and judges, as the configuration tells them or their names do."""
    told = reader.planned.families if reader.planned is not None else {}
    return model_families((*grid.students, *grid.judges), told)


def _lengths(reader: RunReader, grid: ScoreGrid) -> Floats:
    """(C,): characters of the answer of each row; NaN where it is not known."""
    columns = reader.columns(_LENGTHS, [list(grid.tasks), list(grid.students)])
    found = np.full((len(grid.items.ids), len(grid.students)), np.nan)
    found[columns["item"], columns["student"]] = columns["length"]
    return found[grid.item, grid.student]


def consistency_of(reader: RunReader, grid: ScoreGrid, reweighting: Reweighting) -> dict[str, Branch | None]:
    """By judge: how far it agrees with itself, where it was asked the same more than once."""
    [(again,)] = reader.rows(f"SELECT count(*) FROM ({_AGAIN})")  # noqa: S608
    if not again:
        return dict.fromkeys(grid.judges)
    columns = reader.columns(_REPEATED, [list(grid.tasks), list(grid.judges)])
    return consistency(grid.judges, AskedTwice(*(columns[name] for name in AskedTwice._fields)), reweighting)


_LENGTHS = """
WITH item AS (
    SELECT key, row_number() OVER (ORDER BY id) - 1 AS item
    FROM planned WHERE NOT failed AND list_contains(?::VARCHAR[], task::VARCHAR)
)
SELECT item, list_position(?::VARCHAR[], r.student::VARCHAR) - 1 AS student, r.length
FROM response r JOIN item ON r.datapoint = item.key
WHERE r.length IS NOT NULL AND student IS NOT NULL
"""
"""Datapoints are numbered as in the grid: by their ids."""

_AGAIN = "SELECT question FROM coded_judgments WHERE NOT failed GROUP BY ALL HAVING count(question) > 1"
_REPEATED = f"""
WITH item AS (
    SELECT place, row_number() OVER (ORDER BY id) - 1 AS item
    FROM planned WHERE NOT failed AND list_contains(?::VARCHAR[], task::VARCHAR)
), one AS (
    SELECT i.item, c.judge, c.question, unnest(c.factors) AS factor, unnest(c.levels) AS level
    FROM coded_judgments c JOIN ({_AGAIN}) USING (question) JOIN item i ON c.item = i.place
    WHERE NOT c.failed
)
SELECT item, list_position(?::VARCHAR[], judge::VARCHAR) - 1 AS judge, level,
       dense_rank() OVER (ORDER BY question, factor) - 1 AS question
FROM one WHERE factor IS NOT NULL AND level IS NOT NULL
"""  # noqa: S608
"""Equal questions are the same recipe, item, answer and criteria."""
