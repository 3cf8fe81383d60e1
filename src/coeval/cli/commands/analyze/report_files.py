"""A run's report as files: a page, a workbook, a PDF, pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coeval.cli.commands.analyze.analysis_names import PARTS, SECTIONS, AnalysisName, ReportFormat

if TYPE_CHECKING:
    from coeval.analysis.measures.robust_set import RobustOptions
    from coeval.reports.content.report_content import Report
    from coeval.reports.experiment.run_evidence import RunEvidence

__all__ = ["FilesWritten", "ReportFiles", "refuse_file", "tell_files", "tell_page", "write_files"]

WHOLE = ("all", "complete-report")
WITH_ITEMS = (*WHOLE, "items")
"""Analyses of which a workbook holds every item, answer and failure."""


class ReportFiles(NamedTuple):
    """What is to be written: a workbook and a PDF into ``out``, by the name of the analysis, of which
    ``section`` is shown (all of them where it is empty); pictures into ``figures``."""

    name: str
    section: str
    out: Path | None
    excel: bool
    pdf: bool
    figures: Path | None

    @property
    def stem(self) -> str:
        """The beginning of the files' names."""
        return "report" if self.name == "all" else self.name


class FilesWritten(NamedTuple):
    """``notes``: what whoever read the run has to say."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def write_files(folder: Path, wanted: ReportFiles, options: RobustOptions | None = None) -> FilesWritten:
    """Read a run once, and write all that is wanted of it, and ``measures.json`` beside it.

    Raises
    ------
    UsageError
        no program is found that prints pages, before anything is read.
    StoreError
        the run cannot be read, or a file not be written.
    """
    from coeval.analysis.measures.run_measures import plain_measures, selected
    from coeval.cli.views.measures.measures_text import json_of
    from coeval.reports.paper.browser_print import browser, print_page
    from coeval.reports.paper.paper_page import paper_page
    from coeval.store.jsonl import write_bytes_atomic

    paths: list[Path] = []
    program = browser() if wanted.pdf else ""
    with _reported(folder, wanted, options) as (evidence, report):
        if wanted.out is not None and wanted.excel:
            paths.append(_write_workbook(evidence, report, wanted, wanted.out))
        if wanted.out is not None and wanted.pdf:
            paths.append(wanted.out / f"{wanted.stem}.pdf")
            print_page(paper_page(report), paths[-1], program)
        if wanted.figures is not None:
            paths += _write_figures(report, wanted.figures)
        if wanted.out is not None:
            measures = json_of(plain_measures(selected(evidence.measured.tree, "all")))
            paths.append(wanted.out / "measures.json")
            write_bytes_atomic(paths[-1], measures.encode())
        notes = (*evidence.reader.notes(), *evidence.results.notes)
    return FilesWritten(tuple(paths), notes)


@contextmanager
def _reported(
    folder: Path, wanted: ReportFiles, options: RobustOptions | None
) -> Iterator[tuple[RunEvidence, Report]]:
    """The report, of one of its sections where that is wanted, while the run is open."""
    import msgspec

    from coeval.reports.experiment.experiment_report import experiment_report
    from coeval.reports.experiment.run_evidence import run_evidence
    from coeval.store.rundir import RunDir

    with run_evidence(RunDir(folder), options) as evidence:
        report = experiment_report(evidence)
        if wanted.section:
            shown = tuple(section for section in report.sections if section.anchor == wanted.section)
            report = msgspec.structs.replace(report, sections=shown)
        yield evidence, report


def _write_workbook(evidence: RunEvidence, report: Report, wanted: ReportFiles, out: Path) -> Path:
    from coeval.reports.workbook.report_workbook import write_workbook
    from coeval.reports.workbook.run_sheets import run_sheets

    path, whole = out / f"{wanted.stem}.xlsx", wanted.name in WITH_ITEMS
    sheets = run_sheets(evidence.reader, evidence.measured.tree["items"]) if whole else ()
    write_workbook(path, report, sheets, without=("items-shown",) if whole else ())
    return path


def _write_figures(report: Report, folder: Path) -> Iterator[Path]:
    from coeval.reports.charts.drawn_pictures import figures
    from coeval.store.jsonl import write_bytes_atomic

    for figure in figures(report):
        for suffix, content in (("svg", figure.svg.encode()), ("png", figure.png)):
            path = folder / f"{figure.name}.{suffix}"
            write_bytes_atomic(path, content)
            yield path


def tell_files(
    folder: Path,
    name: AnalysisName,
    wanted: ReportFormat | None,
    out: Path | None,
    figures: Path | None,
    options: RobustOptions,
) -> None:
    """Write a workbook or a PDF, and pictures, and say where they are."""
    from coeval.cli import streams
    from coeval.cli.say import say, warn
    from coeval.core.errors import UsageError

    kept = wanted in (ReportFormat.EXCEL, ReportFormat.PDF)
    if kept and out is None:
        raise UsageError(f"{wanted} is written, not shown here; name a folder for it with --out")
    for place in filter(None, (out, figures)):
        refuse_file(place)
    section = SECTIONS[PARTS.get(name.value, name.value)]
    files = ReportFiles(
        name.value,
        section,
        out if kept else None,
        wanted is ReportFormat.EXCEL,
        wanted is ReportFormat.PDF,
        figures,
    )
    messages, written = streams.messages(), write_files(folder, files, options)
    for note in written.notes if wanted is None or kept else ():  # else they are told with what is shown
        warn(messages, note)
    drawn = [path for path in written.paths if path.parent == figures and path.suffix in (".png", ".svg")]
    others = [str(path) for path in written.paths if path not in drawn]
    if drawn:
        others.append(f"{len(drawn) // 2} pictures as PNG and SVG in {figures}")
    say(messages, f"written: {', '.join(others)}")


def tell_page(folder: Path, name: AnalysisName, out: Path | None, options: RobustOptions) -> None:
    """Write the whole page, and name the section of it that somebody asked for."""
    from coeval.cli import streams
    from coeval.cli.say import say, warn
    from coeval.core.errors import UsageError
    from coeval.reports.site.report_file import PAGE, write_report

    if out is None:
        raise UsageError("a page is written, not shown here; name a folder for it with --out")
    refuse_file(out)
    messages = streams.messages()
    for note in write_report(folder, out, options):
        warn(messages, note)
    anchor = SECTIONS[PARTS.get(name.value, name.value)]
    say(messages, f"written: {out / PAGE}{anchor and '#'}{anchor}, {out / 'measures.json'}")


def refuse_file(out: Path) -> None:
    from coeval.core.errors import UsageError

    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a folder, in which the report is written")
