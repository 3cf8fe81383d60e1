"""What a run's report says: the five questions, and what a reader may stop after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from coeval.analysis.measures.leaders import leader_sentences
from coeval.analysis.measures.opening import opening
from coeval.analysis.measures.pair_measures import pair_sentences
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.run_results import bill
from coeval.core.errors import StoreError
from coeval.core.plain import plain
from coeval.core.text import numbered
from coeval.reports.content import Report, ReportSection, ReportTable, Sentence
from coeval.reports.experiment.benchmark_section import benchmark_section
from coeval.reports.experiment.cost_section import cost_section
from coeval.reports.experiment.examples import examples
from coeval.reports.experiment.front import front_table, run_alerts
from coeval.reports.experiment.item_labels import item_labels
from coeval.reports.experiment.judges_section import judges_section
from coeval.reports.experiment.leading_section import leading_section
from coeval.reports.experiment.pairs_section import pairs_section
from coeval.reports.experiment.people_section import people_section
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.value_section import value_section
from coeval.reports.experiment.where_section import where_section
from coeval.store.rundir import Meta, RunDir

_SECTIONS = (where_section, judges_section, benchmark_section)


def experiment_report(evidence: RunEvidence) -> Report:
    """The report of a run, of whatever is there."""
    reader = evidence.reader
    meta = _meta(reader.run)
    status = "" if meta is None else reader.run.status(meta)
    front, lead = front_table(evidence), tuple(_lead(evidence))
    sections = tuple(_with_conclusions(evidence, lead, _sections(evidence, front)))
    return Report(
        kind="experiment",
        title=plain(meta.experiment_id if meta is not None else reader.run.path.resolve().name),
        facts=tuple(_facts(evidence, meta)),
        lead=lead,
        sections=sections,
        alerts=tuple(run_alerts(evidence, status)),
        front=front,
        examples=tuple(examples(evidence)),
        labels=evidence.labels,
        item_labels=item_labels(reader, sections),
    )


def _lead(evidence: RunEvidence) -> Iterator[Sentence]:
    """Three at most: where judges' agreement is no part of who leads, what is known of it."""
    measured = evidence.measured
    looks = measured.grid.looks
    many = looks is not None and looks.many
    said = opening(measured.measures, evidence.usd_per_item, at_any_look=many)
    for text, anchor in zip(said, _anchors(measured.measures), strict=False):
        yield Sentence(plain(text), anchor)
    of_judges = (found.text for found in measured.conclusions if found.topic == "judges")
    if len(said) == 1 and measured.measures.ranking.order and (text := next(of_judges, "")):
        yield Sentence(plain(text), "judges")


def _anchors(measures: RunMeasures) -> tuple[str, str, str]:
    """Of the opening's sentences, the tables that show their figures."""
    if len(measures.ranking.order) > 1 and measures.ranking.differences:
        return "differences", "standings", "differences"
    if measures.ranking.order:
        return "students", "students", "students"
    if measures.pairs is not None:
        return "strengths", "strengths", "pair-judges"
    return ("differences", "labels", "labels") if measures.labels else ("leads",) * 3


def _sections(evidence: RunEvidence, front: ReportTable | None) -> Iterator[ReportSection]:
    measures = evidence.measured.measures
    scored = bool(measures.ranking.order or measures.labels) or measures.pairs is None
    yield from _compared(evidence)
    yield from _labelled(evidence)
    if scored:
        yield leading_section(evidence)
    if front is not None and (valued := value_section(evidence, front)) is not None:
        yield valued
    if scored:
        for section in _SECTIONS:
            yield section(evidence)
    yield cost_section(evidence)


def _with_conclusions(
    evidence: RunEvidence, lead: Sequence[Sentence], sections: Iterator[ReportSection]
) -> Iterator[ReportSection]:
    """Each with what is concluded of its question, first; but for who leads, with which the page opens."""
    measures, concluded = evidence.measured.measures, evidence.measured.conclusions
    opened = {found.text for found in concluded[:1]}
    opened |= set(islice(leader_sentences(measures.students, measures.ranking), 1))
    opened |= set(pair_sentences(measures.pairs)) if measures.pairs is not None else set()
    if any("could change the leader:" in one.text for one in lead):
        opened |= {found.text for found in concluded if "could change who leads:" in found.text}
    said: dict[str, list[str]] = {}
    for found in concluded:
        if found.text not in opened:
            said.setdefault(found.topic, []).append(plain(found.text))
    for section in sections:
        known = {one.text for one in section.sentences}
        new = [Sentence(text, section.anchor) for text in said.get(section.anchor, ()) if text not in known]
        yield msgspec.structs.replace(section, sentences=(*new, *section.sentences))


def _compared(evidence: RunEvidence) -> Iterator[ReportSection]:
    """First what comparisons say, where there are any."""
    if (found := evidence.measured.measures.pairs) is not None:
        yield pairs_section(found, opened=not evidence.measured.measures.ranking.order)


def _labelled(evidence: RunEvidence) -> Iterator[ReportSection]:
    """Then what people say, where somebody labelled."""
    if (found := evidence.measured.measures.people) is not None:
        yield people_section(found)


def _meta(run: RunDir) -> Meta | None:
    """None of the older layout, and where the file is gone or damaged."""
    try:
        return run.read_meta()
    except (FileNotFoundError, StoreError):
        return None


def _facts(evidence: RunEvidence, meta: Meta | None) -> Iterator[str]:
    grid, pairs = evidence.measured.grid, evidence.measured.measures.pairs
    students, judges = list(grid.students), list(grid.judges)
    if pairs is not None:
        students += [name for name in pairs.students if name not in students]
        judges += [name for name in pairs.judges if name not in judges]
    counts = (
        (len(grid.tasks), "task"),
        (len(grid.teachers), "teacher"),
        (len(students), "student"),
        (len(judges), "judge"),
    )
    yield " · ".join(numbered(count, noun) for count, noun in counts if count)
    [(answers,)] = evidence.reader.rows("SELECT count(*) FROM answers WHERE NOT failed")
    units, items = evidence.measured.measures.units, len(grid.items.ids)
    of_answers = f"{numbered(answers, 'answer')} to {numbered(items, 'item')}"
    yield f"{numbered(units, 'score')} of {of_answers}" if units else of_answers
    if pairs is not None:
        made = sum(one.comparisons for one in pairs.judges.values())
        yield numbered(made, "comparison")
    failed = sum(score.failed for score in evidence.results.students if score.task is None)
    if failed:
        yield f"{numbered(failed, 'record')} failed"
    if reported := bill(evidence.results.costs):
        yield str(reported)
    if meta is not None:
        yield f"{plain(evidence.reader.run.status(meta))}, {plain(meta.updated_at)[:10]}"
