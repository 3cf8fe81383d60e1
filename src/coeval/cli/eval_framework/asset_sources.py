"""Which of a task's assets come from the user: a file named by a flag, a checkout, another hub dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coeval.benchmarks.assets import Library, Presence
from coeval.benchmarks.assets.cache import cache_folder
from coeval.benchmarks.assets.download import download
from coeval.benchmarks.assets.fetch import HUBS
from coeval.benchmarks.assets.manifest import SourceFailed
from coeval.core.errors import UsageError

Flags = Mapping[str, Any]

_FILES = {
    "ifeval": ("ifeval/prompts", "ifeval_input"),
    "ifbench": ("ifbench/prompts", "ifbench_input"),
    "writingbench": ("writingbench/queries", "writingbench_query"),
    "healthbench": ("healthbench/examples", "healthbench_data"),
    "alpaca-eval": ("alpaca-eval/baseline", "alpaca_eval_reference"),
}
"""Task → the asset of its prompts, and the flag for the user's own."""

_IFBENCH_FILES = {"ifbench/prompts": "data/IFBench_test.jsonl"}
_ARENA_FILES = {
    "arena-hard/questions": "data/{benchmark}/question.jsonl",
    "arena-hard/baseline_o3_mini": "data/{benchmark}/model_answer/o3-mini-2025-01-31.jsonl",
    "arena-hard/baseline_gemini": "data/{benchmark}/model_answer/gemini-2.0-flash-001.jsonl",
}
"""Asset → where it lies in a checkout of the benchmark's repository."""

ARENA_BENCHMARK = "arena-hard-v2.0"
_ALPACA_DATASET = "tatsu-lab/alpaca_eval"
_ALPACA_FILE = "alpaca_eval_gpt4_baseline.json"


def given_files(task: str, flags: Flags) -> dict[str, Path]:
    """The user's own files by asset.

    Without a flag, an asset that the cache lacks is taken from a checkout below ``.external/`` of the
    working folder, where there is one.

    Raises
    ------
    UsageError
        a flag names what is not there, or cannot be fetched.
    """
    given: dict[str, Path] = {}
    match task:
        case "ifbench":
            given = _checkout(
                "--ifbench-dir", flags["ifbench_dir"], Path(".external/IFBench"), _IFBENCH_FILES
            )
        case "arena-hard":
            given = _arena(flags)
        case "alpaca-eval" if flags["alpaca_eval_hf_dataset"] not in (None, _ALPACA_DATASET):
            given["alpaca-eval/baseline"] = _from_hub(flags["alpaca_eval_hf_dataset"])
    if task in _FILES:
        asset, flag = _FILES[task]
        if (path := flags[flag]) is not None:
            given[asset] = _existing(f"--{flag.replace('_', '-')}", path)
    return given


def _arena(flags: Flags) -> dict[str, Path]:
    benchmark, folder = flags["arena_hard_benchmark"], flags["arena_hard_dir"]
    fallback = Path(".external/arena-hard-auto")
    if benchmark != ARENA_BENCHMARK and folder is None:
        if not fallback.is_dir():
            raise UsageError(
                f"--arena-hard-benchmark {benchmark}: only {ARENA_BENCHMARK} can be fetched; "
                "name a checkout that holds it with --arena-hard-dir"
            )
        folder = fallback
    files = {asset: path.format(benchmark=benchmark) for asset, path in _ARENA_FILES.items()}
    return _checkout("--arena-hard-dir", folder, fallback, files)


def _checkout(flag: str, folder: Path | None, fallback: Path, files: Mapping[str, str]) -> dict[str, Path]:
    if folder is not None:
        return {asset: _existing(flag, folder / path) for asset, path in files.items()}
    library = Library()
    return {
        asset: fallback / path
        for asset, path in files.items()
        if library.presence(asset)[0] is Presence.ABSENT and (fallback / path).is_file()
    }


def _existing(flag: str, path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"{flag}: there is no file {path}; correct it, or leave it out to use the fetched one"
        )
    return path


def _from_hub(repository: str) -> Path:
    """The reference outputs in another dataset of the hub, fetched into the cache at its newest revision."""
    hub = HUBS["huggingface"]
    path = hub.path.format(repo=repository, revision="main", path=_ALPACA_FILE)
    target = cache_folder() / "given" / repository.replace("/", "__") / _ALPACA_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    try:
        download(f"{os.environ.get(hub.variable) or hub.url}/{path}", partial, None, lambda _: None)
    except SourceFailed as error:
        raise UsageError(
            f"--alpaca-eval-hf-dataset {repository}: {error}; give the file with --alpaca-eval-reference"
        ) from error
    return partial.replace(target)
