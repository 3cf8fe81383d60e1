"""What a run shows while it lasts: on terminals of several widths, and in a pipe."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.terminal import on_terminal
from pipeline.experiments import Lab, model, task
from rich.console import Console

from coeval.cli.views.progress_view import NARROWEST_BAR, WIDEST_BAR, Terminal, bars
from coeval.engine.progress import Board, Calls, figures

BAR = re.compile("[━╸╺]+")
COEVAL = [sys.executable, "-m", "coeval"]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    models = [model("ann", latency_s=0.05), model("ben", latency_s=0.05)]
    return Lab(tmp_path, models, [task(total=30), task("poem", total=30, evaluation_mode="per_factor")])


def busy_board() -> Board:
    board = Board(["data_generation", "response_collection", "evaluation"], {}, clock=lambda: 0.0)
    for name, owed in (("data_generation", 12_345), ("response_collection", 61_725), ("evaluation", 308_625)):
        board.expect(name, recorded=0, owed=owed, calls=Calls(owed, owed))
    board.expect("data_generation", recorded=12_345, owed=0, calls=Calls(0, 0))
    for _ in range(1_234):
        board.ended("evaluation", 2, None, "server")
        board.ended("evaluation", 2, None, None)
    board.cut_off("evaluation", 4_321)
    return board


def drawn(board: Board, width: int, height: int = 50) -> list[str]:
    counts = list(board.phases.values())
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(bars(counts, [figures(board, count) for count in counts], width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_no_figure_is_ever_cut_and_the_bar_shrinks_first() -> None:
    board = busy_board()
    bar_at: dict[int, int] = {}
    before: set[str] = set()
    for width in range(26, 201):
        lines = drawn(board, width)
        assert max(map(len, lines)) <= width
        assert not re.search(r"\d…", "\n".join(lines)), "names alone are cut"
        shown = {word for word in lines[-1].split() if word[0].isdigit()}
        assert "1,234/308,625" in shown
        assert before <= shown, "a wider terminal shows no less"
        before = shown
        if bar := BAR.search(lines[1]):
            bar_at[width] = len(bar[0])
            assert before == {"1,234/308,625", "4,936/308,625", "1,234", "4,321", "0"}
    assert list(bar_at) == list(range(min(bar_at), 201))
    assert list(bar_at.values()) == sorted(bar_at.values())
    assert (min(bar_at.values()), max(bar_at.values())) == (NARROWEST_BAR, WIDEST_BAR)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_key_that_the_terminal_echoes_leaves_no_headings_behind(width: int) -> None:
    console = Console(width=width, height=50, force_terminal=True, color_system=None, file=io.StringIO())
    console.file.isatty = lambda: True  # type: ignore[method-assign]
    with Terminal(console) as terminal:
        terminal.begin(busy_board())
    assert isinstance(console.file, io.StringIO)
    lines = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", console.file.getvalue()).splitlines()
    assert any(line.startswith("evaluation") for line in lines)
    assert max(map(len, lines)) <= width - len("^C")


def test_of_more_phases_than_lines_those_in_progress_are_shown() -> None:
    board = Board([f"task {n}" for n in range(100)], {}, clock=lambda: 0.0)
    for n, name in enumerate(board.phases):
        board.expect(name, recorded=0 if n > 90 else 5, owed=5 if n > 90 else 0, calls=Calls(5, 5))
    lines = drawn(board, 80, 24)
    assert len(lines) <= 24
    assert [line.split()[1] for line in lines[1:-1]] == [str(n) for n in range(91, 100)]
    assert lines[-1] == "… 91 more"


@pytest.mark.parametrize("columns", [64, 80, 200])
def test_bars_on_a_terminal(lab: Lab, columns: int) -> None:
    seen = on_terminal([*COEVAL, "run", "--config", lab.file], columns, cwd=lab.folder)
    assert seen.code == 0
    rows = [line for line in seen.written if BAR.search(line) and line.startswith("evaluation")]
    assert rows, "bars were drawn"
    totals = {tuple(re.findall(r"/(\d+)", row)) for row in rows}
    assert totals == {("480", "720")}, "the totals stand from the start: records, and calls"
    assert not any("…" in line for line in seen.written)
    assert max(len(line) for line in seen.written if not line.startswith(("Artifacts", "/"))) <= columns
    assert any(line.split() == ["records", "calls", "failed", "tokens"] for line in seen.written)


def test_only_the_table_goes_to_standard_output(lab: Lab) -> None:
    seen = on_terminal([*COEVAL, "run", "--config", lab.file], 80, cwd=lab.folder, out_piped=True)
    assert seen.code == 0
    assert any(BAR.search(line) for line in seen.written), "bars go to the terminal all the same"
    assert any(line.startswith("Artifacts:") for line in seen.screen)
    table = seen.piped.splitlines()
    assert table[0].startswith("simulated models:")
    assert table[1].split() == ["Scores"]
    assert not any(re.search(r"\x1b|\r|records|probing|Artifacts|━", line) for line in table)


def test_without_a_terminal_progress_is_plain_lines(lab: Lab) -> None:
    done = subprocess.run(
        [*COEVAL, "run", "--config", lab.file],
        capture_output=True,
        text=True,
        check=False,
        cwd=lab.folder,
        env={**os.environ, "COLUMNS": "40", "FORCE_COLOR": ""},
    )
    assert done.returncode == 0
    assert not re.search(r"[\x1b\r]", done.stdout + done.stderr)
    last = [line for line in done.stderr.splitlines() if " evaluation: " in line][-1]
    assert re.search(r"evaluation: 480/480 records, \d+/720 calls, 0 failed, \S+ tokens", last)


def test_a_colour_that_is_forced_makes_no_terminal_of_a_pipe(lab: Lab) -> None:
    done = subprocess.run(
        [*COEVAL, "run", "--config", lab.file],
        capture_output=True,
        text=True,
        check=False,
        cwd=lab.folder,
        env={**os.environ, "FORCE_COLOR": "1"},
    )
    assert done.returncode == 0
    assert not re.search(r"\x1b\[\??\d*[A-LhlK]", done.stderr), "the cursor stays where it is"


def test_totals_are_planned_before_phases_1_and_2_have_answered(lab: Lab) -> None:
    """The teachers are slow to propose; meanwhile the terminal knows all records, and calls as a range."""
    lab.models = [model("ann", latency_s=0.5), model("ben", latency_s=0.5)]
    lab.tasks = [task(total=5, rubric="auto", evaluation_mode="per_factor")]
    seen = on_terminal([*COEVAL, "run", "--config", lab.file], 120, cwd=lab.folder)
    rows = [line.split() for line in seen.written if line.startswith("evaluation ") and "/" in line]
    assert {row[2].partition("/")[2] for row in rows} == {"40"}
    calls = [row[3].partition("/")[2] for row in rows]
    low, _, high = calls[0].partition("–")
    assert int(low) == 40 < int(high.replace(",", ""))
    assert int(low) <= int(calls[-1]) <= int(high.replace(",", "")), "then the number is known"
