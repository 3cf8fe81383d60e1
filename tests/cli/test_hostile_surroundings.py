"""What a terminal, a folder's name or a daemon's start must not do to a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from coeval import load_config, open_run, run

PROGRAM = [sys.executable, "-m", "coeval", "run", "--config", "e.yaml"]


def write(folder: Path, storage: str, skill: float = 0.9, **experiment: object) -> Path:
    """An experiment of one simulated model on four items."""
    model = {
        "name": "m",
        "interface": "simulated",
        "roles": ["teacher", "student", "judge"],
        "parameters": {"skill": skill},
    }
    task = {
        "name": "t",
        "description": "Say something.",
        "target_attributes": {"a": ["x", "y"]},
        "sampling": {"total": 4},
        "rubric": {"good": "It is good."},
    }
    data = {
        "models": [model],
        "tasks": [task],
        "experiment": {"id": "e", "storage_folder": storage, **experiment},
    }
    path = folder / "e.yaml"
    path.write_bytes(msgspec.json.encode(data))
    return path


def overall(folder: Path) -> float | None:
    return open_run(folder).results().students[0].mean


@pytest.mark.parametrize(("plain", "pattern"), [("runs1", "runs[1]"), ("ra", "r*"), ("rb", "r?")])
def test_a_folder_named_like_a_pattern_is_read_as_itself(tmp_path: Path, plain: str, pattern: str) -> None:
    for name, skill in ((plain, 1.0), (pattern, 0.0)):
        run(load_config(write(tmp_path, str(tmp_path / name), skill)))
    high, low = overall(tmp_path / plain / "e"), overall(tmp_path / pattern / "e")
    assert high is not None
    assert low is not None
    assert high > 0.5 > low


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "~/kept")
    assert run(load_config(path)).exit_code == 0
    assert (tmp_path / "home" / "kept" / "e" / "meta.json").exists()
    assert not (tmp_path / "~").exists()


@pytest.mark.slow
def test_a_terminal_without_these_characters_and_one_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "runs")
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(PROGRAM, cwd=tmp_path, env=narrow, capture_output=True, check=False)
    assert shown.returncode == 0, shown.stderr
    closed = ["sh", "-c", 'exec "$@" --continue >&- 2>&-', "sh", *PROGRAM]
    assert subprocess.run(closed, cwd=tmp_path, check=False).returncode == 0


@pytest.mark.slow
def test_a_run_that_does_not_start_replaces_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "runs")
    assert subprocess.run(PROGRAM, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    before = {p: p.read_bytes() for p in (tmp_path / "runs/e").rglob("*.jsonl")}
    serve = [sys.executable, "-m", "coeval", "simulate", "--port", "0", "--model", "m", "--api-key", "secret"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[3].rstrip(":")
        data = msgspec.json.decode(path.read_bytes())
        data["models"][0] |= {"interface": "vllm", "parameters": {"base_url": url}}
        path.write_bytes(msgspec.json.encode(data))
        refused = subprocess.run([*PROGRAM, "--overwrite"], cwd=tmp_path, capture_output=True, check=False)
        server.terminate()
    assert refused.returncode == 2, refused.stderr
    assert {p: p.read_bytes() for p in (tmp_path / "runs/e").rglob("*.jsonl")} == before
    assert open_run(tmp_path / "runs/e").results().students[0].n == 4


def test_what_a_file_says_moves_no_cursor(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text('experiment: {"\\e[2Jid": x}\n')
    told = subprocess.run(PROGRAM, cwd=tmp_path, capture_output=True, check=False)
    assert told.returncode == 1
    assert b"\x1b" not in told.stderr
