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
from coeval.reports.charts.plots import HeatMap, bias_plot, heat_map
from coeval.reports.content import Cell, Picture, ReportColumn, ReportSection, ReportTable, make_columns
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.measure_table import MeasureTable, column_of_field

# --- Level counts


def levels_best_first(counts: Mapping[str, LevelCounts]) -> list[str]:
    """Return the levels of all scales, the best ones of each first."""
    return list(reversed(list(dict.fromkeys(level for levels in counts.values() for level in levels))))


def name_and_level_table(name: str, title: str, counts_by_name: Mapping[str, LevelCounts]) -> ReportTable:
    """Make a row for each name and level, with its share of the name's scores."""
    rows: list[tuple[Cell, ...]] = []
    for model, levels in counts_by_name.items():
        total = sum(levels.values())
        order = levels_best_first(counts_by_name) if total else ()
        rows += [(model, level, levels[level] / total, levels[level]) for level in order]
    columns = (
        *make_columns("Name", "Level"),
        *make_columns("Share", kind="share"),
        ReportColumn("count", "Scores", "count"),
    )
    return ReportTable(name, title, columns, tuple(rows))


# --- Judge tables

# Of each bias, what its rows are called.
_BIASES = {
    field: display.column
    for field, display in field_declarations(JudgeBiases).items()
    if isinstance(display, ShownAs)
}
_WITHOUT_VERDICT = (
    "Biases without an interval cannot be tested: the usual size is known only with answers of three model "
    "families, and more judges than kinds of bias."
)


def agreement_map(agreement: ReportTable, judges: list[str], *, weighted: bool) -> Picture:
    kappa = "Cohen's κ, weighted by the distance of levels" if weighted else "Cohen's κ"
    title = f"Pairwise agreement of judges. {kappa}: 1 for perfect agreement, 0 for chance."
    tooltip = ("kappa_low", "kappa_high", "spa", "wpa", "count")
    grid = HeatMap(agreement, "judge", "other", "kappa", judges[:-1], judges[1:], tooltip=tooltip)
    return heat_map("agreement-map", title, grid)


_STRICT = ReportColumn("severity", "Strictness", "points", "How much lower it scores than the others", "")
_RANKED = ReportColumn("ranked", "Ranked", "text", "Has at least 30 scores in common with others", "")
JUDGE_TABLE = MeasureTable(
    "panel",
    "Judges",
    ("Judge",),
    JudgeMeasures,
    "judge",
    further=(
        (_STRICT, lambda judge: judge.bias.severity.measured),
        (_RANKED, lambda judge: not judge.degenerate),
    ),
)
AGREEMENT_TABLE = MeasureTable("agreement", "Judges pairwise", ("Judge", "Other"), PairAgreement)
LENGTH_BIAS_TABLE = MeasureTable(
    "length", "Reward for twice the length, first judge − second", ("Judge", "Other"), LengthContrast
)


def self_agreement_table(judges: Mapping[str, JudgeMeasures]) -> ReportTable:
    """Make a table of how far judges agree with themselves when a request is repeated."""
    repeated = {name: judge.consistency for name, judge in judges.items() if judge.consistency is not None}
    title = "Agreement of each judge with itself on repeated requests"
    return MeasureTable("itself", title, ("Judge",), PairAgreement).fill(repeated)


def score_reliability_table(study: GStudy | None) -> ReportTable:
    table = MeasureTable("reliability", "Reliability of the students' scores", ("By",), GStudy)
    return table.fill({} if study is None else {"these judges": study})


def judge_contribution_table(study: GStudy | None) -> ReportTable:
    table = MeasureTable("worth", "Contribution of each judge to Eρ²", ("Judge",), JudgeWorth)
    return table.fill({} if study is None else study.worth)


def bias_table(judges: Mapping[str, JudgeMeasures]) -> ReportTable:
    """Make a row for each judge and kind of bias, with its size and whether it is significant."""
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for name, judge in judges.items():
        for bias, words in _BIASES.items():
            measured_bias = getattr(judge.bias, bias)
            if measured_bias.measured is not None:
                links[len(rows)] = urlencode({"judge": name})
                sure = None if measured_bias.ci95 is None else measured_bias.is_significant
                rows.append(
                    (name, words, measured_bias.measured, getattr(measured_bias, "usual", None), sure)
                )
    columns = (
        ReportColumn("judge", "Judge"),
        ReportColumn("bias", "Bias"),
        ReportColumn("value", "Points", "points", "By how much it shifts a score"),
        column_of_field(FamilyBias, "usual"),
        ReportColumn("sure", "Significant", "text", "p below 0.05 by Holm's method, over all judges"),
    )
    note = _WITHOUT_VERDICT if any(row[-1] is None for row in rows) else ""
    return ReportTable("biases", "Judge biases", columns, tuple(rows), note=note, links=links)


def bias_picture(biases: ReportTable, judges: list[str], models: list[str]) -> Picture | None:
    """Draw the biases, or return None if none is known; ``models``: all that have a colour."""
    tested = [bias for bias in _BIASES.values() if any(row[1] == bias for row in biases.rows)]
    if not tested:
        return None
    title = (
        "Judge bias against the other judges of the same answers. Right: stricter, or favours what the row "
        "names. Filled: significant after adjusting for the number of judges."
    )
    return Picture("leanings", title, biases.name, bias_plot(biases.name, tested, judges, models))


_NO_JUDGMENT = "No judge scored an answer."


def judges_section(evidence: RunEvidence) -> ReportSection:
    measures, grid = evidence.measured.measures, evidence.measured.grid
    texts = [conclusion.text for conclusion in evidence.measured.conclusions if conclusion.topic == "judges"]
    levels_by_judge = {name: judge.levels for name, judge in measures.judges.items()}
    further_tables = (
        score_reliability_table(measures.g_study),
        judge_contribution_table(measures.g_study),
        LENGTH_BIAS_TABLE.fill(measures.length),
        name_and_level_table("judge-levels", "Levels by judge", levels_by_judge),
    )
    weighted = not grid.has_default_scale
    return make_judges_section(
        measures, texts or [_NO_JUDGMENT], evidence.models, further_tables, weighted=weighted
    )


def make_judges_section(
    measures: RunMeasures | OutputMeasures,
    texts: Sequence[str],
    models: list[str],
    further_tables: Sequence[ReportTable] = (),
    *,
    weighted: bool = False,
) -> ReportSection:
    """Make the section on judges, of a run or an output folder; ``models``: all that have a colour;
    ``weighted``: agreement is weighted by the distance of levels."""
    judges = list(measures.judges)
    agreement, biases = AGREEMENT_TABLE.fill(measures.agreement), bias_table(measures.judges)
    pictures = [agreement_map(agreement, judges, weighted=weighted)]
    if (leanings := bias_picture(biases, judges, models)) is not None:
        pictures.append(leanings)
    tables = (
        JUDGE_TABLE.fill(measures.judges),
        agreement,
        self_agreement_table(measures.judges),
        biases,
        *further_tables,
    )
    question = "Can the judges be trusted?"
    return ReportSection.with_rows("judges", question, texts, pictures, tables, JUDGE_TABLE.name)
