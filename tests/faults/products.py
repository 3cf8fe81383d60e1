"""Both programs on one model behind a host, each in a folder of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cli.eval_process import surroundings, write_prompts
from cli.invoked import Ended
from cli.warm_process import EVAL_FRAMEWORK, WarmProcess
from ruamel.yaml import YAML

N = 60
KEY = "sk-planted-4f8Kq2Zr7Lw9Xb3T"
PRODUCTS = ("coeval run", "eval-framework")


class Product:
    """A program in a folder of its own, on a model behind a host."""

    def __init__(self, name: str, folder: Path, url: str) -> None:
        self.name, self.folder, self.url = name, folder, url
        if name == "eval-framework":
            self.output = folder / "outputs"
            prompts = [f"Say {n}." for n in range(N)]
            self.prompts = write_prompts(folder / "prompts.jsonl", "punctuation:no_comma", prompts)
        else:
            self.output = folder / "runs" / "e"
            self._configure(None)

    def _configure(self, max_calls: int | None) -> None:
        quota: dict[str, Any] = {"quota": {"m": {"max_calls": max_calls}}} if max_calls else {}
        config = {
            "models": [
                {
                    "name": "m", "interface": "vllm", "roles": ["student"],
                    "parameters": {"base_url": self.url, "max_concurrency": 8}, "access_key": KEY,
                },
                {"name": "own", "interface": "benchmark", "roles": ["teacher"]},
            ],
            "tasks": [{
                "name": "t", "description": "Say a number.", "output_description": "A number.",
                "label_attributes": ["digit"], "target_attributes": {"digit": ["one", "two"]},
                "sampling": {"target": [0, 0], "total": N}, "rubric": {}, "category": "benchmark",
            }],
            "experiment": {"id": "e", "storage_folder": str(self.folder / "runs"), **quota},
        }  # fmt: skip
        with (self.folder / "e.yaml").open("w") as file:
            YAML(typ="safe", pure=True).dump(config, file)
        items = self.output / "phase3_datapoints" / "t.own.datapoints.jsonl"
        items.parent.mkdir(parents=True, exist_ok=True)
        if not items.exists():
            attributes = {"sampled_target_attributes": {"digit": "one"}}
            lines = [{"id": f"{n}", "prompt": f"Say {n}.", **attributes} for n in range(N)]
            items.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def words(self, max_calls: int | None) -> list[str]:
        if self.name == "eval-framework":
            how = ["--tasks", "ifeval", "--ifeval-input", str(self.prompts), "--model", "m"]
            how += ["--base-url", self.url, "--api-key", KEY, "--num-threads", "8", "--top-k", "5"]
            return [*how, *(["--max-calls", str(max_calls)] if max_calls else [])]
        self._configure(max_calls)
        again = ["--continue"] if (self.output / "meta.json").exists() else []
        return ["run", "--config", str(self.folder / "e.yaml"), *again]

    def start(self, *flags: str, max_calls: int | None = None) -> WarmProcess:
        words = [*self.words(max_calls), *flags]
        module = EVAL_FRAMEWORK if self.name == "eval-framework" else "coeval"
        return WarmProcess(*words, module=module, cwd=self.folder, env=surroundings(self.folder))

    def run(self, *flags: str, max_calls: int | None = None) -> Ended:
        """``flags`` are those that both programs have."""
        return ended(self.start(*flags, max_calls=max_calls))

    def answers(self) -> dict[str, dict[str, Any]]:
        """The good answers on disk."""
        return {record["id"]: record for record in self._lines() if record.get("status", "ok") == "ok"}

    def failures(self) -> list[dict[str, Any]]:
        """The failed ones."""
        return [record for record in self._lines() if record.get("status") == "failed"]

    def _lines(self) -> Iterator[dict[str, Any]]:
        for path in self.output.rglob("*responses.jsonl"):
            yield from map(json.loads, path.read_text().splitlines())

    def errors(self) -> list[dict[str, Any]]:
        path = self.output / "run_errors.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def used(self) -> dict[str, Any]:
        """What the folder's account says of the model."""
        counted: dict[str, Any] = json.loads((self.output / "usage.json").read_text())["models"]["m"]
        return counted

    def sent(self) -> int:
        return int(self.used()["requests"])


def ended(process: WarmProcess) -> Ended:
    out, err = process.communicate()
    assert "Traceback" not in err
    assert "internal error" not in err
    assert "Logging error" not in err
    assert KEY not in out + err
    return Ended(process.wait(), out, err)


async def in_thread(call: Callable[..., Ended], *arguments: Any, **named: Any) -> Ended:
    return await asyncio.to_thread(call, *arguments, **named)
