"""The page on sweeps, from its first command to its last; what it shows of their output is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coeval.cli.commands.sweep.sweep_report import settings_of
from coeval.sweeps.health import free_port
from coeval.sweeps.server_command import HOST

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
SERVES = "coeval simulate "


def blocks(*languages: str) -> list[tuple[str, str]]:
    return re.findall(rf"^```({'|'.join(languages)})\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "coeval").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coeval "$@"\n', encoding="utf-8")
    (tmp_path / "coeval").chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}


def shown(said: str) -> Iterator[tuple[str, ...]]:
    """The lines, however wide their columns are."""
    return (tuple(line.split()) for line in said.splitlines())


@pytest.mark.slow
def test_the_page_on_sweeps_runs_from_top_to_bottom(tmp_path: Path, environment: dict[str, str]) -> None:
    port, said, servers = str(free_port(HOST)), "", []
    try:
        for language, block in blocks("bash", "text", "yaml"):
            here = block.replace("8100", port)
            if language == "yaml" and block.startswith("# sweep.yaml"):
                (tmp_path / "sweep.yaml").write_text(here, encoding="utf-8")
            elif language == "bash" and block.startswith(SERVES):
                server = subprocess.Popen(
                    here.split(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
                )
                servers.append(server)
                assert server.stdout is not None
                server.stdout.readline()
            elif language == "bash":
                ended = subprocess.run(
                    ["bash", "-euc", here], cwd=tmp_path, env=environment, capture_output=True, text=True
                )
                assert ended.returncode == 0, (block, ended.stdout, ended.stderr)
                said = ended.stdout + ended.stderr
            elif language == "text" and not block.startswith(("coeval ", "cp ", "outputs/run_a/\n")):
                assert set(shown(block)) <= set(shown(said)), (block, said)
    finally:
        for server in servers:
            server.terminate()
            server.communicate()
    assert (tmp_path / "outputs" / "run_a" / "plots" / "curves.html").exists()
    assert (tmp_path / "outputs" / "plots" / "coeval-quickstart.svg").exists()


def test_the_files_of_the_page_are_read(tmp_path: Path) -> None:
    for number, (_, block) in enumerate(blocks("yaml")):
        (tmp_path / f"{number}.yaml").write_text(block, encoding="utf-8")
        settings_of({}, tmp_path / f"{number}.yaml")
