"""`coeval ingest`: a table becomes items, or is told what is wrong with it and nothing is written."""

from __future__ import annotations

import gzip
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

from coeval.api import load_config
from coeval.store.rundir import RunDir

OWN = {"name": "own", "interface": "benchmark", "roles": ["teacher"], "parameters": {"task": "story"}}
CAST = [model("ann", "student", "judge")]
QA = "qid,question,answer,level\nq1,Why?,Because,easy\nq2,How?,Somehow,hard\nq3,Who?,,hard\n"


@pytest.fixture
def lab(here: Path) -> Lab:
    return Lab(here, [OWN, *CAST], [task(total=2, target_attributes={"level": ["easy", "hard"]})])


def items(lab: Lab) -> list[dict[str, Any]]:
    return lab.lines("data_generation")


def sources(lab: Lab, name: str = "story", teacher: str = "own") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((lab.path / "sources.json").read_text())[name][teacher]
    return found


MAP = ("--prompt", "question", "--reference", "answer", "--attribute", "level", "--id", "qid")


def test_a_table_becomes_items_that_a_run_uses(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    ended = coeval("ingest", "qa.csv", "--config", lab.file, *MAP, "--license", "CC0-1.0")
    assert ended.code == 0, ended.err
    assert "1 prompt: Why?" in ended.out
    assert "3 items of 3 rows are in" in ended.out
    assert f"Next: coeval run --config {lab.file}" in ended.out
    assert "1 item without a reference" in ended.err
    assert items(lab)[0] == {
        "id": "story__own__q1",
        "task_id": "story",
        "teacher_model_id": "own",
        "sampled_target_attributes": {"level": "easy"},
        "prompt": "Why?",
        "reference_response": "Because",
    }
    [origin] = sources(lab)
    assert (origin["source"], origin["license"], origin["rows"], origin["items"]) == (
        "qa.csv",
        "CC0-1.0",
        3,
        3,
    )
    assert len(origin["files"][0]["sha256"]) == 64
    before = (lab.path / "phase3_datapoints" / "story.own.datapoints.jsonl").read_bytes()
    assert lab.run().exit_code == 0
    assert (lab.path / "phase3_datapoints" / "story.own.datapoints.jsonl").read_bytes() == before
    assert len(lab.records("evaluation")) == 2


def write(kind: str, folder: Path) -> Path:
    """The three rows of `QA` as a file of some kind."""
    rows = [dict(zip(QA.split("\n")[0].split(","), line.split(","), strict=True)) for line in QA.split()[1:]]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    csv, parquet = folder / "plain.csv", folder / f"a {kind} [1].parquet"
    csv.write_text(QA)
    place = folder / f"table.{kind}"
    match kind:
        case "csv":
            return csv
        case "tsv":
            place.write_text(QA.replace(",", "\t"))
        case "csv.gz" | "jsonl.gz":
            place.write_bytes(gzip.compress((QA if kind.startswith("csv") else lines).encode()))
        case "semicolons.csv":
            place.write_text(QA.replace(",", ";"))
        case "windows.csv":
            place.write_bytes(b"\xef\xbb\xbf" + QA.replace("\n", "\r\n").encode())
        case "utf16.csv":
            place.write_bytes(QA.encode("utf-16"))
        case "jsonl":
            place.write_text(lines)
        case "json":
            place.write_text(json.dumps(rows, indent=1))
        case "parquet":
            duckdb.read_csv(str(csv)).write_parquet(str(folder / "x.parquet"))
            (folder / "x.parquet").rename(parquet)
            return parquet
        case "folder":
            (place / "data").mkdir(parents=True)
            (place / "data" / "test-00000-of-00001.jsonl").write_text(lines)
            (place / "data" / "train.jsonl").write_text('{"question": "not this"}\n')
        case "link":
            place.symlink_to(csv)
    return place


KINDS = [
    "csv", "tsv", "csv.gz", "semicolons.csv", "windows.csv", "utf16.csv", "jsonl", "jsonl.gz", "json",
    "parquet", "folder", "link",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_items(kind: str, here: Path, lab: Lab, coeval: Command) -> None:
    split = ("--split", "test") if kind == "folder" else ()
    ended = coeval("ingest", write(kind, here), "--config", lab.file, *MAP, *split)
    assert ended.code == 0, ended.err
    assert [(i["id"][12:], i["prompt"], i.get("reference_response")) for i in items(lab)] == [
        ("q1", "Why?", "Because"), ("q2", "How?", "Somehow"), ("q3", "Who?", None),
    ]  # fmt: skip
    assert [i["sampled_target_attributes"]["level"] for i in items(lab)] == ["easy", "hard", "hard"]


WRONG = [
    ("quotes.csv", b'question\n"one" two\nfine\n', "quotes.csv:2: its quotes do not match"),
    ("open.csv", b'question\nfine\n"never closed\n', "open.csv:3: a quote is opened here that is never"),
    ("cells.csv", b"question,answer\na,b\na,b,c\n", "cells.csv:3: it has 3 cells, and the header 2"),
    ("multi.csv", b'question,answer\n"two\nlines",b\nx\n', "multi.csv:4: it has 1 cell, and the header 2"),
    ("empty.csv", b"question,answer\nx,1\n ,2\n", "empty.csv:3: its `question` is empty"),
    ("latin.csv", b"question\nfine\ncaf\xe9\n", "latin.csv:3: byte 4 is not UTF-8; save the file as UTF-8"),
    ("broken.jsonl", b'{"question": "a"}\n\n{"question": \n', "broken.jsonl:3: it is not JSON"),
    ("list.jsonl", b'{"question": "a"}\n[1, 2]\n', "list.jsonl:2: it is not a JSON object"),
    ("null.jsonl", b'{"question": "a"}\n{"question": null}\n', "null.jsonl:2: its `question` is empty"),
    ("gone.jsonl", b'{"question": "a"}\n{"other": 1}\n', "gone.jsonl:2: its `question` is empty"),
    ("nested.jsonl", b'{"question": ["a"]}\n', "nested.jsonl:1: its `question` is a list; name an entry"),
    ("parts.jsonl", b'{"question": {"en": "a"}}\n', "its `question` is a mapping; name a part of it"),
    ("bytes.jsonl", b'{"question": "a"}\n{"question": "\xff"}\n', "bytes.jsonl:2: byte 15 is not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "reported"), WRONG, ids=[name for name, *_ in WRONG])
def test_a_row_that_makes_no_item_is_told_by_line_and_may_be_left_out(
    name: str, content: bytes, reported: str, here: Path, lab: Lab, coeval: Command
) -> None:
    (here / name).write_bytes(content)
    ended = coeval("ingest", name, "--config", lab.file, "--prompt", "question")
    assert ended.code == 1
    assert reported in ended.err
    assert "skip such rows with --skip-bad. Nothing was written." in ended.err
    assert not lab.path.exists()
    ended = coeval("ingest", name, "--config", lab.file, "--prompt", "question", "--skip-bad")
    if name.startswith(("nested", "parts")):  # they have no other row
        assert (ended.code, "there are no items in 1 row" in ended.err) == (1, True)
        return
    assert ended.code == 0, ended.err
    assert reported in ended.err
    assert "1 row without an item left out" in ended.err
    assert 1 <= len(items(lab)) <= 2


REFUSED = [
    ("book.xlsx", b"PK\x03\x04rest", "book.xlsx is an Excel workbook"),
    ("old.csv", b"\xd0\xcf\x11\xe0rest", "old.csv is an old Excel workbook; save it as CSV UTF-8"),
    ("a.csv.bz2", b"BZh91AY", "is packed by bzip2; unpack it, or pack it by gzip"),
    ("data.arrow", b"\xff\xff\xff\xff\x00", "is an Arrow file; write it as Parquet: dataset.to_parquet("),
    ("cut.csv.gz", gzip.compress(QA.encode() * 50)[:60], "cut.csv.gz is cut off; fetch or pack it again"),
    ("twice.csv", b"question,question\n1,2\n", "twice.csv has more than one column question"),
    ("none.csv", b"", "none.csv is empty; a CSV begins with the names of its columns"),
    ("none.jsonl", b"", "none.jsonl holds no rows"),
    ("head.csv", b"question\n", "head.csv holds no rows"),
    ("bad.parquet", b"PAR1 and nothing more", "cannot read bad.parquet"),
]


@pytest.mark.parametrize(("name", "content", "reported"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_what_is_no_table_is_told_for_what_it_is(
    name: str, content: bytes, reported: str, here: Path, lab: Lab, coeval: Command
) -> None:
    (here / name).write_bytes(content)
    ended = coeval("ingest", name, "--config", lab.file, "--prompt", "question")
    assert ended.code == 1
    assert reported in ended.err
    assert "Traceback" not in ended.err
    assert not lab.path.exists()


def test_a_column_that_is_not_there_is_told_with_the_one_that_is_meant(
    here: Path, lab: Lab, coeval: Command
) -> None:
    (here / "qa.csv").write_text(QA)
    ended = coeval("ingest", "qa.csv", "--config", lab.file, "--prompt", "questin", "--where", "levl=easy")
    assert ended.code == 1
    assert ended.err == (
        "--prompt: there is no column questin; did you mean question?\n"
        "--where: there is no column levl; did you mean level?\n"
        "qa.csv has the columns qid, question, answer, level.\n"
    )


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("qaa.csv", "there is no file qaa.csv; did you mean qa.csv?"),
        ("gsm8", "there is no file gsm8, and no benchmark of that name; did you mean gsm8k?"),
        ("./nothing/x.csv", "there is no file nothing/x.csv"),
        ("pipe", "cannot read pipe: it is a pipe, not a file"),
        ("bare", "there is no table in bare"),
    ],
)
def test_a_source_that_is_none(source: str, reported: str, here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    os.mkfifo(here / "pipe")
    (here / "bare").mkdir()
    ended = coeval("ingest", source, "--config", lab.file, "--prompt", "question")
    assert ended.code == 1
    assert reported in ended.err


@pytest.mark.process
def test_conditions_limit_and_sample_choose_rows(here: Path, lab: Lab, coeval: Command) -> None:
    rows = [{"n": n, "question": f"Question {n}?", "level": "hard" if n % 2 else "easy"} for n in range(200)]
    (here / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def taken(*flags: str) -> list[str]:
        ended = coeval("ingest", "many.jsonl", "--config", lab.file, "--id", "n", "--replace", *flags)
        assert ended.code == 0, ended.err
        return [item["id"].rpartition("__")[2] for item in items(lab)]

    hard = [str(n) for n in range(1, 200, 2)]
    assert taken("--where", "level = 'hard'") == hard
    assert taken("--where", "level=hard", "--where", "n >= 190") == ["191", "193", "195", "197", "199"]
    assert taken("--limit", "3") == ["0", "1", "2"]
    first = taken("--sample", "10")
    assert first == sorted(first, key=int)
    assert len(set(first)) == 10
    assert taken("--sample", "10") == first
    assert taken("--sample", "10", "--seed", "1") != first
    both = taken("--sample", "10", "--limit", "3")
    assert (len(set(both)), both == ["0", "1", "2"]) == (3, False)
    assert sources(lab)[0]["rows"] == 200
    cut = coeval("ingest", "many.jsonl", "--config", lab.file, "--limit", "3", "--dry-run")
    assert "3 items of the first 3 rows. Nothing was written." in cut.out
    large = coeval("ingest", "many.jsonl", "--config", lab.file, "--sample", "1000", "--dry-run")
    assert "a sample of 1,000 exceeds 200 items: all are taken" in large.err
    assert taken("--sample", "1000") == [str(n) for n in range(200)]
    assert sources(lab)[0]["sample"] == 1000


def test_columns_that_are_not_named_are_found_by_their_usual_names(
    here: Path, lab: Lab, coeval: Command
) -> None:
    (here / "qa.csv").write_text(QA)
    ended = coeval("ingest", "qa.csv", "--config", lab.file)
    assert ended.code == 0
    assert ended.out.startswith("qa.csv: prompt: question, reference: answer\n")
    (here / "odd.csv").write_text("frage,antwort\nWarum?,Darum\n")
    ended = coeval("ingest", "odd.csv", "--config", lab.file)
    assert ended.code == 1
    assert (
        "which column holds the prompts? Name it with --prompt COLUMN; odd.csv has frage, antwort"
        in ended.err
    )
    ended = coeval("ingest", "odd.csv", "--config", lab.file, "--prompt", "frage", "--attribute", "=x")
    assert (ended.code, "--attribute =x: write NAME=COLUMN" in ended.err) == (1, True)


@pytest.mark.process
def test_a_condition_that_is_none(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    for text, reported in (
        ("hard", "'hard' is not a condition; write COLUMN = VALUE"),
        ("level = 'hard' and n = 1", "is not one condition; give each one of its own"),
        ("level = hard or n = 1", "is more than one condition; give each one of its own (all must hold)"),
    ):
        ended = coeval("ingest", "qa.csv", "--config", lab.file, "--where", text)
        assert ended.code == 1
        assert reported in ended.err
    ended = coeval("ingest", "qa.csv", "--config", lab.file, "--where", "level=medium")
    assert (ended.code, "there are no items in 3 rows, 3 of which do not meet --where" in ended.err) == (
        1,
        True,
    )


def test_numbered_items_keep_the_number_of_their_row(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    assert coeval("ingest", "qa.csv", "--config", lab.file, "--where", "level=hard").code == 0
    assert [item["id"] for item in items(lab)] == ["story__own__00002", "story__own__00003"]


def test_an_id_that_stands_twice_is_told_with_both_lines(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA.replace("q3", "q1"))
    ended = coeval("ingest", "qa.csv", "--config", lab.file, "--id", "qid")
    assert ended.code == 1
    assert "qa.csv:4: the id q1 is on line 2 already" in ended.err
    assert not lab.path.exists()


@pytest.mark.process
def test_a_second_ingest_loses_nothing(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    (here / "more.csv").write_text("qid,question\nq4,When?\n")
    command = ("ingest", "qa.csv", "--config", lab.file, *MAP)
    assert coeval(*command).code == 0
    place = RunDir(lab.path).datapoints("story", "own")
    first = place.read_bytes()
    again = coeval(*command)
    assert (again.code, "already holds these 3 items; nothing was written" in again.out) == (0, True)
    other = ("ingest", "more.csv", "--config", lab.file, "--prompt", "question", "--id", "qid")
    refused = coeval(*other)
    assert refused.code == 1
    assert "--replace puts these in their place" in refused.err
    assert place.read_bytes() == first
    assert coeval(*other, "--replace").code == 0
    assert [item["id"][12:] for item in items(lab)] == ["q4"]
    [kept] = (lab.path / "replaced").rglob("*.jsonl")
    assert kept.read_bytes() == first
    assert [origin["source"] for origin in sources(lab)] == ["more.csv"]


def test_a_damaged_account_of_sources_is_told_before_anything_is_written(
    here: Path, lab: Lab, coeval: Command
) -> None:
    (here / "qa.csv").write_text(QA)
    lab.path.mkdir(parents=True)
    (lab.path / "sources.json").write_text("{")
    ended = coeval("ingest", "qa.csv", "--config", lab.file)
    assert ended.code == 1
    assert f"{lab.path / 'sources.json'} is damaged" in ended.err
    assert not RunDir(lab.path).datapoints("story", "own").exists()


def test_a_dry_run_reads_all_and_writes_nothing(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    ended = coeval("ingest", "qa.csv", "--config", lab.file, "--attribute", "level", "--dry-run")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "3 items of 3 rows. Nothing was written.")
    assert not lab.path.exists()


@pytest.mark.process
def test_the_place_is_named_where_there_are_several(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    lab.models.append({**OWN, "name": "exam", "parameters": {"task": "poem"}})
    lab.tasks.append(task("poem"))
    ended = coeval("ingest", "qa.csv", "--config", lab.file)
    assert ended.code == 1
    assert "--task story --teacher own, --task poem --teacher exam; name one" in ended.err
    assert coeval("ingest", "qa.csv", "--config", lab.file, "--task", "poem").code == 0
    assert sources(lab, "poem", "exam")[0]["items"] == 3
    ended = coeval("ingest", "qa.csv", "--config", lab.file, "--task", "stry")
    assert "has no such task; did you mean 'story'?" in ended.err
    ended = coeval("ingest", "qa.csv")
    assert "no target is given; give --config FILE" in ended.err


def test_without_a_benchmark_teacher_it_is_told_what_to_add(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    lab.models = [model("ann")]
    ended = coeval("ingest", "qa.csv", "--config", lab.file)
    assert ended.code == 1
    assert "has no benchmark teacher that serves any task. Add one to its models" in ended.err
    assert "items: {path: FILE, prompt: COLUMN}" in ended.err


def test_a_run_takes_more_items_and_answers_those_alone(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    assert coeval("ingest", "qa.csv", "--config", lab.file, "--limit", "1").code == 0
    lab.tasks[0]["sampling"]["total"] = 3
    assert lab.run().exit_code == 3
    ended = coeval("ingest", "qa.csv", "--run", lab.path, "--replace")
    assert ended.code == 0, ended.err
    assert lab.run(continue_run=True).exit_code == 0


@pytest.mark.process
def test_after_items_were_replaced_the_command_that_is_told_goes_on(
    here: Path, lab: Lab, coeval: Command
) -> None:
    (here / "qa.csv").write_text(QA)
    assert coeval("ingest", "qa.csv", "--config", lab.file, *MAP).code == 0
    assert lab.run().exit_code == 0
    (here / "qa.csv").write_text(QA.replace("Why?", "Why then?"))
    ended = coeval("ingest", "qa.csv", "--config", lab.file, *MAP, "--replace")
    [line] = [line for line in ended.out.splitlines() if line.startswith("Next: coeval ")]
    ran = coeval(*shlex.split(line.removeprefix("Next: coeval ")))
    assert ran.code == 0, ran.err
    assert len(lab.lines("response_collection")) == 3


@pytest.mark.process
def test_a_locked_folder_is_told(here: Path, lab: Lab, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    with RunDir(lab.path).hold_lock():
        code = f"import sys; sys.argv = ['coeval', 'ingest', 'qa.csv', '--config', {str(lab.file)!r}]"
        words = [sys.executable, "-c", f"{code}; from coeval.cli.main import main; main()"]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert f"is in use by process {os.getpid()}" in ended.stderr
    assert not RunDir(lab.path).datapoints("story", "own").exists()


@pytest.mark.process
def test_ctrl_c_leaves_nothing_half_written(here: Path, lab: Lab) -> None:
    with (here / "long.csv").open("w") as file:
        file.write("question\n")
        file.writelines(f"Question {n}?\n" for n in range(2_000_000))
    command = [sys.executable, "-m", "coeval", "ingest", "long.csv", "--config", str(lab.file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here)
    folder = RunDir(lab.path).folder("data_generation")
    for _ in range(600):
        if folder.is_dir() and any(entry.stat().st_size > 1 << 20 for entry in folder.iterdir()):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert not folder.exists() or list(folder.iterdir()) == []
    assert not (lab.path / "sources.json").exists()


@pytest.mark.process
def test_a_line_of_200_megabytes_is_told_and_not_held(here: Path, lab: Lab, coeval: Command) -> None:
    with (here / "long.jsonl").open("wb") as file:
        file.write(b'{"question": "a"}\n{"question": "')
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"question": "b"}\n')
    ended = coeval("ingest", "long.jsonl", "--config", lab.file)
    assert "long.jsonl:2: it is longer than 64 MiB" in ended.err
    assert coeval("ingest", "long.jsonl", "--config", lab.file, "--skip-bad").code == 0
    assert [item["prompt"] for item in items(lab)] == ["a", "b"]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16"])
def test_another_encoding_is_named(encoding: str, here: Path, lab: Lab, coeval: Command) -> None:
    (here / "odd.csv").write_bytes("question\nÜber café?\n".encode(encoding))
    ended = coeval("ingest", "odd.csv", "--config", lab.file, "--encoding", encoding)
    assert ended.code == 0, ended.err
    assert items(lab)[0]["prompt"] == "Über café?"
    ended = coeval("ingest", "odd.csv", "--config", lab.file, "--encoding", "klingon")
    assert (ended.code, "there is no encoding klingon" in ended.err) == (1, True)


@pytest.mark.process
def test_what_a_pipe_brings_is_read_once(here: Path, lab: Lab) -> None:
    (here / "qa.csv").write_text(QA)
    inner = f"{sys.executable} -m coeval ingest <(cat qa.csv) --config {lab.file} --id qid"
    ended = subprocess.run(["bash", "-c", inner], cwd=here, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(items(lab)) == 3


@pytest.mark.process
def test_a_new_experiment_file_runs_as_it_is(here: Path, coeval: Command) -> None:
    (here / "qa.csv").write_text(QA)
    flags = ("--where", "level != medium", "--attribute", "level")
    ended = coeval("ingest", "qa.csv", *flags, "--new", "my qa.yaml")
    assert ended.code == 0, ended.err
    assert "my qa.yaml takes them from qa.csv. Next: coeval run --config 'my qa.yaml'" in ended.out
    config = load_config(here / "my qa.yaml")
    assert (config.experiment.id, config.tasks[0].name) == ("my-qa", "my-qa")
    assert config.tasks[0].items is not None
    assert config.tasks[0].items.where == ("level != medium",)
    assert coeval("run", "--config", "my qa.yaml").code == 0
    records = (here / "runs" / "my-qa" / "phase5_evaluations").glob("*.jsonl")
    assert sum(len(path.read_text().splitlines()) for path in records) == 2 * 3


@pytest.mark.process
def test_a_label_of_choices_is_the_letter(here: Path, coeval: Command) -> None:
    rows = [{"question": f"Question {n}?", "options": ["x", "y", "z"], "key": n % 3} for n in range(6)]
    (here / "exam.json").write_text(json.dumps(rows))
    ended = coeval("ingest", "exam.json", "--choices", "options", "--label", "key", "--new", "exam.yaml")
    assert ended.code == 0, ended.err
    assert "output_description: The letter alone." in (here / "exam.yaml").read_text()
    assert coeval("run", "--config", "exam.yaml").code == 0
    [path] = (here / "runs" / "exam" / "phase3_datapoints").glob("*.jsonl")
    letters = [json.loads(line)["sampled_target_attributes"]["key"] for line in path.read_text().splitlines()]
    assert letters == ["A", "B", "C", "A", "B", "C"]


@pytest.mark.process
@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("n\n", False)])
def test_a_terminal_is_asked(answer: str, written: bool, here: Path, lab: Lab) -> None:
    (here / "qa.csv").write_text(QA)
    command = [sys.executable, "-m", "coeval", "ingest", "qa.csv", "--config", str(lab.file)]
    seen = answering(command, b"[Y/n]", answer.encode(), here)
    assert b"1 prompt: Why?" in seen.split(b"Write to", 1)[0]
    assert RunDir(lab.path).datapoints("story", "own").exists() is written
    assert lab.path.exists() is written
    assert (b"Nothing was written." in seen) is not written


def answering(command: list[str], question: bytes, answer: bytes, folder: Path) -> bytes:
    """What a command shows on a terminal whose user answers one question."""
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder)
    os.close(theirs)
    seen, answered = b"", False
    with suppress(OSError):  # the terminal is closed when the command ends
        while chunk := os.read(terminal, 1 << 16):
            seen += chunk
            if question in seen and not answered:
                os.write(terminal, answer)
                answered = True
    os.close(terminal)
    process.wait(timeout=60)
    return seen


LOG = "q,team,v7\nWhere is it?,orders,orders\nIt broke,returns,orders\n"


@pytest.mark.process
def test_a_new_file_takes_answers_that_exist(here: Path, coeval: Command) -> None:
    (here / "log.csv").write_text(LOG)
    new = ("ingest", "log.csv", "--prompt", "q", "--response", "prod-v7=v7", "--new")
    assert coeval(*new, "log.yaml", "--label", "team").code == 0
    assert "models" not in Path("log.yaml").read_text()
    ended = coeval("run", "--config", "log.yaml", "--dry-run")
    assert ended.code == 0, ended.err
    assert "\n0 calls" in ended.out
    ended = coeval("run", "--config", "log.yaml")
    assert ended.code == 0, ended.err
    assert "1 of 2" in ended.out
    assert coeval(*new, "judged.yaml").code == 0
    assert "\n2 calls" in coeval("run", "--config", "judged.yaml", "--dry-run").out
    with (here / "log.csv").open("a") as file:
        file.write("And this?,orders,\n")
    ended = coeval("run", "--config", "judged.yaml")
    assert ended.code == 3
    assert "No model makes the answers that are missing: add 1 answer of prod-v7 to log.csv." in ended.err


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (
            ("--response", "prod-v7=v9", "--new", "x.yaml"),
            "--response: there is no column v9",
        ),
        (("--response", "a b=v7", "--new", "x.yaml"), "--response: 'a b' is not a valid name"),
        (("--response", "prod=", "--new", "x.yaml"), "--response prod=: write NAME=COLUMN"),
        (
            ("--response", "p=v7", "--config", "exp.yaml"),
            "--response is for --new; in an existing experiment",
        ),
    ],
)
def test_answers_that_cannot_be_taken(
    here: Path, lab: Lab, coeval: Command, flags: tuple[str, ...], wrong: str
) -> None:
    assert lab.file.exists()
    (here / "log.csv").write_text(LOG)
    ended = coeval("ingest", "log.csv", "--prompt", "q", *flags)
    assert ended.code == 1
    assert wrong in ended.err
