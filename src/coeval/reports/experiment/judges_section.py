"""Can the judges be trusted?"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import numpy as np

from coeval.analysis.measures.measured import LEVEL_NAMES, Branch, LevelCounts, Measured
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.panel_findings import is_named
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    section_of,
)
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.plots import HeatMap, bias_plot, heat_map, share_bars

# --- Level counts

LEVELS_BEST_FIRST = tuple(reversed(LEVEL_NAMES))


def level_table(name: str, title: str, counts: Mapping[str, LevelCounts]) -> ReportTable:
    """A row for each name and level, with its share of the name's scores."""
    rows: list[tuple[Cell, ...]] = []
    for each, levels in counts.items():
        total = sum(levels.values())
        rows += [(each, level, levels[level] / total, levels[level]) for level in LEVELS_BEST_FIRST if total]
    return ReportTable(
        name,
        title,
        (
            ReportColumn("name", "Name"),
            ReportColumn("level", "Level"),
            ReportColumn("share", "Share", "share"),
            ReportColumn("count", "Scores", "count"),
        ),
        tuple(rows),
    )


# --- Judge tables

_BIASES = {
    "severity": "strictness",
    "family": "its family's answers",
    "self": "its own answers",
    "length": "twice the length",
    "position": "the first of two",
}
_AGREEMENT = (
    ReportColumn("kappa", "κ", "score", "Agreement beyond chance (Cohen 1960)"),
    ReportColumn("wpa", "Weighted", "score", "1 where equal, half where adjacent"),
    ReportColumn("spa", "Equal", "score", "Share of equal levels"),
)


def agreement_map(agreement: ReportTable, judges: list[str]) -> Picture:
    grid = HeatMap(
        table=agreement.name,
        row="judge",
        column="other",
        value="kappa",
        shade="kappa",
        rows=judges[:-1],
        columns=judges[1:],
        most=agreement.largest("kappa"),
        tooltip=("kappa_low", "kappa_high", "spa", "wpa", "count"),
    )
    title = "How far every two judges agree. Cohen's κ: 1 where they always do, 0 where by chance alone."
    return Picture("agreement-map", title, agreement.name, heat_map(grid))


def judge_table(judges: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for name, found in judges.items():
        rows.append(
            (
                name,
                found["kappa_mean"],
                found["wpa_mean"],
                _bias(found["bias"]["severity"]),
                found["count"],
                not found["degenerate"],
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
        ),
        tuple(rows),
        links={place: urlencode({"judge": name}) for place, name in enumerate(judges)},
    )


def agreement_table(agreement: Branch) -> ReportTable:
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


def itself_table(judges: Branch) -> ReportTable:
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


def bias_table(judges: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for name, found in judges.items():
        for bias, words in _BIASES.items():
            told = found["bias"][bias]
            if (value := _bias(told)) is not None:
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


def _bias(found: Branch) -> Measured | None:
    """Without an n of its own: beside it stands how many scores judges have in common."""
    if found["value"] is None or found["ci95"] is None:
        return None
    low, high = found["ci95"]
    return Measured(found["value"], low, high, None, None)


def bias_picture(biases: ReportTable, judges: list[str], models: list[str]) -> Picture | None:
    """None: nothing is known of any judge's leanings. ``models``: all who have a colour."""
    told = [bias for bias in _BIASES.values() if any(row[1] == bias for row in biases.rows)]
    if not told:
        return None
    return Picture(
        "leanings",
        "What each judge leans on. Beside the other judges of the same answers; right of zero is "
        "stricter, or kinder to what is named. Filled: sure, though several judges were looked at.",
        biases.name,
        bias_plot(biases.name, told, judges, models),
    )


# Items that a reader opens one by one, most disputed first.
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
