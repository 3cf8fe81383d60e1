"""Items in a real browser, in a report and in `coeval view`: read, walked, marked, and never obeyed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page
from reports.browser import Opened, draw_all, nothing_serious, opened
from reports.view_process import ViewServer, viewing
from written_run import Run, append

from coeval.analysis.measures.measure_tree import Measured
from coeval.reports.charts.drawn_pictures import draw_pictures
from coeval.reports.charts.plots import NOTEWORTHY, HeatMap, forest_plot, heat_map, interval_plot
from coeval.reports.charts.themes import LIGHT
from coeval.reports.content import Picture, Report, ReportColumn, ReportSection, ReportTable
from coeval.reports.site.page import make_page
from coeval.reports.site.report_file import write_report_and_measures
from coeval.reports.view.view_app import render_view_page

SCRIPT = "</script><script>window.hacked=1</script>"
IMAGE = "<img src=x onerror=window.hacked=2>"
TURNED = "ab\u202etxt.exe\u202c \x1b[31mred\x1b[0m \u2066isolated"
LONG = "A megabyte of text. " * 52_500
STUDENT = "<b onmouseover=alert(1)>ann"
FACTOR = "plot<svg onload=alert(2)>"
VALUE = "'\"><iframe src=javascript:alert(3)>"
LEVELS = ("High", "Medium", "Low")
# What texts have in common: without it they would be too different to mark differences.
ALIKE = "and the rain that came in the night made the old wood of the door dark again"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose names and texts would do harm if anybody took them for more than texts."""
    folder = tmp_path_factory.mktemp("hostile") / "runs" / "a <i>run"
    run = Run(folder)
    students = (STUDENT, "ben", "cem")
    for n in range(1, 71):
        run.datapoint(
            n,
            sampled_target_attributes={"mood": VALUE},
            prompt=f"Prompt {n} {SCRIPT}",
            reference_response=f"{IMAGE} the cat sat on the mat {ALIKE}",
        )
        for place, student in enumerate(students):
            text = {
                0: f"the dog sat on the mat {n} {TURNED} {ALIKE}",
                1: f"the cat {IMAGE} lay on the mat {ALIKE}",
            }.get(place, "short")
            run.response(n, student, response=LONG if (n, place) == (2, 2) else text)
            for judge in ("j1", "j2"):
                level = LEVELS[min(2, (n % 2) + place)] if judge == "j1" else LEVELS[place]
                run.evaluation(n, student, judge, {FACTOR: level}, raw=f"{judge} says {SCRIPT}{TURNED}")
    run.response(71, "ben", response=None)
    error = {
        "at": "2026-01-01T00:00:00Z",
        "kind": "server",
        "message": SCRIPT,
        "id": IMAGE,
        "phase": "x",
        "model": "m",
    }
    append(folder / "run_errors.jsonl", error)
    return folder


@pytest.mark.system
def test_a_model_may_bear_a_name_that_every_object_has(browser: Browser, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 4):
        for student in ("ann", "constructor") if n > 1 else ("ann",):
            run.judged(n, student, "j1", {"toString": "High"})
    write_report_and_measures(run.folder, run.folder)
    seen = opened(browser, run.folder / "report.html", "#items?student=constructor&student=ann")
    rows = seen.page.locator("#items-body table.rows")
    rows.wait_for()
    assert rows.locator("thead th").all_inner_texts()[:3] == ["Item", "ann", "constructor"]
    assert rows.locator("tbody tr").first.locator("td").all_inner_texts()[:2] == ["100.0", ""]
    assert "student constructor" in seen.page.locator(".chips").inner_text()
    seen.leave()


@pytest.mark.system
def test_a_list_cuts_no_name_and_no_id(browser: Browser, tmp_path: Path) -> None:
    """What stands at their ends, as a number, tells them apart."""
    run = Run(tmp_path / "run", "a-task-of-a-long-name", "a-laboratory-Qwen2.5-72B-Instruct-Turbo")
    for n in range(1, 4):
        for student in (f"a-laboratory-Qwen2.5-{size}B-Instruct-Turbo-of-November" for size in (7, 72)):
            run.judged(n, student, "j1", {"plot": LEVELS[n % 3]})
    write_report_and_measures(run.folder, tmp_path)
    for width in (390, 1440):
        seen = opened(browser, tmp_path / "report.html", "#items", viewport={"width": width, "height": 900})
        seen.page.locator("table.rows tbody tr").first.wait_for()
        heads = seen.page.locator("table.rows thead th")
        assert heads.evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")
        assert len(set(heads.all_inner_texts())) == heads.count()
        items = seen.page.locator("table.rows tbody th a")
        assert items.locator("b").all_inner_texts() == ["#1", "#2", "#3"]
        assert (items.first.get_attribute("title") or "").startswith("a-task-of-a-long-name__")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        harmless(seen)
        seen.page.close()


@pytest.fixture(scope="module")
def server(hostile: Path) -> Iterator[ViewServer]:
    other = Run(hostile.parent / "other")
    for n in range(1, 4):
        other.judged(n, "dan", "j1", {"plot": "High"})
    with viewing(folder=hostile.parents[1]) as found:
        found.ready(0)
        found.ready(1)
        yield found


def harmless(seen: Opened) -> None:
    """Nothing ran, nothing was asked of anybody else, nothing but our own elements is there."""
    page = seen.page
    assert (seen.complaints, seen.requests) == ([], [])
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("iframe, img, b[onmouseover], svg[onload], [onerror]").count() == 0


def accessible(page: Page, *widths: int) -> None:
    """Axe finds nothing serious, and nothing is wider than the window."""
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    nothing_serious(page)


def walk_and_read(page: Page) -> None:
    """From the list to an item and on by keys; what is read there."""
    rows = page.locator("table.rows tbody tr")
    assert rows.count() == 50
    assert page.locator(".items .status").inner_text().startswith("70 items")
    rows.first.locator("th a").focus()
    page.keyboard.press("Enter")
    head = page.locator(".items .walk h3")
    head.wait_for()
    assert (head.inner_text(), head.get_attribute("title")) == ("#1", "haiku__t.1__00001")
    whole = page.locator(".items .whole")
    assert f"Prompt 1 {SCRIPT}" in whole.inner_text()
    assert f"mood = {VALUE}" in whole.inner_text()
    ann = page.locator("article.answer").first
    assert ann.locator("h4").inner_text() == STUDENT
    assert "ab\\u202etxt.exe\\u202c \\x1b[31mred" in ann.inner_text()
    assert ann.locator("table.verdicts th[scope=row]").inner_text() == FACTOR
    ann.locator("summary", has_text="j1").click()
    assert f"j1 says {SCRIPT}" in ann.inner_text()
    ben = page.locator("article.answer").nth(1)
    assert "cat" in ben.locator("mark").all_inner_texts()[0]
    assert page.locator(".compared [role=status]").inner_text().startswith("Marked: words")
    page.locator(".compared select").select_option(label="the reference")
    assert [mark for mark in ann.locator("mark").all_inner_texts() if mark.startswith("dog")]
    page.locator(".compared select").select_option(label="nothing")
    assert ann.locator("mark").count() == 0
    page.locator(".items .walk h3").focus()
    page.keyboard.press("ArrowRight")
    page.locator(".items .walk h3", has_text="#2").wait_for()
    page.locator(".chosen-answer button", has_text="cem").click()
    assert "cem" in page.evaluate("location.hash")
    assert page.locator(".compared [role=status]").inner_text().startswith("Differences are not marked")
    long = page.locator("article.answer", has=page.locator("h4", has_text="cem"))
    assert len(long.locator(".text").first.inner_text()) < 21_000


@pytest.mark.system
def test_a_report_leads_from_its_numbers_to_items(browser: Browser, hostile: Path, tmp_path: Path) -> None:
    write_report_and_measures(hostile, tmp_path)
    seen = opened(browser, tmp_path / "report.html", "#items")
    page = seen.page
    page.locator(".items table.rows").wait_for()
    accessible(page, 390, 1600)
    walk_and_read(page)
    assert "coeval view shows them" in page.locator("article.answer", has_text="more characters").inner_text()
    accessible(page, 390, 1600)
    page.keyboard.press("Escape")
    page.locator("table.rows").wait_for()
    page.locator('table[data-table="students"] tbody a').nth(1).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/report.html#items?student=**")
    page.locator(".items .chips button").wait_for()
    student = page.locator(".items .chips button").inner_text().removeprefix("student ").removesuffix(" ×")
    heads = page.locator("table.rows thead th").all_inner_texts()
    assert student in heads
    assert len({STUDENT, "ben", "cem"} & set(heads)) == 1
    page.goto(f"{(tmp_path / 'report.html').as_uri()}#items?lost=cem,ben&judge=j1")
    page.locator(".items .status", has_text="35 items").wait_for()
    assert page.locator(".items .pages").is_hidden(), "one page of them is all"
    page.locator("#forest .mark-symbol path").last.click()
    page.wait_for_url("**#items?student=**")
    harmless(seen)
    page.close()


@pytest.mark.system
def test_view_shows_walks_compares_and_marks(browser: Browser, server: ViewServer, hostile: Path) -> None:
    seen = opened(browser, server.address, f"f/0/?token={server.token}", color_scheme="dark")
    page = seen.page
    page.locator(".items table.rows").wait_for()
    assert page.locator("h1").inner_text() == "a <i>run"
    assert STUDENT in page.locator("#results-body").inner_text()
    assert SCRIPT in page.locator("#status-body").inner_text()
    accessible(page, 390, 1600)
    walk_and_read(page)
    long = page.locator("article.answer", has=page.locator("h4", has_text="cem"))
    long.get_by_role("button", name="Show all 1,050,000 characters").click()
    assert len(long.locator(".text").first.inner_text()) > 1_000_000
    note = page.get_by_label("note", exact=True)
    note.fill(f"{SCRIPT}{TURNED}")
    page.get_by_role("button", name="⚑ mark").click()
    page.locator(".marking [role=status]", has_text="kept").wait_for()
    accessible(page, 390, 1600)
    page.keyboard.press("Escape")
    page.locator("table.rows .flag").wait_for()
    page.get_by_label("marked").check()
    page.locator(".items .status", has_text="1 item").wait_for()
    assert SCRIPT in page.locator("table.rows .noted").inner_text()
    page.reload()
    page.locator(".items .status", has_text="1 item").wait_for()
    page.get_by_label("marked").uncheck()
    page.locator(".items .status", has_text="70 items").wait_for()
    page.get_by_label("search").fill("LAY mat")
    page.keyboard.press("Enter")
    page.wait_for_url("**#items?q=LAY+mat")
    page.locator("#beside input").check()
    page.locator("table.rows th", has_text="other: dan").wait_for()
    page.locator("table.rows a").first.click()
    page.locator(".chosen-answer button", has_text="other: dan").click()
    page.locator("article.answer h4", has_text="other: dan").wait_for()
    page.goto(f"{server.address}f/0/#items?item=haiku__t.1__00070")
    page.locator(".items .walk h3", has_text="#70").wait_for()
    page.goto(f"{server.address}f/0/report#leads?judge=j1")
    page.locator("#filter-status:not(:empty)").wait_for()
    page.goto(f"{server.address}?all")
    page.locator("#folders-body a").nth(1).wait_for()
    assert page.locator("#folders-body tbody tr").count() == 2
    accessible(page, 390, 1600)
    harmless(seen)
    page.close()


@pytest.mark.system
def test_the_page_that_waits_for_a_report_can_be_read(browser: Browser, server: ViewServer) -> None:
    """It is there for a moment only, so its text is held while the server's styles stay."""
    seen = opened(browser, server.address, f"?all&token={server.token}")
    page = seen.page
    held = {"status": 202, "body": render_view_page("waiting"), "content_type": "text/html"}
    page.route("**/f/0/report", lambda requested: requested.fulfill(**held))
    page.goto(f"{server.address}f/0/report")
    assert page.locator("h1").inner_text() == "The report is being made"
    assert page.get_by_role("link", name="what the folder holds").get_attribute("href") == "./"
    accessible(page, 390, 1600)
    page.unroute("**/f/0/report")
    page.locator("#forest").wait_for()  # by itself, once the server has made it
    accessible(page, 390, 1600)
    harmless(seen)
    page.close()


# Heat maps of many students with long names: every number stands in its cell, every name can be told.

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


def table_report(values: Sequence[float], names: Sequence[str], sure: Sequence[bool] = ()) -> Report:
    """A heat map of the differences between every two; without ``sure`` all are."""
    pairs = list(combinations(names, 2))
    marks = sure or [True] * len(pairs)
    rows = tuple((*pair, value, mark) for pair, value, mark in zip(pairs, values, marks, strict=True))
    columns = (
        ReportColumn("better", "Student"),
        ReportColumn("other", "Less"),
        ReportColumn("difference", "Difference", "points"),
        ReportColumn("sure", "Sure"),
    )
    table = ReportTable("differences", "Differences", columns, rows)
    grid = HeatMap(
        table,
        *("better", "other", "difference"),
        *(names[:-1], names[1:]),
        least=NOTEWORTHY,
        format="+.1f",
        dot="sure",
    )
    picture = heat_map("matrix", "Every two.", grid)
    section = ReportSection("leads", "Who leads?", (), (picture,), (table,))
    return Report("experiment", "three", (), (), (section,))


def shades(values: Sequence[float]) -> list[str]:
    """The colours of its cells, in the order of the rows."""
    [figure] = draw_pictures(table_report(values, ("ann", "ben", "cem")))
    return re.findall(r'roledescription="rect mark"[^>]*fill="([^"]+)"', figure.svg)


def strength(colour: str) -> float:
    """How far a colour is from that of nothing, from 0 to 1."""
    found = [int(part) for part in re.findall(r"\d+", colour)]
    none, most = ([int(one[at : at + 2], 16) for at in (1, 3, 5)] for one in (LIGHT.least, LIGHT.most))
    return math.dist(found, none) / math.dist(most, none)


@pytest.mark.process
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


@pytest.mark.system
def test_no_two_names_look_alike(browser: Browser, tmp_path: Path) -> None:
    """Not those that differ at their ends or in the middle, on no screen."""
    one = "Qwen/Qwen2.5-72B-Instruct-Turbo"
    tuned = "a-laboratory/model-{}-that-was-tuned-for-very-long"
    for names in ((one, f"{one}-2", "gpt-4.1 mini"), tuple(tuned.format(n) for n in ("7B", "13B", "70B"))):
        page = tmp_path / "names.html"
        columns = (
            ReportColumn("row", "Of"),
            ReportColumn("shown", "Value", "points"),
            ReportColumn("sure", "Sure"),
        )
        rows = tuple((name, Measured(0.5, 0.4, 0.6, 40, 0), True) for name in names)
        table = ReportTable("values", "Values", columns, rows)
        plot = Picture("values-plot", "Values.", table.name, interval_plot(table.name, names))
        section = ReportSection("values", "What?", (), (plot,), (table,))
        matrix = table_report([0.1, 0.2, 0.3], names)
        page.write_bytes(make_page(msgspec.structs.replace(matrix, sections=(*matrix.sections, section))))
        for width in (1440, 390):
            seen = opened(browser, page, viewport={"width": width, "height": 900})
            draw_all(seen.page)
            for figure, axis in (("#values-plot", "Y-axis"), ("#matrix", "Y-axis"), ("#matrix", "X-axis")):
                labels = seen.page.locator(f"{figure} [aria-label^='{axis}'] .role-axis-label text")
                texts = labels.all_text_contents()
                assert len(set(texts)) == len(texts) == (3 if figure == "#values-plot" else 2), texts
            shown = seen.page.locator("table[data-table=values] td:first-child").all()
            assert all(cell.evaluate("one => one.scrollWidth <= one.clientWidth") for cell in shown)
            seen.leave()


def report() -> Report:
    pairs = range(len(list(combinations(NAMES, 2))))
    return table_report([0.041 * (nth % 11) for nth in pairs], NAMES, [nth % 3 == 0 for nth in pairs])


def held(page: Page) -> None:
    """Every pair's number, the sure ones with their dot, and names that differ."""
    found = page.locator(".drawing").evaluate(_APART)
    assert found["wrong"] == []
    numbers = [text for text in found["texts"] if "+" in text]
    assert len(numbers) == 66
    assert sum("●" in text for text in numbers) == 22
    names = [text for text in found["texts"] if "+" not in text]
    assert len(set(names)) == 12, "each name stands once in rows or columns, or in both"


@pytest.mark.system
def test_numbers_and_names_stand_apart_on_every_screen(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(make_page(report()))
    for width in (1280, 390):
        seen = opened(browser, file, viewport={"width": width, "height": 900})
        draw_all(seen.page)
        held(seen.page)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.complaints == []
        seen.page.close()


@pytest.mark.system
def test_they_stand_apart_in_files_too(browser: Browser, tmp_path: Path) -> None:
    [figure] = draw_pictures(report())
    page = tmp_path / "figure.html"
    page.write_text(f"<meta charset=utf-8><div class=drawing>{figure.svg}</div>", encoding="utf-8")
    seen = opened(browser, page)
    held(seen.page)
    seen.page.close()


@pytest.mark.system
def test_long_names_leave_a_forest_plot_room_on_a_telephone(browser: Browser, tmp_path: Path) -> None:
    rows = tuple(("all", None, name, Measured(0.5, 0.4, 0.6, 40, 0), "1–12") for name in NAMES)
    columns = (
        ReportColumn("scores", "Scores"),
        ReportColumn("task", "Task"),
        ReportColumn("student", "Student"),
        ReportColumn("score", "Score", "points"),
        ReportColumn("ranks", "Ranks"),
    )
    plot = forest_plot("standings", NAMES, (), NAMES, "all")
    picture = Picture("forest", "Scores.", "standings", plot)
    table = ReportTable("standings", "Standings", columns, rows)
    section = ReportSection("leads", "Who leads?", (), (picture,), (table,))
    page = tmp_path / "forest.html"
    page.write_bytes(make_page(Report("experiment", "many", (), (), (section,))))
    seen = opened(browser, page, viewport={"width": 390, "height": 900})
    draw_all(seen.page)
    interval = seen.page.locator("#forest path.background").first.bounding_box()
    assert interval is not None
    assert interval["width"] > 390 / 3, "the plot has the larger part of what stands beside the names"
    seen.leave()
