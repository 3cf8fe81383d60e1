"""What reports cost: page and workbook of a million judgments, and asking `coeval view` for items of them."""

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
from perf.measure import coeval, environment, run
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
_LONGEST_S = 300.0


def report_million(folder: Path) -> Figures:
    """Asked: the page of a million judgments within 30 s, of at most 5 MB."""
    judged_run(folder / "run", _MILLION)
    analyze = ("analyze", "--run", "run", "--format", "html", "--out", "out", "--partial-ok")
    cost = run(coeval(*analyze), folder)
    size = (folder / "out" / "report.html").stat().st_size / 1e6
    told = (
        f"the page of {_MILLION:,} judgments in {cost.wall_s:.1f} s ({cost.cpu_s:.1f} s of CPU), "
        f"{size:.1f} MB, peak {cost.rss_mb:.0f} MB"
    )
    return Figures(cost.wall_s / 30, told)


def excel_million(folder: Path) -> Figures:
    """Asked: the workbook of a million judgments within 60 s and 2 GB, and such as a program opens."""
    judged_run(folder / "run", _MILLION)
    analyze = ("analyze", "complete-report", "--run", "run", "--out", "out", "--partial-ok")
    cost = run(coeval(*analyze), folder)
    book = folder / "out" / "complete-report.xlsx"
    size = book.stat().st_size / 1e6
    with zipfile.ZipFile(book) as archive:
        largest = max(part.file_size for part in archive.infolist()) / 1e6
    told = (
        f"the workbook of {_MILLION:,} judgments in {cost.wall_s:.1f} s ({cost.cpu_s:.1f} s of CPU), "
        f"{size:.1f} MB, its largest part {largest:.0f} MB unpacked, peak {cost.rss_mb:.0f} MB"
    )
    return Figures(max(cost.wall_s / 60, cost.rss_mb / 2_048), told)


def view_million(folder: Path) -> Figures:
    """Asked: a choice among the items of a million judgments in under 300 ms, median of 20, over HTTP."""
    judged_run(folder / "run", _MILLION)
    with _viewing(folder) as address:
        took = {choice: _asked(f"{address}f/0/api/items?{choice}") for choice in _CHOICES}
    slowest = max(took, key=lambda choice: took[choice])
    least, middle, most = min(took.values()), median(took.values()), took[slowest]
    told = (
        f"items among {_MILLION:,} judgments in {least * 1e3:.0f} to {most * 1e3:.0f} ms, each the median of "
        f"20, most in {middle * 1e3:.0f} ms; slowest {slowest or 'all'}"
    )
    return Figures(most / 0.3, told)


def _asked(address: str) -> float:
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
    command = coeval("view", "run", "--port", "0")
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
