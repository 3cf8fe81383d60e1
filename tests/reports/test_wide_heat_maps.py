"""Heat maps of many students with long names: every number stands in its cell, every name can be told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from reports.browser import chromium, draw_all, opened

from coeval.analysis.measures.measured import Measured
from coeval.reports.charts.drawn_pictures import figures
from coeval.reports.charts.forest_plot import forest_plot
from coeval.reports.charts.heat_map import HeatMap, heat_map
from coeval.reports.content.report_content import Picture, Report, ReportColumn, ReportSection, ReportTable
from coeval.reports.site.page import write_page

pytestmark = pytest.mark.slow

NAMES = [f"some-lab.some-model-of-a-long-name-{n:02d}-with-a-date-2026-11-{n:02d}" for n in range(1, 13)]

_APART = """place => {
  const box = place.querySelector("svg").getBoundingClientRect();
  const texts = [...place.querySelectorAll("svg text")].filter((one) => one.textContent.trim());
  const boxes = texts.map((one) => ({ text: one.textContent, at: one.getBoundingClientRect() }));
  const wrong = boxes
    .filter(({ at }) => at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1)
    .map(({ text }) => `${text} leaves the picture`);
  boxes.forEach((one, nth) => {
    for (const other of boxes.slice(nth + 1)) {
      const across = Math.min(one.at.right, other.at.right) - Math.max(one.at.left, other.at.left);
      const down = Math.min(one.at.bottom, other.at.bottom) - Math.max(one.at.top, other.at.top);
      if (across > 1 && down > 3) wrong.push(`${one.text} over ${other.text}`);
    }
  });
  return { wrong, texts: texts.map((one) => one.textContent) };
}"""


def report() -> Report:
    rows = [
        (one, other, Measured(0.041 * (nth % 11), -0.1, 0.5, 40, 0), nth % 3 == 0)
        for nth, (one, other) in enumerate(combinations(NAMES, 2))
    ]
    columns = (
        ReportColumn("better", "Student"),
        ReportColumn("other", "Less"),
        ReportColumn("difference", "Difference", "score"),
        ReportColumn("sure", "Sure"),
    )
    grid = HeatMap(
        table="differences",
        row="better",
        column="other",
        value="difference",
        shade="difference",
        rows=NAMES[:-1],
        columns=NAMES[1:],
        format="+.3f",
        dot="sure",
    )
    picture = Picture("matrix", "Every two.", "differences", heat_map(grid))
    table = ReportTable("differences", "Differences", columns, tuple(rows))
    section = ReportSection("leads", "Who leads?", (), (picture,), (table,))
    return Report("experiment", "many", (), (), (section,))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def held(page: Page) -> None:
    """Every pair's number, the sure ones with their dot, and names that differ."""
    found = page.locator(".drawing").evaluate(_APART)
    assert found["wrong"] == []
    numbers = [text for text in found["texts"] if "+" in text]
    assert len(numbers) == 66
    assert sum("●" in text for text in numbers) == 22
    names = [text for text in found["texts"] if "+" not in text]
    assert len(set(names)) == 12, "each name stands once in rows or columns, or in both"


def test_numbers_and_names_stand_apart_on_every_screen(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(write_page(report()))
    for width in (1280, 390):
        seen = opened(browser, file, viewport={"width": width, "height": 900})
        draw_all(seen.page)
        held(seen.page)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.complaints == []
        seen.page.close()


def test_they_stand_apart_in_files_too(browser: Browser, tmp_path: Path) -> None:
    [figure] = figures(report())
    page = tmp_path / "figure.html"
    page.write_text(f"<meta charset=utf-8><div class=drawing>{figure.svg}</div>", encoding="utf-8")
    seen = opened(browser, page)
    held(seen.page)
    seen.page.close()


def test_long_names_leave_a_forest_plot_room_on_a_telephone(browser: Browser, tmp_path: Path) -> None:
    rows = tuple(("all", None, name, Measured(0.5, 0.4, 0.6, 40, 0), "1–12") for name in NAMES)
    columns = (
        ReportColumn("scores", "Scores"),
        ReportColumn("task", "Task"),
        ReportColumn("student", "Student"),
        ReportColumn("score", "Score", "score"),
        ReportColumn("ranks", "Ranks"),
    )
    plot = forest_plot("standings", len(NAMES), NAMES, "all")
    picture = Picture("forest", "Scores.", "standings", plot)
    table = ReportTable("standings", "Standings", columns, rows)
    section = ReportSection("leads", "Who leads?", (), (picture,), (table,))
    page = tmp_path / "forest.html"
    page.write_bytes(write_page(Report("experiment", "many", (), (), (section,))))
    seen = opened(browser, page, viewport={"width": 390, "height": 900})
    draw_all(seen.page)
    interval = seen.page.locator("#forest path.background").first.bounding_box()
    assert interval is not None
    assert interval["width"] > 390 / 3, "the plot has the larger part of what stands beside the names"
    assert (seen.complaints, seen.requests) == ([], [])
    seen.page.close()
