"""The list of `coeval view` in a real browser: sorted, searched, ticked, by keys and on a telephone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from reports.browser import opened, until
from reports.view_process import ViewServer, viewing
from written_run import Run

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    """Two runs of a student whose name is long, one of a hostile name, and a sweep of three checkpoints."""
    here = tmp_path_factory.mktemp("list") / "all"
    levels = {"alpha": "High", "beta": "Low", HOSTILE: "Medium"}
    levels |= {f"grpo/step_{step}": level for step, level in ((1, "Low"), (2, "High"), (10, "Medium"))}
    for name, level in levels.items():
        run = Run(here / name.replace("/alert", ""))
        for n in range(1, 4):
            run.judged(n, "meta-llama/Llama-3.1-8B-Instruct", "j1", {"plot": level})
    (here / "grpo" / "sweep").mkdir()
    with viewing(here, folder=here) as found:
        found.wait_for("/api/folders", lambda folders: all(each["summary"] for each in folders))
        yield found


def names(page: Page) -> list[str]:
    return [text.lstrip("▸▾ ") for text in page.locator("#folders-body tbody th").all_inner_texts()]


@pytest.mark.system
def test_the_list_is_sorted_searched_and_ticked(browser: Browser, server: ViewServer) -> None:
    seen = opened(browser, server.address, f"?token={server.token}")
    page = seen.page
    page.locator("#folders-body table").wait_for()
    page.get_by_role("button", name="best so far").click()
    assert names(page)[0] in ("alpha", "grpo")
    assert names(page)[-1] == "beta"
    page.get_by_role("button", name="folder", exact=True).click()
    assert names(page) == [HOSTILE, "alpha", "beta", "grpo"]
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("folder")
    alpha = page.locator("#folders-body tbody tr", has_text="alpha")
    assert alpha.locator("bdi[title='meta-llama/Llama-3.1-8B-Instruct']").inner_text() == "Llama-3.1-8B"
    page.get_by_role("button", name="grpo").click()
    assert names(page)[3:] == ["grpo", "step_1", "step_2", "step_10"]
    grpo = page.locator("#folders-body tbody tr", has=page.locator("button.sweep"))
    assert "step_2" in grpo.inner_text()
    assert grpo.locator("svg.spark").count() == 1
    assert "$" not in grpo.inner_text(), "a cost that its folders do not hold is not zero"
    assert "$" in alpha.inner_text()
    page.keyboard.press("/")
    page.keyboard.type("a")
    page.keyboard.press("Tab")
    until(page, "document.querySelectorAll('#folders-body tbody tr').length > 0")
    page.locator("#search").fill("beta")
    assert names(page) == ["beta"]
    page.locator("#search").fill("")
    compare = page.locator("#compare")
    assert compare.is_disabled()
    for name in ("alpha", "beta"):
        page.locator("#folders-body tbody tr", has_text=name).locator("input").check()
    assert compare.inner_text() == "Compare 2"
    page.locator("#folders-body tbody a").first.focus()
    page.keyboard.press("c")
    page.wait_for_url("**/compare?f=*")
    assert page.locator("h1").inner_text().startswith("Comparison of")
    assert seen.complaints == []
    page.close()


@pytest.mark.system
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_the_list_and_a_folder_fit_and_can_be_used_by_all(
    browser: Browser, server: ViewServer, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900}
    for path in ("", "f/0/"):
        address = f"{path}?token={server.token}"
        seen = opened(browser, server.address, address, viewport=size, color_scheme=scheme)
        seen.page.locator("#folders-body table, #results-body table").first.wait_for()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(seen.page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
        assert seen.complaints == []
        seen.page.close()


@pytest.mark.system
@pytest.mark.parametrize("width", [320, 390])
def test_a_telephone_shows_scores_and_intervals_whole(
    browser: Browser, server: ViewServer, width: int
) -> None:
    seen = opened(browser, server.address, f"?token={server.token}", viewport={"width": width, "height": 844})
    page = seen.page
    page.locator("#folders-body table").wait_for()
    alpha = page.locator("#folders-body tbody tr", has_text="alpha")
    assert re.search(r"Llama-3.1-8B 100\.0 \[\d+\.\d, 100\.0\]", alpha.inner_text())
    found = page.evaluate("""() => {
      const texts = [...document.querySelectorAll("#folders-body tbody :is(th, td) *")];
      const box = (one) => one.getBoundingClientRect();
      return texts.map((one) => [one.innerText, box(one), box(one.closest("tr"))])
        .filter(([, { left, right }, card]) => left < card.left + 4 || right > card.right - 4)
        .map(([text]) => text);
    }""")
    assert found == [], "within their card, with room to its edges"
    page.close()


@pytest.mark.system
def test_a_folder_shows_the_forest_of_its_students(browser: Browser, server: ViewServer) -> None:
    number = next(one["number"] for one in server.ask("/api/folders").value if one["name"] == "alpha")
    seen = opened(browser, f"{server.address}f/{number}/", f"?token={server.token}")
    forest = seen.page.locator("#results-body table.forest")
    forest.wait_for()
    name = forest.locator("tbody th")
    assert name.inner_text() == "Llama-3.1-8B"
    assert name.get_attribute("title") == "meta-llama/Llama-3.1-8B-Instruct"
    figures = forest.locator("tbody td.num").all_inner_texts()
    assert figures[0].startswith("100.0")
    assert figures[1:] == ["3", "0"]
    assert forest.locator("circle").get_attribute("cx") == "100%"
    assert seen.complaints == []
    seen.page.close()
