"""`coeval label` as a page: blind, by keys, resumed, and answered to its own page alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.invoked import Command
from playwright.sync_api import Browser, Page
from reports.browser import opened, until
from reports.view_process import JSON, ViewServer, viewing
from written_run import Run

from coeval.reports.site.report_file import write_report_and_measures

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
SCRIPT = "</script><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelling") / "run"
    written = Run(folder)
    for n in range(1, 7):
        written.datapoint(n, prompt=f"{n * 7919 % 101} {SCRIPT}", reference_response="what is right")
        for place, student in enumerate(("studentA", "studentB")):
            written.response(n, student, response=f"answer {n} {place} {SCRIPT}")
            written.evaluation(n, student, "judgeJ", {"plot": ("High", "Medium", "Low")[(n + place) % 3]})
    return folder


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[ViewServer]:
    with viewing(run, "--n", "8", "--by", "anna", folder=run.parent, command="label") as found:
        yield found


def given(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "labels.jsonl").read_text().splitlines()
    return [label for label in map(json.loads, lines) if "level" in label]


@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"Host": "evil.example"}, 403),
        ("GET", "/api/label", {"Host": "127.0.0.1.evil.example"}, 403),
        ("GET", "/api/label", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", "/api/label", {"Authorization": None}, 403),
        ("POST", "/api/label", {**JSON, "Authorization": None}, 403),
        ("POST", "/api/label", {**JSON, "Host": "evil.example"}, 403),
        ("POST", "/api/label", {**JSON, "Origin": "http://evil.example"}, 403),
        ("POST", "/api/label", {**JSON, "Sec-Fetch-Site": "same-site"}, 403),
        ("POST", "/api/label", {"Content-Type": "text/plain"}, 415),
        ("POST", "/api/undo", {**JSON, "Origin": "null"}, 403),
        ("POST", "/api/undo", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("DELETE", "/api/label", JSON, 405),
        ("GET", "/f/0/api/items", {}, 404),
        ("GET", "/f/0/report", {}, 404),
        ("GET", "/assets/..%2flabels.jsonl", {}, 404),
    ],
)
def test_it_answers_its_own_page_only(
    method: str, path: str, headers: dict[str, str | None], status: int, server: ViewServer, run: Path
) -> None:
    question = server.ask("/api/label").value["question"]["id"]
    body = json.dumps({"id": question, "level": "High"}) if method == "POST" else None
    said = server.ask(path, method, body, headers=headers)
    assert said.status == status
    assert "Access-Control-Allow-Origin" not in said.headers
    assert given(run) == []


@pytest.mark.process
def test_it_is_blind_and_refuses_what_is_no_label(server: ViewServer, run: Path) -> None:
    said = server.ask("/api/label")
    assert not {word for word in ("studentA", "studentB", "judgeJ", "haiku__") if word in said.text}
    question = said.value["question"]
    assert question["levels"] == ["Low", "Medium", "High"]
    assert question["reference"] == "what is right"
    wrong: tuple[object, ...] = (
        {"id": "nobody", "level": "High"},
        {"id": question["id"], "level": "Superb"},
        {"id": question["id"], "level": 1},
        {"id": question["id"], "level": "High", "judge": "me"},
        [],
    )
    for body in wrong:
        answer = server.ask("/api/label", "POST", json.dumps(body), headers=JSON)
        assert (answer.status, given(run)) == (400, []), body
    after = server.ask(
        "/api/label", "POST", json.dumps({"id": question["id"], "level": "high"}), headers=JSON
    ).value
    assert (after["done"], after["total"]) == (1, 8)
    assert after["question"]["id"] != question["id"]
    assert [label["level"] for label in given(run)] == ["High"]
    back = server.ask("/api/undo", "POST", "{}", headers=JSON).value
    assert (back["done"], back["question"]) == (0, question)
    assert server.ask("/api/undo", "POST", "{}", headers=JSON).value["done"] == 0


def wait_for_count(page: Page, done: int) -> None:
    until(page, "text => document.getElementById('count').textContent.startsWith(text)", f"{done} of ")


@pytest.mark.system
def test_sixty_items_are_labelled_by_keys_and_the_page_shows_both_scales(
    browser: Browser, tmp_path: Path, coeval: Command
) -> None:
    words = [sys.executable, "-m", "coeval", "run", "--config", str(EXAMPLE)]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    folder = tmp_path / "runs" / "quickstart"
    with viewing(folder, "--n", "60", "--by", "anna", folder=tmp_path, command="label") as server:
        seen = opened(browser, server.address, f"?token={server.token}")
        page = seen.page
        wait_for_count(page, 0)
        total = int(page.locator("#count").inner_text().split()[2])
        assert total >= 60
        assert not {name for name in ("sim-large", "sim-medium") if name in page.locator("h1").inner_text()}
        for done in range(total):
            if done == 5:  # the last one was wrong
                page.keyboard.press("u")
                wait_for_count(page, 4)
                page.keyboard.press("1")
                wait_for_count(page, 5)
            if done == 20:
                page.reload()
                wait_for_count(page, 20)
            quality = page.locator("#question").inner_text().rpartition("quality ")[2][:5]
            page.keyboard.press(str(min(1 + int(float(quality) * 3), 3)))
            wait_for_count(page, done + 1)
        page.locator("h2", has_text="All are labelled").wait_for()
        page.keyboard.press("2")
        seen.leave()
    with viewing(folder, "--by", "anna", folder=tmp_path, command="label") as server:
        assert server.ask("/api/label").value["done"] == total, "the next start goes on from there"
    write_report_and_measures(folder, tmp_path)
    seen = opened(browser, tmp_path / "report.html", "#by-people")
    rows = seen.page.locator('table[data-table="people"] tbody tr').all_inner_texts()
    students = [row for row in rows if row.startswith("all factors")]
    assert len(students) == 3
    assert all(row.count("[") >= 2 for row in students), "both scales with their intervals"
    seen.page.close()
    assert "human scale" in coeval("results", "--run", folder).out
