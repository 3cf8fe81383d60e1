"""A folder's report, and any report as a workbook, a PDF and pictures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.analysis.measures.measured_run import measure_output, measure_run
from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.measures.run_measures import Measures, RunMeasures
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.plain import plain
from coeval.core.text import numbered
from coeval.pipeline.plan.run_reading import opened
from coeval.reports.content import Report, Sentence
from coeval.reports.drawn_pictures import figures
from coeval.reports.evaluation_report import evaluation_report
from coeval.reports.experiment.cost_section import as_sentence
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.run_evidence import evidence_of
from coeval.reports.paper.paper_page import browser, paper_page, print_page
from coeval.reports.workbook.output_sheets import output_sheets
from coeval.reports.workbook.report_workbook import write_workbook
from coeval.reports.workbook.run_sheets import run_sheets
from coeval.reports.workbook.workbook_file import SheetTable
from coeval.store.jsonl import write_bytes_atomic

# --- Report of a folder, and its records


class FolderReport(NamedTuple):
    """A report, the measures that it shows, and what whoever read the folder has to say.
    ``lacks``: what the folder lacks, and what of its records is of another configuration, in sentences."""

    report: Report
    measures: Measures
    notes: tuple[str, ...]
    lacks: tuple[str, ...]
    reader: Reader

    def records(self) -> Iterator[SheetTable]:
        """Items, answers, judgments and failures as sheets, while the folder is open.

        Raises
        ------
        StoreError
            a file cannot be read.
        """
        match self.reader:
            case RunReader():
                items = self.measures.items if isinstance(self.measures, RunMeasures) else {}
                yield from run_sheets(self.reader, items)
            case OutputReader():
                yield from output_sheets(self.reader)

    def cut_to(self, section: str) -> Report:
        """One section of the report, by its anchor, with what the folder lacks: that stands in another one.
        Sections empty: there is nothing of it."""
        shown = tuple(each for each in self.report.sections if each.anchor == section)
        told = {sentence.text for sentence in self.report.lead}
        lacks = tuple(Sentence(text) for text in self.lacks if text not in told)
        return msgspec.structs.replace(self.report, sections=shown, lead=(*self.report.lead, *lacks))


@contextmanager
def folder_report(folder: Path, options: RobustOptions | None = None) -> Iterator[FolderReport]:
    """Read a folder, and keep it open.

    Raises
    ------
    UsageError
        the folder is none of ours.
    StoreError
        it cannot be read.
    """
    with opened(folder) as (reader, notes):
        yield _reported(reader, notes, options)


def _reported(reader: Reader, notes: tuple[str, ...], options: RobustOptions | None) -> FolderReport:
    """What is kept is the measures alone: the scores that it comes of are as large as what is read next."""
    match reader:
        case RunReader():
            measured = measure_run(reader, options)
            evidence = evidence_of(reader, measured, notes)
            measures: Measures = measured.measures
            report = experiment_report(evidence)
            lacks = (*evidence.missing.sentences, *evidence.missing.notes)
        case OutputReader():
            of_output = measure_output(reader)
            measures, report = of_output, evaluation_report(reader, of_output, notes)
            lacks = (*reader.notes(), *notes)
        case _:
            raise TypeError(f"there is no report of what a {type(reader).__name__} reads")
    told = tuple(plain(as_sentence(text)) for text in lacks)
    return FolderReport(report, measures, (*reader.notes(), *notes), told, reader)


class ReportFiles(NamedTuple):
    """Files that are to be written: a workbook, a PDF, and pictures into the folder ``figures``."""

    excel: Path | None = None
    pdf: Path | None = None
    figures: Path | None = None

    def check(self) -> None:
        """Refuse what cannot be written, before anything is read.

        Raises
        ------
        UsageError
            a file is a folder, or the other way round; no program is found that prints pages.
        """
        for path in filter(None, (self.excel, self.pdf)):
            if path.is_dir():
                raise UsageError(f"{path} is a folder; name a file")
        if self.figures is not None and self.figures.exists() and not self.figures.is_dir():
            raise UsageError(f"{self.figures} is a file; name a folder, in which the pictures are written")
        if self.pdf is not None:
            browser()


def write_files(
    report: Report,
    files: ReportFiles,
    sheets: Iterable[SheetTable] = (),
    without: Collection[str] = (),
) -> list[Path]:
    """Write what is wanted; ``sheets`` and ``without`` are those of `write_workbook`.

    Raises
    ------
    UsageError
        no program is found that prints pages.
    StoreError
        a file cannot be written.
    """
    written: list[Path] = []
    if files.excel is not None:
        write_workbook(files.excel, report, sheets, without=without)
        written.append(files.excel)
    if files.pdf is not None:
        print_page(paper_page(report), files.pdf, browser())
        written.append(files.pdf)
    if files.figures is not None:
        written += _write_figures(report, files.figures)
    return written


def _write_figures(report: Report, folder: Path) -> Iterator[Path]:
    for figure in figures(report):
        for suffix, content in (("svg", figure.svg.encode()), ("png", figure.png)):
            path = folder / f"{figure.name}.{suffix}"
            write_bytes_atomic(path, content)
            yield path


def files_told(written: Iterable[Path], folder: Path | None) -> str:
    """What was written, in words; pictures in their ``folder`` are counted."""
    paths = list(written)
    drawn = [path for path in paths if path.parent == folder and path.suffix in (".png", ".svg")]
    told = [str(path) for path in paths if path not in drawn]
    if folder is not None:
        told.append(f"{numbered(len(drawn) // 2, 'picture')} as PNG and SVG in {folder}")
    return ", ".join(told)
