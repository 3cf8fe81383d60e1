"""Can the judges be trusted?"""

from __future__ import annotations

from urllib.parse import urlencode

import numpy as np

from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.reports.charts.share_bars import share_bars
from coeval.reports.content.report_content import (
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    section_of,
)
from coeval.reports.experiment.judge_tables import (
    agreement_map,
    agreement_table,
    bias_picture,
    bias_table,
    itself_table,
    judge_table,
)
from coeval.reports.experiment.level_table import LEVELS_BEST_FIRST, level_table
from coeval.reports.experiment.run_evidence import RunEvidence

__all__ = ["judges_section"]

_MOST_DISPUTED = 12
_NO_JUDGMENT = "No judge scored an answer, so there is nothing to be trusted or doubted."


def judges_section(evidence: RunEvidence) -> ReportSection:
    tree, grid = evidence.measured.tree, evidence.measured.grid
    judges = list(tree["judges"])
    said = [found.text for found in evidence.measured.conclusions if found.topic == "judges"]
    agreement, biases = agreement_table(tree["agreement"]), bias_table(tree["judges"])
    levels = level_table(
        "judge-levels", "Levels that judges give", {n: tree["judges"][n]["levels"] for n in judges}
    )
    pictures = []
    if agreement.rows:
        pictures.append(agreement_map(agreement, judges))
    if (leanings := bias_picture(biases, judges, evidence.models)) is not None:
        pictures.append(leanings)
    if levels.rows:
        pictures.append(
            Picture(
                "level-use",
                "How often each judge gives High, Medium and Low",
                levels.name,
                share_bars(levels.name, ("name", "level"), judges, LEVELS_BEST_FIRST, ranked=True),
            )
        )
    itself = itself_table(tree["judges"])
    tables = (judge_table(tree["judges"]), agreement, itself, biases, levels, _disputed(grid))
    return section_of(
        "judges",
        "Can the judges be trusted?",
        [Sentence(text, "panel") for text in said or [_NO_JUDGMENT]],
        pictures,
        tables,
    )


def _disputed(grid: ScoreGrid) -> ReportTable:
    """The items that judges differ about most: the mean, over answers and factors, of the highest score less
    the lowest."""
    valid = grid.valid
    several = valid.sum(axis=1) > 1
    highest = np.where(valid, grid.levels, -1).max(axis=1, initial=-1)
    lowest = np.where(valid, grid.levels, 3).min(axis=1, initial=3)
    items = len(grid.items.ids)
    total = np.bincount(grid.item[several], (highest - lowest)[several] / 2, items)
    count = np.bincount(grid.item[several], minlength=items)
    spread = np.divide(total, count, out=np.zeros(items), where=count > 0)
    worst = [int(place) for place in np.argsort(-spread, kind="stable")[:_MOST_DISPUTED] if spread[place] > 0]
    names = [grid.items.ids[place] for place in worst]
    return ReportTable(
        "disputed",
        "The most disputed items",
        (
            ReportColumn("item", "Item"),
            ReportColumn("task", "Task"),
            ReportColumn(
                "disagreement",
                "Disagreement",
                "score",
                "The highest score less the lowest, mean over answers",
            ),
        ),
        tuple(
            (grid.items.ids[place], grid.tasks[grid.items.task[place]], float(spread[place]))
            for place in worst
        ),
        links={place: urlencode({"order": "disagreement", "item": name}) for place, name in enumerate(names)},
    )
