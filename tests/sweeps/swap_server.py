"""A server whose weights can be swapped, of vLLM's and SGLang's shape.

``swap_server.py PORT PATH NAME [FAULT…]``. Weights are a list of numbers in ``model.safetensors``, those of
an adapter in ``adapter_model.safetensors``; every answer depends on all of them. Faults of a load, but for
an adapter's first: ``stale``: nothing changes; ``half``: a random part is loaded; ``left``: the same part is
never loaded; ``fails``: half a load and a 500. ``half:0.2``: once in five. ``sglang``: SGLang's shape.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TENSORS = 64


def write_checkpoint(folder: Path, seed: int, *, config: str = '{"hidden_size": 8}', base: str = "") -> Path:
    """A checkpoint of random weights; with ``base`` an adapter to that."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = json.dumps(random.Random(seed).choices(range(1000), k=TENSORS))
    if base:
        (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base, "r": 8}))
        (folder / "adapter_model.safetensors").write_text(weights)
    else:
        (folder / "config.json").write_text(config)
        (folder / "tokenizer.json").write_text("{}")
        (folder / "model.safetensors").write_text(weights)
    return folder


def weights_in(path: str) -> list[int]:
    for name in ("model.safetensors", "adapter_model.safetensors"):
        if (file := Path(path) / name).exists():
            found: list[int] = json.loads(file.read_text())
            return found
    raise FileNotFoundError(path)


@dataclass
class Engine:
    """What a server holds."""

    path: str
    name: str
    faults: dict[str, float] = field(default_factory=dict)
    random: random.Random = field(default_factory=lambda: random.Random(os.getpid()))
    is_sglang: bool = False
    swaps: bool = True
    weights: list[int] = field(default_factory=list)
    adapters: dict[str, list[int]] = field(default_factory=dict)
    awake: set[str] = field(default_factory=lambda: {"weights", "kv_cache"})
    cache: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = weights_in(self.path)
        self.left = range(TENSORS // 2) if "left" in self.faults else range(0)
        self.before: list[int] = []
        self.is_first = False

    def falls(self, fault: str) -> bool:
        return self.random.random() < self.faults.get(fault, 0.0)

    def loaded(self, path: str, before: Sequence[int]) -> list[int]:
        """What comes of loading over ``before``."""
        new = weights_in(path)
        self.is_first = not before
        if self.is_first:
            return new
        kept = set(self.left)
        if self.falls("stale"):
            kept = set(range(TENSORS))
        elif self.falls("half") or self.falls("fails"):
            kept |= {at for at in range(TENSORS) if self.random.random() < 0.5}
        return [before[at] if at in kept else new[at] for at in range(TENSORS)]

    def holds(self, model: str) -> list[int]:
        """The weights that answer for a model, an adapter's behind those of its base."""
        name = model.partition(":")[2] if self.is_sglang and ":" in model else model
        return [*self.weights, *self.adapters.get(name, [])]

    def answer(self, model: str, prompt: str) -> str:
        if len(self.awake) < 2:
            raise RuntimeError("the engine is asleep")
        if self.name != model and model.removeprefix(f"{self.name}:") not in self.adapters:
            raise LookupError(f"The model `{model}` does not exist.")
        said = hashlib.sha256(repr((prompt, self.holds(model))).encode()).hexdigest()
        said = f"{said[:8]}{',' if said[8] < '8' else ''} {said[9:16]}"
        # The cache of prefixes is by text, and outlives weights unless it is reset.
        return said if self.adapters else self.cache.setdefault(prompt, said)

    def post(self, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> Any:
        match path.removeprefix("/v1"), self.is_sglang:
            case "/completions", _:
                return {"choices": [{"text": self.answer(body["model"], body["prompt"])}]}
            case "/chat/completions", _:
                text = self.answer(body["model"], json.dumps(body["messages"]))
                usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
                message = {"role": "assistant", "content": text}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                return {"model": body["model"], "choices": [choice], "usage": usage}
            case ("/load_lora_adapter" | "/unload_lora_adapter") as way, sglang if (
                path.startswith("/v1") != sglang and self.swaps
            ):
                if way == "/unload_lora_adapter":
                    self.before = self.adapters.pop(body["lora_name"])
                else:
                    self.adapters[body["lora_name"]] = self.loaded(body["lora_path"], self.before)
            case "/update_weights_from_disk", True:
                self.weights = self.loaded(body["model_path"], self.weights)
                self.cache.clear()
                if self.falls("fails"):
                    return {"success": False, "message": "out of memory"}
            case "/sleep", False if self.swaps and query == {"level": ["2"]}:
                self.awake.clear()
            case "/wake_up", False if self.swaps:
                self.awake.update(query["tags"])
            case "/collective_rpc", False if self.swaps and "weights" in self.awake:
                assert body == {"method": "reload_weights"}
                self.weights = self.loaded(self.path, self.weights)
            case "/reset_prefix_cache", False if self.swaps:
                self.cache.clear()
            case _:
                return None
        if not self.is_first and self.falls("fails"):
            raise RuntimeError("CUDA out of memory")
        return {"success": True} if self.is_sglang else "Success"


def handler_of(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            names = [engine.name, *engine.adapters]
            match self.path, engine.is_sglang:
                case "/health", _:
                    self.say(200, {})
                case "/get_model_info", True:
                    self.say(200, {"model_path": engine.path})
                case "/v1/models", _:
                    self.say(200, {"data": [{"id": name} for name in names]})
                case _:
                    self.say(404, {"detail": "Not Found"})

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            parts = urlsplit(self.path)
            try:
                reply = engine.post(parts.path, parse_qs(parts.query), json.loads(content or b"{}"))
            except LookupError as error:
                self.say(404, {"error": {"message": str(error)}})
            except (RuntimeError, OSError) as error:
                self.say(500, {"error": {"message": str(error)}})
            else:
                self.say(404 if reply is None else 200, reply or {"detail": "Not Found"})

        def say(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nobody reads it."""

    return Handler


def faults_of(words: Sequence[str]) -> dict[str, float]:
    return {word.partition(":")[0]: float(word.partition(":")[2] or 1) for word in words}


def main() -> None:
    port, path, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    faults = faults_of(sys.argv[4:])
    swaps = not {"VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"}.isdisjoint(os.environ)
    engine = Engine(path, name, faults, is_sglang="sglang" in faults, swaps=swaps)
    ThreadingHTTPServer(("127.0.0.1", port), handler_of(engine)).serve_forever()


if __name__ == "__main__":
    main()
