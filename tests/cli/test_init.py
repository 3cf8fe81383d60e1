"""`coeval init`: questions or flags, and a file that runs; the old name of it as well."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from cli.eval_process import surroundings
from cli.invoked import Command

from coeval.api import load_config, open_run
from coeval.sweeps.sweep_settings import SweepSettings

CACHE = Path(os.environ.get("COEVAL_CACHE", Path.home() / ".cache" / "coeval"))
"""Where ``make assets`` puts the benchmarks' data; the home of a test is another."""
PLAIN = ["", "", 'Translate a proverb: keep its "sense" & <tone>', "", "", "n"]


def answered(
    folder: Path, *answers: str, arguments: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coeval", "init", *arguments],
        input="\n".join(answers) + "\n",
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.process
def test_return_alone_makes_an_experiment_that_runs(tmp_path: Path) -> None:
    done = answered(tmp_path, *PLAIN, "", "", "", "4", "")
    assert done.returncode == 0, done.stderr
    assert "coeval run --config my-benchmark.yaml" in done.stderr
    config = load_config(tmp_path / "my-benchmark.yaml")
    assert [model.name for model in config.models] == ["sim-large", "sim-medium", "sim-small"]
    assert (config.tasks[0].target_attributes, config.tasks[0].rubric) == ("auto", "auto")
    run = subprocess.run(
        [sys.executable, "-m", "coeval", "run", "--config", "my-benchmark.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "runs" / "my-benchmark" / "report.html").exists()


@pytest.mark.process
def test_every_answer_stands_in_the_file(tmp_path: Path) -> None:
    models = ["openai/gpt-4o-mini", "vllm/Qwen/Qwen3-4B@http://localhost:8000/v1", ""]
    done = answered(
        tmp_path, "1", "proverbs", "Sort: #1 'messages'", "triage", "One word.",
        "y", "team: billing, sales", "mood: calm, annoyed", "tone: plain, 3.10", "",
        *models, "students, judge", "teacher,student", "brevity: Nothing is said: beyond it.", "",
        "30", "$2.50", "",
        env={"OPENAI_API_KEY": "sk-" + "a" * 40},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Credentials were found for: openai" in done.stderr
    assert "aaaa" not in done.stderr
    config = load_config(tmp_path / "proverbs.yaml")
    first, second = config.models
    assert (first.name, first.interface, list(first.roles)) == ("gpt-4o-mini", "openai", ["student", "judge"])
    assert second.spec().base_url == "http://localhost:8000/v1"
    assert second.spec().model == "Qwen/Qwen3-4B"
    task = config.tasks[0]
    assert task.description == "Sort: #1 'messages'"
    assert task.target_attributes == {
        "mood": ["calm", "annoyed"], "tone": ["plain", "3.10"], "team": ["billing", "sales"]
    }  # fmt: skip
    assert list(task.label_attributes) == ["team"]
    assert isinstance(task.rubric, dict)
    assert task.rubric["brevity"] == "Nothing is said: beyond it."
    assert (task.sampling.total, config.experiment.budget_usd) == (30, 2.5)


@pytest.mark.process
def test_what_cannot_be_used_is_asked_again(tmp_path: Path) -> None:
    done = answered(
        tmp_path, "five", "1", "my exp", "a__b", "exp", *PLAIN[2:], "tone", "tone: one", "",
        "gpt-4o", "simulated/x", "simulated/x", "", "cook", "judge", "judge", "", "zero", "-3", "5", "",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for said in (
        "'my exp' is no name",
        "holds '__'",
        "`reader: child, expert`",
        "INTERFACE/MODEL",
        "some of",
    ):
        assert said in done.stderr
    assert "Nobody is teacher or student: x is, then." in done.stderr
    assert [model.name for model in load_config(tmp_path / "exp.yaml").models] == ["x", "x-2"]


@pytest.mark.process
def test_answers_that_end_write_nothing_and_name_the_question(tmp_path: Path) -> None:
    done = answered(tmp_path, "1", "exp")
    assert done.returncode == 1
    assert "the answers end at 'What are the models to do? One sentence.'" in done.stderr
    assert "use flags: --description, --items, --answers or --checkpoints" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_file_that_is_there_is_left(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    done = answered(tmp_path, "", *PLAIN[2:], "", "", "", "4", arguments=("--out", "mine.yaml"))
    assert done.returncode == 1
    assert "mine.yaml is there already" in done.stderr
    assert (tmp_path / "mine.yaml").read_text() == "mine"


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C until it ends: Python passes over one that comes just before it waits for a line."""
    for _ in range(30):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
            return


@pytest.mark.process
def test_ctrl_c_in_a_terminal_ends_it_without_a_file(tmp_path: Path) -> None:
    mine, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "coeval", "init"],
        cwd=tmp_path, stdin=its, stdout=its, stderr=its, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(its)
        shown = b""
        while b"What do you have? [1]" not in shown:
            shown += os.read(mine, 1000)
        interrupt(process)
        code = process.wait(30)
    os.close(mine)
    assert code == 130
    assert list(tmp_path.iterdir()) == []


# --- By flags, and each thing that somebody has

TICKETS = 'text,team\n"My parcel, ""late"" again; café",shipping\nRefund?,billing\nIt broke,shipping\n'
LOG = 'q,a\n"My parcel, ""late"" again; café",We are sorry.\nRefund?,Of course.\n'


@pytest.mark.process
def test_a_description_alone_becomes_an_experiment_that_counts(here: Path, coeval: Command) -> None:
    ended = coeval("init", "--description", "Answer: a customer's message #1.", "--out", "my.yaml")
    assert ended.code == 0, ended.err
    config = load_config(here / "my.yaml")
    assert (config.experiment.id, config.tasks[0].description) == ("my", "Answer: a customer's message #1.")
    assert (config.tasks[0].target_attributes, config.tasks[0].sampling.total) == ("auto", 20)
    counted = coeval("run", "--config", "my.yaml", "--dry-run")
    assert counted.code == 0, counted.err
    calls = ended.out.partition(" calls, ")[0]
    assert calls in counted.out
    assert "coeval run --config my.yaml" in ended.err


@pytest.mark.parametrize(
    ("rows", "flags", "ids"),
    [
        ("T-1,a\nT-2,b\n", ("--id", "code"), ["T-1", "T-2"]),
        ("T-1,a\nT-2,b\n", (), ["00001", "00002"]),
        ("T-1,a\nT-1,b\nT-2,c\n", ("--id", "code", "--skip-bad"), ["T-1", "T-2"]),
    ],
)
def test_the_column_of_ids_is_named_by_a_flag(
    rows: str, flags: tuple[str, ...], ids: list[str], here: Path, coeval: Command
) -> None:
    (here / "t.csv").write_text(f"code,q\n{rows}")
    made = coeval("init", "--items", "t.csv", "--prompt", "q", *flags, "--out", "made.yaml")
    assert made.code == 0, made.err
    assert coeval("run", "--config", "made.yaml").code == 0
    items = open_run(here / "runs/made").records("data_generation")
    assert [item.id.rpartition("__")[2] for item in items] == ids
    wrong = coeval("init", "--items", "t.csv", "--prompt", "q", "--id", "cod", "--out", "wrong.yaml")
    assert (wrong.code, "--id: there is no column cod; did you mean code?" in wrong.err) == (1, True)


def test_flags_stand_for_every_answer(here: Path, coeval: Command) -> None:
    ended = coeval(
        "init", "--description", "Sort messages.", "--name", "sorted", "--task", "triage",
        "--output", "One word.",
        "--labels", "team: billing, sales", "--attribute", "mood: calm, cross",
        "--attribute", "tone: plain, 3.10",
        "--factor", "brevity: Nothing: beyond it.", "--total", "30", "--budget", "$2.50",
        "--model", "openai/gpt-4o-mini=student,judge",
        "--model", "vllm/Qwen/Qwen3-4B@http://localhost:8000/v1=teacher",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "$" in ended.out
    config = load_config(here / "sorted.yaml")
    assert [(model.name, [*model.roles]) for model in config.models] == [
        ("gpt-4o-mini", ["student", "judge"]), ("Qwen3-4B", ["teacher"]),
    ]  # fmt: skip
    assert config.models[1].spec().base_url == "http://localhost:8000/v1"
    task = config.tasks[0]
    assert task.target_attributes == {
        "mood": ["calm", "cross"], "tone": ["plain", "3.10"], "team": ["billing", "sales"]
    }  # fmt: skip
    assert ([*task.label_attributes], task.sampling.total) == (["team"], 30)
    assert config.experiment.budget_usd == 2.5


@pytest.mark.process
def test_rows_without_an_item_are_left_out_where_the_message_says_so(here: Path, coeval: Command) -> None:
    (here / "tickets.csv").write_text("text,team\nWhere is it?,shipping\n,billing\nPay me.,billing\n")
    flags = ("init", "--items", "tickets.csv", "--prompt", "text", "--label", "team")
    refused = coeval(*flags)
    assert refused.code == 1
    assert "1 row makes no item, of 3 rows." in refused.err
    assert "with --skip-bad" in refused.err
    assert coeval(*flags, "--skip-bad").code == 0
    assert coeval("run", "--config", "tickets.yaml").code == 0


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_a_table_with_quotes_and_any_encoding_becomes_items(
    encoding: str, here: Path, coeval: Command
) -> None:
    (here / "tickets.csv").write_bytes(TICKETS.encode(encoding))
    flags = ("--encoding", encoding) if encoding == "cp1252" else ()
    ended = coeval("init", "--items", "tickets.csv", "--prompt", "text", "--label", "team", *flags)
    assert ended.code == 0, ended.err
    assert 'My parcel, "late" again; café' in ended.out
    assert "6 calls" in ended.out
    ran = coeval("run", "--config", "tickets.yaml")
    assert ran.code == 0, ran.err
    assert "billing, shipping" in (here / "tickets.yaml").read_text()


def test_a_table_in_an_unknown_encoding_is_told_and_nothing_is_written(here: Path, coeval: Command) -> None:
    (here / "tickets.csv").write_bytes(TICKETS.encode("cp1252"))
    ended = coeval("init", "--items", "tickets.csv", "--prompt", "text")
    assert (ended.code, "tickets.csv:2" in ended.err) == (1, True), ended.err
    assert [path.name for path in here.iterdir()] == ["tickets.csv"]


@pytest.mark.process
def test_answers_that_exist_are_judged_and_nobody_is_asked_for_them(here: Path, coeval: Command) -> None:
    (here / "log.csv").write_text(LOG)
    (here / "tickets.csv").write_text(TICKETS)
    log = ("--answers", "log.csv", "--response", "a", "--student", "prod-v7")
    same = coeval("init", *log, "--prompt", "q", "--out", "same.yaml")
    assert same.code == 0, same.err
    assert "2 calls" in same.out
    items = load_config(here / "same.yaml").tasks[0].items
    assert items is not None
    assert items.responses == {"prod-v7": "a"}
    ran = coeval("run", "--config", "same.yaml")
    assert (ran.code, "prod-v7" in ran.out) == (0, True), ran.err

    beside = ("--items", "tickets.csv", "--prompt", "text", "--answers-prompt", "q", "--out", "beside.yaml")
    assert coeval("init", *log, *beside).code == 0
    [student] = load_config(here / "beside.yaml").students
    assert (student.name, student.responses.prompt, student.responses.response) == ("prod-v7", "q", "a")
    ran = coeval("run", "--config", "beside.yaml")
    assert ran.code == 3, "one of three tickets has no answer"
    assert "prod-v7" in ran.out
    labelled = coeval("init", *log, *beside[:-1], "labels.yaml", "--label", "team")
    assert (labelled.code, load_config(here / "labels.yaml").models) == (0, []), labelled.err


@pytest.mark.parametrize("command", ["init", "ingest"])
def test_answers_are_not_taken_for_their_own_references(command: str, here: Path, coeval: Command) -> None:
    (here / "log.csv").write_text("question,answer\nRefund?,Of course.\n")
    words = {
        "init": ("--answers", "log.csv", "--out", "log.yaml"),
        "ingest": ("log.csv", "--response", "mine=answer", "--new", "log.yaml"),
    }[command]
    ended = coeval(command, *words)
    assert ended.code == 0, ended.err
    items = load_config(here / "log.yaml").tasks[0].items
    assert items is not None
    assert (items.prompt, items.responses, items.reference) == ("question", {"mine": "answer"}, None)


@pytest.mark.process
@pytest.mark.skipif(
    not (CACHE / "files" / "ifeval").is_dir(), reason="IFEval's prompts are not there: make assets"
)
def test_checkpoints_become_a_sweep(here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVAL_CACHE", str(CACHE))
    monkeypatch.setenv("NLTK_DATA", surroundings(here)["NLTK_DATA"])
    for step in (10, 20):
        folder = here / "ckpts" / f"step_{step}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").touch()
    ended = coeval("init", "--checkpoints", "ckpts", "--judge", "gpt-4.1@https://api.openai.com/v1")
    assert ended.code == 0, ended.err
    assert "2 checkpoints (steps 10, 20)" in ended.out
    assert "coeval sweep --config sweep.yaml" in ended.err
    counted = coeval("sweep", "--config", "sweep.yaml", "--dry-run")
    assert (counted.code, counted.out) == (0, ended.out)
    assert "judge_base_url: " in (here / "sweep.yaml").read_text()
    assert {"checkpoints", "tasks", "out", "judge_model"} <= {*SweepSettings.__struct_fields__}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--items", "none.csv"), "there is no file none.csv"),
        (
            ("--items", "tickets.csv", "--prompt", "wat"),
            "--prompt: no column is called 'wat'; there are text",
        ),
        (("--items", "other.csv"), "--prompt: name a column; there are a, b"),
        (("--answers", "other.csv", "--prompt", "a"), "--response: name a column; there are a, b"),
        (("--description", "x", "--items", "tickets.csv"), "--description and --items exclude each other"),
        (("--description", "x", "--total", "0"), "--total: a number of 1 or more"),
        (("--description", "x", "--model", "gpt-4o"), "--model: INTERFACE/MODEL"),
        (("--description", "x", "--out", "tickets.csv"), "tickets.csv is there already"),
        (("--checkpoints", "none"), "none"),
        (
            ("--checkpoints", "none", "--tasks", "ifeval,coeval:runs/mine"),
            "coeval:runs/mine: a judge is needed, with the server that has it; add --judge MODEL@URL",
        ),
        (("--checkpoints", "none", "--tasks", "writingbench", "--judge", "flash"), "add --judge MODEL@URL"),
    ],
)
def test_what_is_wrong_is_named_by_its_flag_and_nothing_is_written(
    flags: tuple[str, ...], said: str, here: Path, coeval: Command
) -> None:
    (here / "tickets.csv").write_text(TICKETS)
    (here / "other.csv").write_text("a,b\n1,2\n")
    ended = coeval("init", *flags)
    assert (ended.code, said in ended.err) == (1, True), ended.err
    assert sorted(path.name for path in here.iterdir()) == ["other.csv", "tickets.csv"]


def test_its_other_name_works_and_is_not_listed(here: Path, coeval: Command) -> None:
    assert coeval("wizard", "--description", "Do it.", "--out", "my.yaml").code == 0
    assert (here / "my.yaml").exists()
    shown = coeval("--help").out
    assert ("  init " in shown, "wizard" in shown) == (True, False)


BY_TABLE = (
    (b"What do you have? [1]", b"2"),
    (b"The table of items?", b"tickets.csv"),
    (b"Name of the experiment? [tickets]", b""),
    (b"the prompts?", b"wat"),
    (b"the prompts?", b"text"),
    (b"the right label (Return: none)?", b"team"),
    (b"1. (Return: none)", b""),
    (b"File to write? [tickets.yaml]", b""),
)


def in_a_terminal(folder: Path, last: bytes | None) -> tuple[int, bytes]:
    """The exit code and what an 80-column terminal shows of a table's questions; without a ``last`` answer,
    Ctrl-C in its place."""
    (folder / "tickets.csv").write_text(TICKETS)
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    words = [sys.executable, "-m", "coeval", "init"]
    with subprocess.Popen(
        words, cwd=folder, stdin=its, stdout=its, stderr=its, start_new_session=True
    ) as process:
        os.close(its)
        shown = seen = b""
        for question, line in (*BY_TABLE, (b"Write to tickets.yaml?", last)):
            while question not in seen:
                seen += os.read(mine, 1000)
            before, _, seen = seen.partition(question)
            shown += before + question
            if line is None:
                interrupt(process)
            else:
                os.write(mine, line + b"\n")
        with suppress(OSError):  # Linux ends a terminal whose other side is gone so
            while piece := os.read(mine, 1000):
                seen += piece
        code = process.wait(30)
    os.close(mine)
    return code, shown + seen


@pytest.mark.process
def test_a_terminal_shows_whole_lines_asks_again_and_writes(tmp_path: Path) -> None:
    code, shown = in_a_terminal(tmp_path, b"y")
    assert code == 0, shown
    assert b"no column is called 'wat'" in shown
    assert b"coeval run --config tickets.yaml" in shown
    items = load_config(tmp_path / "tickets.yaml").tasks[0].items
    assert items is not None
    assert (items.prompt, items.label) == ("text", "team")
    plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    assert [line for line in plain.splitlines() if len(line) > 80] == []


@pytest.mark.process
def test_ctrl_c_at_the_last_question_leaves_no_file(tmp_path: Path) -> None:
    code, shown = in_a_terminal(tmp_path, None)
    assert (code, b"nothing was written" in shown) == (130, True), shown
    assert [path.name for path in tmp_path.iterdir()] == ["tickets.csv"]
