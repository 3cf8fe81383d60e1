"""For a misspelt command those are named that there are; a warning looks like one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("list",), "did you mean datasets list?"),
        (("statsu", "--run", "x"), "did you mean status?"),
        (("result",), "did you mean results?"),
        (("fetch", "ifeval"), "did you mean datasets fetch?"),
        (
            ("frobnicate",),
            "there are run, wizard, plan, describe, generate, ingest, probe, models, status, results",
        ),
        (("datasets", "lst"), "did you mean list?"),
        (("agregate", "--out", "x"), "did you mean sweep aggregate?"),
        (("sweep", "agregate"), "did you mean aggregate?"),
    ],
)
def test_for_a_misspelt_command_those_are_named_that_there_are(
    words: tuple[str, ...], hint: str, here: Path, coeval: Command
) -> None:
    ended = coeval(*words)
    assert (ended.code, ended.out) == (1, "")
    assert hint in ended.err
    assert list(here.iterdir()) == []


def test_a_warning_that_is_only_logged_looks_like_one(here: Path) -> None:
    lab = Lab(here)
    keys = here / "keys.yaml"
    keys.write_text("providers: {}\n")
    keys.chmod(0o644)
    words = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file), "--dry-run"]
    ended = subprocess.run(words, cwd=here, capture_output=True, text=True, check=True)
    assert ended.stderr == f"warning: {keys} can be read by every user of this machine; `chmod 600` it.\n"
