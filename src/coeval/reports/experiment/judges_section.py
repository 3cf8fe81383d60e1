"""Can the judges be trusted?"""

from __future__ import annotations

from urllib.parse import urlencode

import numpy as np

from coeval.analysis.measures.measured import Branch, Measured
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.panel_findings import is_named
from coeval.reports.charts.bias_plot import bias_plot
from coeval.reports.charts.heat_map import HeatMap, heat_map
from coeval.reports.charts.share_bars import share_bars
from coeval.reports.content.report_content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
)
from coeval.reports.experiment.level_table import LEVELS_BEST_FIRST, level_table
from coeval.reports.experiment.run_evidence import RunEvidence

__all__ = ["judges_section"]

_BIASES = {
    "severity": "strictness",
    "family": "its family's answers",
    "self": "its own answers",
    "length": "twice the length",
    "position": "the first of two",
}
_MOST_DISPUTED = 12
_AGREEMENT = (
    ReportColumn("kappa", "κ", "score", "Agreement beyond chance (Cohen 1960)"),
    ReportColumn("wpa", "Weighted", "score", "1 where equal, half where adjacent"),
    ReportColumn("spa", "Equal", "score", "Share of equal levels"),
)


def judges_section(evidence: RunEvidence) -> ReportSection:
    tree, grid = evidence.measured.tree, evidence.measured.grid
    judges = list(tree["judges"])
    said = [found.text for found in evidence.measured.conclusions if found.topic == "judges"]
    votes = tree["panel"].get("effective_votes")
    if votes is not None and len(judges) > 1:
        said.append(f"Together they are worth {votes:.1f} independent judges of {len(judges)}.")
    agreement, biases = _agreement(tree["agreement"]), _biases(tree["judges"])
    levels = level_table(
        "judge-levels", "Levels that judges give", {n: tree["judges"][n]["levels"] for n in judges}
    )
    pictures = []
    if agreement.rows:
        pictures.append(_agreement_map(agreement, judges))
    told = [bias for bias in _BIASES.values() if any(row[1] == bias for row in biases.rows)]
    if told:
        pictures.append(
            Picture(
                "leanings",
                "What each judge leans on. Beside the other judges of the same answers; right of zero is "
                "stricter, or kinder to what is named. Filled: sure, though several judges were looked at.",
                biases.name,
                bias_plot(biases.name, told, judges, evidence.models),
            )
        )
    if levels.rows:
        pictures.append(
            Picture(
                "level-use",
                "How often each judge gives High, Medium and Low",
                levels.name,
                share_bars(levels.name, ("name", "level"), judges, LEVELS_BEST_FIRST, ranked=True),
            )
        )
    itself = _itself(tree["judges"])
    tables = (_judges(tree["judges"]), agreement, itself, biases, levels, _disputed(grid))
    return ReportSection(
        "judges",
        "Can the judges be trusted?",
        tuple(Sentence(text, "panel") for text in said),
        tuple(pictures),
        tuple(table for table in tables if table.rows),
    )


def _agreement_map(agreement: ReportTable, judges: list[str]) -> Picture:
    grid = HeatMap(
        table=agreement.name,
        row="judge",
        column="other",
        value="kappa",
        shade="kappa",
        rows=judges[:-1],
        columns=judges[1:],
        tooltip=("kappa_low", "kappa_high", "spa", "wpa", "count"),
    )
    title = "How far every two judges agree. Cohen's κ: 1 where they always do, 0 where by chance alone."
    return Picture("agreement-map", title, agreement.name, heat_map(grid))


def _judges(judges: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for name, found in judges.items():
        severity, without = found["bias"]["severity"], found["without"] or {}
        rows.append(
            (
                name,
                found["kappa_mean"],
                found["wpa_mean"],
                _bias(severity, found["count"]),
                found["count"],
                not found["degenerate"],
                without.get("same_order"),
                without.get("standard_error_factor"),
            )
        )
    return ReportTable(
        "panel",
        "Judges",
        (
            ReportColumn("judge", "Judge"),
            ReportColumn("kappa", "κ, mean", "score", "Mean over the other judges"),
            ReportColumn("wpa", "Agreement", "score", "Weighted agreement: half for adjacent levels"),
            ReportColumn("severity", "Strictness", "score", "How much lower it scores than the others"),
            ReportColumn("common", "Common scores", "count"),
            ReportColumn("ranked", "Ranked", "text", "Has at least 30 scores in common with others"),
            ReportColumn("same_order", "Order without it", "text", "Whether the students' order would stay"),
            ReportColumn("error", "Error without it", "number", "Factor of the error of a difference"),
        ),
        tuple(rows),
        links={place: urlencode({"judge": name}) for place, name in enumerate(judges)},
    )


def _agreement(agreement: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for pair, found in agreement.items():
        first, _, second = pair.partition("|")
        rows.append((first, second, found["kappa"], found["wpa"], found["spa"], found["count"]))
    return ReportTable(
        "agreement",
        "Every two judges",
        (
            ReportColumn("judge", "Judge"),
            ReportColumn("other", "and"),
            *_AGREEMENT,
            ReportColumn("count", "Common scores", "count"),
        ),
        tuple(rows),
    )


def _itself(judges: Branch) -> ReportTable:
    """How far those agree with themselves who were asked the very same more than once."""
    rows: list[tuple[Cell, ...]] = []
    for name, judge in judges.items():
        if (found := judge["consistency"]) is not None:
            rows.append((name, found["kappa"], found["wpa"], found["spa"], found["count"]))
    return ReportTable(
        "itself",
        "Each judge with itself, asked the very same again",
        (
            ReportColumn("judge", "Judge"),
            *_AGREEMENT,
            ReportColumn("count", "Pairs of scores", "count"),
        ),
        tuple(rows),
    )


def _biases(judges: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for name, found in judges.items():
        for bias, words in _BIASES.items():
            told = found["bias"][bias]
            if (value := _bias(told, found["count"])) is not None:
                links[len(rows)] = urlencode({"judge": name})
                rows.append((name, words, value, is_named(told)))
    return ReportTable(
        "biases",
        "What judges lean on",
        (
            ReportColumn("judge", "Judge"),
            ReportColumn("bias", "Leaning"),
            ReportColumn("value", "By", "score", "In units of a score from 0 to 1"),
            ReportColumn("sure", "Sure", "text", "Below 5 % by Holm's p-value, over all judges"),
        ),
        tuple(rows),
        links=links,
    )


def _bias(found: Branch, count: int) -> Measured | None:
    if found["value"] is None or found["ci95"] is None:
        return None
    low, high = found["ci95"]
    return Measured(found["value"], low, high, count, None)


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
