"""A small experiment on a host that may fail, and what a run of it left on disk."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from fakes.flaky_host import MODELS, PHASE_OF
from ruamel.yaml import YAML

from coeval.models.keys import Keys
from coeval.models.transport.http import Http
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.run import run_phases
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.run_session import RunSummary
from coeval.store.jsonl import read_whole_lines
from coeval.store.rundir import ErrorLine, RunDir

PHASES = ("data_generation", "response_collection", "evaluation")
HURRY = 300.0
"""How much faster than the wall's the clock of retries and outages runs."""


def experiment(
    folder: Path,
    url: str | None = None,
    *,
    total: int = 10,
    urls: Mapping[str, str] = MappingProxyType({}),
    parameters: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
) -> Path:
    """Write an experiment of ``total`` items × 2 students × 2 judges and one label; its file.

    Without ``url`` the models answer in the process itself; ``urls`` names another host for single
    ones. ``parameters``, ``settings`` and ``task`` are laid over those of models, run and task.
    """
    roles = {"data_generation": "teacher", "response_collection": "student", "evaluation": "judge"}
    shared = {"max_concurrency": 8, **({"base_url": url} if url else {}), **(parameters or {})}
    models = [
        {
            "name": name,
            "interface": "simulated",
            "roles": [roles[PHASE_OF[name]]],
            "parameters": shared | ({"base_url": urls[name]} if name in urls else {}),
        }
        for name in MODELS
    ]
    requested = {
        "name": "triage",
        "description": "Decide which team a message belongs to.",
        "output_description": "One word.",
        "target_attributes": {"team": ["billing", "technical"], "mood": ["calm", "annoyed", "hurried"]},
        "sampling": {"target": [1, 1], "total": total},
        "label_attributes": ["team"],
        "rubric": {"accuracy": "The team is right.", "brevity": "No word too many."},
        "rationale": False,  # what a judge may write at most is `max_tokens`, as written
        **(task or {}),
    }
    config = {
        "models": models,
        "tasks": [requested],
        "experiment": {
            "id": "run",
            "storage_folder": str(folder / "runs"),
            "probe_mode": "disable",
            **(settings or {}),
        },
    }
    path = folder / "experiment.yaml"
    with path.open("w") as file:
        YAML(typ="safe", pure=True).dump(config, file)
    return path


async def run(file: Path, *, hurried: bool = True, **options: Any) -> RunSummary:
    """Carry the experiment out in this process; ``hurried``: backoff takes no time worth the name."""
    http = Http(clock=lambda: time.monotonic() * HURRY, sleep=lambda s: asyncio.sleep(s / HURRY))
    keys = Keys.load(None, env={}, cwd=file.parent, home=file.parent)
    how = RunOptions(**options)
    config = read_config(file, start=how).config
    return await run_phases(config, how, keys=keys, http=http if hurried else None)


def folder_of(file: Path) -> RunDir:
    return RunDir(file.parent / "runs" / "run")


def records(folder: RunDir, phase: str) -> dict[str, dict[str, Any]]:
    """The last record of each id."""
    found = {}
    for path in folder.files(phase):
        for line in read_whole_lines(path):
            record = json.loads(line.text)
            found[record["id"]] = record
    return found


def good_lines(folder: RunDir) -> Counter[str]:
    """How many good lines each id of phases 3–5 has."""
    found: Counter[str] = Counter()
    for phase in PHASES:
        for path in folder.files(phase):
            for line in read_whole_lines(path):
                record = json.loads(line.text)
                found[record["id"]] += record.get("status", "ok") == "ok"
    return found


_OF_THE_MOMENT = frozenset({"generated_at", "evaluated_at", "latency_s", "attempts", "usage"})


def content(folder: RunDir) -> dict[str, dict[str, Any]]:
    """All records by id, without what differs from one run to the next."""
    return {
        key: {name: value for name, value in record.items() if name not in _OF_THE_MOMENT}
        for phase in PHASES
        for key, record in records(folder, phase).items()
    }


def errors(folder: RunDir) -> list[ErrorLine]:
    return [msgspec.json.decode(line.text, type=ErrorLine) for line in read_whole_lines(folder.errors)]
