"""Small experiments on simulated models: written to a file, run, and read back as a user would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp import web
from ruamel.yaml import YAML

import coeval
from coeval.api import Run, arun, load_config
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request
from coeval.engine.progress import Unwatched
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.plan.preview import forecast_start
from coeval.pipeline.run_options import RunOptions
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import RANGES

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

PHASES: tuple[Phase, ...] = ("data_generation", "response_collection", "evaluation")
TRAITS = {*RANGES, "family"}
FOLDERS = dict(zip(PHASES, ("phase3_datapoints", "phase4_responses", "phase5_evaluations"), strict=True))
ROLES = ("teacher", "student", "judge")


def model(name: str, *roles: str, **parameters: Any) -> dict[str, Any]:
    """A simulated model in all roles, or in those that are named."""
    return {
        "name": name,
        "interface": "simulated",
        "roles": list(roles or ROLES),
        "parameters": {"noise": 0.1, **parameters},
    }


def task(name: str = "story", *, total: int = 3, **changes: Any) -> dict[str, Any]:
    """A task with a static blueprint and two factors."""
    return {
        "name": name,
        "description": "Tell a short story.",
        "output_description": "A story.",
        "target_attributes": {"mood": ["glad", "sad"], "length": ["short", "long"]},
        "sampling": {"target": [1, 2], "total": total},
        "rubric": {"plot": "Things happen for a reason.", "style": "It reads well."},
        **changes,
    }


def quiz(name: str = "quiz", *, total: int = 3, **changes: Any) -> dict[str, Any]:
    """A task with a label, which is all that is scored."""
    label: dict[str, Any] = {
        "output_description": "One word: red or blue.",
        "target_attributes": {"colour": ["red", "blue"]},
        "label_attributes": ["colour"],
        "rubric": {"colour": "The right one."},
    }
    return task(name, total=total, **{**label, **changes})


@dataclass
class Lab:
    """An experiment file and the run it makes. Change the parts, then run (again)."""

    folder: Path
    models: list[dict[str, Any]] = field(default_factory=lambda: [model("ann"), model("ben")])
    tasks: list[dict[str, Any]] = field(default_factory=lambda: [task()])
    settings: dict[str, Any] = field(default_factory=dict)
    id: str = "exp"
    students: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """What is changed later is this experiment's own."""
        self.models, self.tasks = deepcopy(self.models), deepcopy(self.tasks)
        self.settings = deepcopy(self.settings)

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder / "runs" / self.id

    @property
    def file(self) -> Path:
        """The experiment file, written as the parts stand now; absent sections are left out."""
        experiment = {"id": self.id, "storage_folder": str(self.folder / "runs"), **self.settings}
        parts = {
            "models": self.models,
            "students": self.students,
            "tasks": self.tasks,
            "experiment": experiment,
        }
        path = self.folder / f"{self.id}.yaml"
        yaml = YAML(typ="safe", pure=True)
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        with path.open("w") as stream:
            yaml.dump({name: part for name, part in parts.items() if part}, stream)
        return path

    def run(self, **how: Any) -> Run:
        return coeval.run(self.file, **how)

    async def arun(self, **how: Any) -> Run:
        return await arun(self.file, **how)

    def lines(self, phase: Phase) -> list[dict[str, Any]]:
        """Every line of the phase's files as it stands, files by name."""
        files = sorted((self.path / FOLDERS[phase]).glob("*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_bytes().split(b"\n") if line.strip()]

    def records(self, phase: Phase) -> dict[str, dict[str, Any]]:
        """The last line of each id."""
        return {line["id"]: line for line in self.lines(phase)}

    def counts(self) -> tuple[int, ...]:
        """Lines per phase 3–5."""
        return tuple(len(self.lines(phase)) for phase in PHASES)

    def meta(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "meta.json").read_text())
        return found

    def edit(self, phase: Phase, key: str, **changes: Any) -> None:
        """Change a record on disk, as somebody with an editor would."""
        for path in (self.path / FOLDERS[phase]).glob("*.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            changed = [line | changes if line["id"] == key else line for line in lines]
            if changed != lines:
                path.write_text("".join(json.dumps(line) + "\n" for line in changed))
                return
        raise AssertionError(f"there is no record {key} in {self.path}")

    def lose(self, phase: Phase, key: str) -> None:
        """Take every line of a record away."""
        for path in (self.path / FOLDERS[phase]).glob("*.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if json.loads(line)["id"] != key))


class Notes(Unwatched):
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warnings: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def content(lab: Lab) -> dict[str, dict[str, Any]]:
    """All records without what differs between two equal runs: times and latencies."""
    times = {"generated_at", "evaluated_at", "latency_s"}
    return {
        key: {name: value for name, value in record.items() if name not in times}
        for phase in PHASES
        for key, record in lab.records(phase).items()
    }


def calls(lab: Lab, **options: Any) -> tuple[int, ...]:
    """What a dry run counts, by phase."""
    expected = forecast_start(load_config(lab.file), RunOptions(**options))
    found = [expected.sum_phase_calls(phase) for phase in ("attribute_mapping", "rubric_mapping", *PHASES)]
    assert all(each.low == each.high for each in found)
    return tuple(each.low for each in found)


@dataclass
class Requested:
    """The requests that simulated models of this process were asked, by model, without probes."""

    requests: list[tuple[str, Request]] = field(default_factory=list)

    def phases(self) -> tuple[int, ...]:
        """Requests per phase 1–5."""
        purposes = Counter(request.purpose for _, request in self.requests)
        return tuple(purposes[phase] for phase in ("attribute_mapping", "rubric_mapping", *PHASES))

    def models(self) -> set[str]:
        return {name for name, _ in self.requests}

    def clear(self) -> None:
        self.requests.clear()


def listen(patch: pytest.MonkeyPatch) -> Requested:
    """Note every request to a simulated model from now on."""
    requested = Requested()
    complete = SimulatedModel.complete

    async def noted(self: SimulatedModel, request: Request) -> Completion:
        if request.purpose != "probe":
            requested.requests.append((self.name, request))
        return await complete(self, request)

    patch.setattr(SimulatedModel, "complete", noted)
    return requested


@dataclass
class Host:
    """Simulated models served on loopback; ``bodies`` are the questions that came, probes left out."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)


@asynccontextmanager
async def served(models: Iterable[dict[str, Any]]) -> AsyncIterator[Host]:
    """Serve these models of an experiment, each under its name."""
    host = Host()

    @web.middleware
    async def noting(request: web.Request, handler: Handler) -> web.StreamResponse:
        body = json.loads(await request.read())
        if "single word: ok" not in body["messages"][-1]["content"]:
            host.bodies.append(body)
        return await handler(request)

    app = make_app([SimulatedModel(_spec(entry)) for entry in models])
    app.middlewares.append(noting)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield host
    finally:
        await runner.cleanup()


def over_http(entry: dict[str, Any], host: Host) -> dict[str, Any]:
    """The same model, asked through HTTP."""
    sampling = {name: value for name, value in entry["parameters"].items() if name not in TRAITS}
    return entry | {"interface": "vllm", "parameters": {**sampling, "base_url": host.url}}


def _spec(entry: dict[str, Any]) -> ModelSpec:
    options = {name: value for name, value in entry["parameters"].items() if name in TRAITS}
    name = entry["name"]
    return ModelSpec(name=name, interface="simulated", model=name, options=options)
