"""The page of a run in a real browser: it opens from disk, asks no network, and complains of nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.experiments import Lab, model, task
from playwright.sync_api import Browser
from reports.browser import chromium, draw_all, opened

from coeval.reports.site.report_file import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a page of three students, three judges and two tasks."""
    here = tmp_path_factory.mktemp("page")
    models = [model("ann"), model("ben", skill=0.5), model("cem", skill=0.2)]
    lab = Lab(here, models, [task(total=6), task("second", total=6)])
    assert lab.run().exit_code == 0
    write_report(lab.path, here / "report")
    return here / "report"


def test_it_opens_from_disk_without_a_complaint(browser: Browser, written: Path) -> None:
    seen = opened(browser, written / "report.html")
    draw_all(seen.page)
    measures = json.loads((written / "measures.json").read_text())
    assert (seen.complaints, seen.requests) == ([], [])
    assert seen.page.locator(".lead").inner_text().startswith(measures["findings"][0])
    shown = seen.page.locator('table[data-table="students"] tbody tr td:nth-child(1)').all_inner_texts()
    assert shown == measures["ranking"]["order"]
    seen.page.close()


def test_a_run_writes_it_at_its_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [task(total=1)], {"report": True})
    run = lab.run()
    assert "story" in (run.path / "report.html").read_text(encoding="utf-8")
    assert json.loads((run.path / "measures.json").read_text()) == run.measures()
