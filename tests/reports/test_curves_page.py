"""Training curves: pictures for print, and a page that leads from a point to the items behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from cli.warm_process import WarmProcess
from cli.written_training import drawn, write_training
from reports.browser import chromium, draw_all, opened

from coeval.core.plain import plain

TOOL = Path(__file__).parents[2] / "tools" / "plot_training_curves.py"
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of which one has two tasks, and a checkpoint that was not put together."""
    folder = tmp_path_factory.mktemp("runs")
    a = write_training(folder / "a", drawn({0: 0.3, 100: 0.5, 200: 0.7}, 30, 2))
    write_training(a, drawn({0: 0.4, 100: 0.5, 200: 0.5}, 20, 1, seed=1), task="ifbench")
    write_training(folder / "b", drawn({0: 0.3, 100: 0.4}, 30, 2, seed=2), pattern="ckpt_{step}_hf")
    assert coeval("sweep", "aggregate", "--out", str(a), cwd=folder) == 0
    return folder


def coeval(*words: str, cwd: Path) -> int:
    process = WarmProcess(*words, module="coeval", cwd=cwd)
    process.communicate()
    return process.wait()


def plotted(runs: Path, out: Path, *words: str) -> Path:
    assert coeval("sweep", "plot", "--runs", "a=a", "--plot-dir", str(out), *words, cwd=runs) == 0
    return out


def test_each_task_has_its_pictures_and_all_have_one(runs: Path, tmp_path: Path) -> None:
    out = plotted(runs, tmp_path / "plots")
    names = {"ifeval", "ifbench", "all_tasks"}
    assert {path.name for path in out.iterdir()} == {
        "curves.html", *(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
    }  # fmt: skip
    assert (out / "ifeval.png").read_bytes().startswith(b"\x89PNG")
    assert int.from_bytes((out / "ifeval.png").read_bytes()[16:20]) > 2_000, "print quality"
    svg = (out / "ifeval.svg").read_text()
    assert "prompt_level_strict_accuracy" in svg
    assert "step: 200" in svg, "what a point is, for those who cannot see it"


@pytest.mark.parametrize(("bars", "shown"), [("ci95", True), ("sem", True), ("std", True), ("none", False)])
def test_error_bars_are_those_that_are_asked_for(runs: Path, tmp_path: Path, bars: str, shown: bool) -> None:
    out = plotted(runs, tmp_path, "--show-errorbar", bars, "--tasks", "ifeval")
    assert ("mark-rule role-mark" in (out / "ifeval.svg").read_text()) is shown
    aggregate = json.loads((runs / "a" / "step_100" / "ifeval" / "summary_agg.json").read_text())
    low = {
        "ci95": aggregate["ci95"][0],
        "sem": aggregate["mean"] - aggregate["sem"],
        "std": aggregate["mean"] - aggregate["std"],
    }
    with chromium() as browser:
        page = opened(browser, out / "curves.html").page
        row = page.locator("table", has_text="step 100").last.locator("tr", has_text="step 100").inner_text()
    assert (f"[{low[bars]:.2f}" in row) if shown else "[" not in row.split("\t")[4]


def test_a_point_leads_to_what_was_answered_there(runs: Path, tmp_path: Path) -> None:
    out = plotted(runs, tmp_path)
    with chromium() as browser:
        found = opened(browser, out / "curves.html")
        page = found.page
        draw_all(page)
        page.get_by_role("link", name="step 200").first.click()
        page.locator("#items tbody tr").first.wait_for()
        assert "student=step+200" in page.url
        page.locator("#items tbody a").first.click()
        page.get_by_text("step 200").last.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1200
        serious = [
            one for one in Axe().run(page).response["violations"] if one["impact"] in ("serious", "critical")
        ]
        assert serious == []
        assert (found.complaints, found.requests) == ([], [])
        narrow = opened(browser, out / "curves.html", viewport={"width": 390, "height": 800}).page
        draw_all(narrow)
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_runs_stand_beside_each_other_by_the_tool_of_the_guide(runs: Path, tmp_path: Path) -> None:
    words = [
        "--runs",
        "a=a",
        "--runs",
        "b=b",
        "--name-pattern",
        "a=step_{step}",
        "--name-pattern",
        "b=ckpt_{step}_hf",
    ]
    done = subprocess.run(
        [sys.executable, TOOL, *words, "--plot-dir", tmp_path,
         "--steps", "0,100", "--tasks", "ifeval,ifbench", "--show-errorbar", "ci95"],
        cwd=runs, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "holds no scores of ifbench" in done.stderr
    svg = (tmp_path / "ifeval.svg").read_text()
    places = set(re.findall(r'aria-label="step: ([^;"]+); [^"]*run: [ab]', svg))
    assert len(places) == 4, "no run hides another at the same step"
    page = (tmp_path / "curves.html").read_text()
    assert "a · step 100" in page
    assert "b · step 100" in page
    assert "step 200" not in page


def test_what_cannot_be_drawn_is_told(runs: Path, tmp_path: Path) -> None:
    for words, told in (
        (["--runs", "nowhere=nowhere"], "there is no folder nowhere"),
        (["--runs", "a"], "give a name and a folder"),
        (["--runs", "a=a", "--name-pattern", "c=step_{step}"], "there is no --runs c="),
        (["--runs", "a=a", "--name-pattern", "a=step"], "give a run and a pattern"),
        (["--runs", "a=a", "--steps", "x"], "steps are whole numbers"),
    ):
        process = WarmProcess("sweep", "plot", *words, "--plot-dir", str(tmp_path), module="coeval", cwd=runs)
        _, said = process.communicate()
        assert process.wait() == 1
        assert told in said


def test_hostile_names_stay_texts(tmp_path: Path) -> None:
    write_training(tmp_path / "a", drawn({0: 0.3, 1: 0.6}, 12, 2), model=EVIL)
    words = ["sweep", "plot", "--runs", f"{EVIL}=a", "--plot-dir", "plots"]
    assert coeval(*words, cwd=tmp_path) == 0
    with chromium() as browser:
        found = opened(browser, tmp_path / "plots" / "curves.html")
        draw_all(found.page)
        assert found.complaints == []
        assert EVIL in found.page.locator("h1").inner_text()


@pytest.mark.parametrize("odd", ["a\u2028b\u2029c", "a\udcffb", "toString", "__proto__"])
def test_odd_names_of_runs_are_drawn(tmp_path: Path, odd: str) -> None:
    """Ends of lines within expressions, bytes that are no text, names that every object has."""
    write_training(tmp_path / "a", drawn({0: 0.3, 1: 0.6}, 12, 2))
    write_training(tmp_path / "b", drawn({0: 0.3, 1: 0.5}, 12, 2, seed=1))
    words = ["sweep", "plot", "--runs", f"{odd}=a", "--runs", f"{'long-' * 20}=b", "--plot-dir", "plots"]
    assert coeval(*words, cwd=tmp_path) == 0
    with chromium() as browser:
        found = opened(browser, tmp_path / "plots" / "curves.html")
        draw_all(found.page)
        labels = found.page.locator("svg .role-legend-label").all_text_contents()
        assert plain(odd) in [label.rstrip("\u200d") for label in labels]
        assert found.complaints == []
