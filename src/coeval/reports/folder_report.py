"""What a folder's report says, and the records behind it: of a run, or of what ``eval-framework`` filled.

The one place where a report is made of whatever was read; a kind of folder is a function here.
"""

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
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.pipeline.upkeep.repair import MissingRecords
from coeval.reports.content import Report, Sentence, warning_to_sentence
from coeval.reports.evaluation_report import evaluation_report
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.run_choices import RunChoices, run_choices
from coeval.reports.experiment.run_evidence import evidence_of
from coeval.reports.items.item_browser import ItemBrowser


@dataclass(frozen=True, slots=True)
class FolderReport:
    """A report, the measures that it shows, and what whoever read the folder has to say.

    ``lacks``: what the folder lacks, and what of its records is of another configuration, in sentences;
    ``missing``: the same of a run, as it was counted.
    ``choices`` measures choices of its scores; ``items`` is what was measured of them, by id, and ``order``
    the students, best first.
    """

    report: Report
    measured: AnalyzedFolder
    notes: tuple[str, ...]
    lacks: tuple[str, ...]
    missing: MissingRecords
    choices: RunChoices | None = None
    items: Mapping[str, ItemMeasures] = field(default_factory=dict)
    order: Sequence[str] = ()

    def flag(self, browser: ItemBrowser) -> ItemBrowser:
        """Have the folder's items show what was measured of them."""
        browser.flag(self.items)
        browser.rank(self.order)
        browser.name(self.report.labels)
        return browser

    def cut_to(self, section: str) -> Report:
        """One section of the report, by its anchor, with what the folder lacks: that stands in another one.
        Sections empty: there is nothing of it."""
        shown = tuple(each for each in self.report.sections if each.anchor == section)
        reported = {sentence.text for sentence in self.report.lead}
        lacks = tuple(Sentence(text) for text in self.lacks if text not in reported)
        return msgspec.structs.replace(self.report, sections=shown, lead=(*self.report.lead, *lacks))


@contextmanager
def folder_report(folder: Path, options: RobustOptions | None = None) -> Iterator[FolderReport]:
    """Read a folder whose results are to be shown, and keep it open.

    Raises UsageError: the folder is none of ours; StoreError: it cannot be read.
    """
    with open_folder_reader(folder, shown=True) as (reader, notes):
        yield reported(reader, notes, options)


@singledispatch
def reported(reader: Reader, *_: object) -> FolderReport:
    """Measure what is read, and report it; then come notes, and options of the robust filter."""
    raise TypeError(f"there is no report of what a {type(reader).__name__} reads")


@reported.register
def _(reader: RunReader, notes: tuple[str, ...] = (), options: RobustOptions | None = None) -> FolderReport:
    measured = compute_run_measures(reader, options=options)
    evidence, items = evidence_of(reader, measured, notes), measured.measures.items
    report = experiment_report(evidence)
    return FolderReport(
        report,
        measured.shown,
        (*reader.notes(), *notes),
        _reported((*evidence.missing.sentences, *evidence.missing.notes)),
        evidence.missing,
        run_choices(evidence, report),
        items,
        measured.measures.ranking.order,
    )


@reported.register
def _(reader: OutputReader, notes: tuple[str, ...] = (), *_: object) -> FolderReport:
    measures, reported = compute_output_measures(reader), (*reader.notes(), *notes)
    report = evaluation_report(reader, measures, notes)
    return FolderReport(
        report, analyze_output(measures), reported, _reported(reported), MissingRecords(None, ())
    )


def _reported(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(escape_line(warning_to_sentence(text)) for text in texts)
