"""An upstream that misbehaves by the model's name, for a real gateway in front of it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SLOW_S = 30.0

_ERRORS: dict[str, tuple[int, dict[str, Any], dict[str, str]]] = {
    "down": (500, {"message": "The server had an error.", "type": "server_error", "code": None}, {}),
    "spent": (
        429,
        {
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
        },
        {},
    ),
    "limited": (
        429,
        {"message": "Rate limit reached.", "type": "requests", "code": "rate_limit_exceeded"},
        {"Retry-After": "25200"},
    ),
    "filtered": (
        400,
        {
            "message": "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy.",
            "type": "invalid_request_error",
            "code": "content_filter",
            "innererror": {"content_filter_result": {"hate": {"filtered": True, "severity": "high"}}},
        },
        {},
    ),
}


class Upstream:
    """``url`` is its base URL; ``requests`` counts what arrived by model, ``bodies`` are the last ones."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []


@contextmanager
def upstream() -> Iterator[Upstream]:
    """Serve as long as this is open. No two answers are alike: each ends in its number."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model = str(body["model"])
            with lock:
                served.requests[model] += 1
                served.bodies.append(body)
                number = sum(served.requests.values())
            if model == "slow":
                time.sleep(_SLOW_S)
            if model in _ERRORS:
                status, error, headers = _ERRORS[model]
                return self._send(status, {"error": error}, headers)
            message = {"role": "assistant", "content": f"red {number} of {model}"}
            answer = {
                "id": f"chatcmpl-{number}",
                "object": "chat.completion",
                "created": 1_700_000_000,
                "model": model,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
            }
            return self._send(200, answer, {})

        def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Upstream(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
