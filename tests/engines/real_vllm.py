"""A real vLLM on this machine's processor: started, asked, killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from coeval.sweeps.server_process import find_free_port

VARIABLE = "COEVAL_VLLM"
"""Names the environment that has vLLM: what `make test-vllm` makes."""
# A start takes 40 s of processor time; other processes may want it too.
_UP_WITHIN_S = 600.0
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
# Without the last two a seeded request kills the engine on a processor where its prompt is read in parts.
_FLAGS = (
    *("--host", "127.0.0.1", "--enforce-eager", "--dtype", "float32"),
    *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"),
)


def home() -> Path | None:
    """The environment that has vLLM; None where nobody named one."""
    named = os.environ.get(VARIABLE)
    return None if named is None else Path(named).absolute()


def command(checkpoint: str, name: str, port: str, window: int, *more: str) -> list[str]:
    found = home()
    assert found is not None
    served = ("serve", checkpoint, "--served-model-name", name, "--port", port)
    return [str(found / "bin" / "vllm"), *served, "--max-model-len", str(window), *_FLAGS, *more]


def server_command(window: int) -> str:
    """What `coeval sweep` fills."""
    assigned = (f"{name}={value}" for name, value in _ENVIRONMENT.items())
    return " ".join(["env", *assigned, *command("{checkpoint}", "{name}", "{port}", window)])


def _open(url: str, data: bytes | None = None, timeout_s: float = 60.0) -> Any:
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own
    return urllib.request.urlopen(request, timeout=timeout_s)  # noqa: S310


class Said(NamedTuple):
    status: int
    body: dict[str, Any]


@dataclass
class Vllm:
    """A server that is up."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def ask(self, **body: Any) -> Said:
        """Post a chat completion; an error is a reply too."""
        data = json.dumps({"model": "tiny", **body}).encode()
        try:
            with _open(f"{self.url}/chat/completions", data, 300) as reply:
                return Said(reply.status, json.load(reply))
        except urllib.error.HTTPError as error:
            return Said(error.code, json.load(error))

    def tokens(self) -> tuple[int, int]:
        """What it counts of prompts and answers itself."""
        with _open(self.url.removesuffix("/v1") + "/metrics") as reply:
            text = reply.read().decode()
        found = (
            re.findall(rf"^vllm:{kind}_tokens_total\{{.*\}} (\S+)$", text, re.MULTILINE)
            for kind in ("prompt", "generation")
        )
        prompt, generation = (round(sum(map(float, numbers))) for numbers in found)
        return prompt, generation

    def kill(self) -> None:
        """End it as a crash does, with all that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serving(checkpoint: Path, log: Path, window: int, *more: str, port: int = 0) -> Iterator[Vllm]:
    """Serve a checkpoint as ``tiny``, once it is up."""
    port = port or find_free_port("127.0.0.1")
    words = command(str(checkpoint), "tiny", str(port), window, *more)
    environment: Mapping[str, str] = {**os.environ, **_ENVIRONMENT}
    with log.open("ab") as written:
        process = subprocess.Popen(
            words, stdout=written, stderr=written, env=environment, start_new_session=True
        )
    try:
        _wait_for(port, process, log)
        yield Vllm(process, port)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _UP_WITHIN_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            with _open(f"http://127.0.0.1:{port}/health", timeout_s=5):
                return
        except OSError:
            time.sleep(1)
    raise AssertionError("vLLM was not up in time")
