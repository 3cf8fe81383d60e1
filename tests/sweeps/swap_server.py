"""A server that loads adapters, of vLLM's and SGLang's shape.

``swap_server.py PORT PATH NAME``. Weights are a list of numbers in ``model.safetensors``, those of an adapter
in ``adapter_model.safetensors``; every answer depends on all of them. Faults of a load over another adapter:
``stale``: nothing changes; ``left``: a part is never loaded; ``fails``: a 500, or what SGLang says for it.
``lacks``: there are no such requests. ``mute``: it answers chats alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from odd_server import JsonHandler

TENSORS = 64


def write_checkpoint(folder: Path, seed: int, *, base: str = "") -> Path:
    """A checkpoint of random weights; with ``base`` an adapter to that."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = json.dumps(random.Random(seed).choices(range(1000), k=TENSORS))
    if base:
        (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base, "r": 8}))
        (folder / "adapter_model.safetensors").write_text(weights)
    else:
        (folder / "config.json").write_text("{}")
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
    fault: str = ""
    is_sglang: bool = False
    weights: list[int] = field(default_factory=list)
    adapters: dict[str, list[int]] = field(default_factory=dict)
    before: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = weights_in(self.path)

    def loaded(self, path: str) -> list[int]:
        """What comes of loading over what was there before."""
        new = weights_in(path)
        kept = {"stale": TENSORS, "left": TENSORS // 2}.get(self.fault, 0) if self.before else 0
        return [*self.before[:kept], *new[kept:]]

    def holds(self, model: str) -> list[int]:
        """The weights that answer for a model, an adapter's behind those of its base."""
        name = model.partition(":")[2] if self.is_sglang and ":" in model else model
        return [*self.weights, *self.adapters.get(name, [])]

    def answer(self, model: str, prompt: str) -> str:
        if self.name != model and model.removeprefix(f"{self.name}:") not in self.adapters:
            raise LookupError(f"The model `{model}` does not exist.")
        said = hashlib.sha256(repr((prompt, self.holds(model))).encode()).hexdigest()
        return f"{said[:8]}{',' if said[8] < '8' else ''} {said[9:16]}"

    def post(self, path: str, body: dict[str, Any]) -> Any:
        match path.removeprefix("/v1"), self.is_sglang:
            case "/completions", _ if self.fault != "mute":
                return {"choices": [{"text": self.answer(body["model"], body["prompt"])}]}
            case "/chat/completions", _:
                text = self.answer(body["model"], json.dumps(body["messages"]))
                usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
                message = {"role": "assistant", "content": text}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                return {"model": body["model"], "choices": [choice], "usage": usage}
            case ("/load_lora_adapter" | "/unload_lora_adapter") as way, sglang if (
                path.startswith("/v1") != sglang and self.fault != "lacks"
            ):
                if self.before and self.fault == "fails":
                    if sglang:
                        return {"success": False, "error_message": "out of memory"}
                    raise RuntimeError("CUDA out of memory")
                if way == "/unload_lora_adapter":
                    self.before = self.adapters.pop(body["lora_name"])
                else:
                    self.adapters[body["lora_name"]] = self.loaded(body["lora_path"])
                return {"success": True} if sglang else "Success"
            case _:
                return None


def handler_of(engine: Engine) -> type[JsonHandler]:
    class Handler(JsonHandler):
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
            try:
                reply = engine.post(self.path, json.loads(content))
            except LookupError as error:
                self.say(404, {"error": {"message": str(error)}})
            except (RuntimeError, OSError) as error:
                self.say(500, {"error": {"message": str(error)}})
            else:
                self.say(404 if reply is None else 200, reply or {"detail": "Not Found"})

    return Handler


def main() -> None:
    port, path, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    engine = Engine(path, name, "" if "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in os.environ else "lacks")
    ThreadingHTTPServer(("127.0.0.1", port), handler_of(engine)).serve_forever()


if __name__ == "__main__":
    main()
