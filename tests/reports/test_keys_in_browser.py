"""A page by keyboard alone: charts and their marks, and what a screen reader is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from reports.browser import draw_all, nothing_serious, opened, until
from written_run import Run

from coeval.reports.site.report_file import write_report_and_measures

STUDENTS = ("ann", "ben", "cem")
LEVELS = ("High", "Medium", "Low")
ITEMS = 60


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
    write_report_and_measures(run.folder, folder)
    return folder / "report.html"


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
        marks = int(last.rpartition("of ")[2].partition(")")[0])
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
    seen.leave()


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


def told(page: Page) -> str:
    """What a screen reader says of the element that has the focus."""
    label: str = page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText")
    return label


@pytest.mark.system
def test_items_are_read_walked_and_left_by_keyboard_alone(browser: Browser, written: Path) -> None:
    seen = opened(browser, written, "#items")
    page = seen.page
    page.locator(".items table.rows").wait_for()
    nothing_serious(page)
    page.keyboard.press("/")
    until(page, "document.activeElement.type === 'search'")
    while page.evaluate("!document.activeElement.matches('.items table.rows a')"):
        page.keyboard.press("Tab")
    assert told(page).startswith("#1 Tell of the mat number 1"), "one stop leads into the matrix"
    for key in ("ArrowRight", "ArrowRight", "j", "ArrowDown", "k"):
        page.keyboard.press(key)
    assert told(page).startswith("#2, ben: ")
    page.keyboard.press("End")
    assert told(page).startswith("#2, cem: ")
    page.keyboard.press("Enter")
    page.locator(".items .whole").wait_for()
    until(page, "document.activeElement.innerText === '#2'")
    heads = page.locator("article.answer h4")
    assert heads.all_inner_texts() == ["cem", "ann"]
    page.keyboard.press("n")
    assert heads.all_inner_texts() == ["ann", "cem"], "beside itself stands what was read before"
    assert page.locator("article.answer mark").all_inner_texts() == ["ann", "cem"]
    assert "share 91% of their words" in page.locator(".compared [role=status]").inner_text()
    nothing_serious(page)
    page.keyboard.press("j")
    page.locator(".items .walk .where", has_text="3 of 60").wait_for()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    assert "next or previous answer" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.locator(".items .whole").is_visible(), "the first Escape closed the list of keys alone"
    page.keyboard.press("Escape")
    page.locator(".items table.rows").wait_for()
    assert told(page).startswith("#3, cem: ")
    page.keyboard.press("PageDown")
    page.locator(".items .status", has_text="51–60 shown").wait_for()
    until(page, "(document.activeElement.ariaLabel ?? '').startsWith('#51, cem')")
    page.keyboard.press("ArrowUp")
    until(page, "(document.activeElement.ariaLabel ?? '').startsWith('#50, cem')")
    seen.leave()


@pytest.mark.system
def test_items_are_sorted_by_the_column_of_a_student(browser: Browser, written: Path) -> None:
    seen = opened(browser, written, "#items")
    page = seen.page
    head = page.locator(".items table.rows thead th", has_text="ben")
    head.wait_for()
    found = []
    for order in ("descending", "ascending", "none"):
        head.get_by_role("button").press("Enter")
        until(page, f"document.activeElement.closest('th')?.ariaSort === '{order}'")
        place = int(head.evaluate("head => head.cellIndex"))
        found.append(page.locator(f".items table.rows tbody tr td:nth-child({place + 1})").all_inner_texts())
    figures = [[float(text) for text in texts] for texts in found]
    assert figures[0] == sorted(figures[0], reverse=True)
    assert figures[1] == sorted(figures[1])
    assert figures[0][0] > figures[1][0]
    assert figures[2] not in figures[:2]
    nothing_serious(page)
    page.close()


@pytest.mark.system
def test_the_headline_leads_to_the_items_that_part_the_first_two(browser: Browser, written: Path) -> None:
    seen = opened(browser, written)
    page = seen.page
    read = page.locator("#read a")
    read.first.wait_for()
    assert read.all_inner_texts() == ["54 items where ben lost to ann", "6 items where ann lost to ben"]
    read.nth(1).press("Enter")
    page.locator(".items .status", has_text="6 items").wait_for()
    assert page.locator(".items tbody th b").all_inner_texts() == [f"#{n}" for n in range(10, 70, 10)]
    page.locator(".items tbody td a").first.press("Enter")
    page.locator(".items .whole").wait_for()
    assert set(page.locator("article.answer h4").all_inner_texts()) == {"ann", "ben"}
    page.goto(f"{written.as_uri()}#leads?factor=style&judge=j2")
    until(page, "document.querySelector('#read').hidden")  # j2 gives all the same style
    page.goto(f"{written.as_uri()}#leads?judge=j1")
    until(page, "document.querySelectorAll('#read a').length === 2")
    assert "judge=j1" in (read.first.get_attribute("href") or "")
    seen.leave()
