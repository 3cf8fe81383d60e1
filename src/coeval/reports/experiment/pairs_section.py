"""Who wins where answers are compared two by two?"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from coeval.analysis.measures.pair_measures import (
    PairJudge,
    PairMeasures,
    PairRate,
    PairStudent,
    pair_sentences,
)
from coeval.core.plain import plain
from coeval.reports.content import Picture, ReportColumn, ReportSection, ReportTable, Sentence, section_of
from coeval.reports.experiment.leading_section import rank_text
from coeval.reports.measure_table import Named, declared_columns, measure_table
from coeval.reports.plots import HeatMap, heat_map

# A win rate this far from one half has the strongest colour.
_STRONGEST = 0.4


def pairs_section(found: PairMeasures, *, opened: bool) -> ReportSection:
    """Strengths, who wins against whom, and how judges compare; ``opened``: the page says who leads."""
    strengths, rates = _strengths(found), _rates(found)
    judges = measure_table(
        Named("pair-judges", "Judges of comparisons", ("Judge",)), PairJudge, found.judges, "Items"
    )
    grid = HeatMap(
        table=rates.name,
        row="student",
        column="other",
        value="wins",
        shade="ahead",
        rows=list(found.order),
        columns=list(found.order),
        most=_STRONGEST,
        format=".1f",
        tooltip=("wins_low", "wins_high", "p", "comparisons"),
        points=("wins", "ahead"),
    )
    title = "How often the student of a row wins against that of a column, ties half."
    pictures = [Picture("win-matrix", title, rates.name, heat_map(grid))]
    said = list(pair_sentences(found))[opened:]
    sentences = [Sentence(plain(text), strengths.name) for text in (*said, *_how(found))]
    question = "Who wins where answers are compared?"
    return section_of("pairs", question, sentences, pictures, (strengths, rates, judges))


def _how(found: PairMeasures) -> Iterator[str]:
    yield (
        "Strength is the expected number of wins in 100 comparisons with the other students, by "
        "Bradley–Terry; a tie is half a win. Intervals are 95%, over items."
    )
    if found.failed:
        yield f"{found.failed:,} comparisons failed and are not counted."


def _strengths(found: PairMeasures) -> ReportTable:
    columns = declared_columns(PairStudent)
    rows = [
        (name, rank_text(one.ranks), one.strength, one.win_rate, one.ties, one.comparisons)
        for name, one in found.students.items()
    ]
    shown = ("ranks", "strength", "win_rate", "ties", "comparisons")
    return ReportTable(
        "strengths",
        "Students by comparisons",
        (ReportColumn("student", "Student"), *(columns[name] for name in shown)),
        tuple(rows),
        links={at: urlencode({"student": name}) for at, name in enumerate(found.students)},
    )


def _rates(found: PairMeasures) -> ReportTable:
    """Both ways, so that a matrix has all its cells."""
    columns = declared_columns(PairRate)
    rows = []
    for (one, other), rate in found.rates.items():
        wins = rate.wins
        share, low, high = (wins.value or 0.0, wins.low or 0.0, 1.0 if wins.high is None else wins.high)
        back = wins._replace(value=1 - share, low=1 - high, high=1 - low)
        rows.append((one, other, wins, share - 0.5, rate.p, rate.comparisons))
        rows.append((other, one, back, 0.5 - share, rate.p, rate.comparisons))
    ahead = ReportColumn("ahead", "Beyond half", "points", "The win rate less one half")
    return ReportTable(
        "win-rates",
        "Students pairwise",
        (
            ReportColumn("student", "Student"),
            ReportColumn("other", "Against"),
            columns["wins"],
            ahead,
            columns["p"],
            columns["comparisons"],
        ),
        tuple(rows),
    )
