"""Heat maps of many students with long names: every number stands in its cell, every name can be told."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page
from reports.browser import chromium, draw_all, opened

from coeval.analysis.measures.measured import Measured
from coeval.reports.content import Picture, Report, ReportColumn, ReportSection, ReportTable
from coeval.reports.drawn_pictures import LIGHT, figures
from coeval.reports.plots import NOTEWORTHY, HeatMap, forest_plot, heat_map, interval_plot
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


def table_report(values: Sequence[float], names: Sequence[str]) -> Report:
    """A heat map of the differences between every two of three."""
    pairs = list(combinations(names, 2))
    rows = tuple((*pair, value, True) for pair, value in zip(pairs, values, strict=True))
    columns = (
        ReportColumn("better", "Student"),
        ReportColumn("other", "Less"),
        ReportColumn("difference", "Difference", "score"),
        ReportColumn("sure", "Sure"),
    )
    table = ReportTable("differences", "Differences", columns, rows)
    most = table.largest("difference", NOTEWORTHY)
    grid = HeatMap(
        table.name, "better", "other", "difference", "difference", names[:-1], names[1:], most, "+.3f", "sure"
    )
    picture = Picture("matrix", "Every two.", table.name, heat_map(grid))
    section = ReportSection("leads", "Who leads?", (), (picture,), (table,))
    return Report("experiment", "three", (), (), (section,))


def shades(values: Sequence[float]) -> list[str]:
    """The colours of its cells, in the order of the rows."""
    [figure] = figures(table_report(values, ("ann", "ben", "cem")))
    return re.findall(r'roledescription="rect mark"[^>]*fill="([^"]+)"', figure.svg)


def strength(colour: str) -> float:
    """How far a colour is from that of nothing, from 0 to 1."""
    found = [int(part) for part in re.findall(r"\d+", colour)]
    none, most = ([int(one[at : at + 2], 16) for at in (1, 3, 5)] for one in (LIGHT.least, LIGHT.most))
    return math.dist(found, none) / math.dist(most, none)


def test_colours_begin_at_zero_whatever_the_smallest_value_is() -> None:
    sure, _, largest = map(strength, shades([0.296, 0.5, 0.62]))
    assert sure == pytest.approx(0.296 / 0.62, abs=0.02)
    assert largest == pytest.approx(1, abs=0.01)
    none, half, whole = map(strength, shades([0.0, 0.25, 0.5]))
    assert (none, half, whole) == pytest.approx((0, 0.5, 1), abs=0.02)
    less, nothing, more = shades([-0.3, 0.0, 0.3])
    assert strength(nothing) == 0
    assert strength(more) == pytest.approx(1, abs=0.01)
    red, _, blue = (int(part) for part in re.findall(r"\d+", less))
    assert red > blue + 50, "less than nothing has the other colour"
    assert len(set(shades([0.0, 0.0, 0.0]))) == 1
    trifles = map(strength, shades([0.01, 0.01, 0.02]))
    assert max(trifles) < 0.25, "what does not matter is pale"


def test_no_two_names_look_alike(browser: Browser, tmp_path: Path) -> None:
    """Not those that differ at their ends or in the middle, on no screen."""
    one = "Qwen/Qwen2.5-72B-Instruct-Turbo"
    tuned = "a-laboratory/model-{}-that-was-tuned-for-very-long"
    for names in ((one, f"{one}-2", "gpt-4.1 mini"), tuple(tuned.format(n) for n in ("7B", "13B", "70B"))):
        page = tmp_path / "names.html"
        columns = (
            ReportColumn("row", "Of"),
            ReportColumn("shown", "Value", "score"),
            ReportColumn("sure", "Sure"),
        )
        rows = tuple((name, Measured(0.5, 0.4, 0.6, 40, 0), True) for name in names)
        table = ReportTable("values", "Values", columns, rows)
        plot = Picture("values-plot", "Values.", table.name, interval_plot(table.name, names, "value"))
        section = ReportSection("values", "What?", (), (plot,), (table,))
        matrix = table_report([0.1, 0.2, 0.3], names)
        page.write_bytes(write_page(msgspec.structs.replace(matrix, sections=(*matrix.sections, section))))
        for width in (1440, 390):
            seen = opened(browser, page, viewport={"width": width, "height": 900})
            draw_all(seen.page)
            for figure, axis in (("#values-plot", "Y-axis"), ("#matrix", "Y-axis"), ("#matrix", "X-axis")):
                labels = seen.page.locator(f"{figure} [aria-label^='{axis}'] .role-axis-label text")
                texts = labels.all_text_contents()
                assert len(set(texts)) == len(texts) == (3 if figure == "#values-plot" else 2), texts
            shown = seen.page.locator("table[data-table=values] td:first-child").all()
            assert all(cell.evaluate("one => one.scrollWidth <= one.clientWidth") for cell in shown)
            assert (seen.complaints, seen.requests) == ([], [])
            seen.page.close()


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
        most=0.41,
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
    plot = forest_plot("standings", NAMES, (), NAMES, "all")
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
