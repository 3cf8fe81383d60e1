"""A small server of OpenAI's shape as a process of its own: ``odd_server.py PORT FAULT…``.

``hangs``: it never listens. ``dies``: it ends at once, with a message. ``sick``: it lists its models, and
answers each question with 500. ``other``: it serves another model. ``stubborn``: SIGTERM does not end it.
``noisy``: it writes without an end of line. ``family``: it has a child in its group, and one in a session of
its own. ``mute``: it has no /health. ``tells``: it writes down that it was asked. ``lenient``: it lists
another model, and answers whatever it is called. ``spills``: it writes down its environment. ``narrow``: its
window is 64 tokens. ``picky``: it takes no prompt but the first. ``wrong``: it ends at once, as always.
``frail``: it ends once, amid its work.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LATENCY_S = 0.01
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


class JsonHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """The faults say what is written."""


class Handler(JsonHandler):
    faults: frozenset[str] = frozenset()

    def do_GET(self) -> None:
        if "tells" in self.faults:
            Path(os.environ["ASKED"]).write_text(self.path)
        if self.path == "/v1/models":
            name = "other" if self.faults & {"other", "lenient"} else "tiny"
            self.say(200, {"data": [{"id": name, "max_model_len": 64 if "narrow" in self.faults else 4096}]})
        else:
            self.say(200 if self.path == "/health" and "mute" not in self.faults else 404, {})

    def do_POST(self) -> None:
        requested = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(LATENCY_S)
        if "sick" in self.faults:
            self.say(500, {"error": {"message": "CUDA error: an illegal memory access was encountered"}})
        elif "picky" in self.faults and not requested["messages"][0]["content"].endswith(" 0."):
            self.say(400, {"error": {"message": "unknown role: user"}})
        elif "other" in self.faults and requested["model"] != "other":
            self.say(404, {"error": {"message": f"The model `{requested['model']}` does not exist."}})
        else:
            message = {"role": "assistant", "content": "All is well"}
            usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.say(200, {"choices": [choice], "usage": usage})


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked is gone."""


def break_down(marked: Path) -> None:
    """End as an engine that crashes once: its error, then what Python says of what is left."""
    time.sleep(0.6)
    marked.touch()
    print("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", file=sys.stderr)
    for n in range(30):
        print(
            f"UserWarning: resource_tracker: There appear to be {n} leaked semaphore objects", file=sys.stderr
        )
    os._exit(1)


def main() -> None:
    port, faults = int(sys.argv[1]), frozenset(sys.argv[2:])
    if "stubborn" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "spills" in faults:
        Path(os.environ["SPILLED"]).write_text(json.dumps(dict(os.environ)))
    if "noisy" in faults:
        os.write(1, b"x" * (3 << 20))
    if "family" in faults:
        subprocess.Popen(SLEEPER, env={})  # as one that has written over its environment
        subprocess.Popen(SLEEPER, start_new_session=True)
    if "dies" in faults:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    if "wrong" in faults:
        print(
            "(APIServer pid=1) resource_tracker: 1 leaked shared_memory objects to clean up", file=sys.stderr
        )
        sys.exit(f"RuntimeError: Sleep mode is not supported on current platform ({os.getpid()}).")
    if "frail" in faults and not (asked := Path(os.environ["ASKED"])).exists():
        threading.Thread(target=break_down, args=(asked,), daemon=True).start()
    if "hangs" in faults:
        time.sleep(600)
    Handler.faults = faults
    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
