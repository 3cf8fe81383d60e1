"""What reports cost: pages of 10 to a million judgments, opened in a browser; a filter of 80,000; the
workbook of a million, and asking `coeval view` for its items."""

from __future__ import annotations

import json
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.request import urlopen

from perf.analysis import judged_run
from perf.measure import Cost, coeval, environment, run
from perf.painting import filtered, opened
from perf.scenarios import Figures

_MILLION = 1_000_000
_CHOICES = (
    "",
    "student=student-3&order=worst",
    "task=task-1&order=difficulty",
    "attribute=colour=red",
    "lost=student-2,student-7",
    "judge=judge-1&order=worst",
    "factor=factor-2&order=difficulty",
    "judge=judge-0&judge=judge-2&order=disagreement",
    "q=word123",
    "q=word7+word300&judge=judge-1",
)
_FILTERS = (
    "task=task-1",
    "judge=judge-1",
    "factor=factor-2",
    "teacher=teacher-0",
    "attribute=colour%3Dred",
    "task=task-0&judge=judge-0&judge=judge-2",
)
_LONGEST_S = 300.0


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
    """Asked beside what any page is: a filter within 1 s of CPU."""
    _, page = _written(folder, 80_000)
    most, reported = _page(page)
    cpu_s, wall_s = filtered(page, _FILTERS)
    applied = f"a filter shows after {cpu_s:.2f} s of CPU, {wall_s:.2f} s of wall clock"
    return Figures(max(most, cpu_s / 1.0), f"80,000 judgments: {reported}; {applied}")


def _page(page: Path) -> tuple[float, str]:
    """Asked of any page: at most 1.2 MB, and the first contentful paint within 0.4 s of CPU."""
    size, cost = page.stat().st_size / 1e6, opened(page)
    reported = (
        f"{size:.2f} MB, painted after {cost.cpu_s:.2f} s of CPU of all of the browser's processes "
        f"({cost.cpu_s / cost.empty_s:.1f} × a page of one word; known of after {cost.known_s:.2f} s), "
        f"{cost.wall_s:.2f} s of wall clock"
    )
    return max(size / 1.2, cost.cpu_s / 0.4), reported


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


def view_million(folder: Path) -> Figures:
    """Asked: a choice among the items of a million judgments in under 300 ms, median of 20, over HTTP."""
    judged_run(folder / "run", _MILLION)
    with _viewing(folder) as address:
        took = {choice: _requested(f"{address}f/0/api/items?{choice}") for choice in _CHOICES}
    slowest = max(took, key=lambda choice: took[choice])
    least, middle, most = min(took.values()), median(took.values()), took[slowest]
    reported = (
        f"items among {_MILLION:,} judgments in {least * 1e3:.0f} to {most * 1e3:.0f} ms, each the median of "
        f"20, most in {middle * 1e3:.0f} ms; slowest {slowest or 'all'}"
    )
    return Figures(most / 0.3, reported)


def _requested(address: str) -> float:
    """Seconds, the median of twenty times; the first time counts as little as any other."""
    times = []
    for _ in range(20):
        began = time.perf_counter()
        with urlopen(address, timeout=_LONGEST_S) as answer:  # noqa: S310  a server of ours
            answer.read()
        times.append(time.perf_counter() - began)
    return median(times)


@contextmanager
def _viewing(folder: Path) -> Iterator[str]:
    """``coeval view`` of the run, once it has read all of it; its address."""
    command = coeval("view", "run", "--port", "0", "--no-token")
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        end = time.monotonic() + _LONGEST_S
        while not json.load(urlopen(f"{address}f/0/api/state", timeout=_LONGEST_S))["generation"]:  # noqa: S310
            if time.monotonic() > end:
                raise RuntimeError(f"{address} has not read the run within {_LONGEST_S:.0f} s")
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(20)
