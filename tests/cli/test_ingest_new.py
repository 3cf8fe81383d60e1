"""`coeval ingest --new`: the experiment file that it writes runs as it is, and takes what was asked for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest
from cli.invoked import Command

from coeval.api import load_config
from coeval.pipeline.config.items_section import Items

MOODS = "uid,text,mood\n1,Great!,good\n2,Awful.,bad\n3,It broke,bad\n"


def items_of(file: Path) -> Items:
    items = load_config(file).tasks[0].items
    assert items is not None
    return items


def typed(text: str, begin: str) -> list[str]:
    """The words of the command that a message ends with, as a shell parts them."""
    [line] = [line for line in text.splitlines() if begin in line]
    return split(line.partition(begin)[2])


@pytest.mark.process
def test_rows_that_were_left_out_are_left_out_by_the_file_too(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS + "4,no label nor the cell\n")
    flags = ("--label", "mood", "--skip-bad", "--license", "CC0-1.0", "--task", "sentiment")
    ended = coeval("ingest", "moods.csv", *flags, "--new", "moods.yaml")
    assert ended.code == 0, ended.err
    assert items_of(here / "moods.yaml").skip_bad is True
    assert load_config(here / "moods.yaml").tasks[0].name == "sentiment"
    ran = coeval("run", "--config", "moods.yaml")
    assert ran.code == 0, ran.err
    assert "moods.csv: 1 row without an item left out" in ran.err
    assert "moods.csv:5: it has 2 cells, and the header 3" in ran.err
    [origin] = json.loads((here / "runs" / "moods" / "sources.json").read_text())["sentiment"]["items"]
    assert (origin["license"], origin["rows"], origin["items"]) == ("CC0-1.0", 4, 3)
    again = coeval("run", "--config", "moods.yaml", "--continue")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (("--teacher", "ann"), "--teacher chooses among the benchmark teachers of an experiment"),
        (("--replace",), "--replace is for existing items of a run"),
        (("--run", "runs/m"), "--run, --new exclude each other"),
        (("--task", "my task"), "--task 'my task' cannot be the name of a task; my-task can"),
    ],
)
def test_what_a_new_file_has_no_use_for_is_refused(
    flags: tuple[str, ...], reported: str, here: Path, coeval: Command
) -> None:
    (here / "moods.csv").write_text(MOODS)
    ended = coeval("ingest", "moods.csv", "--label", "mood", "--new", "moods.yaml", *flags)
    assert (ended.code, reported in ended.err) == (1, True), ended.err
    assert not (here / "moods.yaml").exists()


def test_a_file_that_is_there_is_not_proposed_for_what_it_cannot_take(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS)
    command = ("ingest", "moods.csv", "--label", "mood", "--new", "moods.yaml")
    assert coeval(*command).code == 0
    again = coeval(*command)
    assert again.code == 1
    assert "moods.yaml already exists; name another file, or move it away" in again.err


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("text,mood\nCafé crème,good\nCafé noir,bad\n".encode("latin-1"), "moods.csv:2: byte 4 is not UTF-8"),
        (b'text,mood\n"open,c\nplain,c\n', "moods.csv:2: a quote is opened here that is never closed"),
        (b"text,mood\nx\n", "moods.csv:2: it has 1 cell, and the header 2"),
    ],
)
def test_a_table_without_a_readable_row_has_the_columns_of_its_header(
    content: bytes, reported: str, here: Path, coeval: Command
) -> None:
    (here / "moods.csv").write_bytes(content)
    ended = coeval("ingest", "moods.csv", "--prompt", "text", "--label", "mood", "--new", "moods.yaml")
    assert (ended.code, reported in ended.err) == (1, True), ended.err
    assert "no column" not in ended.err


@pytest.mark.process
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


CLASSES = {
    "text": {"dtype": "string", "_type": "Value"},
    "mood": {"names": ["bad", "good"], "_type": "ClassLabel"},
}


@pytest.mark.process
def test_class_labels_of_hugging_face_are_their_names(here: Path, coeval: Command) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.Table.from_pylist(
        [{"text": text, "mood": mood} for text, mood in (("Great!", 1), ("Awful.", 0), ("Hidden.", -1))]
    )
    about = json.dumps({"info": {"features": CLASSES}})
    (here / "moods").mkdir()
    parquet.write_table(
        table.replace_schema_metadata({"huggingface": about}), here / "moods" / "test.parquet"
    )
    ended = coeval("ingest", "moods", "--prompt", "text", "--label", "mood", "--new", "m.yaml")
    assert ended.code == 0, ended.err
    assert "1 item without a value of mood" in ended.err
    assert load_config(here / "m.yaml").tasks[0].output_description == "One of: bad, good"
    assert coeval("run", "--config", "m.yaml").code == 0
    [path] = (here / "runs" / "m" / "phase3_datapoints").glob("*.jsonl")
    labels = [
        json.loads(line)["sampled_target_attributes"].get("mood") for line in path.read_text().splitlines()
    ]
    assert labels == ["good", "bad", None]


def test_a_class_label_names_the_right_choice_by_its_place(here: Path, coeval: Command) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"question": "Which blood group?", "choices": ["B", "A", "AB"], "answer": 0}]
    about = {"info": {"features": {"answer": {"names": ["A", "B", "C"], "_type": "ClassLabel"}}}}
    table = pyarrow.Table.from_pylist(rows).replace_schema_metadata({"huggingface": json.dumps(about)})
    parquet.write_table(table, here / "exam.parquet")
    ended = coeval(
        "ingest", "exam.parquet", "--choices", "choices", "--label", "answer", "--new", "exam.yaml"
    )
    assert ended.code == 0, ended.err
    assert "reference: A. B" in ended.out


def test_all_labels_are_named_and_two_spellings_are_one(here: Path, coeval: Command) -> None:
    labels = [f"intent {n}" for n in range(40)]
    rows = [*labels, "Intent 1", "intent_2"]
    (here / "intents.csv").write_text("text,intent\n" + "".join(f"Text of {one},{one}\n" for one in rows))
    ended = coeval("ingest", "intents.csv", "--label", "intent", "--new", "intents.yaml")
    assert ended.code == 0, ended.err
    reported = load_config(here / "intents.yaml").tasks[0].output_description
    named = reported.removeprefix("One of: ").split(", ")
    assert len(named) == 40
    assert {one.lower() for one in named} == {*labels}


def test_hundreds_of_labels_are_not_all_named_and_that_is_told(here: Path, coeval: Command) -> None:
    rows = "".join(f"Text {n},intent {n}\n" for n in range(400))
    (here / "intents.csv").write_text(f"text,intent\n{rows}")
    ended = coeval("ingest", "intents.csv", "--label", "intent", "--new", "intents.yaml")
    assert ended.code == 0, ended.err
    assert "intent has 400 values, too many to name in a prompt: describe them for students" in ended.err
    assert "one of 400, such as: " in load_config(here / "intents.yaml").tasks[0].output_description


@pytest.mark.parametrize(
    ("table", "ids", "rejected"),
    [
        (MOODS, "uid", ""),
        (MOODS.replace("uid", "review_id"), "review_id", ""),
        (MOODS.replace("3,It", "2,It"), None, "uid has 2 twice (line "),
        (MOODS.replace("3,It", ",It"), None, "uid is empty or not an id (line "),
        (MOODS.replace("3,It", "1,It").replace("uid", "ticket-id"), None, "ticket-id has 1 twice (line "),
        (MOODS.replace("uid", "grid"), None, ""),
    ],
)
def test_a_column_of_ids_is_found(
    table: str, ids: str | None, rejected: str, here: Path, coeval: Command
) -> None:
    (here / "moods.csv").write_text(table)
    ended = coeval("ingest", "moods.csv", "--label", "mood", "--new", "moods.yaml")
    assert ended.code == 0, ended.err
    assert items_of(here / "moods.yaml").id == ids
    assert (f"{ids} differs in every row: item ids are taken from it." in ended.out) is (ids is not None)
    assert (f"items are numbered, because {rejected}" in ended.err) is bool(rejected)
    if rejected:
        assert "--skip-bad takes ids from it and skips such rows" in ended.err


@pytest.mark.process
def test_a_row_put_into_a_table_with_ids_leaves_the_answers_to_others(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(MOODS)
    assert coeval("ingest", "moods.csv", "--label", "mood", "--new", "moods.yaml").code == 0
    assert coeval("run", "--config", "moods.yaml").code == 0
    (here / "moods.csv").write_text(MOODS.replace("2,Aw", "4,New!,good\n2,Aw"))
    again = coeval("run", "--config", "moods.yaml", "--continue")
    assert again.code == 0, again.err


# `coeval ingest`: what was typed amiss is told in the words that were typed, and Ctrl-C writes nothing.

FEW_MOODS = "text,mood,stars\nGreat!,good,5\nAwful.,bad,1\n"
NEW = ("--new", "moods.yaml")


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (("--label", "mod"), "--label: there is no column mod; did you mean mood?\n"),
        (("--attribute", "of=mod"), "--attribute: there is no column mod; did you mean mood?\n"),
        (("--choices", "text", "--label", "mod"), "--label: there is no column mod; did you mean mood?\n"),
        (("--where", "stars=>4"), "'stars=>4' has two signs; is >= meant?"),
        (("--where", "stars = =4"), "'stars = =4' has two signs. There are =, !=, <"),
        (("--where", "stars > good"), "its `stars` is 5, which cannot be compared with good: no number"),
        (("--prompt", "text", "--prompt", "mood"), "--prompt is given 2 times (text, mood), and takes one"),
        (("--label", "mood", "--label", "text"), "--label is given 2 times (mood, text), and takes one"),
    ],
)
def test_what_was_typed_amiss(flags: tuple[str, ...], reported: str, here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(FEW_MOODS)
    ended = coeval("ingest", "moods.csv", *flags, *NEW)
    assert (ended.code, reported in ended.err) == (1, True), ended.err
    assert not (here / "moods.yaml").exists()


def test_a_value_in_quotes_may_begin_with_a_sign(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(FEW_MOODS.replace("good", ">4"))
    ended = coeval("ingest", "moods.csv", "--where", "mood = '>4'", *NEW)
    assert "1 item of 2 rows" in ended.out, ended.err


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("loop", "loop is a link to loop, where no file is"),
        (
            "https://example.org/a.csv",
            "https://example.org/a.csv is an address, which is not fetched: download",
        ),
    ],
)
def test_a_source_that_leads_nowhere(source: str, reported: str, here: Path, coeval: Command) -> None:
    (here / "loop").symlink_to("loop")
    ended = coeval("ingest", source, *NEW)
    assert (ended.code, reported in ended.err) == (1, True), ended.err
    assert "did you mean" not in ended.err


@pytest.mark.parametrize("mark", ["sep=;\n", '"sep=;"\r\n', "\ufeffsep=;\n"])
def test_the_line_of_excel_that_names_the_delimiter_is_obeyed(mark: str, here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(mark + 'text;mood\n"Great, really";good\n')
    ended = coeval("ingest", "moods.csv", "--label", "mood", *NEW)
    assert ended.code == 0, ended.err
    assert "1 prompt: Great, really" in ended.out


@pytest.mark.process
def test_a_table_that_is_gone_is_told_in_whole_sentences(here: Path, coeval: Command) -> None:
    (here / "moods.csv").write_text(FEW_MOODS)
    assert coeval("ingest", "moods.csv", "--label", "mood", *NEW).code == 0
    assert coeval("run", "--config", "moods.yaml").code == 0
    (here / "moods.csv").rename(here / "moods.jsonl")
    again = coeval("run", "--config", "moods.yaml", "--continue")
    assert again.code == 0, again.err
    assert "are used: there is no file moods.csv; did you mean moods.jsonl?" in again.err.replace("\n", " ")
    assert load_config(here / "moods.yaml").tasks[0].items is not None


@pytest.mark.process
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
