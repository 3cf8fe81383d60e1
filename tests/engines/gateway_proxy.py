"""A real LiteLLM proxy as a process of its own, in front of `gateway_upstream`; no database."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

from engines.gateway_upstream import Upstream, upstream

EXECUTABLE = Path(os.environ.get("COEVAL_GATEWAY") or "no-litellm")
"""``make test-gateway`` sets it."""
KEY = "sk-coeval-tests-0123456789abcdef"
"""The proxy refuses short ones."""

_READY_WITHIN_S = 180.0


class Proxy:
    """``url`` is its base URL, ``upstream`` what it asks."""

    def __init__(self, url: str, behind: Upstream) -> None:
        self.url = url
        self.upstream = behind

    def ask(self, model: str, text: str, **fields: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
        """The status, headers and body of its reply, as they come: what fakes are made of."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 5, **fields}
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        url, content = f"{self.url}/chat/completions", json.dumps(body).encode()
        request = urllib.request.Request(url, content, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
                return reply.status, _lowered(reply.headers), json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, _lowered(error.headers), json.load(error)


def _lowered(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def proxy(folder: Path) -> Iterator[Proxy]:
    """Start one; its configuration and log lie in ``folder``."""
    with upstream() as behind, socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        (folder / "proxy.yaml").write_text(json.dumps(_configured(behind.url)))  # JSON is YAML
        command = [str(EXECUTABLE), "--config", "proxy.yaml", "--host", "127.0.0.1", "--port", str(port)]
        quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
        with (folder / "proxy.log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=os.environ | quiet, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                _wait_for(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "proxy.log")
                yield Proxy(f"http://127.0.0.1:{port}/v1", behind)
            finally:
                process.terminate()
                process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310
                return
        except OSError:
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(0.5)
    raise AssertionError(f"the proxy is not ready: {log.read_text()[-2000:]}")


def _configured(url: str) -> dict[str, Any]:
    def route(alias: str, model: str, **more: Any) -> dict[str, Any]:
        at = {"api_base": url, "api_key": "up"}
        return {"model_name": alias, "litellm_params": {"model": f"openai/{model}", **at, **more}}

    billed = {"input_cost_per_token": 1e-5, "output_cost_per_token": 2e-5}  # $0.02 an answer
    mock = {"model": "anthropic/claude-3-5-sonnet-20241022", "api_key": "x", "mock_response": "red"}
    alike = ("down", "spent", "limited", "filtered", "slow")
    return {
        "model_list": [
            *(route(f"{name}-1", name) for name in alike),
            route("plain-1", "ok"),
            route("primary-1", "down"),
            route("backup-1", "ok"),
            route("pair-1", "ok"),
            route("pair-1", "better"),
            route("priced-1", "ok", **billed),
            route("capped-1", "ok", **billed, max_budget=0.05, budget_duration="1d"),
            route("dead-1", "ok", api_base="http://127.0.0.1:9/v1"),
            route("wild/*", "*"),
            {"model_name": "claude-1", "litellm_params": mock},
        ],
        "router_settings": {"fallbacks": [{"primary-1": ["backup-1"]}], "num_retries": 0},
        "litellm_settings": {
            "request_timeout": 2,
            "cache": True,
            "cache_params": {"type": "local"},
            "drop_params": False,
            "num_retries": 0,
        },
        "general_settings": {"master_key": KEY},
    }
