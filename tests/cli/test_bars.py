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
from cli.warm_process import WarmProcess
from hypothesis import given
from hypothesis import strategies as st
from pipeline.experiments import Lab, model, quiz, task
from rich.cells import cell_len
from rich.console import Console

from coeval.cli import streams
from coeval.cli.streams import warn_in_lines
from coeval.cli.views.progress_view import NARROWEST_BAR, WIDEST_BAR, Terminal, draw_bars
from coeval.core.folding import wrap_lines, wrap_name
from coeval.engine.progress import Board, Calls, phase_figures

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
        board.count_outcome("evaluation", 2, None, "server")
        board.count_outcome("evaluation", 2, None, None)
    board.count_cut_off("evaluation", 4_321)
    return board


def drawn(board: Board, width: int, height: int = 50) -> list[str]:
    counts = list(board.phases.values())
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(draw_bars(counts, [phase_figures(board, count) for count in counts], width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.process
def test_only_the_table_goes_to_standard_output(lab: Lab) -> None:
    seen = on_terminal([*COEVAL, "run", "--config", lab.file], 80, cwd=lab.folder, out_piped=True)
    assert seen.code == 0
    assert any(BAR.search(line) for line in seen.written), "bars go to the terminal all the same"
    assert any(line.startswith("Artifacts:") for line in seen.screen)
    table = seen.piped.splitlines()
    assert table[0].startswith("simulated models:")
    assert "Scores" in table
    assert not any(re.search(r"\x1b|\r|records|probing|Artifacts|━", line) for line in table)


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.system
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


# Every view of a run at 60, 80 and 200 columns, and through a pipe: no number, name, path or id is cut.
NAMES = ("a-model-with-quite-a-long-name-1", "another-model-with-a-long-name-2")
TASKS = ("explain_a_concept_in_few_words", "which_team_is_to_be_asked_first")
VIEWS = {
    "status": ("status",),
    "results": ("results",),
    "by judge": ("results", "--by", "judge"),
    "by attribute": ("results", "--by", "attribute"),
    "show": ("show", "--worst", "2"),
    "repair": ("repair", "--stats", "--dry-run", "--breakdown"),
}


@pytest.fixture(scope="module")
def long_named(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run with long names, a label task, failures, and a line that is not a record."""
    models = [model(NAMES[0]), model(NAMES[1], failure_rate=0.2)]
    made = Lab(tmp_path_factory.mktemp("lab"), models, [task(TASKS[0]), quiz(TASKS[1])])
    made.settings = {"probe_mode": "disable", "generation_retries": 0}
    made.run()
    path = next((made.path / "phase5_evaluations").glob("*.jsonl"))
    path.write_text(path.read_text() + '{"id": "x"}\n')
    return made


def view(name: str) -> list[str]:
    command, *flags = VIEWS[name]
    return [*COEVAL, command, "--run", "runs/exp", *flags]


@pytest.mark.process
@pytest.mark.parametrize("name", VIEWS)
def test_a_pipe_gets_every_name_whole_whatever_columns_says(long_named: Lab, name: str) -> None:
    process = WarmProcess(*view(name)[3:], cwd=long_named.folder, env={"COLUMNS": "40"})
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert not re.search(r"[\x1b\r]", out + err)
    assert not re.search(r"[ \t]$", out, re.MULTILINE), "no blanks at the end of a line"
    wide = on_terminal(view(name), 400, cwd=long_named.folder, out_piped=True)
    assert out == wide.piped, "what the pipe gets does not depend on the terminal beside it"
    files = {f"{path.parent.name}/{path.name}" for path in long_named.path.glob("phase*/*.jsonl")}
    assert NAMES[1] in out
    assert name != "repair" or files <= set(out.split())


@pytest.mark.process
@pytest.mark.parametrize(
    "columns", [60, *(pytest.param(wide, marks=pytest.mark.system) for wide in (80, 200))]
)
@pytest.mark.parametrize("name", VIEWS)
def test_a_terminal_cuts_nothing_and_is_not_overrun(long_named: Lab, name: str, columns: int) -> None:
    seen = on_terminal(view(name), columns, cwd=long_named.folder)
    assert seen.code == 0
    copied = [line for line in seen.screen if re.search(r"coeval |\.jsonl|__0", line)]  # in one piece
    assert max(len(line) for line in seen.screen if line not in copied) <= columns
    piped = WarmProcess(*view(name)[3:], cwd=long_named.folder).communicate().out
    figures = re.compile(r"(?<![\w.-])[\d,.]+(?![\w.-])")
    assert "…" not in "\n".join(seen.screen) or "…" in piped
    assert set(figures.findall(piped)) <= set(figures.findall("\n".join(seen.screen)))


@pytest.mark.process
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_dry_run_fits_and_says_both_records_and_calls(long_named: Lab, columns: int) -> None:
    words = [*COEVAL, "run", "--config", "exp.yaml", "--dry-run", "--overwrite"]
    seen = on_terminal(words, columns, cwd=long_named.folder)
    assert seen.code == 0
    assert max(map(len, seen.screen)) <= columns
    text = "\n".join(seen.screen)
    assert "…" not in text
    assert all(name in text for name in (*NAMES, *TASKS, "response_collection"))
    assert re.search(r"^phase +mode +records +missing +calls$", text, re.MULTILINE)
    assert re.search(r"^evaluation +New +36 +36 +24$", text, re.MULTILINE), "labels are records and no calls"


# Sentences on a narrow terminal: folded between words; paths, names and commands stay in one piece.

PATH = "/a/folder/with-a/rather_long.name/that-does-not-fit/into-one-line-of-forty"
COMMAND = "coeval run --config my-file.yaml --continue --only-models a,b"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three four", ["one two", "three four"]),
        (f"see {PATH}; then go on", ["see", f"{PATH};", "then go on"]),
        (f"Fill it with: {COMMAND}", ["Fill it", "with:", COMMAND]),
        ("do `coeval datasets fetch x y z` now", ["do", "`coeval datasets fetch x y z`", "now"]),
        ("  indented words go on so", ["  indented", "  words go", "  on so"]),
        ("short\n\nlines stay", ["short", "", "lines stay"]),
    ],
)
def test_what_stays_in_one_piece(text: str, lines: list[str]) -> None:
    assert wrap_lines(text, 10) == lines


@given(st.text(alphabet="abc é日`-/.\n", max_size=80), st.integers(1, 30))
def test_nothing_is_lost_and_only_single_pieces_run_over(text: str, width: int) -> None:
    lines = wrap_lines(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_len(line) <= width or " " not in line.strip() or "`" in line for line in lines)


@pytest.mark.process
@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [["run", "--config"], ["status", "--run"], ["show", "--run"]])
def test_an_error_breaks_no_word_and_no_path(tmp_path: Path, columns: int, words: list[str]) -> None:
    name = "experiments-of-last-week/a-rather-long-name/second.yaml"
    command = [sys.executable, "-m", "coeval", *words, name]
    seen = on_terminal(command, columns, cwd=tmp_path)
    assert seen.code == 1
    assert max(map(len, seen.screen)) <= columns, "the terminal has nothing to break"
    piped = " ".join(on_terminal(command, 4000, cwd=tmp_path).screen).split()
    assert [word for line in seen.screen for word in line.split()] == piped
    assert any(name in word for word in piped)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("short", "short"),
        ("a-model-with-a-long-name", "a-model-\nwith-a-\nlong-name"),
        ("which_team (labels)", "which_\nteam\n(labels)"),
        ("unbreakableword", "unbreakableword"),
    ],
)
def test_a_name_in_a_narrow_column_ends_its_lines_where_words_end(name: str, shown: str) -> None:
    assert wrap_name(name, 9) == shown


# Sentences on a console that others had a hand in.


def test_further_lines_of_a_warning_stand_below_it_and_begin_no_line_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "step_10: the server ended.\nIts last lines (out/server.log):\n  \x1b[31mred\nwarning: owned"
    warn_in_lines(streams.messages(), said)
    assert capsys.readouterr().err.splitlines() == [
        "warning: step_10: the server ended.",
        "  Its last lines (out/server.log):",
        r"    \x1b[31mred",
        "  warning: owned",
    ]
