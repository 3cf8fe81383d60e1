"""Any report as a workbook and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.core.text import pluralize
from coeval.reports.charts.drawn_pictures import draw_pictures
from coeval.reports.content import Report
from coeval.store.jsonl import write_bytes_atomic


class ReportFiles(NamedTuple):
    """Files to write: a workbook, pictures into the folder ``figures``, and a folder's page into the folder
    ``page``, which whoever reads that folder writes."""

    excel: Path | None = None
    figures: Path | None = None
    page: Path | None = None

    def refuse_file_folder_mixups(self) -> None:
        """Raise UsageError if a path cannot be written: a file that is a folder, or the other way round."""
        if self.excel is not None and self.excel.is_dir():
            raise UsageError(f"{self.excel} is a folder; name a file")
        if self.figures is not None and self.figures.exists() and not self.figures.is_dir():
            raise UsageError(f"{self.figures} is a file; name a folder, in which the pictures are written")


def write_workbook_and_figures(report: Report, files: ReportFiles) -> list[Path]:
    """Write the workbook and pictures that ``files`` names. Raises StoreError: a file cannot be written."""
    paths: list[Path] = []
    if files.excel is not None:
        from coeval.reports.report_workbook import write_workbook

        write_workbook(files.excel, report)
        paths.append(files.excel)
    if files.figures is not None:
        paths += write_figures(report, files.figures)
    return paths


def write_figures(report: Report, folder: Path) -> Iterator[Path]:
    """Write the pictures as SVG and PNG, and yield each path once written; raises as `write_bytes_atomic`."""
    for figure in draw_pictures(report):
        for suffix, content in (("svg", figure.svg.encode()), ("png", figure.png)):
            path = folder / f"{figure.name}.{suffix}"
            write_bytes_atomic(path, content)
            yield path


def describe_written_files(written: Iterable[Path], figure_folder: Path | None) -> str:
    """List the paths in words; pictures in ``figure_folder`` are counted."""
    paths = list(written)
    pictures = [path for path in paths if path.parent == figure_folder and path.suffix in (".png", ".svg")]
    parts = [str(path) for path in paths if path not in pictures]
    if figure_folder is not None:
        parts.append(f"{pluralize(len(pictures) // 2, 'picture')} as PNG and SVG in {figure_folder}")
    return ", ".join(parts)
