"""What reports cost: page and workbook of a million judgments, opening the page of 80,000 in a browser, and
asking `coeval view` for items of a million."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.request import urlopen

from playwright.sync_api import Browser, CDPSession, sync_playwright

from perf.analysis import judged_run
from perf.measure import Cost, LeftOut, coeval, environment, run
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
    cost, page = _written(folder, _MILLION)
    size = page.stat().st_size / 1e6
    reported = (
        f"the page of {_MILLION:,} judgments in {cost.wall_s:.1f} s ({cost.cpu_s:.1f} s of CPU), "
        f"{size:.1f} MB, peak {cost.rss_mb:.0f} MB"
    )
    return Figures(max(cost.wall_s / 30, size / 5), reported)


def report_10_thousand(folder: Path) -> Figures:
    """Asked: the page of 10,000 judgments of at most 2 MB."""
    _, page = _written(folder, 10_000)
    size = page.stat().st_size / 1e6
    return Figures(size / 2, f"the page of 10,000 judgments has {size:.2f} MB")


def paint_80_thousand(folder: Path) -> Figures:
    """Asked: the page of 80,000 judgments on the screen within 1 s of CPU; a fresh page each time, median of
    five."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise LeftOut("there is no chromium (make browser installs it)")
    _, page = _written(folder, 80_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        painted = sorted(_painted(browser, page) for _ in range(5))
        browser.close()
    cpu_s, after_s = painted[len(painted) // 2]
    reported = (
        f"the page of 80,000 judgments ({page.stat().st_size / 1e6:.1f} MB) is painted after {cpu_s:.2f} s "
        f"of CPU of all of the browser's processes, {after_s:.2f} s after it was asked for"
    )
    return Figures(cpu_s / 1.0, reported)


def _painted(browser: Browser, page: Path) -> tuple[float, float]:
    """CPU seconds until the first contentful paint is known of, and seconds until it was."""
    tab, session = (
        browser.new_page(viewport={"width": 1280, "height": 900}),
        browser.new_browser_cdp_session(),
    )
    tab.goto("about:blank")
    before = _browser_cpu_s(session)
    tab.goto(page.as_uri(), wait_until="commit")
    after_ms = tab.evaluate(_PAINT)
    cpu_s = _browser_cpu_s(session) - before
    tab.close()
    session.detach()
    return cpu_s, after_ms / 1e3


_PAINT = """() => new Promise((tell) => {
  const watch = (list) => list.getEntries().filter(({ name }) => name === "first-contentful-paint")
    .forEach(({ startTime }) => tell(startTime));
  new PerformanceObserver(watch).observe({ type: "paint", buffered: true });
})"""


def _browser_cpu_s(session: CDPSession) -> float:
    """Of the browser and all of its processes."""
    reported = session.send("SystemInfo.getProcessInfo")
    return sum(float(process["cpuTime"]) for process in reported["processInfo"])


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
