"""`coeval ingest`: what was typed amiss is told in the words that were typed, and Ctrl-C writes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.invoked import Command

from coeval.api import load_config

MOODS = "text,mood,stars\nGreat!,good,5\nAwful.,bad,1\n"
NEW = ("--new", "moods.yaml")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--label", "mod"), "--label: there is no column mod; did you mean mood?\n"),
        (("--attribute", "of=mod"), "--attribute: there is no column mod; did you mean mood?\n"),
        (("--choices", "text", "--label", "mod"), "--label: there is no column mod; did you mean mood?\n"),
        (("--where", "stars=>4"), "'stars=>4' has two signs; is >= meant?"),
        (("--where", "stars = =4"), "'stars = =4' has two signs. There are =, !=, <"),
        (("--where", "stars > good"), "its `stars` is 5, and what it is held against (good) is no number"),
        (("--prompt", "text", "--prompt", "mood"), "--prompt is given 2 times (text, mood), and takes one"),
        (("--label", "mood", "--label", "text"), "--label is given 2 times (mood, text), and takes one"),
    ],
)
def test_what_was_typed_amiss(flags: tuple[str, ...], told: str, here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS)
    ended = coeval("ingest", "moods.csv", *flags, *NEW)
    assert (ended.code, told in ended.err) == (1, True), ended.err
    assert not (here / "moods.yaml").exists()


def test_a_value_in_quotes_may_begin_with_a_sign(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS.replace("good", ">4"))
    ended = coeval("ingest", "moods.csv", "--where", "mood = '>4'", *NEW)
    assert "1 item of 2 rows" in ended.out, ended.err


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("loop", "loop is a link to loop, where no file is"),
        (
            "https://example.org/a.csv",
            "https://example.org/a.csv is an address, which is not fetched: download",
        ),
    ],
)
def test_a_source_that_leads_nowhere(source: str, told: str, here: Path, coeval: Command) -> None:
    (here / "loop").symlink_to("loop")
    ended = coeval("ingest", source, *NEW)
    assert (ended.code, told in ended.err) == (1, True), ended.err
    assert "did you mean" not in ended.err


@pytest.mark.parametrize("mark", ["sep=;\n", '"sep=;"\r\n', "\ufeffsep=;\n"])
def test_the_line_of_excel_that_names_the_delimiter_is_obeyed(mark: str, here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(mark + 'text;mood\n"Great, really";good\n')
    ended = coeval("ingest", "moods.csv", "--label", "mood", *NEW)
    assert ended.code == 0, ended.err
    assert "1 prompt: Great, really" in ended.out


def test_a_table_that_is_gone_is_told_in_whole_sentences(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS)
    assert coeval("ingest", "moods.csv", "--label", "mood", *NEW).code == 0
    assert coeval("run", "--config", "moods.yaml").code == 0
    (here / "moods.csv").rename(here / "moods.jsonl")
    again = coeval("run", "--config", "moods.yaml", "--continue")
    assert again.code == 0, again.err
    assert "are used: there is no file moods.csv; did you mean moods.jsonl?" in again.err.replace("\n", " ")
    assert load_config(here / "moods.yaml").tasks[0].items is not None


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal elsewhere")
def test_ctrl_c_in_the_middle_says_that_nothing_was_written(here: Path) -> None:
    (here / "moods.csv").write_text("text,mood\n" + "Great!,good\n" * 1_500_000)
    command = [sys.executable, "-m", "coeval", "ingest", "moods.csv", "--label", "mood", *NEW]
    with subprocess.Popen(
        command, cwd=here, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("moods.csv: prompt: text")
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().splitlines() == ["Interrupted; nothing was written."]
        assert process.wait(60) == 130
    assert not (here / "moods.yaml").exists()
