"""Tables of a page in a real browser: sorted, searched, moved, turned into cards, and copied."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page
from reports.browser import nothing_serious, opened, until
from written_run import Run

from coeval.analysis.measures.measure_tree import Measured
from coeval.reports.content import Cell, Report, ReportColumn, ReportSection, ReportTable, Sentence
from coeval.reports.site.page import make_page
from coeval.reports.site.report_file import write_report_and_measures

MANY = 2_500
HOSTILE = "=1+1"
MARKED = "a|b_c <i>*&%$#{x}~^\\ [y]"


def tables() -> Report:
    """A short table with an interval, a gap and hostile names; and one of many rows and columns."""
    names = ["m10", HOSTILE, "m2", MARKED, "m1"]
    scores = [0.5, 0.25, None, 0.75, 0.5]
    measured = [Measured(value, None if value is None else value - 0.1, value, 40, 0) for value in scores]
    columns = (
        ReportColumn("student", "Student"),
        ReportColumn("score", "Score", "points", "The mean"),
        ReportColumn("n", "Items", "count"),
    )
    rows = tuple((name, one, place) for place, (name, one) in enumerate(zip(names, measured, strict=True)))
    short = ReportTable("students", "Students", columns, rows, links={0: "student=m10"})
    wide = (
        ReportColumn("item", "Item"),
        *(ReportColumn(f"c{n}", f"A longer column {n}", "count") for n in range(9)),
    )
    many: tuple[tuple[Cell, ...], ...] = tuple(
        (f"item {n}", *((n * 7919 + place) % MANY for place in range(9))) for n in range(MANY)
    )
    long = ReportTable("many", "Many", wide, many)
    section = ReportSection("leads", "Who leads?", (), (), (short, long))
    return Report("experiment", "tables", (), (), (section,))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tables") / "report.html"
    file.write_bytes(make_page(tables()))
    return file


def first_cells(page: Page, name: str = "students") -> list[str]:
    return page.locator(f"table[data-table={name}] tbody td:first-child").all_inner_texts()


@pytest.mark.system
def test_heads_sort_by_keyboard_and_search_leaves_what_is_found(browser: Browser, written: Path) -> None:
    seen = opened(browser, written, viewport={"width": 1024, "height": 800})
    page = seen.page
    score = page.get_by_role("button", name="Score", exact=True)
    score.wait_for()
    head = page.locator("table[data-table=students] th", has=score)
    assert head.get_attribute("title") == "The mean"
    before = first_cells(page)
    score.focus()
    for sort, order in (
        ("descending", [MARKED, "m10", "m1", HOSTILE, "m2"]),  # equal ones as they stood, the gap last
        ("ascending", [HOSTILE, "m10", "m1", MARKED, "m2"]),
        ("none", before),
    ):
        page.keyboard.press("Enter")
        page.locator(f"table[data-table=students] th[aria-sort={sort}]", has=score).wait_for()
        assert first_cells(page) == order
    assert page.locator("table[data-table=students] a").all_inner_texts() == ["m10"], (
        "a link stays with its row"
    )
    page.get_by_role("button", name="Student", exact=True).press("Enter")
    page.locator("table[data-table=students] th[aria-sort=ascending]").wait_for()
    assert [name for name in first_cells(page) if name.startswith("m")] == ["m1", "m2", "m10"]
    assert page.get_by_label("Search in Students").is_hidden(), "few rows are seen without a search"

    page.locator("#many > summary").press("Enter")
    page.get_by_label("Search in Many").fill("ITEM 24")
    rows = tables().table("many").rows
    fitting = sum(
        any("24" in (f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row) for row in rows
    )
    told = "told => document.querySelector('#many .count').textContent === told"
    until(page, told, f"{fitting:,} of 2,500")
    page.get_by_role("button", name="A longer column 3").press("Enter")
    page.locator("table[data-table=many] th[aria-sort=descending]").wait_for()
    largest = page.locator("table[data-table=many] tbody tr").first.inner_text()
    page.get_by_label("Search in Many").fill("")
    until(page, told, "2,500")
    assert page.locator("table[data-table=many] tbody td").nth(4).inner_text() == "2,499"
    assert "24" in largest
    page.get_by_role("button", name="Show 1,000 more of 2,500 rows").press("Enter")
    until(page, "document.querySelectorAll('table[data-table=many] tbody tr').length === 1060")
    nothing_serious(page)
    seen.leave()


@pytest.mark.system
def test_a_wide_table_keeps_its_names_and_shows_where_it_is_cut(browser: Browser, written: Path) -> None:
    seen = opened(browser, written, "#many", viewport={"width": 1024, "height": 800})
    page = seen.page
    until(page, "document.querySelector('#many .framed').classList.contains('cut-right')")
    scroller, name = page.locator("#many .scroll"), page.locator("#many tbody td").first
    left = name.evaluate("one => one.getBoundingClientRect().x")
    scroller.focus()
    page.keyboard.press("ArrowRight")
    scroller.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
    until(page, "document.querySelector('#many .framed').className === 'framed cut-left'")
    assert name.evaluate("one => one.getBoundingClientRect().x") == left
    assert page.locator("#students .framed").get_attribute("class") == "framed", "nothing is cut there"
    page.close()


@pytest.mark.system
def test_rows_are_cards_on_a_telephone(browser: Browser, written: Path) -> None:
    seen = opened(browser, written, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = seen.page
    page.locator("#students .table-tools").wait_for()
    score = page.locator("table[data-table=students] td[data-label=Score]").first
    shown = score.evaluate("one => getComputedStyle(one, '::before').content")
    assert (shown, score.inner_text()) == ("attr(data-label)", "50.0 [40.0, 50.0]") or shown == '"Score"'
    page.get_by_label("Order of Students").select_option(label="Score ↓")
    until(page, "document.querySelector('table[data-table=students] td').textContent.startsWith('a|b')")
    page.locator("#many > summary").tap()
    page.get_by_role("button", name="Show 1,000 more of 2,500 rows").wait_for()
    assert page.locator("table[data-table=many] tbody tr").count() == 12
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    nothing_serious(page)
    seen.leave()


@pytest.mark.system
@pytest.mark.parametrize("how", ["by its interface", "by selection", "by hand"])
def test_tables_are_copied_from_disk_whatever_the_browser_lets(
    browser: Browser, written: Path, how: str
) -> None:
    seen = opened(browser, written)
    page = seen.page
    page.evaluate(
        """how => {
          window.taken = null;
          const take = async (text) => { window.taken = text; };
          const refuse = async () => { throw new Error("no"); };
          const writeText = how === "by its interface" ? take : refuse;
          Object.defineProperty(navigator, "clipboard", { value: { writeText } });
          if (how === "by hand") document.execCommand = () => false;
          document.addEventListener("copy", () => { window.taken = document.activeElement.value; });
        }""",
        how,
    )
    page.get_by_role("button", name="Score", exact=True).click()
    page.locator("th[aria-sort=descending]").wait_for()
    texts = {}
    for kind in ("Markdown", "LaTeX", "CSV"):
        page.get_by_role("button", name=f"Copy Students as {kind}").press("Enter")
        said = page.locator("#students [role=status]")
        if how == "by hand":
            place = page.get_by_label(f"Students as {kind}", exact=True)
            place.wait_for()
            assert "press Ctrl+C" in said.inner_text()
            texts[kind] = place.input_value()
        else:
            until(
                page,
                "said => document.querySelector('#students [role=status]').textContent === said",
                f"Copied 5 rows as {kind}.",
            )
            texts[kind] = page.evaluate("window.taken")
    assert texts["Markdown"].splitlines()[:3] == [
        "| Student | Score | Items |",
        "| --- | ---: | ---: |",
        "| a\\|b_c \\<i\\>\\*&%$\\#{x}\\~^\\\\ \\[y\\] | 75.0 [65.0, 75.0] | 3 |",
    ]
    lines = texts["LaTeX"].splitlines()
    assert lines[1:3] == ["\\begin{tabular}{lrr}", "\\toprule"]
    assert lines[5] == (
        "a\\textbar{}b\\_c \\textless{}i\\textgreater{}*\\&\\%\\$\\#\\{x\\}\\textasciitilde{}"
        "\\textasciicircum{}\\textbackslash{} [y] & 75.0 [65.0, 75.0] & 3 \\\\"
    )
    cells = list(csv.DictReader(io.StringIO(texts["CSV"])))
    assert [row["student"] for row in cells] == [MARKED, "m10", "m1", f"'{HOSTILE}", "m2"]
    assert [row["score"] for row in cells] == ["0.75", "0.5", "0.5", "0.25", ""]
    seen.leave()


@pytest.mark.system
def test_a_filter_keeps_the_order_that_was_asked_for(browser: Browser, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 9):
        for place, student in enumerate(("ann", "ben", "cem")):
            for judge in ("j1", "j2"):
                level = ("High", "Medium", "Low")[place if judge == "j1" else 2 - place]
                run.judged(n, student, judge, {"plot": level})
    write_report_and_measures(run.folder, tmp_path)
    seen = opened(browser, tmp_path / "report.html")
    page = seen.page
    page.get_by_role("button", name="Score", exact=True).first.click()
    page.get_by_role("button", name="Score", exact=True).first.click()
    page.locator("table[data-table=students] th[aria-sort=ascending]").wait_for()
    for judge, order in (("j1", ["cem", "ben", "ann"]), ("j2", ["ann", "ben", "cem"])):
        page.goto(f"{(tmp_path / 'report.html').as_uri()}#leads?judge={judge}")
        until(
            page,
            "first => document.querySelector('table[data-table=students] tbody td').textContent === first",
            order[0],
        )
        assert first_cells(page) == order
        assert (
            page.locator("table[data-table=students] th[aria-sort=ascending]")
            .inner_text()
            .startswith("Score")
        )
    seen.leave()


@pytest.mark.system
def test_a_figure_of_a_sentence_leads_to_the_row_of_whom_it_names(browser: Browser, tmp_path: Path) -> None:
    report = tables()
    said = (Sentence("m1 has 50.0 on 4 items, of 99 that nobody shows.", "leads"),)
    [section] = report.sections
    file = tmp_path / "page.html"
    file.write_bytes(
        make_page(
            msgspec.structs.replace(report, sections=(msgspec.structs.replace(section, sentences=said),))
        )
    )
    seen = opened(browser, file, viewport={"width": 1024, "height": 800})
    page = seen.page
    links = page.locator(".said a")
    assert links.all_inner_texts() == ["50.0", "4"], "no table has 99"
    links.first.click()
    until(page, "document.querySelector('tr.found') !== null")
    assert page.locator("tr.found").all_inner_texts() == ["m1\t50.0 [40.0, 50.0]\t4"]
    assert seen.complaints == []
    page.close()
