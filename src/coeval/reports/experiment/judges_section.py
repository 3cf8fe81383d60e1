"""Can the judges be trusted?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from coeval.analysis.measures.judge_measures import JudgeMeasures, PairAgreement
from coeval.analysis.measures.measure_tree import ShownAs, field_declarations
from coeval.analysis.measures.run_measures import OutputMeasures, RunMeasures
from coeval.analysis.measures.score_grid import LevelCounts
from coeval.analysis.panel.bias_ledger import FamilyBias, JudgeBiases, LengthContrast
from coeval.analysis.panel.g_study import GStudy, JudgeWorth
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_columns,
    make_section,
)
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.measure_table import TableHeading, column_of_field, measure_table
from coeval.reports.plots import HeatMap, bias_plot, heat_map

# --- Level counts


def sort_best_first(counts: Mapping[str, LevelCounts]) -> list[str]:
    """The levels of all scales, the best ones of each first."""
    return list(reversed(list(dict.fromkeys(level for levels in counts.values() for level in levels))))


def level_table(name: str, title: str, counts: Mapping[str, LevelCounts]) -> ReportTable:
    """A row for each name and level, with its share of the name's scores."""
    rows: list[tuple[Cell, ...]] = []
    for each, levels in counts.items():
        total = sum(levels.values())
        rows += [
            (each, level, levels[level] / total, levels[level]) for level in sort_best_first(counts) if total
        ]
    return ReportTable(
        name,
        title,
        (
            *make_columns("Name", "Level"),
            ReportColumn("share", "Share", "share"),
            ReportColumn("count", "Scores", "count"),
        ),
        tuple(rows),
    )


# --- Judge tables

# Of each bias, what its rows are called.
_BIASES = {
    name: reported.column
    for name, reported in field_declarations(JudgeBiases).items()
    if isinstance(reported, ShownAs)
}
_WITHOUT_VERDICT = (
    "Without an interval there is no verdict: to say what is usual takes answers of three families, and more "
    "judges than favours."
)


def agreement_map(agreement: ReportTable, judges: list[str], *, weighted: bool) -> Picture:
    kappa = "Cohen's κ, weighted by the distance of levels" if weighted else "Cohen's κ"
    title = f"Pairwise agreement of judges. {kappa}: 1 for perfect agreement, 0 for chance."
    noted = ("kappa_low", "kappa_high", "spa", "wpa", "count")
    grid = HeatMap(agreement, "judge", "other", "kappa", judges[:-1], judges[1:], tooltip=noted)
    return heat_map("agreement-map", title, grid)


def judge_table(judges: Mapping[str, JudgeMeasures]) -> ReportTable:
    strict = ReportColumn("severity", "Strictness", "points", "How much lower it scores than the others", "")
    ranked = ReportColumn("ranked", "Ranked", "text", "Has at least 30 scores in common with others", "")
    return measure_table(
        TableHeading("panel", "Judges", ("Judge",), "judge"),
        JudgeMeasures,
        judges,
        further={
            strict: lambda judge: judge.bias.severity.measured,
            ranked: lambda judge: not judge.degenerate,
        },
    )


def agreement_table(agreement: Mapping[tuple[str, str], PairAgreement]) -> ReportTable:
    return measure_table(
        TableHeading("agreement", "Judges pairwise", ("Judge", "Other")), PairAgreement, agreement
    )


def itself_table(judges: Mapping[str, JudgeMeasures]) -> ReportTable:
    """How far those agree with themselves who were asked the very same more than once."""
    found = {name: judge.consistency for name, judge in judges.items()}
    again = {name: one for name, one in found.items() if one is not None}
    title = "Each judge with itself, asked the very same again"
    return measure_table(TableHeading("itself", title, ("Judge",)), PairAgreement, again)


def length_table(length: Mapping[tuple[str, str], LengthContrast]) -> ReportTable:
    title = "What an answer of twice the length is worth, the first judge less the second"
    return measure_table(TableHeading("length", title, ("Judge", "Other")), LengthContrast, length)


def reliability_table(study: GStudy | None) -> ReportTable:
    studies = {} if study is None else {"these judges": study}
    return measure_table(
        TableHeading("reliability", "Reliability of the students' scores", ("By",)), GStudy, studies
    )


def worth_table(study: GStudy | None) -> ReportTable:
    worth = {} if study is None else study.worth
    return measure_table(TableHeading("worth", "What each judge adds to Eρ²", ("Judge",)), JudgeWorth, worth)


def bias_table(judges: Mapping[str, JudgeMeasures]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for name, found in judges.items():
        for bias, words in _BIASES.items():
            reported = getattr(found.bias, bias)
            if reported.measured is not None:
                links[len(rows)] = urlencode({"judge": name})
                sure = None if reported.ci95 is None else reported.is_named
                rows.append((name, words, reported.measured, getattr(reported, "usual", None), sure))
    return ReportTable(
        "biases",
        "What judges lean on",
        (
            ReportColumn("judge", "Judge"),
            ReportColumn("bias", "Leaning"),
            ReportColumn("value", "By", "points", "In points of a score"),
            column_of_field(FamilyBias, "usual"),
            ReportColumn("sure", "Significant", "text", "p below 0.05 by Holm's method, over all judges"),
        ),
        tuple(rows),
        note=_WITHOUT_VERDICT if any(row[-1] is None for row in rows) else "",
        links=links,
    )


def bias_picture(biases: ReportTable, judges: list[str], models: list[str]) -> Picture | None:
    """None: nothing is known of any judge's leanings. ``models``: all who have a colour."""
    reported = [bias for bias in _BIASES.values() if any(row[1] == bias for row in biases.rows)]
    if not reported:
        return None
    return Picture(
        "leanings",
        "Bias of each judge, relative to the other judges of the same answers; right of zero is "
        "stricter, or kinder to what is named. Filled: significant after adjusting for the number of judges.",
        biases.name,
        bias_plot(biases.name, reported, judges, models),
    )


_NO_JUDGMENT = "No judge scored an answer, so there is nothing to be trusted or doubted."


def judges_section(evidence: RunEvidence) -> ReportSection:
    measures, grid = evidence.measured.measures, evidence.measured.grid
    said = [found.text for found in evidence.measured.conclusions if found.topic == "judges"]
    given = {name: judge.levels for name, judge in measures.judges.items()}
    more = (
        reliability_table(measures.g_study),
        worth_table(measures.g_study),
        length_table(measures.length),
        level_table("judge-levels", "Levels that judges give", given),
    )
    weighted = not grid.has_default_scale
    return section_of_judges(measures, said or [_NO_JUDGMENT], evidence.models, more, weighted=weighted)


def section_of_judges(
    measures: RunMeasures | OutputMeasures,
    said: Sequence[str],
    models: list[str],
    more: Sequence[ReportTable] = (),
    *,
    weighted: bool = False,
) -> ReportSection:
    """``models``: all who have a colour; ``weighted``: agreement is, by the distance of levels."""
    judges = list(measures.judges)
    agreement, biases = agreement_table(measures.agreement), bias_table(measures.judges)
    pictures = [agreement_map(agreement, judges, weighted=weighted)]
    if (leanings := bias_picture(biases, judges, models)) is not None:
        pictures.append(leanings)
    tables = (judge_table(measures.judges), agreement, itself_table(measures.judges), biases, *more)
    sentences = [Sentence(text, "panel") for text in said]
    return make_section("judges", "Can the judges be trusted?", sentences, pictures, tables)
