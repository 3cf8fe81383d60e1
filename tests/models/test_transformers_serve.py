"""A real server of OpenAI's shape that is not ours: `transformers serve` with the tiny random model."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.tiny_model import tiny_model

from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.models.keys import Keys
from coeval.models.open import Models

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

PATIENCE_S = 180


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """``(base URL, the model's folder)``; the server is ended with all that it started."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'coeval[local]'")
    folder = tiny_model(tmp_path_factory.mktemp("served"))
    command = Path(sys.executable).with_name("transformers")
    if not command.is_file():
        pytest.skip("there is no command `transformers`: pip install 'coeval[local]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "serve.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [command, "serve", folder, "--host", "127.0.0.1", "--port", f"{port}", "--device", "cpu"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1", folder
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(20)


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    pytest.fail(f"no answer from {url} in {PATIENCE_S} s:\n{log.read_text(errors='replace')[-2000:]}")


async def test_it_is_asked_like_vllm(served: tuple[str, Path], tmp_path: Path) -> None:
    """With eval-framework's default sampling, whose top_k this server does not know."""
    url, folder = served
    spec = ModelSpec(name="tiny", interface="vllm", model=f"{folder}", base_url=url)
    sampling = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "max_tokens": 6}
    requests = [
        Request(
            (Message("system", "Be kind"), Message("user", f"Hello {number}")),
            sampling=SamplingParameters.of(sampling),
            seed=number,
            droppable=("top_k",),
        )
        for number in range(4)
    ]
    async with Models([spec], Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)) as models:
        answers = await asyncio.gather(*map(models["tiny"].complete, requests))
    assert {answer.dropped for answer in answers} == {("top_k",)}
    assert all(0 < answer.usage.output_tokens <= 6 for answer in answers)
    assert all(answer.usage.input_tokens > 30 for answer in answers)
    assert {answer.finish_reason for answer in answers} <= {"length", "stop"}
    assert all(answer.truncated == (answer.finish_reason == "length") for answer in answers)


def test_eval_framework_runs_against_it(served: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = served
    cache = Path(os.environ.get("COEVAL_CACHE", Path.home() / ".cache" / "coeval"))
    if not (cache / "files" / "ifeval").is_dir():
        pytest.skip("IFEval's prompts are not in the cache; `coeval datasets fetch ifeval` puts them there")
    for source in (["--base-url", url], ["--local", "--device", "cpu"]):
        folder_of = tmp_path / source[0].strip("-")
        asked = ["--tasks", "ifeval", "--model", f"{folder}", *source, "--output-dir", f"{folder_of}"]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "coeval.cli.eval_framework",
                *asked,
                "--max-examples=4",
                "--max-tokens=24",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answers = (folder_of / "ifeval" / "responses.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(answers) == 4
        assert all('"response":' in answer for answer in answers)
