"""Every page of `tools/docs/materials.py`, at three widths: what rules ask is looked up, not sampled."""

from __future__ import annotations

import io
from pathlib import Path

import pypdf
import pytest
from playwright.sync_api import Browser
from reports.crawler import WIDTHS, offenders
from worker_folder import worker_folder

from tools.docs.materials import build

RUNS = ("quickstart", "panel", "one-student", "labels", "pairwise", "benchmarks")
MANY = ("compare-2", "compare-8", "sweeps")
PAGES = RUNS + MANY

KNOWN: dict[str, tuple[str, ...]] = {}
"""Rules and the pages on which an offender is known of."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pages; workers of pytest-xdist share one."""
    with worker_folder(tmp_path_factory, "materials") as work:
        if not work.exists():
            build(work)
        return work / "pages"


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_no_page_breaks_a_rule(browser: Browser, pages: Path, page: str, width: int) -> None:
    found = [
        each
        for each in offenders(browser, pages / f"{page}.html", width)
        if page not in KNOWN.get(each.rule, ())
    ]
    assert not found, "\n".join(map(str, found))


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES)
def test_the_brief_of_a_page_is_two_sheets_of_a4(browser: Browser, pages: Path, page: str) -> None:
    opened = browser.new_page()
    opened.goto((pages / f"{page}.html").as_uri())
    opened.evaluate("window.print = () => { window.printed = true; }")
    opened.locator("#print").click()
    opened.wait_for_function("window.printed")
    brief = pypdf.PdfReader(io.BytesIO(opened.pdf(format="A4", prefer_css_page_size=True)))
    opened.close()
    assert len(brief.pages) <= 2


@pytest.mark.system
def test_all_pages_of_the_materials_are_looked_at(pages: Path) -> None:
    assert {file.stem for file in pages.glob("*.html")} == set(PAGES)
