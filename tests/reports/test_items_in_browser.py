"""Items in a real browser, in a report and in `coeval view`: read, walked, marked, and never obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from reports.browser import Opened, chromium, opened
from reports.view_process import ViewServer, viewing
from written_run import Run, append

from coeval.reports.site.report_file import write_report
from coeval.reports.view.view_app import view_page

pytestmark = pytest.mark.slow

SCRIPT = "</script><script>window.hacked=1</script>"
IMAGE = "<img src=x onerror=window.hacked=2>"
TURNED = "ab\u202etxt.exe\u202c \x1b[31mred\x1b[0m \u2066isolated"
LONG = "A megabyte of text. " * 52_500
STUDENT = "<b onmouseover=alert(1)>ann"
FACTOR = "plot<svg onload=alert(2)>"
VALUE = "'\"><iframe src=javascript:alert(3)>"
LEVELS = ("High", "Medium", "Low")


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
            reference_response=f"{IMAGE} the cat sat on the mat",
        )
        for place, student in enumerate(students):
            text = {0: f"the dog sat on the mat {n} {TURNED}", 1: f"the cat {IMAGE} lay on the mat"}.get(
                place, "short"
            )
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_a_list_cuts_no_name_and_no_id(browser: Browser, tmp_path: Path) -> None:
    """What stands at their ends, as a number, tells them apart."""
    run = Run(tmp_path / "run", "a-task-of-a-long-name", "a-laboratory-Qwen2.5-72B-Instruct-Turbo")
    for n in range(1, 4):
        for student in (f"a-laboratory-Qwen2.5-{size}B-Instruct-Turbo-of-November" for size in (7, 72)):
            run.judged(n, student, "j1", {"plot": LEVELS[n % 3]})
    write_report(run.folder, tmp_path)
    for width in (390, 1440):
        seen = opened(browser, tmp_path / "report.html", "#items", viewport={"width": width, "height": 900})
        seen.page.locator("table.rows tbody tr").first.wait_for()
        cells = seen.page.locator("table.rows th, table.rows td:first-child")
        assert cells.evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")
        ids = seen.page.locator("table.rows td:first-child").all_inner_texts()
        assert [text[-5:] for text in ids] == ["00001", "00002", "00003"]
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
    found = Axe().run(page).response["violations"]
    assert [
        (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
    ] == []


def walk_and_read(page: Page) -> None:
    """From the list to an item and on by keys; what is read there."""
    rows = page.locator("table.rows tbody tr")
    assert rows.count() == 50
    assert page.locator(".items .status").inner_text().startswith("70 items")
    rows.first.locator("a").focus()
    page.keyboard.press("Enter")
    head = page.locator(".items .walk h3")
    head.wait_for()
    assert head.inner_text() == "haiku__t.1__00001"
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
    page.locator(".compared select").select_option(label="the reference")
    assert [mark for mark in ann.locator("mark").all_inner_texts() if mark.startswith("dog")]
    page.locator(".compared select").select_option(label="nothing")
    assert ann.locator("mark").count() == 0
    page.locator(".items .walk h3").focus()
    page.keyboard.press("ArrowRight")
    page.locator(".items .walk h3", has_text="00002").wait_for()
    long = page.locator("article.answer", has=page.locator("h4", has_text="cem"))
    assert len(long.locator(".text").first.inner_text()) < 21_000


def test_a_report_leads_from_its_numbers_to_items(browser: Browser, hostile: Path, tmp_path: Path) -> None:
    write_report(hostile, tmp_path)
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
    page.locator("article.answer h4", has_text="other: dan").wait_for()
    page.goto(f"{server.address}f/0/#items?item=haiku__t.1__00070")
    page.locator(".items .walk h3", has_text="00070").wait_for()
    page.goto(f"{server.address}f/0/report#leads?judge=j1")
    page.locator("#filter-status:not(:empty)").wait_for()
    page.goto(f"{server.address}?all")
    page.locator("#folders-body a").nth(1).wait_for()
    assert page.locator("#folders-body tbody tr").count() == 2
    accessible(page, 390, 1600)
    harmless(seen)
    page.close()


def test_the_page_that_waits_for_a_report_can_be_read(browser: Browser, server: ViewServer) -> None:
    """It is there for a moment only, so its text is held while the server's styles stay."""
    seen = opened(browser, server.address, f"?all&token={server.token}")
    page = seen.page
    held = {"status": 202, "body": view_page("waiting"), "content_type": "text/html"}
    page.route("**/f/0/report", lambda asked: asked.fulfill(**held))
    page.goto(f"{server.address}f/0/report")
    assert page.locator("h1").inner_text() == "The report is being made"
    assert page.get_by_role("link", name="what the folder holds").get_attribute("href") == "./"
    accessible(page, 390, 1600)
    page.unroute("**/f/0/report")
    page.locator("#forest").wait_for()  # by itself, once the server has made it
    accessible(page, 390, 1600)
    harmless(seen)
    page.close()
