"""Pages of what ``eval-framework`` left and of a comparison, in a browser: nothing asked for, nothing
complained of, nothing that overflows or cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from cli.invoked import Command
from cli.written_output import output, verdicts
from reports.browser import chromium, draw_all, opened

EVIL = "<script>alert(1)</script>\u202e"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("outputs")
    long = f"a-model-with-a-long-name-{'x' * 60}"
    return [
        output(place / "a", f"{EVIL} one", verdicts([0, 1] * 20)),
        output(place / "b", long, verdicts([1, 1, 1, 0] * 10)),
    ]


@pytest.mark.parametrize("kind", ["output", "comparison"])
def test_it_can_be_read_by_everybody(outputs: list[Path], coeval: Command, tmp_path: Path, kind: str) -> None:
    if kind == "output":
        ended = coeval("analyze", "--run", outputs[0], "--format", "html", "--out", tmp_path)
        page_file = tmp_path / "report.html"
    else:
        page_file = tmp_path / "both.html"
        ended = coeval("compare", *outputs, "--html", page_file)
    assert ended.code == 0, ended.err
    with chromium() as browser:
        for width in (1600, 390):
            seen = opened(browser, page_file, viewport={"width": width, "height": 900})
            draw_all(seen.page)
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
            found = Axe().run(seen.page).response["violations"]
            assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
            assert (seen.complaints, seen.requests) == ([], [])
