"""What reports cost: pages of 10 to a million judgments, opened in a browser; a choice in that of 80,000; the
workbook of a million."""

from __future__ import annotations

import zipfile
from pathlib import Path

from perf.analysis import judged_run
from perf.measure import Cost, coeval, run
from perf.painting import chosen, opened
from perf.scenarios import Figures

_MILLION = 1_000_000
_CHOICES = (
    "task=task-1",
    "judge=judge-1",
    "factor=factor-2",
    "teacher=teacher-0",
    "attribute=colour%3Dred",
)


def report_million(folder: Path) -> Figures:
    """Asked: the page of a million judgments within 30 s, and else as any page (`_page`)."""
    cost, page = _written(folder, _MILLION)
    most, reported = _page(page)
    took = f"{cost.wall_s:.1f} s ({cost.cpu_s:.1f} s of CPU), peak {cost.rss_mb:.0f} MB"
    return Figures(max(cost.wall_s / 30, most), f"{_MILLION:,} judgments in {took}: {reported}")


def report_small(folder: Path) -> Figures:
    """Pages of 10 and of 10,000 judgments."""
    found = []
    for judgments in (10, 10_000):
        place = folder / str(judgments)
        place.mkdir()
        _, page = _written(place, judgments)
        most, reported = _page(page)
        found.append((most, f"{judgments:,} judgments: {reported}"))
    return Figures(max(most for most, _ in found), "; ".join(reported for _, reported in found))


def report_80_thousand(folder: Path) -> Figures:
    """Asked beside what any page is: a choice within 1 s of CPU."""
    _, page = _written(folder, 80_000)
    most, reported = _page(page)
    cpu_s, wall_s = chosen(page, _CHOICES)
    applied = f"a choice shows after {cpu_s:.2f} s of CPU, {wall_s:.2f} s of wall clock"
    return Figures(max(most, cpu_s / 1.0), f"80,000 judgments: {reported}; {applied}")


def _page(page: Path) -> tuple[float, str]:
    """Asked of any page: at most 1.0 MB, and the first contentful paint within 0.4 s of CPU."""
    size, cost = page.stat().st_size / 1e6, opened(page)
    reported = (
        f"{size:.2f} MB, painted after {cost.cpu_s:.2f} s of CPU of all of the browser's processes "
        f"({cost.cpu_s / cost.empty_s:.1f} × a page of one word; known of after {cost.known_s:.2f} s), "
        f"{cost.wall_s:.2f} s of wall clock"
    )
    return max(size / 1.0, cost.cpu_s / 0.4), reported


def _written(folder: Path, judgments: int) -> tuple[Cost, Path]:
    """What it cost to write the page of a run, and the page."""
    judged_run(folder / "run", judgments)
    analyze = ("analyze", "--run", "run", "--format", "html", "--out", "out", "--partial-ok")
    return run(coeval(*analyze), folder), folder / "out" / "report.html"


def excel_million(folder: Path) -> Figures:
    """Asked: the workbook of a million judgments within 60 s and 2 GB, and such as a program opens."""
    judged_run(folder / "run", _MILLION)
    analyze = ("analyze", "complete-report", "--run", "run", "--out", "out", "--partial-ok")
    cost = run(coeval(*analyze), folder)
    book = folder / "out" / "complete-report.xlsx"
    size = book.stat().st_size / 1e6
    with zipfile.ZipFile(book) as archive:
        largest = max(part.file_size for part in archive.infolist()) / 1e6
    reported = (
        f"the workbook of {_MILLION:,} judgments in {cost.wall_s:.1f} s ({cost.cpu_s:.1f} s of CPU), "
        f"{size:.1f} MB, its largest part {largest:.0f} MB unpacked, peak {cost.rss_mb:.0f} MB"
    )
    return Figures(max(cost.wall_s / 60, cost.rss_mb / 2_048), reported)
