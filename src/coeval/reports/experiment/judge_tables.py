"""What is to be known of judges as tables: of a run's, and of those that ``eval-framework`` asked."""

from __future__ import annotations

from urllib.parse import urlencode

from coeval.analysis.measures.measured import Branch, Measured
from coeval.analysis.panel.panel_findings import is_named
from coeval.reports.charts.bias_plot import bias_plot
from coeval.reports.charts.heat_map import HeatMap, heat_map
from coeval.reports.content.report_content import Cell, Picture, ReportColumn, ReportTable

__all__ = [
    "agreement_map",
    "agreement_table",
    "bias_picture",
    "bias_table",
    "itself_table",
    "judge_table",
]

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
