"""What the guides describe and this version lacks is named so, with what there is instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab

from coeval.cli.commands.later import INSTEAD


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_a_command_that_comes_later_says_so_however_it_is_called(
    name: str, here: Path, coeval: Command
) -> None:
    for arguments in ((), ("--help",), ("--config", "my.yaml", "--estimate-samples", "0"), ("a", "-x")):
        ended = coeval(name, *arguments)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == f"coeval {name}: not in this version; {INSTEAD[name]}\n"
    assert list(here.iterdir()) == []


def test_the_help_does_not_list_them(coeval: Command) -> None:
    listed = coeval("--help").out.split()
    assert "sweep" not in listed
    assert "results" in listed


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
    ],
)
def test_for_a_misspelt_command_those_are_named_that_there_are(
    words: tuple[str, ...], hint: str, here: Path, coeval: Command
) -> None:
    ended = coeval(*words)
    assert (ended.code, ended.out) == (1, "")
    assert hint in ended.err
    assert not any(f"mean {name}" in ended.err for name in INSTEAD)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "instead"),
    [],
)
def test_so_does_an_option(flags: tuple[str, ...], instead: str, here: Path, coeval: Command) -> None:
    lab = Lab(here)
    assert lab.file.exists()
    ended = coeval(*flags)
    assert (ended.code, ended.out) == (1, "")
    assert "not in this version" in ended.err
    assert instead in ended.err
    assert not lab.path.exists()


def test_a_warning_that_is_only_logged_looks_like_one(here: Path) -> None:
    lab = Lab(here)
    keys = here / "keys.yaml"
    keys.write_text("providers: {}\n")
    keys.chmod(0o644)
    words = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file), "--dry-run"]
    ended = subprocess.run(words, cwd=here, capture_output=True, text=True, check=True)
    assert ended.stderr == f"warning: {keys} can be read by every user of this machine; `chmod 600` it.\n"
