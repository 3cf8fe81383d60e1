"""`coeval repair` on a terminal of 80 columns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli.terminal import on_terminal
from pipeline.experiments import Lab, model, task


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A run with two damaged evaluations, and a control sequence in each of them."""
    long = "a-model-with-quite-a-long-name-1"
    made = Lab(tmp_path, models=[model("ann"), model(long)], tasks=[task(total=2)])
    assert made.run().exit_code == 0
    path = made.path / "phase5_evaluations" / f"story.{long}.{long}.evaluations.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = '{"id": "\x9b31m", "scores": {"plot": "Great"}}\n'.encode()
    lines[2] = b"garbage \x1b[2J\n"
    path.write_bytes(b"".join(lines))
    return made


def repair(lab: Lab, *words: str, code: int = 0) -> str:
    seen = on_terminal(
        [sys.executable, "-m", "coeval", "repair", "--run", lab.path, *words], 80, cwd=lab.folder
    )
    shown = "\n".join(seen.screen)
    assert seen.code == code, shown
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    return shown.rstrip("\n")


def test_a_dry_run_shows_counts_reasons_and_examples_within_the_terminal(lab: Lab) -> None:
    shown = repair(lab, "--dry-run", "--stats", "--breakdown", "--examples", "1", "--show-valid", "1")
    paths = [line for line in shown.splitlines() if ".jsonl" in line]
    assert paths, "a path stays in one piece: the terminal folds it"
    assert [line for line in shown.splitlines() if line not in paths and len(line) > 80] == []
    table = {line.split()[0]: line.split()[1:] for line in shown.splitlines()[1:6]}
    assert table["evaluation"] == ["16", "0", "2", "16", "14", "2"]
    assert table["response_collection"] == ["8", "0", "0", "8", "8", "0"]
    assert "level" in shown
    assert "unreadable" in shown
    assert "plot: 'Great'" in shown
    assert r"garbage \x1b[2J" in shown
    assert "Valid lines:" in shown
    assert "2 invalid records. Nothing was changed;" in shown
    assert not (lab.path / "repaired").exists()


@pytest.mark.slow
def test_repairing_says_where_the_records_went_and_how_to_go_on(lab: Lab) -> None:
    shown = repair(lab)
    [aside] = (lab.path / "repaired").iterdir()
    assert f"2 invalid records set aside in {aside}" in " ".join(shown.split())
    assert f"coeval run --config {lab.path}/config.yaml --continue" in shown
    again = repair(lab, "--phase", "5")
    assert "All records are valid." in again
    assert again.splitlines()[1].split() == ["evaluation", "14", "0", "0", "16", "14", "2"]
    assert lab.run(continue_run=True).exit_code == 0
    assert repair(lab).splitlines()[-1] == "All records are valid."


def test_wrong_requests_exit_with_1_and_the_way_out(lab: Lab) -> None:
    assert "the phases are attribute_mapping" in repair(lab, "--phase", "judging", code=1)
    lab.id = "other"
    assert "there is no folder" in repair(lab, code=1)
