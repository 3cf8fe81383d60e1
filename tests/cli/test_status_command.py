"""`coeval status` on a terminal of 80 columns: what a run holds, what went wrong, whether it is alive."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
from cli.terminal import on_terminal
from pipeline.experiments import Lab, model, task

from coeval.engine.session import ErrorLine
from coeval.store.rundir import RunDir

ESCAPE = "\x1b[2J\x9b31m"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path, models=[model("ann")], tasks=[task(total=2)])
    assert made.run().exit_code == 0
    return made


def status(lab: Lab) -> list[str]:
    seen = on_terminal([sys.executable, "-m", "coeval", "status", "--run", lab.path], 80, cwd=lab.folder)
    assert seen.code == 0, seen.screen
    return seen.screen


def write_errors(lab: Lab, *errors: ErrorLine) -> None:
    with (lab.path / "run_errors.jsonl").open("ab") as file:
        for error in errors:
            file.write(msgspec.json.encode(error) + b"\n")


def failure(n: int, kind: str = "server", message: str = "the host answered 500") -> ErrorLine:
    return ErrorLine(
        at=f"2026-01-01T00:00:{n:02d}Z",
        phase="evaluation",
        id=f"story__ann__{n:05d}__ann__ann",
        model="ann",
        kind=kind,
        message=message,
    )


def test_errors_are_grouped_and_the_last_ten_shown(lab: Lab) -> None:
    write_errors(lab, *(failure(n) for n in range(1, 15)), failure(15, "timeout"), failure(16, "timeout"))
    shown = status(lab)
    groups = [line.split() for line in shown if line.split()[:2] == ["evaluation", "ann"]]
    assert groups == [["evaluation", "ann", "server", "14"], ["evaluation", "ann", "timeout", "2"]]
    assert "Last 10 of 16:" in shown
    heads = [line.split() for line in shown if line.startswith("2026-01-01")]
    assert [head[2] for head in heads] == [f"story__ann__{n:05d}__ann__ann" for n in range(7, 17)]
    assert [head[1] for head in heads][-3:] == ["server", "timeout", "timeout"]


def test_foreign_text_is_shown_short_and_moves_no_cursor(lab: Lab) -> None:
    write_errors(lab, failure(1, message=ESCAPE + "x" * 5_000))
    with (lab.path / "run_errors.jsonl").open("ab") as file:
        file.write(b'{"at": "\xff"}\n{"at": 1}\n{"torn')
    shown = "\n".join(status(lab))
    assert not any(character in shown for character in ESCAPE if not character.isprintable())
    assert "Last 1:" in shown
    assert shown.count("x") < 400


def test_lines_that_are_no_records_are_counted_with_the_way_to_look_at_them(lab: Lab) -> None:
    path = next((lab.path / "phase5_evaluations").glob("*.jsonl"))
    path.write_bytes(b"garbage\n\xff\n" + path.read_bytes())
    assert "2 invalid records; see coeval repair --run" in " ".join(status(lab))


@pytest.mark.slow
def test_a_run_that_was_killed_is_not_called_running(lab: Lab) -> None:
    folder = RunDir(lab.path)
    meta = folder.read_meta()
    meta.status = "running"
    folder.write_meta(meta)
    with folder.locked():
        assert any(f"running (process {os.getpid()})" in line for line in status(lab))
    assert "stopped before its end; go on with coeval run" in " ".join(status(lab))


def test_a_healthy_run_shows_no_errors(lab: Lab) -> None:
    shown = status(lab)
    assert shown[0] == "exp: completed (simulated models)"
    assert not any("rror" in line or "no record" in line for line in shown)
