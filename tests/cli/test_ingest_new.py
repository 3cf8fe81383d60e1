"""`coeval ingest --new`: the experiment file that it writes runs as it is, and takes what was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import split

import pytest
from cli.invoked import Command

from coeval.api import load_config
from coeval.pipeline.config.items_schema import Items

MOODS = "uid,text,mood\n1,Great!,good\n2,Awful.,bad\n3,It broke,bad\n"


def items_of(file: Path) -> Items:
    items = load_config(file).tasks[0].items
    assert items is not None
    return items


def typed(text: str, begin: str) -> list[str]:
    """The words of the command that a message ends with, as a shell parts them."""
    [line] = [line for line in text.splitlines() if begin in line]
    return split(line.partition(begin)[2])


def test_rows_that_were_left_out_are_left_out_by_the_file_too(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS + "4,no label nor the cell\n")
    flags = ("--label", "mood", "--skip-bad", "--license", "CC0-1.0", "--task", "sentiment")
    ended = coeval("ingest", "moods.csv", *flags, "--new", "moods.yaml")
    assert ended.code == 0, ended.err
    assert items_of(here / "moods.yaml").skip_bad is True
    assert load_config(here / "moods.yaml").tasks[0].name == "sentiment"
    ran = coeval("run", "--config", "moods.yaml")
    assert ran.code == 0, ran.err
    assert "moods.csv: 1 row left out that make no item" in ran.err
    assert "moods.csv:5: it has 2 cells, and the header 3" in ran.err
    [origin] = json.loads((here / "runs" / "moods" / "sources.json").read_text())["sentiment"]["items"]
    assert (origin["license"], origin["rows"], origin["items"]) == ("CC0-1.0", 4, 3)
    again = coeval("run", "--config", "moods.yaml", "--continue")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--teacher", "ann"), "--teacher chooses among the benchmark teachers of an experiment"),
        (("--append",), "--append and --replace are for items that stand in a run"),
        (("--replace",), "--append and --replace are for items that stand in a run"),
        (("--task", "my task"), "--task 'my task' cannot be the name of a task; my-task can"),
    ],
)
def test_what_a_new_file_has_no_use_for_is_refused(
    flags: tuple[str, ...], told: str, here: Path, coeval: Command
) -> None:
    (here / "moods.csv").write_text(MOODS)
    ended = coeval("ingest", "moods.csv", "--label", "mood", "--new", "moods.yaml", *flags)
    assert (ended.code, told in ended.err) == (1, True), ended.err
    assert not (here / "moods.yaml").exists()


def test_a_file_that_is_there_is_not_proposed_for_what_it_cannot_take(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS)
    command = ("ingest", "moods.csv", "--label", "mood", "--new", "moods.yaml")
    assert coeval(*command).code == 0
    again = coeval(*command)
    assert again.code == 1
    assert "moods.yaml is there already; name another file, or move this one away" in again.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("text,mood\nCafé crème,good\nCafé noir,bad\n".encode("latin-1"), "moods.csv:2: byte 4 is not UTF-8"),
        (b'text,mood\n"open,c\nplain,c\n', "moods.csv:2: a quote is opened here that is never closed"),
        (b"text,mood\nx\n", "moods.csv:2: it has 1 cell, and the header 2"),
    ],
)
def test_a_table_without_a_readable_row_has_the_columns_of_its_header(
    content: bytes, told: str, here: Path, coeval: Command
) -> None:
    (here / "moods.csv").write_bytes(content)
    ended = coeval("ingest", "moods.csv", "--prompt", "text", "--label", "mood", "--new", "moods.yaml")
    assert (ended.code, told in ended.err) == (1, True), ended.err
    assert "no column" not in ended.err


def test_json_without_a_readable_row_is_told_for_what_it_is(here: Path, coeval: Command) -> None:
    (here / "moods.jsonl").write_bytes('{"text": "Café"}\n{"text": "crème"}\n'.encode("latin-1"))
    ended = coeval("ingest", "moods.jsonl", "--prompt", "text", "--new", "moods.yaml")
    assert (ended.code, "moods.jsonl:1: byte 14 is not UTF-8" in ended.err) == (1, True), ended.err


def test_names_with_blanks_can_be_typed_as_they_are_told(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS)
    assert coeval("ingest", "moods.csv", "--label", "mood", "--new", "my moods.yaml").code == 0
    text = (here / "my moods.yaml").read_text().replace("./runs", "my runs")
    text = text.replace("skill: 0.85", "skill: 0.85, failure_rate: 1.0") + "  probe_mode: disable\n"
    (here / "my moods.yaml").write_text(text)
    ended = coeval("run", "--config", "my moods.yaml")
    assert ended.code == 3, ended.err
    assert typed(ended.err, "Fill the gaps with: coeval ") == [
        "run", "--config", "my moods.yaml", "--continue",
    ]  # fmt: skip
    status = typed(ended.err, "What failed, and why: coeval ")
    assert status == ["status", "--run", "my runs/my-moods"]
    assert coeval(*status).code in (0, 3)
