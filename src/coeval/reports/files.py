"""Any report as a workbook and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.core.text import pluralize
from coeval.reports.content import Report
from coeval.reports.drawn_pictures import figures
from coeval.store.jsonl import write_bytes_atomic


class ReportFiles(NamedTuple):
    """Files that are to be written: a workbook, pictures into the folder ``figures``, and a folder's page
    into the folder ``page``, which whoever reads that folder writes."""

    excel: Path | None = None
    figures: Path | None = None
    page: Path | None = None

    def check(self) -> None:
        """Refuse what cannot be written, before anything is read.

        Raises UsageError: a file is a folder, or the other way round.
        """
        if self.excel is not None and self.excel.is_dir():
            raise UsageError(f"{self.excel} is a folder; name a file")
        if self.figures is not None and self.figures.exists() and not self.figures.is_dir():
            raise UsageError(f"{self.figures} is a file; name a folder, in which the pictures are written")


def write_files(report: Report, files: ReportFiles) -> list[Path]:
    """Write what is wanted.

    Raises StoreError: a file cannot be written.
    """
    written: list[Path] = []
    if files.excel is not None:
        from coeval.reports.report_workbook import write_workbook

        write_workbook(files.excel, report)
        written.append(files.excel)
    if files.figures is not None:
        written += write_figures(report, files.figures)
    return written


def write_figures(report: Report, folder: Path) -> Iterator[Path]:
    """Write all pictures of a report, each as it is drawn.

    Raises StoreError: a file cannot be written.
    """
    for figure in figures(report):
        for suffix, content in (("svg", figure.svg.encode()), ("png", figure.png)):
            path = folder / f"{figure.name}.{suffix}"
            write_bytes_atomic(path, content)
            yield path


def files_reported(written: Iterable[Path], folder: Path | None) -> str:
    """What was written, in words; pictures in their ``folder`` are counted."""
    paths = list(written)
    drawn = [path for path in paths if path.parent == folder and path.suffix in (".png", ".svg")]
    reported = [str(path) for path in paths if path not in drawn]
    if folder is not None:
        reported.append(f"{pluralize(len(drawn) // 2, 'picture')} as PNG and SVG in {folder}")
    return ", ".join(reported)
