"""What a page costs a browser: CPU of all its processes until the first contentful paint, and for a choice.

CPU is sampled from the kernel's own count for each thread, and taken at the time that the paint itself has in
the page's timeline. Asking the page instead would count what it does after the paint, until it answers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from perf.measure import LeftOut

# Seconds between two samples: a paint comes after some tenths.
_EVERY_S = 0.002
_PROC = Path("/proc")


class Opened(NamedTuple):
    """Medians of a page: seconds of CPU and of wall clock until the first contentful paint, of CPU until it
    is known of, and of CPU until that of a page of one word."""

    cpu_s: float
    wall_s: float
    known_s: float
    empty_s: float


class _CpuClock:
    """Seconds of CPU of a process and of all that it started since this was entered, by time of day."""

    def __init__(self, pid: int) -> None:
        self._pid, self._stopped = pid, Event()
        self._used: dict[tuple[int, str], int] = {}
        self._samples: list[tuple[float, float]] = []
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _CpuClock:
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def at(self, when: float) -> float:
        """Used until then; what is used between two samples is spread over the time between them."""
        before = max((one for one in self._samples if one[0] <= when), default=self._samples[0])
        after = min((one for one in self._samples if one[0] > when), default=self._samples[-1])
        share = (when - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
        return before[1] + (after[1] - before[1]) * share - self._samples[0][1]

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self._take()

    def _take(self) -> None:
        for pid in _tree(self._pid):
            try:
                for thread in (_PROC / str(pid) / "task").iterdir():
                    self._used[pid, thread.name] = int((thread / "schedstat").read_text().split()[0])
            except OSError:  # a thread or a process has ended; what it used until then stays counted
                continue
        self._samples.append((time.time(), sum(self._used.values()) / 1e9))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
        started = [child for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:  # it has ended
        return
    for child in started:
        yield from _tree(int(child))


@contextmanager
def chromium() -> Iterator[tuple[Browser, int]]:
    """A browser, and the process that it is.

    Raises LeftOut: there is none, or no count of CPU by thread.
    """
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise LeftOut("there is no chromium (make browser installs it)")
    if not (_PROC / "self" / "schedstat").exists():
        raise LeftOut("this system does not count CPU by thread in /proc")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        session = browser.new_browser_cdp_session()
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        yield browser, next(one["id"] for one in processes if one["type"] == "browser")
        browser.close()


def opened(page: Path, times: int = 7) -> Opened:
    """Open a page from disk in a fresh tab, in turn with one of a word alone; raises as `chromium`."""
    empty = page.with_name("empty.html")
    empty.write_text("<!doctype html><p>word")
    with chromium() as (browser, pid):
        found = [(_painted(browser, pid, page), _painted(browser, pid, empty)) for _ in range(times)]
    cpu_s, wall_s, known_s = (median(one[at] for one, _ in found) for at in range(3))
    return Opened(cpu_s, wall_s, known_s, median(other[0] for _, other in found))


def _painted(browser: Browser, pid: int, page: Path) -> tuple[float, float, float]:
    with _tab(browser) as tab, _CpuClock(pid) as clock:
        tab.goto(page.resolve().as_uri(), wait_until="commit")
        after_ms = tab.evaluate(_PAINT)
        known = time.time()
        began = tab.evaluate("Date.now() - performance.now()") / 1e3
        return clock.at(began + after_ms / 1e3), after_ms / 1e3, clock.at(known)


def chosen(page: Path, queries: tuple[str, ...]) -> tuple[float, float]:
    """Make choices of scores in a page whose pictures are drawn, one after another; median seconds of CPU and
    of wall clock until the first screen shows them. Raises as `chromium`."""
    found = []
    with chromium() as (browser, pid), _tab(browser) as tab:
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-pictures=drawn]", timeout=60_000)
        for query in queries:
            tab.evaluate("() => { location.hash = '#leads'; }")
            tab.wait_for_selector("#filter-status:empty", state="attached")
            tab.wait_for_timeout(2_000)  # until the pictures of all are drawn again
            with _CpuClock(pid) as clock:
                began, ended = tab.evaluate(_CHOOSE, f"#leads?{query}")
                found.append((clock.at(ended / 1e3) - clock.at(began / 1e3), (ended - began) / 1e3))
    return median(cpu_s for cpu_s, _ in found), median(wall_s for _, wall_s in found)


@contextmanager
def _tab(browser: Browser) -> Iterator[Page]:
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    tab.goto("about:blank")
    tab.wait_for_timeout(200)  # the new tab's process starts
    yield tab
    tab.close()


_PAINT = """() => new Promise((tell) => {
  const watch = (list) => list.getEntries().filter(({ name }) => name === "first-contentful-paint")
    .forEach(({ startTime }) => tell(startTime));
  new PerformanceObserver(watch).observe({ type: "paint", buffered: true });
})"""

# Until the frame after the one in which the sentence of the choice is there.
_CHOOSE = """(address) => new Promise((tell) => {
  const status = document.getElementById("filter-status");
  const began = Date.now();
  const shown = () => requestAnimationFrame(() => tell([began, Date.now()]));
  const look = () => (status.textContent ? shown() : requestAnimationFrame(look));
  location.hash = address;
  look();
})"""
