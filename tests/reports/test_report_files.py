"""Pictures of a report for print."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.invoked import Command
from cli.warm_process import WarmProcess
from cli.written_training import drawn, write_training
from pipeline.experiments import Lab, model, task
from reports.browser import chromium, draw_all, nothing_serious, opened

from coeval.core.plain import escape_line


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    made = Lab(tmp_path_factory.mktemp("files"), [model("ann"), model("ben", skill=0.3)], [task(total=5)])
    assert made.run().exit_code == 0
    return made


@pytest.mark.process
def test_every_picture_is_a_file_for_screens_and_one_for_print(
    lab: Lab, tmp_path: Path, coeval: Command
) -> None:
    ended = coeval("analyze", "--run", lab.path, "--figures", tmp_path / "figures")
    assert (ended.code, ended.out) == (0, "")
    drawings, prints = (
        {p.stem: p for p in (tmp_path / "figures").glob(f"*.{kind}")} for kind in ("svg", "png")
    )
    assert drawings.keys() == prints.keys() >= {"forest", "matrix", "dots"}
    assert f"{len(prints)} pictures as PNG and SVG" in ended.err
    for name, drawing in drawings.items():
        root = ElementTree.fromstring(drawing.read_text())  # noqa: S314  our own
        wide, high = struct.unpack(">II", prints[name].read_bytes()[16:24])
        assert wide == pytest.approx(float(root.attrib["width"]) * 300 / 72, abs=2)
        assert (wide > 1_000, high > 100) == (True, True)
    assert all(f">{name}<" in drawings["forest"].read_text() for name in ("ann", "ben"))


@pytest.mark.process
def test_what_is_written_needs_a_folder(lab: Lab, tmp_path: Path, coeval: Command) -> None:
    ended = coeval("analyze", "--run", lab.path, "--format", "excel")
    assert (ended.code, ended.out) == (1, "")
    assert "add --out DIR" in ended.err
    taken = tmp_path / "file"
    taken.touch()
    for flag in ("--out", "--figures"):
        words = ["analyze", "--run", lab.path, "--format", "excel", "--out", tmp_path, flag, taken]
        assert "is a file; name a folder" in coeval(*words).err


# Training curves: pictures for print, and a page that leads from a point to the items behind it.

TOOL = Path(__file__).parents[2] / "tools" / "plot_training_curves.py"
EVIL_RUN = "<script>a()</script>"


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


@pytest.mark.system
def test_each_task_has_its_pictures_and_all_have_one(runs: Path, tmp_path: Path) -> None:
    out = plotted(runs, tmp_path / "plots")
    names = {"ifeval", "ifbench", "overall", "all_tasks"}
    assert {path.name for path in out.iterdir()} == {
        "curves.html", *(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
    }  # fmt: skip
    assert (out / "ifeval.png").read_bytes().startswith(b"\x89PNG")
    assert int.from_bytes((out / "ifeval.png").read_bytes()[16:20]) > 2_000, "print quality"
    svg = (out / "ifeval.svg").read_text()
    assert "prompt_level_strict_accuracy" in svg
    assert "step: 200" in svg, "what a point is, for those who cannot see it"


@pytest.mark.process
@pytest.mark.parametrize(("bars", "shown"), [("ci95", True), ("sem", True), ("std", True), ("none", False)])
def test_error_bars_are_those_that_are_asked_for(runs: Path, tmp_path: Path, bars: str, shown: bool) -> None:
    out = plotted(runs, tmp_path, "--show-errorbar", bars, "--tasks", "ifeval")
    assert ("mark-area role-mark" in (out / "ifeval.svg").read_text()) is shown
    assert "mark-rule role-mark" not in (out / "ifeval.svg").read_text(), "a band alone"
    aggregate = json.loads((runs / "a" / "step_100" / "ifeval" / "summary_agg.json").read_text())
    low = {
        "ci95": aggregate["ci95"][0],
        "sem": aggregate["mean"] - aggregate["sem"],
        "std": aggregate["mean"] - aggregate["std"],
    }
    with chromium() as browser:
        page = opened(browser, out / "curves.html").page
        row = page.locator("table", has_text="step 100").last.locator("tr", has_text="step 100").inner_text()
    assert (f"[{100 * low[bars]:.1f}" in row) if shown else "[" not in row.split("\t")[4]


@pytest.mark.process
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
        page.locator("article.answer h4").first.wait_for()
        assert page.locator("article.answer h4").first.inner_text() == "step 200"
        assert page.evaluate("document.documentElement.scrollWidth") <= 1200
        nothing_serious(page)
        assert (found.complaints, found.requests) == ([], [])
        narrow = opened(browser, out / "curves.html", viewport={"width": 390, "height": 800}).page
        draw_all(narrow)
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.system
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
    places = set(re.findall(r'aria-label="step: ([^;"]+); [^"]*run: ([ab])', svg))
    assert len(places) == 4, "each run has a mark at each step"
    assert "role-legend" in svg
    page = (tmp_path / "curves.html").read_text()
    assert "a · step 100" in page
    assert "b · step 100" in page
    assert "step 200" not in page


@pytest.mark.process
def test_lines_that_coincide_are_told_apart_and_the_best_checkpoints_stay_on_the_page(tmp_path: Path) -> None:
    """Five runs with long names, three of them alike; tables of other tasks may be moved to and fro."""
    names = [f"grpo-qwen3-4b-lr1e-6-seed-{number}" for number in range(5)]
    for number, name in enumerate(names):
        shape = drawn({0: 0.3, 100: 0.5, 200: 0.7, 300: 0.72}, 40, 1, seed=max(number, 2))
        write_training(tmp_path / name, shape)
        write_training(tmp_path / name, shape, task="ifbench")
    words = [word for name in names for word in ("--runs", f"{name}={name}")]
    assert coeval("sweep", "plot", *words, "--plot-dir", "plots", cwd=tmp_path) == 0
    svg = ElementTree.parse(tmp_path / "plots" / "overall.svg").getroot()  # noqa: S314  our own
    of_runs: dict[str, set[tuple[str | None, str]]] = {}
    for mark in svg.iter("{http://www.w3.org/2000/svg}path"):
        told = mark.attrib.get("aria-label", "")
        if run := next((name for name in names if f"run: {name}" in told), None):
            outline = mark.attrib["d"] if mark.attrib.get("aria-roledescription") == "point" else ""
            of_runs.setdefault(run, set()).add((mark.attrib.get("stroke-dasharray"), outline))
    alike = [frozenset(of_runs[name]) for name in names[:3]]
    assert len({frozenset(dash for dash, _ in looks) for looks in alike}) == 3
    assert len({frozenset(outline for _, outline in looks) for looks in alike}) == 3
    legend = "".join(text for text in svg.itertext())
    assert all(name in legend for name in names)
    with chromium() as browser:
        for width in (1024, 1280):
            page = opened(
                browser, tmp_path / "plots" / "curves.html", viewport={"width": width, "height": 800}
            ).page
            draw_all(page)
            table = page.locator("#ship table").first
            spare = "table => table.parentElement.clientWidth - table.scrollWidth"
            assert table.evaluate(spare) >= 0
            assert table.locator("th").all_inner_texts()[-2:] == ["Items", "Checkpoints"]


@pytest.mark.process
def test_what_cannot_be_drawn_is_told(runs: Path, tmp_path: Path) -> None:
    for words, reported in (
        (["--runs", "nowhere=nowhere"], "there is no folder nowhere"),
        (["--runs", "a"], "give a name and a folder"),
        (["--runs", "a=a", "--name-pattern", "c=step_{step}"], "there is no --runs c="),
        (["--runs", "a=a", "--name-pattern", "a=step"], "give a run and a pattern"),
        (["--runs", "a=a", "--steps", "x"], "steps are whole numbers"),
    ):
        process = WarmProcess("sweep", "plot", *words, "--plot-dir", str(tmp_path), module="coeval", cwd=runs)
        _, said = process.communicate()
        assert process.wait() == 1
        assert reported in said


@pytest.mark.process
def test_odd_names_of_runs_are_drawn(tmp_path: Path) -> None:
    """Ends of lines within expressions, bytes that are no text, names that every object has."""
    odd = [EVIL_RUN, "a\u2028b\u2029c", "a\udcffb", "toString", "__proto__", "long-" * 20]
    for number in range(len(odd)):
        shape = drawn({0: 0.3, 1: 0.6}, 12, 2, seed=number)
        write_training(tmp_path / f"{number}", shape, model=EVIL_RUN)
    named = [word for number, name in enumerate(odd) for word in ("--runs", f"{name}={number}")]
    assert coeval("sweep", "plot", *named, "--plot-dir", "plots", cwd=tmp_path) == 0
    with chromium() as browser:
        found = opened(browser, tmp_path / "plots" / "curves.html")
        draw_all(found.page)
        labels = found.page.locator("svg .mark-text text").all_text_contents()
        assert {escape_line(name) for name in odd[:-1]} <= {label.rstrip("\u200d") for label in labels}
        assert found.complaints == []
