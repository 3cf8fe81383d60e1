"""A host that is away when a program starts is told at once, by name and reason, and nothing is begun."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.warm_process import EVAL_FRAMEWORK, WarmProcess
from small_runs import experiment, folder_of

SOON_S = 25.0
"""A request is sent eight times, which takes twice as long."""


@pytest.fixture(params=["refuses", "cannot be resolved"])
def host(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A host that is away, and what is said of it."""
    if request.param == "refuses":
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            yield f"127.0.0.1:{bound.getsockname()[1]}", "no connection (Connection refused)"
    else:
        yield "nowhere.invalid", "the host name cannot be resolved"


def test_coeval_run_tells_it_soon(host: tuple[str, str], tmp_path: Path) -> None:
    where, reason = host
    file = experiment(tmp_path, f"http://{where}/v1", settings={"probe_mode": "full"})
    process = WarmProcess("run", "--config", file, cwd=tmp_path)
    err = process.communicate(SOON_S).err
    assert process.returncode == 2
    assert "5 of 5 models do not answer" in err
    assert f"teacher: POST {where}/v1/chat/completions: {reason}" in err.replace("\n", " ")
    assert not folder_of(file).meta.exists()


def test_eval_framework_tells_it_soon(host: tuple[str, str], tmp_path: Path) -> None:
    where, reason = host
    prompt = {"key": 1, "prompt": "Why?", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    (tmp_path / "prompts.jsonl").write_text(json.dumps(prompt) + "\n")
    how = ["--tasks", "ifeval", "--ifeval-input", "prompts.jsonl", "--model", "m", "--output-dir", "out"]
    process = WarmProcess(*how, "--base-url", f"http://{where}/v1", module=EVAL_FRAMEWORK, cwd=tmp_path)
    err = process.communicate(SOON_S).err
    assert process.returncode == 2
    assert f"POST {where}/v1/chat/completions: {reason}" in err.replace("\n", " ")


def test_a_name_service_that_is_away_holds_up_no_program(tmp_path: Path) -> None:
    file = experiment(tmp_path, "http://slow.invalid/v1", settings={"probe_mode": "full"})
    program = (
        "import socket, sys, time; socket.getaddrinfo = lambda *_, **__: time.sleep(120)\n"
        "from coeval.cli.entry import coeval; coeval()"
    )
    words = [sys.executable, "-c", program, "run", "--config", str(file)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SOON_S, check=False)
    assert done.returncode == 2
    assert "no answer from the name service" in done.stderr
