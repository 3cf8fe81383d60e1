"""What do people say? Judges beside human labels, and students on the human scale."""

from __future__ import annotations

from coeval.analysis.measures.judge_measures import PairAgreement
from coeval.analysis.people.calibration import CalibratedPair, CalibratedStudent
from coeval.analysis.people.labelled_rows import AgainstPeople
from coeval.analysis.people.people_measures import PeopleMeasures, people_sentences
from coeval.core.plain import plain
from coeval.reports.content import Cell, ReportColumn, ReportSection, ReportTable, Sentence, section_of
from coeval.reports.measure_table import Named, measure_table


def people_section(found: PeopleMeasures) -> ReportSection:
    """Both scales in one table, then pairs, judges, levels, and people among themselves."""
    students = {(scale, name): one for scale, of in found.scales.items() for name, one in of.students.items()}
    pairs = {(scale, *pair): one for scale, of in found.scales.items() for pair, one in of.pairs.items()}
    tables = [
        measure_table(
            Named("people", "Students by judges and by people", ("Scale", "Student")),
            CalibratedStudent,
            students,
            "Answers",
        ),
        measure_table(
            Named("people-pairs", "Differences by judges and by people", ("Scale", "Student", "Other")),
            CalibratedPair,
            pairs,
        ),
        measure_table(
            Named("people-judges", "Judges against people", ("Judge",)), AgainstPeople, found.judges, "Items"
        ),
        _levels(found),
    ]
    if found.agreement:
        named = Named("people-agreement", "People pairwise", ("Person", "Other"))
        tables.append(measure_table(named, PairAgreement, found.between, "Items"))
    sentences = [Sentence(plain(text), "people") for text in people_sentences(found)]
    return section_of("by-people", "What do people say?", sentences, (), tuple(tables))


def _levels(found: PeopleMeasures) -> ReportTable:
    """A row for each judge and pair of levels that occurs."""
    rows: list[tuple[Cell, ...]] = [
        (judge, level, own, count, one.bias_by_level.get(level))
        for judge, one in found.judges.items()
        for level, of in one.confusion.items()
        for own, count in of.items()
        if count
    ]
    return ReportTable(
        "people-levels",
        "What judges take for what",
        (
            ReportColumn("judge", "Judge"),
            ReportColumn("people", "People's level"),
            ReportColumn("own", "Its level"),
            ReportColumn("labels", "Labels", "count"),
            ReportColumn("bias", "Bias at people's level", "points", "Judge less people, mean"),
        ),
        tuple(rows),
    )
