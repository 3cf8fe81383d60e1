"""Sentences on a narrow terminal: folded between words; paths, names and commands stay in one piece."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli.terminal import on_terminal
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from coeval.cli.streams import folded, folded_name

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
    assert folded(text, 10) == lines


@given(st.text(alphabet="abc é日`-/.\n", max_size=80), st.integers(1, 30))
def test_nothing_is_lost_and_only_single_pieces_run_over(text: str, width: int) -> None:
    lines = folded(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_len(line) <= width or " " not in line.strip() or "`" in line for line in lines)


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
    assert folded_name(name, 9) == shown
