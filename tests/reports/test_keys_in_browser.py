"""A page by keyboard alone: charts and their marks, and what a screen reader is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from reports.browser import chromium, draw_all, opened, until
from written_run import Run

from coeval.reports.site.report_file import write_report

STUDENTS = ("ann", "ben", "cem")
LEVELS = ("High", "Medium", "Low")
ITEMS = 60


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two judges and two factors; ann is best, and loses to ben on every tenth item."""
    folder = tmp_path_factory.mktemp("keys")
    run = Run(folder / "run")
    for n in range(1, ITEMS + 1):
        run.datapoint(n, prompt=f"Tell of the mat number {n}, {'if you please' if n % 2 else 'at once'}.")
        for place, student in enumerate(STUDENTS):
            lost = n % 10 == 0 and place < 2
            level = LEVELS[1 - place if lost else place]
            text = f"{student} says that the cat sat on the mat number {n}"
            run.response(n, student, response=text)
            run.evaluation(n, student, "j1", {"plot": level, "style": level})
            run.evaluation(n, student, "j2", {"plot": level, "style": "Medium"})
    write_report(run.folder, folder)
    return folder / "report.html"


def nothing_serious(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    serious = [(rule["id"], rule["nodes"][0]["html"]) for rule in found]
    assert [
        one for one, rule in zip(serious, found, strict=True) if rule["impact"] in ("serious", "critical")
    ] == []


@pytest.mark.system
def test_every_mark_of_every_chart_is_read_by_arrows(browser: Browser, written: Path) -> None:
    seen = opened(browser, written)
    page = seen.page
    draw_all(page)
    for figure in page.locator("figure[data-picture]").all():
        drawing, readout = figure.locator(".drawing"), figure.locator(".readout")
        label = drawing.get_attribute("aria-label") or ""
        assert any(sign.isdigit() for sign in label), f"{label!r} is made of the chart's figures"
        drawing.focus()
        page.keyboard.press("End")
        last = readout.inner_text()
        marks = int(last.partition("of ")[2].partition(")")[0])
        page.keyboard.press("Home")
        read = set()
        for _ in range(marks):
            read.add(readout.inner_text())
            assert figure.locator(".at").count() > 0, "what is read is seen"
            page.keyboard.press("ArrowRight")
        assert len(read) == marks
        assert last in read
        page.keyboard.press("Escape")
        assert (readout.inner_text(), figure.locator(".at").count()) == ("", 0)
    nothing_serious(page)
    assert (seen.complaints, seen.requests) == ([], [])
    page.close()


@pytest.mark.system
def test_a_chart_says_what_its_table_holds_and_leads_to_items(browser: Browser, written: Path) -> None:
    seen = opened(browser, written)
    page = seen.page
    draw_all(page)
    forest = page.locator("#forest .drawing")
    first = page.locator("table[data-table=students] tbody td").all_inner_texts()
    score = next(text for text in first if "[" in text)
    assert f"ann {score}; ben" in (forest.get_attribute("aria-label") or "")
    before = forest.get_attribute("aria-label")
    page.goto(f"{written.as_uri()}#leads?judge=j1")
    until(page, "before => document.querySelector('#forest .drawing').ariaLabel !== before", before)
    while page.evaluate("!document.activeElement.matches('#forest .drawing')"):
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator("#forest .readout").inner_text().startswith("ben, ranks 2, score ")
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#items?student=ben')")
    page.close()
