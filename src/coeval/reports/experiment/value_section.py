"""What does quality cost? Scores against dollars and seconds per answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from coeval.analysis.measures.measured import Measured
from coeval.core.figures import points
from coeval.core.plain import plain
from coeval.core.text import dollars, listed
from coeval.reports.content import Cell, Picture, ReportColumn, ReportSection, ReportTable, Sentence
from coeval.reports.experiment.front import SCORE_TITLE
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.plots import value_plot

_ANCHOR = "value"
_LINE = "No other student shown scores higher for the same {} or less"


class _Valued(NamedTuple):
    """A student with its score, and what its answers cost and take; ``ranks`` None: of some tasks only, so
    that its score is not held against others'."""

    student: str
    score: Measured
    ranks: str | None
    usd: float | None
    seconds: float | None


def value_section(evidence: RunEvidence, front: ReportTable) -> ReportSection | None:
    """By the rows of the first screen; None where no answer's cost or time is known."""
    found = [_Valued(*row) for row in front.rows]  # type: ignore[arg-type]
    priced = [one for one in found if one.usd is not None]
    timed = [one for one in found if one.seconds is not None]
    if not priced and not timed:
        return None
    title = next(column.title for column in front.columns if column.name == "score")
    table = _table(found, title)
    pictures = [
        Picture(f"value-{name}", f"{title} against {what}. {_PARETO}", table.name, _plot(name, of, evidence))
        for name, what, of in (("usd", "price", priced), ("seconds", "time", timed))
        if len(of) > 1
    ]
    said = [*_bargain(evidence, found, title), *_unpriced(found)]
    sentences = tuple(Sentence(plain(text), table.name) for text in said)
    return ReportSection(_ANCHOR, "What does quality cost?", sentences, tuple(pictures), (table,))


_PARETO = "The line joins the students that nobody beats on both. Bars: 95% intervals."


def on_line(found: Sequence[_Valued], name: str) -> set[str]:
    """The students whom no other beats in score for the same or less of ``name`` (Pareto)."""
    known = [
        (getattr(one, name), -one.score.value, one.student)
        for one in found
        if getattr(one, name) is not None and one.score.value is not None and one.ranks is not None
    ]
    best, line = float("inf"), set()
    for _, score, student in sorted(known):
        if score < best:
            best = score
            line.add(student)
    return line


def _table(found: Sequence[_Valued], title: str) -> ReportTable:
    cheap, fast = on_line(found, "usd"), on_line(found, "seconds")
    rows: list[tuple[Cell, ...]] = [
        (
            one.student,
            one.score,
            one.usd,
            None if one.usd is None else one.student in cheap,
            one.seconds,
            None if one.seconds is None else one.student in fast,
        )
        for one in found
    ]
    return ReportTable(
        "quality-cost",
        f"{title}, price and time",
        (
            ReportColumn("student", "Student"),
            ReportColumn("score", title, "points"),
            ReportColumn("usd", "$ per 1,000 answers", "usd"),
            ReportColumn("usd_line", "Best for its price", "text", _LINE.format("price")),
            ReportColumn("seconds", "Median seconds", "seconds"),
            ReportColumn("seconds_line", "Best for its time", "text", _LINE.format("time")),
        ),
        tuple(rows),
        links={at: urlencode({"student": one.student}) for at, one in enumerate(found)},
    )


# Amounts that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 10


def _plot(name: str, found: Sequence[_Valued], evidence: RunEvidence) -> dict[str, Any]:
    amounts = [getattr(one, name) for one in found]
    log = min(amounts) > 0 and max(amounts) > _WIDE * min(amounts)
    title = "$ per 1,000 answers" if name == "usd" else "median seconds per answer"
    return value_plot("quality-cost", name, title, evidence.models, log=log)


def _bargain(evidence: RunEvidence, found: Sequence[_Valued], title: str) -> Iterator[str]:
    """Who is cheapest among those that are not significantly behind the leader, or else at all."""
    usd = {one.student: one.usd for one in found if one.usd is not None and one.ranks is not None}
    if len({*usd.values()}) < 2:
        return
    prices = {student: f"{dollars(price)} per 1,000 answers" for student, price in usd.items()}
    among = "" if len(usd) == len(found) else f" of the {len(usd)} that can be compared"
    ranks = evidence.measured.measures.ranking
    leader = ranks.order[0] if ranks.order and title == SCORE_TITLE else ""
    below = sorted(
        (price, student) for student, price in usd.items() if price < usd.get(leader, float("inf"))
    )
    if leader not in usd:
        yield f"{below[0][1]} is cheapest{among}: {prices[below[0][1]]}."
        return
    if not below:
        yield f"{leader} has the highest score and is cheapest{among}: {prices[leader]}."
        return
    gaps = {student: ranks.between(leader, student) for _, student in below}
    for student, gap in gaps.items():
        if gap is not None and not gap.sure:
            instead = f"instead of {dollars(usd[leader])}"
            yield f"{student} is not significantly behind {leader} and costs {prices[student]} {instead}."
            return
    scores = {one.student: one.score.value or 0.0 for one in found}
    best = max(gaps, key=lambda student: (scores[student], student))
    fewer = points(scores[leader] - scores[best])
    yield (
        f"{leader} costs {prices[leader]}; the best that costs less is {best}: {dollars(usd[best])} for "
        f"{fewer} points fewer."
    )


def _unpriced(found: Sequence[_Valued]) -> Iterator[str]:
    lacking = [one.student for one in found if one.usd is None]
    if lacking:
        yield f"Without a known price, and so not in the picture: {listed(lacking)}."
    untimed = [one.student for one in found if one.usd is not None and one.seconds is None]
    if untimed:
        yield f"Without a recorded time: {listed(untimed)}."
