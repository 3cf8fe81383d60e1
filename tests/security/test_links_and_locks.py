"""A run has one writer, whatever becomes of its lock file, and its folder leads nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import EXPERIMENT, command

from coeval.store.jsonl import started
from coeval.store.rundir import RunDir

HOLD = """
import sys
from coeval.store.rundir import RunDir
with RunDir(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "e.yaml").write_text(EXPERIMENT)
    assert command(folder, "run", "--config", "e.yaml").code == 0
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    """A folder with a finished run of its own."""
    shutil.copytree(finished, tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def held(place: Path) -> Iterator[Path]:
    """The folder of a run that another process is at work on."""
    run = place / "runs" / "e"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield run
        process.communicate()


def delete(*files: Path) -> None:
    for file in files:
        file.unlink()


def replace(file: Path) -> None:
    file.unlink()
    file.write_bytes(b"")


DELETIONS: dict[str, Callable[[Path], None]] = {
    "the lock": lambda run: delete(run / ".lock"),
    "the lock and who holds it": lambda run: delete(*run.glob(".lock*")),
    "the lock, and another put there": lambda run: replace(run / ".lock"),
    "who holds it": lambda run: delete(run / ".lock.holder.json"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", DELETIONS)
def test_deleting_the_lock_admits_no_second_writer(held: Path, what: str) -> None:
    DELETIONS[what](held)
    for words in (("run", "--config", "e.yaml", "--continue"), ("repair", "--run", "runs/e")):
        ended = command(held.parents[1], *words)
        assert ended.code == 1
        assert "is in use by" in ended.err
        assert "wait for it or stop it" in ended.err


def claim(run: Path, pid: int, begun: str | None) -> None:
    """Have a run say that it is at work, in a process of this number."""
    meta = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps({**meta, "status": "running"}))
    who = {"pid": pid, "host": socket.gethostname(), "since": "2026-01-01T00:00:00Z"}
    (run / ".lock.holder.json").write_text(json.dumps(who | ({"started": begun} if begun else {})))


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["1", None])
def test_another_process_of_the_same_number_is_not_the_writer(place: Path, begun: str | None) -> None:
    run = place / "runs" / "e"
    claim(run, os.getpid(), begun)
    assert "stopped before its end" in command(place, "status", "--run", "runs/e").out
    assert command(place, "run", "--config", "e.yaml", "--continue").code == 0
    claim(run, os.getpid(), started(os.getpid()))
    assert f"running (process {os.getpid()})" in command(place, "status", "--run", "runs/e").out
    assert command(place, "run", "--config", "e.yaml", "--continue").code == 1


def test_a_process_that_ended_and_was_not_waited_for_is_not_the_writer(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place / "runs" / "e")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert RunDir(place / "runs" / "e").writer() is None
        assert command(place, "run", "--config", "e.yaml", "--continue").code == 0


def moved_out(run: Path, name: str) -> Path:
    """Have a link stand for something of the run, which now lies elsewhere."""
    target = run.parents[2] / "outside" / name.replace("/", "_")
    target.parent.mkdir(exist_ok=True)
    if (run / name).exists():
        (run / name).rename(target)
    else:
        target.write_bytes(b"theirs\n")
    (run / name).symlink_to(target)
    return target


def content(path: Path) -> dict[Path, bytes]:
    files = path.rglob("*") if path.is_dir() else [path]
    return {file: file.read_bytes() for file in files if file.is_file()}


@pytest.mark.slow
def test_a_link_out_of_the_folder_stops_every_command(place: Path) -> None:
    target = moved_out(place / "runs" / "e", "phase4_responses/t.m.responses.jsonl")
    before = content(target)
    source = EXPERIMENT.replace("id: e", "id: f").replace("runs}", "runs, resume_from: e}")
    (place / "f.yaml").write_text(source)
    for words in (
        ("status", "--run", "runs/e"),
        ("results", "--run", "runs/e"),
        ("show", "--run", "runs/e"),
        ("repair", "--run", "runs/e", "--dry-run"),
        ("repair", "--run", "runs/e"),
        ("run", "--config", "e.yaml", "--continue", "--dry-run"),
        ("run", "--config", "e.yaml", "--continue"),
        ("run", "--config", "e.yaml", "--overwrite"),
        ("run", "--config", "f.yaml"),
    ):
        refuses(place, words, f"t.m.responses.jsonl is a link to {target}, outside of its run")
    assert content(target) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "phase5_evaluations",
        "phase3_datapoints/t.other.datapoints.jsonl",
        ".lock",
        "run.log",
        "usage.json",
        "config.yaml",
        "meta.json",
        "run_errors.jsonl",
    ],
)
def test_a_link_out_of_the_folder_is_neither_read_nor_written(place: Path, name: str) -> None:
    target = moved_out(place / "runs" / "e", name)
    before = content(target)
    for words in (("results", "--run", "runs/e"), ("run", "--config", "e.yaml", "--continue")):
        refuses(place, words, f"runs/e/{name} is a link to {target}, outside of its run")
    assert content(target) == before


def refuses(place: Path, words: tuple[str, ...], message: str) -> None:
    ended = command(place, *words)
    assert ended.code == 1, words
    assert message in ended.err, words
    assert not ended.out


def test_links_that_stay_inside_and_a_folder_that_is_one_are_followed(place: Path) -> None:
    run = place / "runs" / "e"
    (run / "phase4_responses").rename(run / "answers")
    (run / "phase4_responses").symlink_to("answers")
    run.rename(place / "elsewhere")
    run.symlink_to(place / "elsewhere")
    assert command(place, "results", "--run", "runs/e").code == 0
    assert command(place, "run", "--config", "e.yaml", "--continue").code == 0


def test_links_in_a_circle_are_an_error_that_names_them(place: Path) -> None:
    file = place / "runs" / "e" / "phase4_responses" / "t.m.responses.jsonl"
    file.unlink()
    file.symlink_to(file.name)
    for name in ("status", "results"):
        ended = command(place, name, "--run", "runs/e")
        assert ended.code == 1
        assert "t.m.responses.jsonl" in ended.err
