"""Who leads, and is it sure?"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from coeval.analysis.measures.measured import Branch, Measured
from coeval.core.plain import plain
from coeval.reports.charts.difference_matrix import difference_matrix
from coeval.reports.charts.forest_plot import forest_plot
from coeval.reports.content.report_content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
)
from coeval.reports.content.run_evidence import RunEvidence

__all__ = ["leading_section"]

_SCORE = (
    "Mean over tasks, of the mean over items, of the mean over judges and factors; with its 95 % interval"
)


def leading_section(evidence: RunEvidence) -> ReportSection:
    tree = evidence.measured.tree
    said = [found for found in evidence.measured.conclusions if found.topic == "leads"]
    students, differences = _students(tree), _differences(tree)
    pictures = [
        Picture(
            "forest",
            "Scores with their 95 % intervals. The band is the leader's; at the right, the ranks that "
            "each may have.",
            students.name,
            forest_plot(students.name, "student", "score", len(students.rows)),
        )
    ]
    if differences.rows:
        pictures.append(
            Picture(
                "matrix",
                "By how much the student of a row is better than that of a column, over the items that "
                "both have. A dot: sure, after Holm.",
                differences.name,
                difference_matrix(differences.name, tree["ranking"]["order"]),
            )
        )
    return ReportSection(
        anchor="leads",
        question="Who leads, and is it sure?",
        sentences=tuple(Sentence(plain(found.text), "students") for found in said),
        pictures=tuple(pictures),
        tables=(students, differences),
    )


def _students(tree: Branch) -> ReportTable:
    robust = tree["robust"]["students"] if tree["robust"]["applicable"] else {}
    rows: list[tuple[Cell, ...]] = []
    order = [*tree["ranking"]["order"], *(set(tree["students"]) - set(tree["ranking"]["order"]))]
    for place, name in enumerate(order, start=1):
        found = tree["students"][name]
        low, high = tree["ranking"]["ranges"].get(name, (None, None))
        ranks = None if low is None else f"{low}" if low == high else f"{low}–{high}"
        kept: Measured | None = robust[name]["headline"] if name in robust else None
        headline, overall = found["headline"], found["overall"]
        rows.append(
            (
                plain(name),
                place,
                ranks,
                headline,
                overall.value,
                kept,
                headline.n,
                found["valid_evals"],
                overall.missing,
            )
        )
    return ReportTable(
        "students",
        "Students",
        (
            ReportColumn("student", "Student"),
            ReportColumn("place", "Place", "count"),
            ReportColumn(
                "ranks",
                "Ranks",
                meaning="After those who are surely better, before those who are surely worse",
            ),
            ReportColumn("score", "Score", "score", _SCORE),
            ReportColumn("units", "Over units", "score", "Mean over all single scores"),
            ReportColumn(
                "robust", "Robust set", "score", "The score over the items and judges of the robust set"
            ),
            ReportColumn("n", "Items", "count"),
            ReportColumn("scores", "Scores", "count"),
            ReportColumn(
                "missing",
                "Missing",
                "count",
                "Scores that are not there, of those that the items, judges and factors make possible",
            ),
        ),
        tuple(rows),
        links={place: urlencode({"student": name}) for place, name in enumerate(order)},
    )


def _differences(tree: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    links: list[str] = []
    for better, worse, found in _ordered(tree):
        one = found["difference"]
        sure = found["p_adjusted"] is not None and found["p_adjusted"] < 0.05
        rows.append(
            (plain(better), plain(worse), one, found["p_adjusted"], sure, one.n, found["minimum_detectable"])
        )
        links.append(f"lost={urlencode({'': f'{better},{worse}'})[1:]}")
    return ReportTable(
        "differences",
        "Every two students on the same items",
        (
            ReportColumn("better", "Student"),
            ReportColumn("other", "less"),
            ReportColumn(
                "difference",
                "Difference",
                "score",
                "Paired by item, tasks counting alike; with its 95 % interval",
            ),
            ReportColumn("p", "p (Holm)", "probability"),
            ReportColumn("sure", "Sure"),
            ReportColumn("n", "Items", "count"),
            ReportColumn(
                "detectable",
                "Could be seen",
                "score",
                "The smallest true difference that this comparison finds with 80 % power",
            ),
        ),
        tuple(rows),
        links=dict(enumerate(links)),
    )


def _ordered(tree: Branch) -> Iterator[tuple[str, str, Branch]]:
    """Each pair with the one who stands first before the other, and the difference between them."""
    place = {name: at for at, name in enumerate(tree["ranking"]["order"])}
    pairs = []
    for name, found in tree["ranking"]["differences"].items():
        first, _, second = name.partition("|")
        if place[first] < place[second]:
            one = found["difference"]
            turned = Measured(-one.value, -one.high, -one.low, one.n, one.missing)
            pairs.append((first, second, {**found, "difference": turned}))
        else:
            pairs.append((second, first, found))
    yield from sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]]))
