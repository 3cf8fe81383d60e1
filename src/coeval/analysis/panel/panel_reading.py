"""What the measures of a panel take from a run, beside its scores: lengths of answers, families of models."""

from __future__ import annotations

from typing import Any

import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import bias_ledger
from coeval.analysis.panel.model_families import model_families
from coeval.analysis.readers.run_reader import RunReader

__all__ = ["biases_of"]


def biases_of(reader: RunReader, grid: ScoreGrid) -> dict[str, dict[str, Any]]:
    """By judge, each bias as ``{"value", "ci95"}``."""
    told = reader.planned.families if reader.planned is not None else {}
    families = model_families((*grid.students, *grid.judges), told)
    ledger = bias_ledger(grid, _lengths(reader, grid), families)
    return {
        judge: {name: bias.as_plain() for name, bias in biases.items()} for judge, biases in ledger.items()
    }


def _lengths(reader: RunReader, grid: ScoreGrid) -> Floats:
    """(C,): characters of the answer of each row; NaN where it is not known."""
    columns = reader.columns(_LENGTHS, [list(grid.tasks), list(grid.students)])
    found = np.full((len(grid.items.ids), len(grid.students)), np.nan)
    found[columns["item"], columns["student"]] = columns["length"]
    return found[grid.item, grid.student]


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
