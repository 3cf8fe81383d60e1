"""What a run's report says: the five questions, and what a reader may stop after."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.analysis.run_results import SIMULATED, bill
from coeval.core.errors import StoreError
from coeval.core.plain import plain
from coeval.core.text import numbered
from coeval.reports.content import Report, ReportSection, Sentence
from coeval.reports.experiment.benchmark_section import benchmark_section
from coeval.reports.experiment.cost_section import as_sentence, cost_section
from coeval.reports.experiment.judges_section import judges_section
from coeval.reports.experiment.leading_section import leading_section
from coeval.reports.experiment.pairs_section import pairs_section
from coeval.reports.experiment.people_section import people_section
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import where_section
from coeval.store.rundir import Meta, RunDir

_SECTIONS = (leading_section, where_section, judges_section, benchmark_section, cost_section)


def experiment_report(evidence: RunEvidence) -> Report:
    """The report of a run, of whatever is there."""
    reader, measured = evidence.reader, evidence.measured
    meta = _meta(reader.run)
    return Report(
        kind="experiment",
        title=plain(meta.experiment_id if meta is not None else reader.run.path.resolve().name),
        facts=tuple(_facts(evidence, meta)),
        lead=(
            *(Sentence(plain(found.text), found.topic) for found in measured.conclusions),
            *(Sentence(plain(as_sentence(note)), "cost") for note in evidence.missing.notes),
        ),
        sections=(*_compared(evidence), *_labelled(evidence), *(section(evidence) for section in _SECTIONS)),
        banner=SIMULATED if reader.simulated else "",
        labels=evidence.labels,
    )


def _compared(evidence: RunEvidence) -> Iterator[ReportSection]:
    """First what comparisons say, where there are any."""
    if (found := evidence.measured.measures.pairs) is not None:
        yield pairs_section(found)


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
    grid = evidence.measured.grid
    counts = (
        (len(grid.tasks), "task"),
        (len(grid.teachers), "teacher"),
        (len(grid.students), "student"),
        (len(grid.judges), "judge"),
    )
    yield " · ".join(numbered(count, noun) for count, noun in counts)
    [(answers,)] = evidence.reader.rows("SELECT count(*) FROM answers WHERE NOT failed")
    units, items = evidence.measured.measures.units, len(grid.items.ids)
    yield f"{numbered(units, 'score')} of {numbered(answers, 'answer')} to {numbered(items, 'item')}"
    failed = sum(score.failed for score in evidence.results.students if score.task is None)
    if failed:
        yield f"{numbered(failed, 'record')} failed"
    if reported := bill(evidence.results.costs):
        yield str(reported)
    if meta is not None:
        yield f"{plain(evidence.reader.run.status(meta))}, {plain(meta.updated_at)[:10]}"
