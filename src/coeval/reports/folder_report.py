"""The report of any folder and the records behind it, with a function for each kind of reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path

import msgspec

from coeval.analysis.measures.benchmark_measures import ItemMeasures
from coeval.analysis.measures.compute import (
    AnalyzedFolder,
    analyze_output,
    compute_output_measures,
    compute_run_measures,
)
from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.plain import escape_line
from coeval.core.text import warning_to_sentence
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.pipeline.upkeep.repair import MissingRecords
from coeval.reports.content import Report, Sentence
from coeval.reports.evaluation_report import evaluation_report
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.run_choices import RunChoices, prepare_choices
from coeval.reports.experiment.run_evidence import read_evidence
from coeval.reports.items.item_browser import ItemBrowser


@dataclass(frozen=True, slots=True)
class FolderReport:
    """A folder's report, the measures that it shows, and the reader's notes.

    ``lacks``: missing records and records of another configuration, in sentences; ``missing``: the same of
    a run, counted. ``items``: measures of items by id; ``order``: the students, best first.
    """

    report: Report
    measured: AnalyzedFolder
    notes: tuple[str, ...]
    lacks: tuple[str, ...]
    missing: MissingRecords
    choices: RunChoices | None = None
    items: Mapping[str, ItemMeasures] = field(default_factory=dict)
    order: Sequence[str] = ()

    def give_measures_to(self, browser: ItemBrowser) -> None:
        """Give the browser the measures of its items, the order of students and their short names."""
        browser.replace_flags(self.items)
        browser.order_student_facet(self.order)
        browser.use_short_names(self.report.labels)

    def keep_section_and_state_gaps(self, anchor: str) -> Report:
        """Return the report with only the section at an anchor, or none, and with what the folder lacks in
        its lead."""
        sections = tuple(section for section in self.report.sections if section.anchor == anchor)
        in_lead = {sentence.text for sentence in self.report.lead}
        lacks = tuple(Sentence(text) for text in self.lacks if text not in in_lead)
        return msgspec.structs.replace(self.report, sections=sections, lead=(*self.report.lead, *lacks))


@contextmanager
def open_folder_report(folder: Path, options: RobustOptions | None = None) -> Iterator[FolderReport]:
    """Read a folder, make its report, and keep it open. Raises UsageError: it is not a folder of ours;
    StoreError: it cannot be read."""
    with open_folder_reader(folder, is_look=True) as (reader, notes):
        yield make_folder_report(reader, notes, options)


@singledispatch
def make_folder_report(reader: Reader, *_: object) -> FolderReport:
    """Measure and report what a reader reads. Further arguments: notes, options of the robust filter."""
    raise TypeError(f"there is no report of what a {type(reader).__name__} reads")


@make_folder_report.register
def _(reader: RunReader, notes: tuple[str, ...] = (), options: RobustOptions | None = None) -> FolderReport:
    measured = compute_run_measures(reader, options=options)
    evidence, items = read_evidence(reader, measured, notes), measured.measures.items
    report = experiment_report(evidence)
    return FolderReport(
        report,
        measured.analyzed_folder,
        (*reader.notes(), *notes),
        _to_sentences((*evidence.missing.sentences, *evidence.missing.notes)),
        evidence.missing,
        prepare_choices(evidence, report),
        items,
        measured.measures.ranking.order,
    )


@make_folder_report.register
def _(reader: OutputReader, notes: tuple[str, ...] = (), *_: object) -> FolderReport:
    measures, reported = compute_output_measures(reader), (*reader.notes(), *notes)
    report = evaluation_report(reader, measures, notes)
    return FolderReport(
        report, analyze_output(measures), reported, _to_sentences(reported), MissingRecords(None, ())
    )


def _to_sentences(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(escape_line(warning_to_sentence(text)) for text in texts)
