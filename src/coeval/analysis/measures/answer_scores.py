"""The grid's scores of single answers, as a table beside a reader's views."""

from __future__ import annotations

import numpy as np

from coeval.analysis.measures.score_grid import score_grid
from coeval.analysis.readers.run_reader import RunReader

_TABLE = """
CREATE OR REPLACE TABLE answer_score AS
SELECT n.item, s.model, sample, total, share, total / nullif(share, 0) AS score
FROM (
    SELECT unnest(?::INTEGER[]) AS number, unnest(?::INTEGER[]) AS student, unnest(?::INTEGER[]) AS sample,
           unnest(?::DOUBLE[]) AS total, unnest(?::DOUBLE[]) AS share
) JOIN (SELECT unnest(?::VARCHAR[]) AS item, unnest(range(?)) AS number) n USING (number)
  JOIN (SELECT unnest(?::VARCHAR[]) AS model, unnest(range(?)) AS student) s USING (student)
"""


def score_answers(reader: RunReader) -> None:
    """Make ``answer_score``: of each answer that has any score (``item``, ``model``, ``sample``) the sum of
    its scores and that of their shares in it, and the mean; NULL where it lacks a factor that is weighed."""
    grid = score_grid(reader, removed=True)
    sums, there = grid.sums(), grid.scored
    answers, first, at = np.unique(grid.answer[there], return_index=True, return_inverse=True)
    columns = [grid.item, grid.student, np.zeros(len(there), int) if grid.sample is None else grid.sample]
    figures = [np.bincount(at, column[there], len(answers)) for column in (sums.total, sums.share)]
    reader.rows(
        _TABLE,
        [
            *(column[there][first].tolist() for column in columns),
            *(figure.tolist() for figure in figures),
            *(list(grid.items.ids), len(grid.items.ids), list(grid.students), len(grid.students)),
        ],
    )
